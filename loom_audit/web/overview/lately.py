"""What the overview says of the last week and of the words of sessions, kept while it holds."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from loom_audit.api.control.needs import MOST_ALLOWED, allowed_by_people, tally
from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.review.conversation import conversation_of
from loom_audit.model.records import TALLIED, Session
from loom_audit.web.shared.urls import address

DAYS = 7
KEPT = 500
"""Sessions whose words are kept; the oldest go first."""


class Item(Struct, frozen=True):
    """A number of the strip with what it counts, and where that is listed."""

    count: str
    what: str
    link: str
    style: str


class Words(Struct, frozen=True):
    """What a session was told first, and what was said in it last; "" where nothing is found."""

    prompt: str = ""
    last: str = ""


class Lately:
    """What was found by now, by workspace and session. Any thread may ask."""

    def __init__(self) -> None:
        self._strips: dict[str, tuple[int, datetime, tuple[Item, ...]]] = {}
        self._words: dict[tuple[str, str, int], Words] = {}

    def strip(self, workspace: AuditedWorkspace, head: int) -> tuple[Item, ...]:
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


def _strip(workspace: AuditedWorkspace, since: datetime) -> tuple[Item, ...]:
    counted = tally(workspace.timeline, since)
    allowed = allowed_by_people(workspace.timeline, since)
    found = (
        (counted.failed, TALLIED, "failed", ("status", "failed"), "stop"),
        (counted.denied, TALLIED, "of them denied", ("status", "denied"), "stop"),
        (len(allowed), MOST_ALLOWED, "allowed by a person", ("only", "allowed"), ""),
        (counted.outside, TALLIED, "changes from outside", ("only", "outside"), "warn"),
        (counted.partial, TALLIED, "not covered in full", ("only", "partial"), "warn"),
    )
    return tuple(
        Item(
            count=f"{most:,}+" if count > most else f"{count:,}",
            what=what.replace("changes", "change") if count == 1 else what,
            link=address("w", workspace.id, "calls", query=(query, ("days", DAYS))),
            style=style,
        )
        for count, most, what, query, style in found
        if count
    )
