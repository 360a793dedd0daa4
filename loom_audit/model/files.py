"""Files as the log knows them: states, changes, trees.

Paths are workspace-relative POSIX strings without a leading or trailing slash; names that are
not UTF-8 carry surrogates (PEP 383), so `path.encode("utf-8", "surrogateescape")` gives the
bytes on disk. Every directory has an entry, except the root.
"""

import stat
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NewType, TypeGuard, TypeVar

from msgspec import Struct

Key = TypeVar("Key")

BlobId = NewType("BlobId", str)
"""SHA-256 of the content, 64 lower-case hex digits."""

Kind = Literal["file", "symlink", "directory", "opaque"]
"""`opaque`: a folder of which only name and identity are recorded, not what is inside."""

EPOCH_DIGITS = 12
"""How many digits of an identity stand for the boot and the mount in which it holds."""


class FileState(Struct, frozen=True):
    """The state of a path at one moment.

    `mode` holds the permission bits only (0o7777); a symlink's blob is its target's bytes and
    its mode 0o777; a directory's blob is None and its size 0; of an opaque one mode is 0 too.
    All names of one inode have the same `group`, None where there is one name. `acl`: an access
    control list was there. `identity` says which file it is on its machine, "" where that was not
    asked; states that differ in it alone are equal.
    """

    kind: Kind
    blob: BlobId | None
    mode: int
    size: int
    group: int | None = None
    acl: bool = False
    identity: str = ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileState):
            return NotImplemented
        # field by field: most that differ do so in the first, and a plan compares many
        return self is other or (
            self.blob == other.blob
            and self.kind == other.kind
            and self.mode == other.mode
            and self.size == other.size
            and self.group == other.group
            and self.acl == other.acl
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.blob, self.mode, self.size, self.group, self.acl))


Tree = Mapping[str, FileState]


class FileChange(Struct, frozen=True):
    """One path before and after; `None` means absent."""

    path: str
    before: FileState | None
    after: FileState | None


class Move(Struct, frozen=True):
    """A file that was at one path and is at another since the same event; not only an equal one.

    In events of before 0.3.0 it may be a guess by equal content.
    """

    source: str
    target: str


def apply(tree: Tree, changes: Iterable[FileChange]) -> dict[str, FileState]:
    """Return the tree after the changes; `before` of a change is not compared with the tree."""
    result = dict(tree)
    follow(result, changes)
    return result


def follow(tree: dict[str, FileState], changes: Iterable[FileChange]) -> None:
    """Change a tree by the changes, in place; `before` of a change is not compared with it."""
    for change in changes:
        if change.after is None:
            tree.pop(change.path, None)
        else:
            tree[change.path] = change.after


def diff(old: Tree, new: Tree) -> tuple[FileChange, ...]:
    """Return the changes that lead from the old tree to the new, ordered by path."""
    changes = [
        FileChange(path, state, new.get(path))
        for path, state in old.items()
        if new.get(path) != state
    ]
    changes += [FileChange(path, None, state) for path, state in new.items() if path not in old]
    return tuple(sorted(changes, key=lambda change: change.path))


def is_opaque(state: FileState | None) -> TypeGuard[FileState]:
    """Return whether a state is an opaque entry, whose inside is not on record."""
    return state is not None and state.kind == "opaque"


def is_directory(state: FileState | None) -> bool:
    """Return whether a state is a folder whose inside is on record."""
    return state is not None and state.kind == "directory"


def mode_after_write(mode: int) -> int:
    """Return the mode of a file once its content changed, as the kernel sets it.

    Set-user-ID falls, set-group-ID where the group may execute the file.
    """
    falls = stat.S_ISUID | (stat.S_ISGID if mode & stat.S_IXGRP else 0)
    return mode & ~falls


def is_other_file(one: str, other: str) -> bool:
    """Return whether two identities of the same boot and mount are those of different files."""
    return bool(one) and one[:EPOCH_DIGITS] == other[:EPOCH_DIGITS] and one != other


