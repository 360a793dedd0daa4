"""What the overview says of the last week and of sessions, kept while it holds."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from loom_audit.api.control.flagged import FlaggedCalls
from loom_audit.api.control.needs import MOST_ALLOWED, allowed_by_people, tally
from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.lines import lines_of
from loom_audit.api.review.conversation import conversation_of
from loom_audit.model.records import TALLIED, Session
from loom_audit.web.shared.strip import Mark, strip_of
from loom_audit.web.shared.urls import address

DAYS = 7
LISTS = {
    "failed": ("status", "failed"),
    "denied": ("status", "denied"),
    "coverage": ("only", "partial"),
}
"""What narrows the list of calls to what the strip counts, where it is not `only` by that name."""
KEPT = 500
"""Sessions whose words and lines are kept; the oldest go first."""
AT_ONCE = 500
"""The number of events that are looked at while a page is made; where there are more, the page asks
later what stands out."""
MOST_CALLS = 5_000
"""The number of calls of a session over which its lines are not counted."""


class Words(Struct, frozen=True):
    """What a session was told first, and what was said in it last; "" where nothing is found.

    `subagents` is the number of sessions within it.
    """

    prompt: str = ""
    last: str = ""
    subagents: int = 0


class Week(Struct, frozen=True):
    """The numbers of the last week that are not zero; all of them where it is `whole`."""

    marks: tuple[Mark, ...] = ()
    whole: bool = True


class NetLines(Struct, frozen=True):
    """How many lines a session, with those within it, changed on balance."""

    added: int
    removed: int


class OverviewMemo:
    """The last week's numbers by workspace, words and lines by session: each is found anew when it
    holds no longer. Any thread may ask.
    """

    def __init__(self, flagged_calls: FlaggedCalls) -> None:
        self._flagged_calls = flagged_calls
        self._strips: dict[str, tuple[int, datetime, Week]] = {}
        self._words: dict[tuple[str, str, int], Words] = {}
        self._lines: dict[tuple[str, str, int], NetLines] = {}

    def strip(self, workspace: AuditedWorkspace, head: int, *, all: bool = False) -> Week:
        """The numbers of the last week; counted anew when something happened, and every hour.

        Without `all` those alone that are counted at once.
        """
        now = datetime.now(UTC)
        known = self._strips.get(workspace.id)
        holds = known is not None and known[0] == head and now - known[1] <= timedelta(hours=1)
        if known is None or not holds or (all and not known[2].whole):
            since = now - timedelta(days=DAYS)
            whole = all or self._flagged_calls.behind(workspace, since) <= AT_ONCE
            known = head, now, Week(self._strip(workspace, since, whole), whole)
            self._strips[workspace.id] = known
        return known[2]

    def _strip(self, workspace: AuditedWorkspace, since: datetime, whole: bool) -> tuple[Mark, ...]:
        counted = tally(workspace.timeline, since)
        counts = {
            "failed": counted.failed,
            "denied": counted.denied,
            "allowed": len(allowed_by_people(workspace.timeline, since)),
            "outside": counted.outside,
            "coverage": counted.partial,
        }
        most = {**dict.fromkeys(counts, TALLIED), "allowed": MOST_ALLOWED}
        if whole:
            counts |= self._flagged_calls.counts(workspace, since)

        def where(name: str) -> str:
            query = LISTS.get(name, ("only", name))
            return address("w", workspace.id, "calls", query=(query, ("days", DAYS)))

        return strip_of(counts, most, where)

    def known_lines(
        self, workspace: AuditedWorkspace, sessions: Sequence[Session], head: int
    ) -> Mapping[int, NetLines]:
        """What was counted of these sessions by now, by their first events."""
        return {
            one.started: lines
            for one in sessions
            if (lines := self._lines.get((workspace.id, one.id, one.ended or head)))
        }

    def lines(self, workspace: AuditedWorkspace, session: Session) -> NetLines | None:
        """The lines that a session changed on balance; None where it has too many calls. Corrupt.

        Counted once after its end, until then when something happened.
        """
        if session.calls > MOST_CALLS:
            return None
        end = session.ended or workspace.log.head()
        key = workspace.id, session.id, end
        found = self._lines.get(key)
        if found is None:
            lines = lines_of(workspace)
            net = lines.net(lines.of_session(session.id, until=end), paths=(), by_sums=True)
            found = self._lines[key] = NetLines(net.added, net.removed)
            while len(self._lines) > KEPT:
                self._lines.pop(next(iter(self._lines)), None)
        return found

    def words(
        self, workspace: AuditedWorkspace, sessions: Sequence[Session]
    ) -> Mapping[str, Words]:
        """The prompt and the last words of these sessions; looked for once after their end."""
        found = {}
        for one in sessions:
            key = workspace.id, one.id, one.ended or 0
            words = self._words.get(key)
            if words is None:
                words = _words(workspace, one)
                if one.ended is not None:
                    self._words[key] = words
            found[one.id] = words
        while len(self._words) > KEPT:
            self._words.pop(next(iter(self._words)), None)
        return found


def _words(workspace: AuditedWorkspace, session: Session) -> Words:
    conversation = conversation_of(workspace)
    prompt = conversation.first_asked(session.id)
    before = None if session.ended is None else session.ended + 1
    last = conversation.last_words(session.id, before=before)
    within = workspace.timeline.projections.sessions_within(session.id)
    return Words(prompt.text if prompt else "", last.text if last else "", len(within))
