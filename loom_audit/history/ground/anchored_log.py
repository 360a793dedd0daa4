"""A log that keeps its tree heads elsewhere as it grows."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from loom_audit.errors import AuditError
from loom_audit.model.events import Draft, Event, SessionEnded, TreeHead
from loom_audit.ports import EventFilter, EventLog, Heads, Wanted

HEAD_EVENTS = 256
"""A head is kept when the log has grown past a multiple of so many events."""


class AnchoredLog:
    """An `EventLog` on another one.

    At each session's end and every 256 events its head is kept.
    """

    def __init__(self, log: EventLog, heads: Heads) -> None:
        self._log = log
        self._heads = heads

    @property
    def id(self) -> str:
        return self._log.id

    def append(self, drafts: Sequence[Draft]) -> Sequence[Event]:
        """As the other log's; what is done beside it never fails an append that is durable."""
        events = self._log.append(drafts)
        if not events:
            return events
        before, head = events[0].seq - 1, events[-1].seq
        due = before // HEAD_EVENTS != head // HEAD_EVENTS
        # what fails is tried again at the next multiple, and told by who reads or verifies
        if due or any(isinstance(draft.fact, SessionEnded) for draft in drafts):
            with suppress(AuditError):
                self._heads.keep(self._log.tree_head())
        return events

    def read(self, filter: EventFilter = EventFilter()) -> Iterator[Event]:
        return self._log.read(filter)

    def stretch(self, after: int, until: int, wanted: Wanted) -> Iterator[Event]:
        return self._log.stretch(after, until, wanted)

    def prove(self, after: int, until: int, head: TreeHead) -> None:
        self._log.prove(after, until, head)

    def head(self) -> int:
        return self._log.head()

    def newest(self, kinds: Sequence[str], after: int) -> tuple[int, int]:
        return self._log.newest(kinds, after)

    def tree_head(self) -> TreeHead:
        return self._log.tree_head()

    def listed_before(self, at: datetime) -> int:
        return self._log.listed_before(at)
