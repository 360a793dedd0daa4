"""What lies in a git folder that holds a repository's state: stamps of it, its files, no links.

Everything is opened from the folder's descriptor, and no link is followed.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from heapq import nsmallest

from loom_audit.errors import ExecutionFailed
from loom_audit.model.files import is_within
from loom_audit.model.git.record import ALTERNATES, SHARED_FILES, STATE_FILES
from loom_audit.ports import GitFile
from loom_audit.sandbox.git.program import MAX_OUTPUT

MAX_FILE = 16 << 20
MAX_TEXT = 16 << 10
MAX_FILES = 1_000
MAX_LOGS = 10_000
STAMPED_REFS = 32
"""So many refs that are files are stamped: git writes none in place, but a script may."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_ASKED = frozenset({"HEAD", "index", "packed-refs"})
"""The files of which git is asked."""

_NO_LINKS = (
    *("objects", "objects/info", "objects/info/alternates", "objects/pack"),
    *("refs", "hooks", "info", "logs", "worktrees", "reftable"),
    *("HEAD", "index", "packed-refs", "shallow", "config", "config.worktree"),
)
"""What git reads, and would read elsewhere where it is a link."""

_OF_WORKTREE = ("HEAD", "gitdir", "locked", "refs")
"""What git reads of the entry of a linked worktree when it tells of it."""

_WHOLE = ("hooks", "info", "remotes", "branches", "rebase-merge", "rebase-apply", "sequencer")
"""The folders of which each file is the state."""

_DERIVED = frozenset({"info/refs", "info/commit-graphs", "info/sparse-checkout.lock"})
"""What git makes anew by itself (git-update-server-info(1))."""

_TOLD_BY = ("logs/HEAD", "logs/refs/stash", "reftable/tables.list", "objects", ALTERNATES)
"""What changes with what git is asked for."""

_OF_REFS = ("refs", "packed-refs", "reftable", "logs/refs")

Numbers = tuple[int, ...]
Stamped = tuple[str, Numbers]
KnownFolders = MutableMapping[str, tuple[Numbers, tuple[str, ...], tuple[str, ...]]]
"""The stamp of each folder of refs, and the folders and first files that were in it then."""


def open_below(root: str, path: str) -> int:
    """A folder of the workspace, opened without following a link below the root. OSError."""
    return _enter(os.open(root, FOLDER & ~os.O_NOFOLLOW), path)


@contextmanager
def opened_below(git: int, path: str) -> Iterator[int]:
    """A folder in an open one, opened without following a link; "" is that one itself. OSError."""
    folder = _enter(os.dup(git), path)
    try:
        yield folder
    finally:
        os.close(folder)


