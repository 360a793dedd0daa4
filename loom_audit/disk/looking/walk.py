"""Every path in scope with its stamp: the scan that finds out what may have changed."""

import errno
import os
import stat
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter, itemgetter

from msgspec import Struct, field

from loom_audit.disk.access.identity import TICK, identity_at
from loom_audit.disk.access.paths import audit_errors, join, kind_of, printable, to_audit_error
from loom_audit.disk.access.root_directory import RootDirectory
from loom_audit.disk.looking.told_folders import ToldFolders
from loom_audit.errors import StorageFailed
from loom_audit.model.scope import NEVER, TEMPORARY, Scope
from loom_audit.ports import OPAQUE, LeftOutFiles, Stamp, Stamps, opaque_stamp

COARSE = 2_100_000_000
"""Nanoseconds; FAT counts in 2 seconds, HFS+ and old NFS in 1. Their times are whole seconds."""

_SECOND = 1_000_000_000


def is_fresh(ctime_ns: int, now: int) -> bool:
    """Whether a change after `now` could leave this ctime as it is; both in ns since 1970."""
    return ctime_ns >= now - COARSE and (ctime_ns >= now - TICK or ctime_ns % _SECOND == 0)


def stamp_of(seen: os.stat_result, now: int | None = None) -> Stamp:
    """The stamp of an lstat; `now` is the time in ns, taken before the content is read."""
    mode = seen.st_mode
    if stat.S_ISDIR(mode):
        return Stamp(mode, 0, 0, 0, seen.st_ino)
    if now is None:
        now = time.time_ns()
    # the ctime, since a program can set the mtime back (utimensat(2)) and not this
    ctime = seen.st_ctime_ns
    if is_fresh(ctime, now):
        ctime = -now
    return Stamp(mode, seen.st_size, seen.st_mtime_ns, ctime, seen.st_ino)


