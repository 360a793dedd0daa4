"""Whole stretches of a log, every leaf checked, and proven by a tree head kept elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from loom_audit.errors import Corrupt
from loom_audit.history.ground.log_end import LogEnd, cut_error, last_kept
from loom_audit.model.continuity import TREE_KINDS
from loom_audit.model.events import Event, FilesChanged, TreeHead
from loom_audit.model.stored.codec import parse_time
from loom_audit.ports import EventLog, Heads, Wanted


class _NoHeads:
    """Of a log of which it does not matter which heads were kept."""

    def kept(self) -> Sequence[TreeHead]:
        return ()

    def keep(self, head: TreeHead) -> None:
        return None


NO_HEADS = _NoHeads()


class ProvenLog(Struct, frozen=True):
    """One log, of which what is read is what was recorded, or Corrupt names the event.

    `heads` are those that are kept of it outside the store, `end` is where it ends. One that is
    `continuous` is of a folder, so that every change must apply to the tree before it; one that was
    imported is not.
    """

    log: EventLog
    heads: Heads
    end: LogEnd
    continuous: bool = True

    def head(self) -> int:
        """The seq of the last event. Corrupt where the tables tell of a later one."""
        return self.end.head()

    def check_end(self) -> None:
        """Corrupt also where the log is shorter than a head that was kept of it."""
        kept = last_kept(self.log, self.heads)  # before the log, which others may be writing
        head = self.head()
        if head < kept:
            raise cut_error(head, kept)

    def events(self, after: int, until: int, wanted: Wanted) -> Iterator[Event]:
        """The wanted events with `after < seq <= until`, in order of seq."""
        if until <= after:
            return
        self._prove(after, until)
        for event in self.log.stretch(after, until, wanted):
            fact = event.fact
            if isinstance(fact, FilesChanged) and fact.intention and fact.intention <= after:
                self.event(fact.intention)
            yield event

    def event(self, seq: int) -> Event:
        """One event. Corrupt where it is missing."""
        for event in self.events(seq - 1, seq, lambda _: True):
            return event
        raise Corrupt(f"Event {seq} is missing from the log", details={"seq": seq})

    def changes(self, after: int, until: int) -> Iterator[tuple[Event, FilesChanged]]:
        """The events that say how files changed, with what they say."""
        for event in self.events(after, until, changes_files):
            if isinstance(event.fact, FilesChanged):
                yield event, event.fact

    def folded(self, after: int, until: int) -> Iterator[Event]:
        """The events that trees are folded from."""
        return self.events(after, until, changes_trees)

    def around(self, at: datetime) -> tuple[int, int]:
        """The seq before the first event later than `at`, and the last event not later than it.

        0 when there is none. The two differ where clocks went back.
        """
        start, head = self.log.listed_before(at), self.head()
        if not 0 < start <= head or self.event(start).at > at:
            start = 0
        not_later, first_later = start, head + 1

        def note_time(envelope: Mapping[str, Any]) -> bool:
            nonlocal not_later, first_later
            if parse_time(envelope["at"]) <= at:
                not_later = int(envelope["seq"])
            else:
                first_later = min(first_later, int(envelope["seq"]))
            return False

        for _ in self.events(start, head, note_time):
            pass
        return (not_later if first_later > head else first_later - 1), not_later

    def _prove(self, after: int, until: int) -> None:
        """Corrupt unless the events are those that the heads were taken of, as far as these go.

        One head is enough: the first that is over all of them, or else the last.
        """
        size = self.head()
        own = (one for one in self.heads.kept() if one.log == self.log.id)
        kept = sorted((one for one in own if after < one.size <= size), key=lambda one: one.size)
        if kept:
            head = next((one for one in kept if one.size >= until), kept[-1])
            self.log.prove(after, min(until, head.size), head)


def changes_files(envelope: Mapping[str, Any]) -> bool:
    """Whether an event says how files changed, by its envelope."""
    return bool(envelope.get("kind") == FilesChanged.kind)


def changes_trees(envelope: Mapping[str, Any]) -> bool:
    """Whether trees are folded from an event, by its envelope."""
    return envelope.get("kind") in TREE_KINDS
