"""What a file becomes when some of its steps are taken back and the others kept.

Kept steps are applied to what is left before them by a three-way merge of path, kind, mode and
content, each on its own. Consecutive kept steps count as one, so that what they undo among
themselves is not a conflict.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from typing import Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.model.files import BlobId, FileState
from loom_audit.model.plans.lineage import (
    InEffect,
    Lineage,
    LineageStep,
    PathState,
    by_calls_text,
    call_numbers,
)
from loom_audit.model.text.merge import MAX_BYTES, merge3

T = TypeVar("T")


class BlobReader(Protocol):
    """What a plan asks of the blob store."""

    def get(self, blob: BlobId) -> bytes:
        """The content of this hash, whole."""

    def __contains__(self, blob: BlobId) -> bool: ...

    def missing(self, blobs: Iterable[BlobId]) -> set[BlobId]:
        """The contents, of these, that are not stored."""


class MergeConflict(Struct, frozen=True):
    """Why a kept step cannot be applied; `missing` when a content to merge is not stored."""

    reason: str
    missing: bool = False


class KeptChange(Struct, frozen=True):
    """Kept steps that show in the result; without calls they came from outside."""

    reason: str
    calls: tuple[int, ...] = ()


class RebaseResult(Struct, frozen=True):
    """The path and state that are wanted, or the conflict, with the calls that cause it."""

    result: PathState
    kept_changes: tuple[KeptChange, ...] = ()
    conflict: MergeConflict | None = None
    calls: tuple[int, ...] = ()


class StateMerger(Struct):
    """Merges states; `merged` holds the merged contents, which are not stored yet.

    With `markers` conflicting texts are merged with conflict markers.
    """

    blobs: BlobReader
    merged: dict[BlobId, bytes] = field(default_factory=dict)

    def has(self, blob: BlobId | None) -> bool:
        """Whether a content is merged here or stored; what has no content needs none."""
        return blob is None or blob in self.merged or blob in self.blobs

    def missing(self, blobs: Iterable[BlobId]) -> set[BlobId]:
        """The contents, of these, that are neither merged here nor stored."""
        return self.blobs.missing(blob for blob in blobs if blob not in self.merged)

    def merge(
        self,
        base: PathState,
        ours: PathState,
        theirs: PathState,
        *,
        who: str = "",
        markers: bool = False,
    ) -> PathState | MergeConflict:
        """The kept change base → theirs applied to ours."""
        state = self._state(base.state, ours.state, theirs.state, who, markers)
        if isinstance(state, MergeConflict):
            return state
        path = _pick(base.path, ours.path, theirs.path)
        if path is None:
            # the path of an absent file does not matter
            return MergeConflict("moved again") if state is not None else PathState(ours.path, None)
        return PathState(path, state)

    def _state(
        self,
        base: FileState | None,
        ours: FileState | None,
        theirs: FileState | None,
        who: str,
        markers: bool,
    ) -> FileState | MergeConflict | None:
        if theirs in (base, ours):
            return ours
        if ours == base:
            return theirs
        if (_is_folder(ours) and theirs is None) or (ours is None and _is_folder(base, theirs)):
            # a folder is brought back, or kept, for what is in it
            return None
        if ours is None:
            return MergeConflict("made by what is taken back, changed")
        if theirs is None:
            return MergeConflict("deleted")
        if ours.kind != theirs.kind or (base is not None and base.kind != ours.kind):
            return MergeConflict("replaced")
        if ours.kind == "directory":
            mode = _pick(base.mode if base else None, ours.mode, theirs.mode)
            mode = theirs.mode if mode is None else mode
            return FileState("directory", None, mode, 0, acl=_has_acl(base, ours, theirs))
        mode = ours.mode if ours.mode == theirs.mode else None
        if base is not None:
            mode = _pick(base.mode, ours.mode, theirs.mode)
        if mode is None and not markers:
            return MergeConflict("mode changed")
        content = self._content(base, ours, theirs, who, markers)
        if isinstance(content, MergeConflict):
            return content
        blob, size = content
        mode = theirs.mode if mode is None else mode
        group = ours.group if base is not None and theirs.group == base.group else theirs.group
        return FileState(ours.kind, blob, mode, size, group, _has_acl(base, ours, theirs))

    def _content(
        self, base: FileState | None, ours: FileState, theirs: FileState, who: str, markers: bool
    ) -> tuple[BlobId | None, int] | MergeConflict:
        for side, other in ((ours, theirs), (theirs, ours)):
            if other.blob == side.blob or (base is not None and other.blob == base.blob):
                return side.blob, side.size
        if ours.kind == "symlink":
            return MergeConflict("pointed elsewhere")
        sides = [state for state in (base, ours, theirs) if state is not None]
        if any(state.size > MAX_BYTES for state in sides):
            return MergeConflict("changed, too large to merge,")
        if not all(self.has(state.blob) for state in sides):
            return MergeConflict("changed", missing=True)
        texts = [self._get(state.blob) for state in sides]
        old = texts[0] if base is not None else None
        merged = merge3(old, texts[-2], texts[-1], labels=("taken back", who or "later"))
        if merged is None:
            return MergeConflict("changed, not text to merge,")
        if merged.conflicts and not markers:
            return MergeConflict("same lines changed")
        blob = BlobId(sha256(merged.content).hexdigest())
        if blob not in self.blobs:
            self.merged[blob] = merged.content
        return blob, len(merged.content)

    def _get(self, blob: BlobId | None) -> bytes:
        if blob is None:
            return b""
        merged = self.merged.get(blob)
        return self.blobs.get(blob) if merged is None else merged


def rebase(lineage: Lineage, merger: StateMerger, *, markers: bool = False) -> RebaseResult:
    """Rebase the kept steps of a lineage onto its start, leaving out the taken ones.

    Where a kept one took others back, what is in effect then is what counts.
    """
    if lineage.in_effect and (found := _replay(lineage, lineage.in_effect, merger, markers)):
        return found
    kept = [not step.taken for step in lineage.steps]
    return _apply(lineage.start, lineage.steps, kept, merger, markers)


def _replay(
    lineage: Lineage, in_effect: InEffect, merger: StateMerger, markers: bool
) -> RebaseResult | None:
    """What is in effect once the plan is carried out, applied from the earliest step on.

    None where what is in effect now does not lead to what the file is now, or what was before a
    step that is taken back did not lead to what it was then: a step that took others back did not
    do just that, for a person chose what is left.
    """
    steps = lineage.all_steps()
    start = steps[0].before
    now = _apply(start, steps, in_effect.now, merger)
    if now.conflict or now.result != lineage.current:
        return None
    for n, stood in in_effect.before.items():
        was = _apply(start, steps[:n], stood, merger)
        if was.conflict or not _is_same(was.result, steps[n].before):
            return None
    after = _apply(start, steps, in_effect.after, merger, markers)
    earlier = {step.call for step in lineage.earlier}
    told = tuple(one for one in after.kept_changes if not earlier.issuperset(one.calls))
    return replace(after, kept_changes=told)


def _apply(
    start: PathState,
    steps: Sequence[LineageStep],
    kept: Sequence[bool],
    merger: StateMerger,
    markers: bool = False,
) -> RebaseResult:
    """What the kept ones of some steps make of what was there before them."""
    result = start
    kept_changes: list[KeptChange] = []
    for is_kept, group in groupby(zip(kept, steps, strict=True), key=itemgetter(0)):
        if not is_kept:
            continue
        run = [step for _, step in group]
        base, theirs = run[0].before, run[-1].after
        merged = merger.merge(base, result, theirs, who=_label_of(run), markers=markers)
        if isinstance(merged, MergeConflict):
            conflicting = _conflicting_steps(run, result, merger)
            conflict = MergeConflict(
                f"{merged.reason} later {_authors(conflicting)}", merged.missing
            )
            return RebaseResult(result, conflict=conflict, calls=call_numbers(conflicting))
        if merged.state != result.state or (merged.state and merged.path != result.path):
            kept_changes += _kept_changes(run, merged)
        result = merged
    return RebaseResult(result, tuple(kept_changes))


def _conflicting_steps(
    run: Sequence[LineageStep], result: PathState, merger: StateMerger
) -> Sequence[LineageStep]:
    """The first kept step that conflicts by itself, or all when only their sum does."""
    for step in (one for one in run if not one.cancels):
        merged = merger.merge(step.before, result, step.after)
        if isinstance(merged, MergeConflict):
            return [step]
        result = merged
    return run


def _kept_changes(run: Sequence[LineageStep], merged: PathState) -> list[KeptChange]:
    verb = "changed" if merged.state else "deleted"
    found = []
    came = [step for step in run if step.moved and step.after.state is not None]
    if came and merged.state:
        found.append(KeptChange(f"moved here from {came[-1].moved} outside, kept"))
    elif any(step.call is None for step in run):
        found.append(KeptChange(f"{verb} outside, kept"))
    calls = call_numbers(run)
    if calls:
        found.append(KeptChange(f"{verb} later, kept", calls))
    return found


def _authors(steps: Sequence[LineageStep]) -> str:
    """Who made the steps: `by call 7`, `from outside`, `by call 7 and from outside`."""
    outside = "from outside" if any(step.call is None for step in steps) else ""
    return " and ".join(filter(None, (by_calls_text(call_numbers(steps)), outside)))


def _label_of(steps: Sequence[LineageStep]) -> str:
    return _authors(steps).removeprefix("by ").removeprefix("from ")


def _has_acl(base: FileState | None, ours: FileState, theirs: FileState) -> bool:
    """Whether the list is there that one of the two brought, or neither took away."""
    if base is None:
        return ours.acl or theirs.acl
    return theirs.acl if ours.acl == base.acl else ours.acl


def _is_same(one: PathState, other: PathState) -> bool:
    # the path of an absent file does not matter
    return one.state == other.state and (one.state is None or one.path == other.path)


def _is_folder(*states: FileState | None) -> bool:
    return all(state is not None and state.kind == "directory" for state in states)


def _pick(base: T | None, ours: T, theirs: T) -> T | None:
    """The side that changed; None when both did, differently."""
    if theirs in (base, ours):
        return ours
    return theirs if ours == base else None