def is_same_identity(one: str, other: str) -> bool:
    """Whether two identities are of one file, also of different boots; "" is of none."""
    return one[EPOCH_DIGITS:] == other[EPOCH_DIGITS:] != ""


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of these folders, or below one."""
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def parents(path: str) -> list[str]:
    """Return the directories above a path, outermost first, without the root."""
    names = path.split("/")[:-1]
    return ["/".join(names[: n + 1]) for n in range(len(names))]


def proven_moves(
    changes: Iterable[FileChange], was: Mapping[str, str], now: Mapping[str, str]
) -> tuple[Move, ...]:
    """Return the moves that the identities prove: the same file was at one path and is at another.

    `was` and `now` have the identities before and after, by path. A folder whose inside is on
    record on both sides is not listed: what is in it is.
    """
    gone: dict[str, list[FileChange]] = {}
    created: list[FileChange] = []
    for change in changes:
        before, after = was.get(change.path, ""), now.get(change.path, "")
        if before == after:
            continue
        if before and change.before:
            gone.setdefault(before, []).append(change)
        if after and change.after:
            created.append(change)
    return tuple(_paired(gone, ((now[change.path], change) for change in created)))


def _paired(
    gone: Mapping[Key, list[FileChange]], created: Iterable[tuple[Key, FileChange]]
) -> Iterator[Move]:
    """Pair what was created with what is gone under its key, one of its name first, each once."""
    for key, change in created:
        source: FileChange | None = None
        for one in gone.get(key, ()):
            same_name = _name_of(one.path) == _name_of(change.path)
            if (same_name or source is None) and _may_be_moved(one, change):
                source = one
                if same_name:
                    break
        if source is not None:
            gone[key].remove(source)
            yield Move(source.path, change.path)


def _may_be_moved(source: FileChange, target: FileChange) -> bool:
    kinds = {state.kind for state in (source.before, target.after) if state}
    return kinds == {"opaque", "directory"} or (len(kinds) == 1 and "directory" not in kinds)


def moves_among(changes: Iterable[FileChange], moves: Iterable[Move]) -> tuple[Move, ...]:
    """Return the moves of which both ends are among the changes."""
    return tuple(move for move, _, _ in _with_ends(changes, moves))


def opaque_moves(changes: Iterable[FileChange], moves: Iterable[Move]) -> tuple[Move, ...]:
    """Return the moves of which an end is opaque: the whole folder was renamed, or is to be."""
    ends = _with_ends(changes, moves)
    return tuple(move for move, was, now in ends if is_opaque(was) or is_opaque(now))


def folder_renames(changes: Iterable[FileChange], moves: Iterable[Move]) -> tuple[Move, ...]:
    """Return the moves that rename a whole folder, without those that go along with an outer one.

    An end is opaque, or the folder in scope has an identity on record.
    """
    found = []
    for move, was, now in _with_ends(changes, moves):
        named = was is not None and was.kind == "directory" and was.identity
        if is_opaque(was) or is_opaque(now) or named:
            found.append(move)
    return tuple(one for one in found if not any(goes_along(one, other) for other in found))


def _with_ends(
    changes: Iterable[FileChange], moves: Iterable[Move]
) -> Iterator[tuple[Move, FileState | None, FileState | None]]:
    """The moves among the changes, with what was at their source and what is at their target."""
    listed = tuple(moves)
    by_path = {change.path: change for change in changes} if listed else {}
    for move in listed:
        source, target = by_path.get(move.source), by_path.get(move.target)
        if source and target:
            yield move, source.before, target.after


def goes_along(move: Move, other: Move) -> bool:
    """Return whether a move only follows from another one, which renames a folder around it."""
    inside = move.source.removeprefix(other.source + "/")
    return inside != move.source and move.target == f"{other.target}/{inside}"


def with_folders_above(moves: Iterable[Move]) -> Iterator[Move]:
    """Yield each move, and the moves of the folders above with which it may have gone along."""
    for move in moves:
        yield move
        source, target = move.source, move.target
        while "/" in source and "/" in target and _name_of(source) == _name_of(target):
            source, target = source.rpartition("/")[0], target.rpartition("/")[0]
            yield Move(source, target)


def paths_inside(folder: str, paths: Sequence[str]) -> list[str]:
    """Return the sorted paths that are in a folder, each from the folder's name on."""
    first, last = bisect_left(paths, folder + "/"), bisect_left(paths, folder + "0")
    return [path[len(folder) :] for path in paths[first:last]]


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def shown_moves(changes: Sequence[FileChange], moves: Iterable[Move]) -> tuple[Move, ...]:
    """Return the moves on record and, for display, those of equal content among other changes."""
    known = tuple(moves)
    ends = {path for move in known for path in (move.source, move.target)}
    return (*known, *find_moves(change for change in changes if change.path not in ends))


def find_moves(changes: Iterable[FileChange]) -> tuple[Move, ...]:
    """Pair each deleted file with a created one of the same content, each used once.

    Empty files are not paired, since two empty files need not be the same one.
    """
    gone: dict[BlobId, list[FileChange]] = {}
    created: list[tuple[BlobId, FileChange]] = []
    for change in changes:
        before, after = change.before, change.after
        if before and before.kind == "file" and after is None:
            if before.blob and before.size:
                gone.setdefault(before.blob, []).append(change)
        elif before is None and after and after.kind == "file" and after.blob:
            created.append((after.blob, change))
    return tuple(_paired(gone, created))
