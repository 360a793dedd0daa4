"""What a file becomes when some of its steps are taken back and the others kept.

Kept steps are put on top of what is left below them by a three-way merge of path, kind, mode
and content, each for itself. Kept steps in a row count as one, so that what they undo among
themselves is no conflict.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from typing import Protocol, TypeVar

from loom_audit.model.files import BlobId, FileState
from loom_audit.model.lineage import Leg, Lineage, Place, by_calls, numbers
from loom_audit.model.merge import MAX_BYTES, merge3

T = TypeVar("T")


class Contents(Protocol):
    """What a plan asks of the blob store."""

    def get(self, blob: BlobId) -> bytes: ...

    def __contains__(self, blob: BlobId) -> bool: ...

    def missing(self, blobs: Iterable[BlobId]) -> set[BlobId]: ...


@dataclass(frozen=True, slots=True)
class Clash:
    """Why a kept step cannot be put on top; `missing` when a content is not there to merge."""

    reason: str
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Survivor:
    """Kept steps that show in the result; no calls means the outside."""

    reason: str
    calls: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Rebased:
    """The place and state that are wanted, or why there is none, with the calls behind it."""

    result: Place
    survivors: tuple[Survivor, ...] = ()
    clash: Clash | None = None
    calls: tuple[int, ...] = ()


@dataclass(slots=True)
class Weaver:
    """Merges states; `made` holds the merged contents, which no store has yet.

    With `markers` conflicting texts are merged with conflict markers.
    """

    blobs: Contents
    made: dict[BlobId, bytes] = field(default_factory=dict)

    def has(self, blob: BlobId | None) -> bool:
        return blob is None or blob in self.made or blob in self.blobs

    def missing(self, blobs: Iterable[BlobId]) -> set[BlobId]:
        """Those that are neither made nor kept."""
        return self.blobs.missing(blob for blob in blobs if blob not in self.made)

    def place(
        self, base: Place, ours: Place, theirs: Place, *, who: str = "", markers: bool = False
    ) -> Place | Clash:
        """The kept change base → theirs put on top of ours."""
        state = self._state(base.state, ours.state, theirs.state, who, markers)
        if isinstance(state, Clash):
            return state
        path = _pick(base.path, ours.path, theirs.path)
        if path is None:
            # Where a file that is not there would be does not matter.
            return Clash("moved again") if state is not None else Place(ours.path, None)
        return Place(path, state)

    def _state(
        self,
        base: FileState | None,
        ours: FileState | None,
        theirs: FileState | None,
        who: str,
        markers: bool,
    ) -> FileState | Clash | None:
        if theirs in (base, ours):
            return ours
        if ours == base:
            return theirs
        if (_is_folder(ours) and theirs is None) or (ours is None and _is_folder(base, theirs)):
            # A folder is worth what is in it: that brings it back, or keeps it.
            return None
        if ours is None:
            return Clash("made by what is taken back, changed")
        if theirs is None:
            return Clash("deleted")
        if ours.kind != theirs.kind or (base is not None and base.kind != ours.kind):
            return Clash("replaced")
        if ours.kind == "directory":
            mode = _pick(base.mode if base else None, ours.mode, theirs.mode)
            return FileState("directory", None, theirs.mode if mode is None else mode, 0)
        mode = ours.mode if ours.mode == theirs.mode else None
        if base is not None:
            mode = _pick(base.mode, ours.mode, theirs.mode)
        if mode is None and not markers:
            return Clash("mode changed")
        content = self._content(base, ours, theirs, who, markers)
        if isinstance(content, Clash):
            return content
        blob, size = content
        return FileState(ours.kind, blob, theirs.mode if mode is None else mode, size)

    def _content(
        self, base: FileState | None, ours: FileState, theirs: FileState, who: str, markers: bool
    ) -> tuple[BlobId | None, int] | Clash:
        for side, other in ((ours, theirs), (theirs, ours)):
            if other.blob == side.blob or (base is not None and other.blob == base.blob):
                return side.blob, side.size
        if ours.kind == "symlink":
            return Clash("pointed elsewhere")
        sides = [state for state in (base, ours, theirs) if state is not None]
        if any(state.size > MAX_BYTES for state in sides):
            return Clash("changed, too large to merge,")
        if not all(self.has(state.blob) for state in sides):
            return Clash("changed", missing=True)
        texts = [self._get(state.blob) for state in sides]
        old = texts[0] if base is not None else None
        merged = merge3(old, texts[-2], texts[-1], labels=("taken back", who or "later"))
        if merged is None:
            return Clash("changed, not text to merge,")
        if merged.conflicts and not markers:
            return Clash("same lines changed")
        blob = BlobId(sha256(merged.content).hexdigest())
        if blob not in self.blobs:
            self.made[blob] = merged.content
        return blob, len(merged.content)

    def _get(self, blob: BlobId | None) -> bytes:
        if blob is None:
            return b""
        made = self.made.get(blob)
        return self.blobs.get(blob) if made is None else made


def rebase(lineage: Lineage, weaver: Weaver, *, markers: bool = False) -> Rebased:
    """The lineage without its taken steps."""
    result = lineage.start
    survivors: list[Survivor] = []
    for taken, group in groupby(lineage.legs, key=lambda leg: leg.taken):
        if taken:
            continue
        run = list(group)
        base, theirs = run[0].before, run[-1].after
        merged = weaver.place(base, result, theirs, who=_who(run), markers=markers)
        if isinstance(merged, Clash):
            guilty = _guilty(run, result, weaver)
            clash = Clash(f"{merged.reason} later {_by(guilty)}", merged.missing)
            return Rebased(result, clash=clash, calls=numbers(guilty))
        if merged != result:
            survivors += _survivors(run, merged)
        result = merged
    return Rebased(result, tuple(survivors))


def _guilty(run: Sequence[Leg], result: Place, weaver: Weaver) -> Sequence[Leg]:
    """The first kept step that does not fit by itself, or all when only their sum does not."""
    for leg in run:
        merged = weaver.place(leg.before, result, leg.after)
        if isinstance(merged, Clash):
            return [leg]
        result = merged
    return run


def _survivors(run: Sequence[Leg], merged: Place) -> list[Survivor]:
    verb = "changed" if merged.state else "deleted"
    found = []
    if any(leg.call is None for leg in run):
        found.append(Survivor(f"{verb} outside, kept"))
    calls = numbers(run)
    if calls:
        found.append(Survivor(f"{verb} later, kept", calls))
    return found


def _by(legs: Sequence[Leg]) -> str:
    """Who made the steps: `by call 7`, `from outside`, `by call 7 and from outside`."""
    outside = "from outside" if any(leg.call is None for leg in legs) else ""
    return " and ".join(filter(None, (by_calls(numbers(legs)), outside)))


def _who(legs: Sequence[Leg]) -> str:
    return _by(legs).removeprefix("by ").removeprefix("from ")


def _is_folder(*states: FileState | None) -> bool:
    return all(state is not None and state.kind == "directory" for state in states)


def _pick(base: T | None, ours: T, theirs: T) -> T | None:
    """The side that changed; None when both did, differently."""
    if theirs in (base, ours):
        return ours
    return theirs if ours == base else None
