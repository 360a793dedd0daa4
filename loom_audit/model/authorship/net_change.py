"""What a set of calls changed on balance in all files: a tree with sums."""

from collections.abc import Collection, Sequence

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


class Most(Struct, frozen=True):
    """Of which files the lines are told: until `lines` lines of hunks, in order of path, of those
    `paths` alone where they are named; of none that has more than `of_file`.
    """

    lines: int
    of_file: int
    paths: Collection[str] | None = None

    def told(self, files: Sequence[NetFile]) -> frozenset[str]:
        """The paths of these files of which the lines are told."""
        found, remaining = set[str](), self.lines
        for one in files:
            if one.length > self.of_file or not (self.paths is None or one.path in self.paths):
                continue
            if one.length > remaining:
                remaining = 0
                continue
            remaining -= one.length
            found.add(one.path)
        return frozenset(found)


def changed_files(files: Sequence[NetFile]) -> list[NetFile]:
    """Return those of the files that are changed on balance, with one for each path: what was at it
    before goes with what came there.
    """
    found: dict[str, NetFile] = {}
    for one in files:
        if one.is_changed:
            gone = found.get(one.path)
            found[one.path] = one if gone is None else _in_place_of(gone, one)
    return [*found.values()]


def net_change(calls: CallSet, files: Sequence[NetFile], most: Most) -> NetChange:
    """Return the changes of these files, with hunks as far as so many lines go."""
    changed = changed_files(files)
    listed, told = {one.path for one in changed}, most.told(changed)
    return NetChange(
        calls=calls,
        files=tuple(
            one if one.path in told and one.hunks else _without_hunks(one) for one in changed
        ),
        cancelled=tuple(dict.fromkeys(one.path for one in files if one.path not in listed)),
        added=sum(one.added for one in changed),
        removed=sum(one.removed for one in changed),
        folders=_folders(changed),
    )


def _without_hunks(file: NetFile) -> NetFile:
    return replace(file, hunks=(), writers=(), omitted=bool(file.length))


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
        again=tuple(dict.fromkeys((*gone.again, *one.again))),
        perhaps=tuple(dict.fromkeys((*gone.perhaps, *one.perhaps))),
        writers=(*gone.writers, *one.writers),
        hunks=(*gone.hunks, *(_shifted(hunk, count) for hunk in one.hunks)),
        length=gone.length + one.length,
        unlined=(*gone.unlined, *one.unlined),
        named=tuple(dict.fromkeys((*gone.named, *one.named))),
    )


def _shifted(hunk: NetHunk, count: int) -> NetHunk:
    """A hunk whose writers come after so many others."""
    lines = (replace(one, by=one.by + count) if one.by >= 0 else one for one in hunk.lines)
    return replace(hunk, lines=tuple(lines))


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
