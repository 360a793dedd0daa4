"""What the overview says of the last week and of the words of sessions, kept while it holds."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from loom_audit.api.control.needs import MOST_ALLOWED, allowed_by_people, tally
from loom_audit.api.face import AuditedWorkspace
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
"""Sessions whose words are kept; the oldest go first."""


class Words(Struct, frozen=True):
    """What a session was told first, and what was said in it last; "" where nothing is found."""

    prompt: str = ""
    last: str = ""


class Lately:
    """What was found by now, by workspace and session. Any thread may ask."""

    def __init__(self) -> None:
        self._strips: dict[str, tuple[int, datetime, tuple[Mark, ...]]] = {}
        self._words: dict[tuple[str, str, int], Words] = {}

    def strip(self, workspace: AuditedWorkspace, head: int) -> tuple[Mark, ...]:
        """The numbers of the last week that are not zero; counted anew when something happened, and
        every hour.
        """
        now = datetime.now(UTC)
        known = self._strips.get(workspace.id)
        if known is None or known[0] != head or now - known[1] > timedelta(hours=1):
            known = head, now, _strip(workspace, now - timedelta(days=DAYS))
            self._strips[workspace.id] = known
        return known[2]

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
    return Words(prompt.text if prompt else "", last.text if last else "")


def _strip(workspace: AuditedWorkspace, since: datetime) -> tuple[Mark, ...]:
    counted = tally(workspace.timeline, since)
    counts = {
        "failed": counted.failed,
        "denied": counted.denied,
        "allowed": len(allowed_by_people(workspace.timeline, since)),
        "outside": counted.outside,
        "coverage": counted.partial,
    }
    most = {**dict.fromkeys(counts, TALLIED), "allowed": MOST_ALLOWED}

    def where(name: str) -> str:
        query = LISTS.get(name, ("only", name))
        return address("w", workspace.id, "calls", query=(query, ("days", DAYS)))

    return strip_of(counts, most, where)
