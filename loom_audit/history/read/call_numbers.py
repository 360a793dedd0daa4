"""The numbers of the calls of a log, counted back from its end by the log itself."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from loom_audit.errors import Corrupt, NotFound
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.history.read.kept_counts import CountedBlock, KeptCounts
from loom_audit.model.events import CallFinished, CallRequested, TreeHead
from loom_audit.model.text.display import count_text
from loom_audit.ports import BLOCK

_PER_CALL = 4
"""The number of events that are read first for each call which is looked for; then it doubles."""
_LEAST, _MOST = 100, 16_000
_NEAR = 100
"""Up to so many calls back all events are read; further ones are counted by whole blocks."""
_AT_ONCE = 256
"""Blocks of which the kept counts are asked for together."""


class _Counted(Struct, frozen=True):
    """The calls of a stretch of the log, `after < seq <= until`: the numbers of those that ended in
    it, the newest first, and the first request in it, 0 for none.
    """

    after: int
    until: int
    numbers: tuple[int, ...] = ()
    first: int = 0


class CallNumbers:
    """Counts the calls of one log back from its end.

    Every event of what is counted is read and checked once. What was counted of the end is kept in
    this process, and only what the log has more is read again; what was counted of blocks that a
    kept head proves is kept among the caches. The block in which a point lies is read each time,
    and where it has other calls than were kept of it, no kept count is believed.
    """

    def __init__(self, proven: ProvenLog, kept: KeptCounts) -> None:
        self._proven = proven
        self._kept = kept
        self._counted: _Counted | None = None

    def back(self, count: int) -> int:
        """The point so many calls before the last one that ended: where the one before them ended,
        or before the first request; the end of the log for 0. NotFound where there are fewer calls;
        Corrupt.
        """
        head = self._proven.head()
        if not count:
            return head
        proven = self._proven.largest_head()
        end = self._read_end(count, head, proven.size if proven and count > _NEAR else 0)
        if count < len(end.numbers):
            return end.numbers[count]
        found = self._before(end, count, proven, believed=True)
        if found is None:
            found = self._before(end, count, proven, believed=False)
        if found is None:
            raise Corrupt(
                "Calls ended in the log and none was requested",
                hint="Run `loom-audit verify`: it says what differs.",
            )
        return found

    def _read_end(self, count: int, head: int, until: int) -> _Counted:
        """The end of the log, with more numbers than `count` or from the begin of a block on that
        is not behind `until`. Corrupt.
        """
        counted = self._counted
        if counted is None or counted.until > head:
            counted = _Counted(head, head)
        if counted.until < head:
            counted = _joined(counted, self._read(counted.until, head))
        begin = min(until, counted.after) // BLOCK * BLOCK
        size = min(max(_LEAST, _PER_CALL * count), _MOST)
        while len(counted.numbers) <= count and counted.after > begin:
            counted = _joined(self._read(max(begin, counted.after - size), counted.after), counted)
            size = min(2 * size, _MOST)
        self._counted = counted
        return counted

    def _before(
        self, end: _Counted, count: int, proven: TreeHead | None, *, believed: bool
    ) -> int | None:
        """The point that lies before what was read of the end, which is behind whole blocks.

        None where kept counts were `believed` that are wrong. NotFound, Corrupt.
        """
        left = count - len(end.numbers)
        made: dict[bytes, CountedBlock] = {}
        place = begun = None
        for n, block in self._blocks(end.after // BLOCK, proven, made, believed=believed):
            if left < block.ended:
                place = n, block.ended
                break
            left -= block.ended
            begun = n if block.begun else begun
        self._kept.keep(made)
        if place is not None:
            numbers = self._read_block(place[0]).numbers
            return numbers[left] if len(numbers) == place[1] else None
        if left:
            known = count_text(count - left, "call")
            raise NotFound(f"head~{count} does not exist", hint=f"On record: {known}.")
        first = end.first if begun is None else self._read_block(begun).first
        return first - 1 if first else None

    def _blocks(
        self,
        end: int,
        proven: TreeHead | None,
        made: dict[bytes, CountedBlock],
        *,
        believed: bool,
    ) -> Iterator[tuple[int, CountedBlock]]:
        """The blocks before one, the newest first; `made` gets those that had to be read."""
        while end and proven is not None:
            start = max(0, end - _AT_ONCE)
            hashes = self._proven.log.blocks(start, end, proven)
            known = self._kept.known(hashes) if believed else {}
            for n in reversed(range(start, end)):
                hashed = hashes[n - start]
                if hashed not in known:
                    read = self._read_block(n)
                    known[hashed] = made[hashed] = CountedBlock(len(read.numbers), read.first > 0)
                yield n, known[hashed]
            end = start

    def _read_block(self, n: int) -> _Counted:
        return self._read(n * BLOCK, (n + 1) * BLOCK)

    def _read(self, after: int, until: int) -> _Counted:
        """Count a stretch; of the calls only where they begin and end is read. Corrupt."""
        numbers: list[int] = []
        first = 0

        def note(envelope: Mapping[str, Any]) -> bool:
            nonlocal first
            kind = envelope.get("kind")
            if kind == CallFinished.kind:
                numbers.append(int(envelope["seq"]))
            elif kind == CallRequested.kind:
                first = first or int(envelope["seq"])
            return False

        for _ in self._proven.events(after, until, note):
            pass
        return _Counted(after, until, tuple(reversed(numbers)), first)


def _joined(earlier: _Counted, later: _Counted) -> _Counted:
    numbers = (*later.numbers, *earlier.numbers)
    return _Counted(earlier.after, later.until, numbers, earlier.first or later.first)
