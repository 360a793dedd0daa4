"""Stretches of a log, whole and with every leaf checked, proven by a tree head kept elsewhere."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """No heads: for a read of a log that need not be proven."""

    def kept(self) -> Sequence[TreeHead]:
        return ()

    def keep(self, head: TreeHead) -> None:
        return None


NO_HEADS = _NoHeads()
"""For a `ProvenLog` whose reads are compared with no kept head."""


class ProvenLog(Struct, frozen=True):
    """Reads one log so that what it gives is what was recorded; else Corrupt names the event.

    `heads` are the tree heads that are kept of the log outside the store, `end` tells where it
    ends. In a `continuous` log, which is of a folder, every change must apply to the tree before
    it. An imported log is not continuous.
    """

    log: EventLog
    heads: Heads
    end: LogEnd
    continuous: bool = True

    def head(self) -> int:
        """The seq of the last event. Corrupt where the tables have followed a later one."""
        return self.end.head()

    def check_end(self) -> None:
        """Refuse a log that is shorter than a head that was kept of it, or than its tables have
        followed: Corrupt.
        """
        kept = last_kept(self.log, self.heads)  # before the log, which others may be writing
        head = self.head()
        if head < kept:
            raise cut_error(head, kept)

    def events(self, after: int, until: int, wanted: Wanted) -> Iterator[Event]:
        """The wanted events with `after < seq <= until`, in order of seq. Corrupt."""
        if until <= after:
            return
        self._prove(after, until, self._kept())
        yield from self._stretch(after, until, wanted)

    def largest_head(self) -> TreeHead | None:
        """The kept head over most events, of those that are not over more than there are."""
        kept = self._kept()  # before the log, which others may be writing
        size = self.head()
        return next((one for one in reversed(kept) if one.size <= size), None)

    def _stretch(self, after: int, until: int, wanted: Wanted) -> Iterator[Event]:
        for event in self.log.stretch(after, until, wanted):
            fact = event.fact
            # the changes of such an event are those of its intention, which must be checked too
            if isinstance(fact, FilesChanged) and fact.intention and fact.intention <= after:
                self.event(fact.intention)
            yield event

    def event(self, seq: int) -> Event:
        """One event. Corrupt where it is missing."""
        for event in self.events(seq - 1, seq, lambda _: True):
            return event
        raise Corrupt(f"Event {seq} is missing from the log", details={"seq": seq})

    def several(self, spans: Iterable[tuple[int, int]], wanted: Wanted) -> Iterator[Event]:
        """As `events`, of several spans `after` to `until`. Corrupt."""
        kept = self._kept()
        for after, until in spans:
            self._prove(after, until, kept)
            yield from self._stretch(after, until, wanted)

    def changes(self, after: int, until: int) -> Iterator[tuple[Event, FilesChanged]]:
        """The events of a stretch that say how files changed, each with its fact. Corrupt."""
        for event in self.events(after, until, changes_files):
            if isinstance(event.fact, FilesChanged):
                yield event, event.fact

    def folded(self, after: int, until: int) -> Iterator[Event]:
        """The events of a stretch from which trees are folded. Corrupt."""
        return self.events(after, until, changes_trees)

    def around(self, at: datetime) -> tuple[int, int]:
        """The seq before the first event that is later than `at`, and the seq of the last event
        that is not later; 0 for none. They differ where clocks went back. Corrupt.
        """
        # the rows only suggest where to begin; where they are wrong, it is the log's start
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

    def _kept(self) -> Sequence[TreeHead]:
        """The heads that were kept of this log, the smallest first."""
        own = (one for one in self.heads.kept() if one.log == self.log.id)
        return sorted(own, key=lambda one: one.size)

    def _prove(self, after: int, until: int, kept: Sequence[TreeHead]) -> None:
        """Refuse events that are not those of the kept heads, as far as the heads go: Corrupt.

        One head is enough, the first that is over the whole stretch, else the last: it holds all
        events before it.
        """
        size = self.head()
        known = [one for one in kept if after < one.size <= size]
        if known:
            head = next((one for one in known if one.size >= until), known[-1])
            self.log.prove(after, min(until, head.size), head)


def changes_files(envelope: Mapping[str, Any]) -> bool:
    """Whether an event says how files changed, by its envelope."""
    return bool(envelope.get("kind") == FilesChanged.kind)


def changes_trees(envelope: Mapping[str, Any]) -> bool:
    """Whether trees are folded from an event, by its envelope."""
    return envelope.get("kind") in TREE_KINDS