_DIRECTORY, _FILE, _LINK = stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK
_KIND = 0o170000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_fields = attrgetter("st_mode", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino")
"""A stamp's fields of a stat, in one step of C."""

_CTIME = 3
_UNREADABLE: tuple[int, ...] = ()
_NOTHING: Mapping[str, Stamp] = {}
_NO_LINKS: Mapping[str, int] = {}
_DEPTH = 16
"""How many folders are kept open at once; deeper ones are opened from the root."""

GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""What an open says that has nothing to do with the folder."""


class Scan(Struct, frozen=True):
    """One scan of a tree: what is as `expected` is not reported.

    `excluded` are paths that are never recorded, each with its reason, `mapped` the inodes
    whose stamps prove nothing, with a path of each. `visited` are the folders that were read,
    `missing` the expected files that were not in them. With `opaque`, what is not entered is
    reported too; `left_out` counts the files. With a `watch` each folder is watched before it is
    read, and `linked` are the files with several names, by folder and name with their inodes. With
    `part` only some folders are entered in what a walk begins at, which is told like any other;
    in a folder that forbids to enter what is in it each is tried, so that it is told as closed.
    """

    beneath: RootDirectory
    scope: Scope
    known: Container[str]
    excluded: Mapping[str, str]
    expected: Stamps = field(default_factory=Stamps)
    mapped: Mapping[int, str] = field(default_factory=dict)
    visited: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    opaque: bool = False
    left_out: LeftOutFiles = field(default_factory=dict)
    watch: ToldFolders | None = None
    linked: dict[str, dict[str, int]] = field(default_factory=dict)
    part: Callable[[str], bool] | None = None


def find_differences(scan: Scan) -> Iterator[tuple[str, Stamp | str | None]]:
    """The paths that are not as expected; None for one that is expected and was not found."""
    reported = set()
    for path, stamp in walk(scan, ""):
        reported.add(path)
        yield path, stamp
    missing = scan.missing
    for folder, names in scan.expected.files.items():
        if folder not in scan.visited:
            missing += [join(folder, name) for name in names]
    missing += [folder for folder in scan.expected.directories if folder not in scan.visited]
    yield from ((path, None) for path in missing if path not in reported | scan.visited)


def walk(scan: Scan, path: str) -> Iterator[tuple[str, Stamp | str]]:
    """What is below `path`; a directory comes before what it holds, otherwise in any order.

    What vanishes meanwhile is left out. StorageFailed when `path` itself cannot be read, since
    a caller would take all that is in it for gone.
    """
    with _FolderQueue(scan.beneath, path) as folders:
        while (folder := folders.next()) is not None:
            first = folders.path == path and (scan.part is None or not path)
            if isinstance(folder, str):
                if first:
                    raise StorageFailed(
                        f"{printable(path) or 'the workspace'} cannot be read: {folder}",
                        hint="See that it may be entered, then try again.",
                    )
                yield folders.path, folder
                continue
            if not first:
                seen = os.fstat(folder)
                if scan.beneath.is_elsewhere(folders.path, seen.st_dev):
                    yield folders.path, "mount"
                    continue
                stamp = stamp_of(seen)
                if scan.expected.directories.get(folders.path) != stamp:
                    yield folders.path, stamp
            scan.visited.add(folders.path)
            if scan.watch is not None:
                scan.watch.add(folders.path, folder)
            with audit_errors(folders.path):
                found, inside = _scan_folder(scan, folders.path, folder)
            if scan.part is not None and _can_be_searched(folder):
                inside = [name for name in inside if scan.part(join(folders.path, name))]
            folders.enter(folders.path + "/" if folders.path else "", inside)
            yield from found


def _can_be_searched(folder: int) -> bool:
    """Whether what an open folder holds may be looked up: it may be readable without that."""
    try:
        os.stat(".", dir_fd=folder)
    except PermissionError:
        return False
    return True


class _FolderQueue:
    """Which folders are still to be visited, depth first, each opened by its parent's descriptor.

    From some depth on they are opened from the root, so that descriptors do not run out.
    """

    def __init__(self, beneath: RootDirectory, path: str) -> None:
        self._beneath = beneath
        self._first: str | None = path
        self._current = -1
        self._stack: list[tuple[int, str, list[str]]] = []
        self.path = path

    def __enter__(self) -> "_FolderQueue":
        return self

    def __exit__(self, *_: object) -> None:
        self._close_current()
        while self._stack:
            self._close_parent()

    def _close_current(self) -> None:
        if self._current >= 0:
            os.close(self._current)
            self._current = -1

    def _close_parent(self) -> None:
        descriptor = self._stack.pop()[0]
        if descriptor >= 0:
            os.close(descriptor)

    def enter(self, prefix: str, names: list[str]) -> None:
        """Go on with these folders in the one that was opened last."""
        if not names:
            return
        descriptor = -1
        if len(self._stack) < _DEPTH:
            descriptor, self._current = self._current, -1
        self._stack.append((descriptor, prefix, names))

    def next(self) -> int | str | None:
        """The next folder's descriptor, or why it cannot be read; None at the end."""
        self._close_current()
        while self._first is not None or self._stack:
            if self._first is None and not self._stack[-1][2]:
                self._close_parent()
                continue
            try:
                self._current = self._open_next()
            except OSError as error:
                if error.errno in GONE:
                    continue
                if error.errno in _EXHAUSTED:
                    raise to_audit_error(error, self.path) from error
                return "path too long" if error.errno == errno.ENAMETOOLONG else "unreadable"
            return self._current
        return None

    def _open_next(self) -> int:
        if self._first is not None:
            self._first = None
            return self._beneath.open_folder(self.path)
        parent, prefix, names = self._stack[-1]
        name = names.pop()
        self.path = prefix + name
        if parent < 0:
            return self._beneath.open_folder(self.path)
        return os.open(name, _FOLDER, dir_fd=parent)


def _scan_folder(
    scan: Scan, folder: str, descriptor: int
) -> tuple[list[tuple[str, Stamp | str]], list[str]]:
    """What a folder holds in scope and not as expected, and the names of the folders in it."""
    prefix = folder + "/" if folder else ""
    differing: list[tuple[str, Stamp | str]] = []
    folders: list[str] = []
    found: dict[str, tuple[int, ...]] = {}
    with os.scandir(descriptor) as entries:
        listed = [*entries]
    # Taken before any stat of this folder, so that no stamp passes for older than it is.
    now = time.time_ns()
    for entry in listed:
        if entry.is_dir(follow_symlinks=False):
            child = prefix + entry.name
            if scan.scope.excludes(child, directory=True):
                if scan.opaque and not entry.name.startswith(TEMPORARY):
                    found[entry.name] = _opaque(descriptor, entry)
                continue
            if child in scan.excluded:
                differing.append((child, scan.excluded[child]))
            else:
                folders.append(entry.name)
            continue
        if entry.name in NEVER:
            if scan.opaque:
                found[entry.name] = _opaque(descriptor, entry)
            continue
        try:
            found[entry.name] = _fields(entry.stat(follow_symlinks=False))
        except FileNotFoundError:
            continue
        except OSError:
            found[entry.name] = _UNREADABLE
    if scan.watch is not None:
        _note_links(scan, scan.watch.linked.get(folder, _NO_LINKS), folder, listed, found)
    expected = scan.expected.files.get(folder, _NOTHING)
    doubts = scan.excluded or scan.mapped
    if found == expected and not doubts and _is_settled(found, now):
        return differing, folders
    scan.missing.extend(prefix + name for name in expected.keys() - found.keys())
    for entry in listed:
        fields = found.get(entry.name)
        if fields is None:
            continue
        child = prefix + entry.name
        if fields and fields[0] & _KIND == OPAQUE:
            if fields != expected.get(entry.name):
                differing.append((child, Stamp._make(fields)))
            continue
        if _is_left_out(scan, folder, child, fields, expected.get(entry.name)):
            continue
        if fields and fields[0] & _KIND == _DIRECTORY:  # since it was listed
            folders.append(entry.name)
            continue
        seen = _stamp_or_reason(scan, child, entry, fields, now)
        if seen != expected.get(entry.name):
            differing.append((child, seen))
    return differing, folders


def _note_links(
    scan: Scan,
    before: Mapping[str, int],
    folder: str,
    listed: Iterable[os.DirEntry[str]],
    found: Container[str],
) -> None:
    """Note the files with several names, and those that had several before."""
    linked = {}
    for entry in listed:
        if entry.name in found and not entry.is_dir(follow_symlinks=False):
            with suppress(OSError):  # nothing is known of it but its name
                seen = entry.stat(follow_symlinks=False)
                if seen.st_nlink > 1 or before.get(entry.name) == seen.st_ino:
                    linked[entry.name] = seen.st_ino
    if linked:
        scan.linked[folder] = linked


def _is_left_out(
    scan: Scan, folder: str, child: str, fields: tuple[int, ...], was: Stamp | None
) -> bool:
    """Whether a file is out of scope; it is counted then. One that was in scope stays so."""
    opaque = was is not None and was.mode & _KIND == OPAQUE
    if child in scan.known and not opaque:
        return False
    why = scan.scope.excludes(child, directory=False)
    if why is None:
        return False
    if opaque:
        scan.missing.append(child)
    if why != "temporary":
        files, size = scan.left_out.get((folder, why), (0, 0))
        scan.left_out[folder, why] = files + 1, size + (fields[1] if fields else 0)
    return True


def _opaque(folder: int, entry: os.DirEntry[str]) -> tuple[int, ...]:
    return opaque_stamp(identity_at(folder, os.fsencode(entry.name)), entry.inode())


def _is_settled(found: Mapping[str, tuple[int, ...]], now: int) -> bool:
    """Whether no ctime is so new, or so far ahead of a clock set back, that it may be racy."""
    return max(map(itemgetter(_CTIME), found.values()), default=0) < now - COARSE


def _stamp_or_reason(
    scan: Scan, child: str, entry: os.DirEntry[str], fields: tuple[int, ...], now: int
) -> Stamp | str:
    """The stamp of what is not a folder, or why it cannot be recorded."""
    if child in scan.excluded:
        return scan.excluded[child]
    if fields == _UNREADABLE:
        return "unreadable"
    seen = entry.stat(follow_symlinks=False)  # the entry kept it
    if seen.st_mode & _KIND not in (_FILE, _LINK):
        return f"not a file: {kind_of(seen.st_mode)}"
    if scan.beneath.is_elsewhere(child, seen.st_dev):
        return "mount"
    if seen.st_ino in scan.mapped:
        return Stamp._make(fields)._replace(ctime_ns=-now)
    if fields[_CTIME] >= now - COARSE:
        return stamp_of(seen, now)
    return Stamp._make(fields)


def find_leftovers(beneath: RootDirectory, prefix: str) -> Iterator[str]:
    """Names that begin with `prefix`, in every folder but `.git` and other filesystems."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            descriptor = beneath.open_folder(folder)
        except OSError:
            continue
        try:
            if beneath.is_elsewhere(folder, os.fstat(descriptor).st_dev):
                continue
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    child = join(folder, entry.name)
                    if entry.name.startswith(prefix):
                        yield child
                    elif entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                        waiting.append(child)
        finally:
            os.close(descriptor)