def _enter(folder: int, path: str) -> int:
    """Open a folder below an open one, which is closed, whatever happens. OSError."""
    for name in path.split("/") if path else ():
        try:
            inner = os.open(name, FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def stamp(status: os.stat_result) -> Numbers:
    """What of a file changes when it is written."""
    return (
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
    )


def stamps_of(git: int, known: KnownFolders, more: Iterable[str] = ()) -> Iterator[Stamped]:
    """The stamps of what the state is kept in; of refs those of folders, which are `known`, and of
    the first that are files, branches before others; and of what lies at `more` paths.
    """
    names = sorted(name for name in os.listdir(git) if STATE_FILES.fullmatch(name))
    for name in (*names, *_TOLD_BY):
        with suppress(OSError):
            yield name, stamp(os.stat(name, dir_fd=git, follow_symlinks=False))
    for folder in (*_WHOLE, "worktrees", *more):
        for path, found in _below(git, folder):
            yield path, stamp(found)
    waiting, refs = ["logs/refs", "refs"], list[str]()
    while waiting:
        path = waiting.pop()
        with suppress(OSError):
            now = stamp(os.stat(path, dir_fd=git, follow_symlinks=False))
            yield path, now
            before = known.get(path)
            if before is None or before[0] != now:
                before = known[path] = now, *_names_in(git, path)
            waiting += (f"{path}/{name}" for name in reversed(before[1]))
            if is_within(path, ("refs",)):
                refs += (f"{path}/{name}" for name in before[2])
    for path in refs[:STAMPED_REFS]:
        with suppress(OSError):
            yield path, stamp(os.stat(path, dir_fd=git, follow_symlinks=False))


def shared_stamps_of(
    common: int, known: KnownFolders, more: Iterable[str] = (), *, refs: bool
) -> Iterator[Stamped]:
    """The stamps of a common folder of what a linked worktree shares, or only of its `refs`."""
    wanted = _OF_REFS if refs else (*_OF_REFS, *SHARED_FILES, *more)
    return (one for one in stamps_of(common, known, more) if is_within(one[0], wanted))


def contents_since(git: int, stamped: Iterable[Stamped], since: int) -> str | None:
    """A hash of the bytes of what was stamped and changed since a moment, and of what lies in such
    folders and did; "" where nothing did, None where not all can be read.
    """
    young = [(path, numbers) for path, numbers in stamped if numbers[3] >= since]
    made = sha256()
    try:
        for path, numbers in young:
            inner = [path]
            if stat.S_ISDIR(numbers[0]):
                inner = []
                opened = os.open(path, FOLDER, dir_fd=git)
                try:
                    names = sorted(os.listdir(opened))
                    made.update(repr((path, names)).encode("utf-8", "surrogateescape"))
                    for name in names:
                        one = os.stat(name, dir_fd=opened, follow_symlinks=False)
                        if one.st_ctime_ns >= since and not stat.S_ISDIR(one.st_mode):
                            inner.append(f"{path}/{name}")
                finally:
                    os.close(opened)
            for one_path in inner:
                file = read_file(git, one_path, MAX_FILE)
                if file is None:
                    return None
                made.update(repr((one_path, file)).encode("utf-8", "surrogateescape"))
    except OSError:
        return None
    return made.hexdigest() if young else ""


def _names_in(git: int, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The folders in a folder, and the first of its files."""
    folder = os.open(path, FOLDER, dir_fd=git)
    folders, files = list[str](), list[str]()
    try:
        with os.scandir(folder) as entries:
            for one in entries:
                (folders if one.is_dir(follow_symlinks=False) else files).append(one.name)
    finally:
        os.close(folder)
    return tuple(sorted(folders)), tuple(nsmallest(STAMPED_REFS, files))


def _below(git: int, folder: str, most: int = MAX_FILES) -> Iterator[tuple[str, os.stat_result]]:
    """What lies in a folder and below that is no folder, at most so many, and what was one too
    many; folders that cannot be read; a sample of a hook is left out.
    """
    waiting, count = [folder], {True: 0, False: 0}
    while waiting:
        path = waiting.pop()
        try:
            found = os.stat(path, dir_fd=git, follow_symlinks=False)
        except OSError:
            continue
        is_folder = stat.S_ISDIR(found.st_mode)
        count[is_folder] += 1
        if not is_folder or count[True] > most:
            yield path, found
            if max(count.values()) > most:
                return
            continue
        try:
            opened = os.open(path, FOLDER, dir_fd=git)
        except OSError:
            yield path, found
            continue
        try:
            with os.scandir(opened) as entries:  # which tells kinds, without a call for each
                names = [one.name for one in entries if not (path == "hooks" and _is_sample(one))]
        finally:
            os.close(opened)
        below = (f"{path}/{n}" for n in sorted(names, reverse=True))
        waiting += (one for one in below if one not in _DERIVED)


def _is_sample(one: "os.DirEntry[str]") -> bool:
    return one.name.endswith(".sample") and one.is_file(follow_symlinks=False)


def _walked(git: int, folder: str, links: list[str]) -> list[str]:
    """The paths of the files in a folder and below; in `links` those that are symbolic links, which
    are not followed. ExecutionFailed for a folder that cannot be read.
    """
    waiting, found = [folder], list[str]()
    while waiting:
        path = waiting.pop()
        try:
            opened = os.open(path, FOLDER, dir_fd=git)
        except OSError as error:
            if error.errno != errno.ENOENT:
                found += _no_folder(git, path, links)
            continue
        folders, files = list[str](), list[str]()
        try:
            with os.scandir(opened) as entries:  # which tells kinds, without a call for each
                for one in entries:
                    if one.is_symlink():
                        links.append(f"{path}/{one.name}")
                    else:
                        (folders if one.is_dir(follow_symlinks=False) else files).append(one.name)
        finally:
            os.close(opened)
        waiting += (f"{path}/{name}" for name in sorted(folders, reverse=True))
        found += [f"{path}/{name}" for name in sorted(files)]
    return found


def _no_folder(git: int, path: str, links: list[str]) -> Iterator[str]:
    """The path of what could not be opened as a folder, if it is a file; ExecutionFailed for what
    is neither that nor a link.
    """
    with suppress(OSError):
        found = os.stat(path, dir_fd=git, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            links.append(path)
            return
        if not stat.S_ISDIR(found.st_mode):
            yield path
            return
    raise ExecutionFailed(f".git/{path} cannot be read")


def paths_of_refs(git: int) -> list[str]:
    """The paths of the files in `refs`; ExecutionFailed for a link or an unreadable folder."""
    links: list[str] = []
    found = _walked(git, "refs", links)
    for path in links:
        raise is_link(path)
    return found


def is_link(path: str) -> ExecutionFailed:
    """The error that names a symbolic link in a git folder."""
    return ExecutionFailed(f".git/{path} is a symbolic link")


def links_in(git: int) -> Iterator[str]:
    """The paths at which git would follow a link to what lies outside of the folder, but in `refs`.

    OSError for a folder that cannot be read.
    """
    split = (name for name in os.listdir(git) if name.startswith("sharedindex."))
    tables, entries = (_names_below(git, one) for one in ("reftable", "worktrees"))
    of_entries = (f"{one}/{name}" for one in entries for name in _OF_WORKTREE)
    for path in (*_NO_LINKS, *split, *tables, *entries, *of_entries):
        with suppress(OSError):
            if stat.S_ISLNK(os.stat(path, dir_fd=git, follow_symlinks=False).st_mode):
                yield path


def _names_below(git: int, folder: str) -> list[str]:
    """The paths of what lies in a folder; none where it is not there, or a link. OSError."""
    with suppress(FileNotFoundError, NotADirectoryError):
        opened = os.open(folder, FOLDER, dir_fd=git)
        try:
            return [f"{folder}/{name}" for name in sorted(os.listdir(opened))]
        finally:
            os.close(opened)
    return []


def check_links(git: int) -> None:
    """ExecutionFailed where git would follow a link to what lies outside of the folder; it is told
    to look for no hooks.
    """
    for path in links_in(git):
        if path != "hooks":
            raise is_link(path)
    paths_of_refs(git)


def state_files(
    git: int,
    unseen: list[str],
    untold: MutableMapping[str, str],
    more: Iterable[str] = (),
    *,
    shared: bool = False,
) -> Iterator[tuple[str, GitFile]]:
    """The files that hold the state; in `untold` the paths of others, each with the reason.

    What lies at `more` paths is among them. Where there are too many reflogs, `unseen` has the
    reason. Of a common folder only those that linked worktrees have `shared`. No link is followed:
    it is told as one, but for a reflog.
    """
    names = sorted(n for n in os.listdir(git) if STATE_FILES.fullmatch(n) and n not in _ASKED)
    own = [*names, "index", ALTERNATES]
    paths = [one for one in names if one in SHARED_FILES] if shared else own
    whole = [one for one in _WHOLE if one in SHARED_FILES or not shared]
    inside = {one: [path for path, _ in _below(git, one)] for one in (*whole, *more)}
    logs = "logs/refs" if shared else "logs"
    inside[logs] = _reflogs(git, logs, untold)
    for folder, found in inside.items():
        most = MAX_LOGS if folder == logs else MAX_FILES
        if len(found) > most:
            why = f"too many files in .git/{folder}"
            untold[folder] = "" if folder == logs else why  # what runs code is not to hide there
            unseen += [why] if folder == logs else []
        paths += found[:most]
    for path in dict.fromkeys(paths):
        try:
            file = read_file(git, path, MAX_OUTPUT if path == "index" else MAX_FILE)
        except (FileNotFoundError, NotADirectoryError):  # nor is it there behind a link
            continue
        except OSError as error:
            untold[path] = f".git/{path}: {error.strerror}"
            continue
        if file is None:
            untold[path] = f".git/{path} is not a file, or too large"
        else:
            yield path, file


def _reflogs(git: int, folder: str, untold: MutableMapping[str, str]) -> list[str]:
    """The paths of reflogs, those first by which others are told; in `untold` what is a link, or
    cannot be read.
    """
    links: list[str] = []
    try:
        found = _walked(git, folder, links)
    except ExecutionFailed as error:
        untold[folder] = error.message
        return []
    untold.update((path, is_link(path).message) for path in links)
    return sorted(found, key=lambda one: one not in _TOLD_BY)


def read_text(folder: int, name: str) -> str | None:
    """A short text in a file, without the line's end; None where there is none such. OSError."""
    with suppress(FileNotFoundError):
        file = read_file(folder, name, MAX_TEXT)
        if file is not None and file.kind == "file":
            return file.content.decode("utf-8", "surrogateescape").rstrip("\n")
    return None


def read_file(git: int, path: str, most: int) -> GitFile | None:
    """What lies at a path in the git folder; None for what is too large or neither file nor link.
    OSError.

    Its folders were seen to be none but folders, and each is opened without following a link.
    """
    above, _, name = path.rpartition("/")
    with opened_below(git, above) as folder:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return GitFile("symlink", 0o777, os.fsencode(os.readlink(name, dir_fd=folder)))
        with open(os.open(name, _FILE, dir_fd=folder), "rb") as stream:
            found = os.fstat(stream.fileno())
            content = stream.read(most + 1) if stat.S_ISREG(found.st_mode) else None
            if content is None or len(content) > most:
                return None
            return GitFile("file", stat.S_IMODE(found.st_mode), content)
