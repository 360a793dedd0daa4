"""The recorded versions of a file, each with who made it, along the file's line of descent."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from loom_audit.model.files import FileState
from loom_audit.model.text.display import first_few

WriterKind = Literal["call", "outside", "one of", "unknown"]


class Writer(Struct, frozen=True):
    """Who made a recorded change of a file, which the event `event` has.

    A "call" is named by its number, or by its request while it is `open`. "one of" several `calls`
    may have made it, 0 stands for one that is not on record, or it came from `outside`. "unknown":
    what stood before the event is not known, for this `reason`.
    """

    kind: WriterKind
    event: int
    at: datetime
    call: int = 0
    open: bool = False
    session: str = ""
    actor: str = ""
    calls: tuple[int, ...] = ()
    outside: bool = False
    reason: str = ""

    @property
    def text(self) -> str:
        """Who it was in a few words: `#12`, `outside, #7`, `one of #12, #14`."""
        if self.kind == "call":
            return f"#{self.call}"
        if self.kind == "outside":
            return f"outside, #{self.event}"
        if self.kind == "unknown":
            return f"not known before #{self.event}"
        named = [f"#{call}" if call else "one not on record" for call in self.calls]
        return f"one of {first_few([*named, *['outside'] * self.outside], 4)}"


class TookBack(Struct, frozen=True):
    """What an undo, redo or rollback took back: calls and events by their numbers, or all that came
    after a `point`.
    """

    numbers: frozenset[int] = frozenset()
    point: int | None = None

    def reaches(self, seq: int) -> bool:
        """Whether what happened up to an event was taken back, or may have been."""
        if self.point is not None:
            return self.point < seq
        return any(number <= seq for number in self.numbers)

    def reaches_back_to(self, seq: int) -> bool:
        """Whether an event is not older than all that was taken back."""
        if self.point is not None:
            return self.point < seq
        return seq >= min(self.numbers, default=seq + 1)


class Version(Struct, frozen=True):
    """One recorded step of a file: what it was, maybe at another path, and what it became.

    `requested` is the request of the call that made it; `candidates` are those of the calls of
    which one did, where that is not sure. With a `gap` the state before is not the one that the
    version before has: what happened between is not known, for this reason.
    """

    seq: int
    path: str
    after: FileState | None
    old_path: str
    before: FileState | None
    writer: Writer
    requested: int | None = None
    candidates: tuple[int, ...] = ()
    taken_back: TookBack | None = None
    gap: str = ""


class BroughtBack(Struct, frozen=True):
    """Where the content of an undo's version stood before, by the index of a version.

    -1 is the state before the first one. `same`: the whole content is the one that stood there;
    else it was merged of that one and of the version just before.
    """

    index: int
    same: bool


def brought_back(versions: Sequence[Version], n: int) -> BroughtBack | None:
    """Return where what the version `n` brought back had stood; None where it brought nothing."""
    one = versions[n]
    if one.taken_back is None or one.after is None or has_same_content(one.after, one.before):
        return None
    side = _before_taken(versions, n, one.taken_back)
    if side is not None and has_same_content(one.after, _state(versions, side)):
        return BroughtBack(side, same=True)
    for index in range(n - 1, -2, -1):
        if has_same_content(one.after, _state(versions, index)):
            return BroughtBack(index, same=True)
    return None if side is None else BroughtBack(side, same=False)


def _before_taken(versions: Sequence[Version], n: int, taken: TookBack) -> int | None:
    """The version before the first of those that were taken back."""
    for index, one in enumerate(versions[:n]):
        if taken.point is not None:
            if one.seq > taken.point:
                return index - 1
        elif one.seq in taken.numbers or (one.writer.call and one.writer.call in taken.numbers):
            return index - 1
    return None


def _state(versions: Sequence[Version], index: int) -> FileState | None:
    return versions[index].after if index >= 0 else versions[0].before


def has_same_content(one: FileState | None, other: FileState | None) -> bool:
    """Whether two states have the same content."""
    if one is None or other is None:
        return False
    return one.blob is not None and (one.kind, one.blob) == (other.kind, other.blob)
