"""What is written into a git folder: objects from a pack, and files of its state.

The folder is open, and git is told its descriptor: whoever puts another one at its path meanwhile
has nothing written into that.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from secrets import token_hex

from loom_audit.errors import AuditError, Conflict, ExecutionFailed, PermissionDenied
from loom_audit.model.scope import TEMPORARY
from loom_audit.ports import GitAnswer, GitFile, IndexBytes
from loom_audit.sandbox.git.answers import PRESENT, REACHED, kinds_told
from loom_audit.sandbox.git.files import FOLDER
from loom_audit.sandbox.git.program import check_answer, write_whole

UNFINISHED = "loom-audit.unfinished"
"""The name of a file in the git folder while it is written, under the lock."""

_HARMLESS = (
    "badDate",
    "badEmail",
    "badName",
    "badTimezone",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeDate",
    "missingSpaceBeforeEmail",
    "multipleAuthors",
    "zeroPaddedDate",
    "zeroPaddedFilemode",
)
"""Faults of an object that lead to no other file (git-fsck(1))."""

MOST_OBJECTS = 4 << 30
ATTEMPTS = 8
PACKS = "objects/pack"
UNPINNED = ("rev-list", "--objects", "--stdin")
PUT_SECONDS = 120.0

GIT = ".git"

PRIVATE = 0o700
"""The mode of a git folder that is built: what it had is not on record, and it may be private."""

RenameToAbsent = Callable[[int, bytes, int, bytes], None]
"""Renames from an open folder into another; FileExistsError where something has the new name.
OSError.
"""

_MADE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Ask = Callable[[Sequence[str], bytes, float, int], GitAnswer]
"""Runs a git command, which reads so many bytes, for at most so many seconds and bytes."""


REFUSED = "Let yourself write there (`chmod u+w`), and plan again; --no-git leaves git."
"""What to do where the system refuses to write."""


def unwritable(what: str, error: OSError) -> AuditError:
    """The error for what the system did not let be written: PermissionDenied, ExecutionFailed."""
    message = f"{what}: {error.strerror}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDenied(message, hint=REFUSED)
    return ExecutionFailed(message)


def path_of(folder: int) -> str:
    """A path by which a program that is given this open folder reaches it and no other one."""
    return f"/proc/self/fd/{folder}"


def missing_objects(ask: Ask, wanted: Sequence[str]) -> Sequence[str]:
    """The wanted ids that are not in the repository, or do not lead to all they need there."""
    if not wanted:
        return ()
    given = "".join(f"{one}\n" for one in dict.fromkeys(wanted)).encode()
    listed = ask(PRESENT, given, PUT_SECONDS, 64 << 20)
    check_answer(listed)
    missing: list[str] = []
    leading: list[str] = []
    for id, kind in kinds_told(listed.output.decode("ascii", "replace")):
        (missing if kind == "missing" else leading).append(id)
    if leading:
        ids = "".join(f"{one}\n" for one in leading)
        reached = ask((*REACHED, "--not", "--all"), ids.encode(), PUT_SECONDS, 64 << 20)
        found = reached.output.decode("ascii", "replace").split()
        missing += [one[1:] for one in found if one.startswith("?")]
        missing += leading if reached.code else []
    return missing


def add_pack(ask: Ask, pack: bytes, pinned_by: str = "") -> str:
    """Add the objects of a pack, each hashed anew; ExecutionFailed where git does not.

    Returns the path of the file that keeps the pack, in which it says by whom it is held; "" for
    none: it is nobody's, or another's.
    """
    done = _added(ask, pack, pinned_by)
    if said := _refusal(done):
        raise ExecutionFailed(f"git does not take the kept objects: {said:.200}")
    what, _, name = done.output.decode("ascii", "replace").strip().partition("\t")
    return f"{PACKS}/pack-{name}.keep" if what == "keep" else ""


def refused_pack(ask: Ask, pack: bytes) -> str:
    """Add the objects of a pack, each hashed anew; what git says where it does not, else ""."""
    return _refusal(_added(ask, pack))


def _added(ask: Ask, pack: bytes, pinned_by: str = "") -> GitAnswer:
    """What git says when it adds the objects of a pack.

    Harmless faults of form that old programs made are let pass: the repository had them before.
    """
    strict = "--strict=" + ",".join(f"{one}=ignore" for one in _HARMLESS)
    more = ("--stdin", *((f"--keep={pinned_by}",) if pinned_by else ()))
    for _ in range(ATTEMPTS):
        done = ask(("index-pack", strict, *more), pack, PUT_SECONDS, MOST_OBJECTS)
        if "Unhandled message id" in done.errors:  # a git without one of them
            strict = "--strict"
        elif os.strerror(errno.ENOENT) not in done.errors:  # else a `git gc` removed it half made
            break
    return done


def _refusal(done: GitAnswer) -> str:
    return (done.errors.strip() or f"exit {done.code}") if done.code else ""


def unpinned_objects(ask: Ask, wanted: Sequence[str], *, stashes: bool) -> Sequence[str]:
    """The ids of the wanted objects, and of those that they need, to which no ref and no log leads:
    git may throw them away at any time. What `stashes` hold counts only where these stay.

    ExecutionFailed, also where one is gone by now.
    """
    given = "".join(f"{one}\n" for one in dict.fromkeys(wanted)).encode()
    held = ("--exclude=refs/stash", "--all") if stashes else ("--all", "--reflog")
    reached = ask((*UNPINNED, "--not", *held), given, PUT_SECONDS, 64 << 20)
    check_answer(reached)
    lines = reached.output.decode("ascii", "replace").splitlines()
    return [line.partition(" ")[0] for line in lines]


@contextmanager
def folders_above(base: int, path: str, *, make: bool = False) -> Iterator[tuple[list[int], str]]:
    """The folders from an open git folder down to the one that holds a path, opened without
    following a link, and the name in the last one; they are made where `make` and not there.

    ExecutionFailed for a path that leads out of it; OSError.
    """
    *above, name = path.split("/")
    if {"", ".", ".."} & {*above, name}:
        raise ExecutionFailed("a file of git on record is not in its folder")
    folders = [base]
    with ExitStack() as opened:
        for part in above:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o777, dir_fd=folders[-1])
            folders.append(os.open(part, FOLDER, dir_fd=folders[-1]))
            opened.callback(os.close, folders[-1])
        yield folders, name


def put_file(base: int, path: str, file: GitFile | None) -> None:
    """Let a file in the git folder be so: written beside its place and renamed, or removed with the
    folders above that are empty then.

    ExecutionFailed for a path that leads out of it; OSError.
    """
    with ExitStack() as opened:
        try:
            above = folders_above(base, path, make=file is not None)
            folders, name = opened.enter_context(above)
        except FileNotFoundError:
            return  # so there is nothing to remove
        if file is not None:
            _write_file(base, folders[-1], name, file)
            return
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folders[-1])
        if path.startswith("logs/"):
            return  # git keeps these
        for parent, one in zip(folders[-2::-1], path.split("/")[-2::-1], strict=True):
            with suppress(OSError):  # something else is in it
                os.rmdir(one, dir_fd=parent)


def remove_logs(base: int, path: str) -> None:
    """Remove the logs that keep one from a path in an open git folder: the nearest file above it,
    or all in a folder at it. No link is followed, nor removed. OSError.
    """
    *above, name = path.split("/")
    with ExitStack() as opened:
        folder = base
        for part in above:
            if stat.S_ISREG(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(part, dir_fd=folder)
                return
            folder = os.open(part, FOLDER, dir_fd=folder)
            opened.callback(os.close, folder)
        shutil.rmtree(name, dir_fd=folder)


def _write_file(base: int, folder: int, name: str, file: GitFile) -> None:
    """Write a file beside all others, and give it its name; whoever holds the lock is alone."""
    with suppress(FileNotFoundError):  # of one that was killed
        os.unlink(UNFINISHED, dir_fd=base)
    make_file(base, file)
    os.rename(UNFINISHED, name, src_dir_fd=base, dst_dir_fd=folder)


def make_file(base: int, file: GitFile) -> None:
    """Make a file in an open folder under the name of what is unfinished; durable. OSError."""
    if file.kind == "symlink":
        os.symlink(os.fsdecode(file.content), UNFINISHED, dir_fd=base)
    else:
        written = os.open(UNFINISHED, _MADE, file.mode, dir_fd=base)
        with open(written, "wb") as stream:
            stream.write(file.content)
            stream.flush()
            os.fchmod(written, file.mode)
            os.fsync(written)


@contextmanager
def made_folder(above: int) -> Iterator[tuple[str, int]]:
    """The name of a new empty folder in an open one, and it opened. ExecutionFailed,
    PermissionDenied.
    """
    name = f"{TEMPORARY}git-{token_hex(8)}"
    try:
        os.mkdir(name, PRIVATE, dir_fd=above)
        made = os.open(name, FOLDER, dir_fd=above)
    except OSError as error:
        raise unwritable("no git folder can be made", error) from error
    try:
        if os.listdir(made):
            raise ExecutionFailed("no git folder can be made: somebody else writes there")
        yield name, made
    finally:
        os.close(made)


def taken() -> Conflict:
    """The error for a `.git` that is there by now."""
    return Conflict(
        "git: something is at .git by now, and nothing is written there",
        hint="Look at it; `loom-audit git --at POINT --to DIR .` has the old one beside it.",
    )


def is_there(folder: int, name: str) -> bool:
    """Whether something has a name in an open folder. OSError."""
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        return True
    return False


def put_index(git: int, index: IndexBytes | None) -> None:
    """Write an index, where there is one, into an open git folder that has none. OSError."""
    if index is None or index.content is None:
        return
    file = os.open("index", _MADE, 0o666, dir_fd=git)
    try:
        write_whole(file, index.content)
        os.utime(file, ns=(index.mtime, index.mtime))
    finally:
        os.close(file)


def remove_folder(above: int, name: str, git: int) -> None:
    """Remove an open folder with all that is in it, no link followed. OSError."""
    for one in os.listdir(git):
        if stat.S_ISDIR(os.stat(one, dir_fd=git, follow_symlinks=False).st_mode):
            shutil.rmtree(one, dir_fd=git)
        else:
            os.unlink(one, dir_fd=git)
    os.rmdir(name, dir_fd=above)


def sync(folder: int) -> None:
    """Make all files in an open folder and below durable. OSError."""
    for one in os.listdir(folder):
        mode = os.stat(one, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            continue
        flags = FOLDER if stat.S_ISDIR(mode) else os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        inner = os.open(one, flags, dir_fd=folder)
        try:
            sync(inner) if stat.S_ISDIR(mode) else os.fsync(inner)
        finally:
            os.close(inner)
    os.fsync(folder)
