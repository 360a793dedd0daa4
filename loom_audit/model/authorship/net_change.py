"""What a set of calls changed on balance in all files: a tree with sums."""

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.model.authorship.call_set import CallSet
from loom_audit.model.authorship.net import NetFile, NetHunk


class NetFolder(Struct, frozen=True):
    """A folder with the sums of the changed files in it; "" is the workspace."""

    path: str
    depth: int
    files: int
    added: int
    removed: int


class NetChange(Struct, frozen=True):
    """What the calls changed on balance, in order of path.

    `cancelled` are the paths that they changed, and changed back.
    """

    calls: CallSet
    files: tuple[NetFile, ...]
    cancelled: tuple[str, ...]
    added: int
    removed: int
    folders: tuple[NetFolder, ...]


def net_change(
    calls: CallSet,
    files: Sequence[NetFile],
    paths: Collection[str] | None,
    max_lines: int,
    max_file_lines: int,
) -> NetChange:
    """Return the changes of these files, with hunks as far as so many lines go."""
    changed = _one_by_path([one for one in files if one.is_changed])
    listed = {one.path for one in changed}
    return NetChange(
        calls=calls,
        files=tuple(_within_budget(changed, paths, max_lines, max_file_lines)),
        cancelled=tuple(dict.fromkeys(one.path for one in files if one.path not in listed)),
        added=sum(one.added for one in changed),
        removed=sum(one.removed for one in changed),
        folders=_folders(changed),
    )


def _one_by_path(files: Sequence[NetFile]) -> list[NetFile]:
    """The files, with one for each path: what was at it before goes with what came there."""
    found: dict[str, NetFile] = {}
    for one in files:
        gone = found.get(one.path)
        found[one.path] = one if gone is None else _in_place_of(gone, one)
    return [*found.values()]


def _in_place_of(gone: NetFile, one: NetFile) -> NetFile:
    """A file with the lines of another that was at its path before."""
    count = len(gone.writers)
    moved, had = one.before is not None, one.own_before is not None
    return NetFile(
        path=one.path,
        old_path=one.old_path if had else gone.old_path,
        before=one.before if moved else gone.before,
        after=one.after,
        own_before=one.own_before if had else gone.own_before,
        own_after=one.own_after,
        calls=tuple(sorted({*gone.calls, *one.calls})),
        others=tuple(dict.fromkeys((*gone.others, *one.others))),
        added=gone.added + one.added,
        removed=gone.removed + one.removed,
        removed_again=gone.removed_again + one.removed_again,
        brought_back=gone.brought_back + one.brought_back,
        shared=gone.shared + one.shared,
        reason=gone.reason or one.reason,
        mode=one.mode,
        writers=(*gone.writers, *one.writers),
        hunks=(*gone.hunks, *(_shifted(hunk, count) for hunk in one.hunks)),
    )


def _shifted(hunk: NetHunk, count: int) -> NetHunk:
    """A hunk whose writers come after so many others."""
    lines = (replace(one, by=one.by + count) if one.by >= 0 else one for one in hunk.lines)
    return replace(hunk, lines=tuple(lines))


def _within_budget(
    files: Sequence[NetFile], paths: Collection[str] | None, most: int, most_of_file: int
) -> Iterator[NetFile]:
    for one in files:
        count = sum(len(hunk.lines) for hunk in one.hunks)
        if count and ((paths is not None and one.path not in paths) or count > most_of_file):
            yield replace(one, hunks=(), omitted=True)
        elif count > most:
            most = 0
            yield replace(one, hunks=(), omitted=True)
        else:
            most -= count
            yield one


def _folders(files: Sequence[NetFile]) -> tuple[NetFolder, ...]:
    sums: dict[str, list[int]] = {"": [0, 0, 0]} if files else {}
    for one in files:
        folder = one.path.rpartition("/")[0]
        _add(sums.setdefault(folder, [0, 0, 0]), (1, one.added, one.removed))
        while folder and (folder := folder.rpartition("/")[0]) not in sums:
            sums[folder] = [0, 0, 0]
    for folder in sorted(sums, key=len, reverse=True):  # what is below a folder before the folder
        if folder:
            _add(sums[folder.rpartition("/")[0]], sums[folder])
    return tuple(
        NetFolder(path, path.count("/") + 1 if path else 0, *counts)
        for path, counts in sorted(sums.items())
    )


def _add(sums: list[int], counts: Sequence[int]) -> None:
    for n, count in enumerate(counts):
        sums[n] += count
