"""Whether what a call changed is still as the call left it, path by path, as lists have it."""

from collections.abc import Sequence

from msgspec import Struct

from loom_audit.model.files import FileChange, FileState
from loom_audit.model.records import RecordedChange
from loom_audit.ports import Projections


class Aftermath(Struct, frozen=True):
    """A path that a call changed: which change of it came `next`, and which is the `last` of all.

    Both are None where nothing changed the path since. `lost`: it is not recorded any more, or was
    listed anew, and what is there now is another state than the last change left.
    """

    change: FileChange
    next: RecordedChange | None = None
    last: RecordedChange | None = None
    lost: bool = False

    @property
    def path(self) -> str:
        """The path that the call changed."""
        return self.change.path

    @property
    def stands(self) -> bool:
        """Whether the path is as the call left it, also where it was otherwise in between."""
        if self.lost:
            return False
        return self.last is None or self.last.change.after == self.change.after


def aftermath(
    projections: Projections, changes: Sequence[FileChange], recorded: Sequence[RecordedChange]
) -> list[Aftermath]:
    """What became of these changes of a call, in their order; `recorded` are the call's as lists
    have them.
    """
    left = {one.change.path: one.seq for one in sorted(recorded, key=lambda one: one.seq)}
    ends: dict[str, tuple[RecordedChange, RecordedChange]] = {}
    for seq in {left[change.path] for change in changes}:
        # while the call went on others may have changed what it had left already
        paths = [change.path for change in changes if left[change.path] == seq]
        ends.update(projections.ends(paths, seq))
    return [
        _became(change, ends.get(change.path), projections.state(change.path)) for change in changes
    ]


def _became(
    change: FileChange, ends: tuple[RecordedChange, RecordedChange] | None, now: FileState | None
) -> Aftermath:
    first, last = ends or (None, None)
    after = last.change.after if last else change.after
    lost = now is None if after is not None else now is not None
    if now is not None and after is not None:
        lost = (now.kind, now.blob, now.mode) != (after.kind, after.blob, after.mode)
    return Aftermath(change, first, last, lost)
