"""The numbers of the calls of a log, counted back from its end by the log itself."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from loom_audit.errors import NotFound
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.model.events import CallFinished, CallRequested
from loom_audit.model.text.display import count_text

_PER_CALL = 4
"""The number of events that are read first for each call which is looked for; then it doubles."""
_LEAST, _MOST = 100, 16_000


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

    Every event of what is counted is read and checked once; what was counted is kept in this
    process, and only what the log has more is read again.
    """

    def __init__(self, proven: ProvenLog) -> None:
        self._proven = proven
        self._counted: _Counted | None = None

    def back(self, count: int) -> int:
        """The point so many calls before the last one that ended, 1 or more: where the one before
        them ended, or before the first request. NotFound where there are fewer calls; Corrupt.
        """
        head = self._proven.head()
        counted = self._counted
        if counted is None or counted.until > head:
            counted = _Counted(head, head)
        if counted.until < head:
            counted = _joined(counted, self._read(counted.until, head))
        size = min(max(_LEAST, _PER_CALL * count), _MOST)
        while len(counted.numbers) <= count and counted.after:
            counted = _joined(self._read(max(0, counted.after - size), counted.after), counted)
            size = min(2 * size, _MOST)
        self._counted = counted
        if count < len(counted.numbers):
            return counted.numbers[count]
        if count == len(counted.numbers):
            return counted.first - 1
        known = count_text(len(counted.numbers), "call")
        raise NotFound(f"head~{count} does not exist", hint=f"On record: {known}.")

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
