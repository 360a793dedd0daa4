"""Moves in a scan that is recorded in parts: both ends of one have to be in the same part."""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field

from loom_audit.model.files import FileChange, Move, parents

_WITHOUT_CONTENT = ("directory", "opaque")


class HeldDeletions:
    """Deletions that wait until it is known where their files are, or for the last part.

    Those of folders wait with what was in them.
    """

    def __init__(self) -> None:
        self._files: dict[str, list[FileChange]] = {}
        self._folders: list[FileChange] = []

    def hold(self, change: FileChange, identity: str) -> bool:
        """Hold the deletion of a file of this identity; False when it need not wait."""
        if not identity or change.before is None or change.before.kind in _WITHOUT_CONTENT:
            return False
        self._files.setdefault(identity, []).append(change)
        return True

    def without_folders(
        self, changes: Iterable[FileChange], moves: Iterable[Move]
    ) -> list[FileChange]:
        """The changes without the deletions of folders, which are held, unless they were moved."""
        moved = {move.source for move in moves}
        left: list[FileChange] = []
        for change in changes:
            gone = change.before and change.before.kind == "directory" and change.after is None
            (self._folders if gone and change.path not in moved else left).append(change)
        return left

    def release(self, identity: str, path: str) -> list[FileChange]:
        """The deletion that belongs to what is found at a path, if one is held."""
        waiting = self._files.get(identity)
        if not waiting:
            return []
        name = path.rpartition("/")[2]
        same = (one for one in waiting if one.path.rpartition("/")[2] == name)
        found = next(same, waiting[0])
        waiting.remove(found)
        return [found]

    def release_below(self, folders: Collection[str]) -> list[FileChange]:
        """The deletions below folders that are none any more, which cannot wait."""
        if not folders:
            return []
        kept_folders, found = _divided(self._folders, folders)
        self._folders = kept_folders
        for identity, waiting in [*self._files.items()]:
            self._files[identity], released = _divided(waiting, folders)
            found += released
        return found

    def rest(self) -> list[FileChange]:
        """All that is still held."""
        held = [*self._folders, *(one for waiting in self._files.values() for one in waiting)]
        self._files.clear()
        self._folders.clear()
        return held


def _divided(
    changes: Iterable[FileChange], folders: Collection[str]
) -> tuple[list[FileChange], list[FileChange]]:
    """Those that are not below these folders, and those that are."""
    apart: list[FileChange] = []
    below: list[FileChange] = []
    for change in changes:
        (apart if set(parents(change.path)).isdisjoint(folders) else below).append(change)
    return apart, below


class LooseEnds(Struct):
    """The files that left a path in a part, and those that came to one, without the other end."""

    left: set[str] = field(default_factory=set)
    came: dict[str, str] = field(default_factory=dict)

    def add(
        self,
        changes: Iterable[FileChange],
        moves: Iterable[Move],
        was: Mapping[str, str],
        now: Mapping[str, str],
    ) -> list[str]:
        """Add those of another part; where moves ended of which the other end was in an earlier.

        `was` and `now` are the identities before and after, by path.
        """
        ends = {("from", move.source) for move in moves} | {("to", move.target) for move in moves}
        left: set[str] = set()
        came: dict[str, str] = {}
        for change in changes:
            path, old, new = change.path, was.get(change.path, ""), now.get(change.path, "")
            states = [state for state in (change.before, change.after) if state]
            if old == new or any(state.kind in _WITHOUT_CONTENT for state in states):
                continue
            if old and ("from", path) not in ends:
                left.add(old)
            if new and ("to", path) not in ends:
                came[new] = path
        apart = [self.came.pop(old) for old in left & self.came.keys()]
        apart += [came.pop(new) for new in self.left & came.keys()]
        self.left |= left
        self.came |= came
        return apart
