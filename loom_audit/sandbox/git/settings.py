"""Hooks and settings in a git folder, each from what it was seen to be to what it is to be.

No lock of git's is held for a hook. What a step displaces is read before it goes: where it is not
what was seen, somebody else wrote it just now, and it is put back.
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex

from loom_audit.errors import Conflict, ExecutionFailed
from loom_audit.model.files import is_within
from loom_audit.model.text.display import visible
from loom_audit.ports import GitFile
from loom_audit.sandbox.git.writing import UNFINISHED, folders_above, make_file

Exchange = Callable[[int, bytes, int, bytes], None]
"""Lets two names in open folders change what they name, in one step; OSError."""

MOST_BYTES = 64 << 20
KEPT = "loom-audit.kept-"
"""How the name of a file begins that somebody wrote in the instant in which another one did."""


def put_setting(
    base: int, path: str, before: GitFile | None, after: GitFile | None, exchange: Exchange
) -> None:
    """Let a file in an open git folder become another one. Whoever holds `index.lock` is alone.

    Conflict where it is not as it was seen, also just now; ExecutionFailed.
    """
    with _told_of(path), folders_above(base, path, make=after is not None) as (folders, name):
        with suppress(FileNotFoundError):  # of one that was killed
            os.unlink(UNFINISHED, dir_fd=base)
        try:
            _put(base, folders[-1], name, before, after, exchange)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(UNFINISHED, dir_fd=base)
        os.fsync(folders[-1])


def check_setting(
    base: int, path: str, before: GitFile | None, after: GitFile | None, going: Collection[str]
) -> None:
    """Conflict where a file in an open git folder is not as it was seen, or cannot become another
    one: a folder is in its place, or a file above it that is not `going`; ExecutionFailed.
    """
    with _told_of(path):
        try:
            with folders_above(base, path) as (folders, name):
                found = _read(folders[-1], name)
        except FileNotFoundError:
            found = None
        except NotADirectoryError:
            if after is not None and not is_within(path, going):
                raise
            found = None
        if found != before:
            raise _MovedError


@contextmanager
def _told_of(path: str) -> Iterator[None]:
    """Say of which file it is what is raised: Conflict, ExecutionFailed."""
    try:
        yield
    except (_MovedError, FileNotFoundError) as error:
        raise _moved(path, error.kept if isinstance(error, _MovedError) else "") from error
    except NotADirectoryError as error:
        raise _in_the_way(path, "something that is no folder is above it") from error
    except IsADirectoryError as error:
        raise _in_the_way(path, "a folder is in its place") from error
    except OSError as error:
        raise ExecutionFailed(f"git: {visible(path)}: {error.strerror}") from error


class _MovedError(Exception):
    """A file is not what it was seen to be; what is there was left, or put back. `kept` is the name
    in the git folder of what could not be, as somebody wrote there once more.
    """

    def __init__(self, kept: str = "") -> None:
        super().__init__(kept)
        self.kept = kept


def _put(
    base: int,
    folder: int,
    name: str,
    before: GitFile | None,
    after: GitFile | None,
    exchange: Exchange,
) -> None:
    if _read(folder, name) != before:
        raise _MovedError
    if before is None:
        if after is not None:
            make_file(base, after)
            try:
                os.link(UNFINISHED, name, src_dir_fd=base, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError as error:
                raise _MovedError from error
        return
    if after is None:
        os.rename(name, UNFINISHED, src_dir_fd=folder, dst_dir_fd=base)
        if not _is_still(base, UNFINISHED, before):
            raise _MovedError(_put_back(base, folder, name))
        return
    make_file(base, after)
    ends = (base, UNFINISHED.encode(), folder, os.fsencode(name))
    exchange(*ends)
    if not _is_still(base, UNFINISHED, before):
        exchange(*ends)
        if _is_still(base, UNFINISHED, after):
            raise _MovedError
        exchange(*ends)  # the last one stands at its place
        raise _MovedError(_keep(base))


def _put_back(base: int, folder: int, name: str) -> str:
    """Give what was displaced its name again; the name under which it is kept where it cannot."""
    try:
        if stat.S_ISDIR(os.stat(UNFINISHED, dir_fd=base, follow_symlinks=False).st_mode):
            os.rename(UNFINISHED, name, src_dir_fd=base, dst_dir_fd=folder)
        else:
            os.link(UNFINISHED, name, src_dir_fd=base, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        return _keep(base)
    return ""


def _keep(base: int) -> str:
    """Let what was displaced stay under a name that nobody has. OSError."""
    name = f"{KEPT}{token_hex(8)}"
    os.rename(UNFINISHED, name, src_dir_fd=base, dst_dir_fd=base)
    return name


def _is_still(folder: int, name: str, before: GitFile) -> bool:
    """Whether a file is as it was seen, and not something else that cannot be read."""
    try:
        return _read(folder, name) == before
    except (OSError, _MovedError):
        return False


def _read(folder: int, name: str) -> GitFile | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            target = os.fsencode(os.readlink(name, dir_fd=folder))
            return GitFile("symlink", stat.S_IMODE(found.st_mode), target)
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        mode = os.fstat(file).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise _MovedError
        with open(file, "rb", closefd=False) as stream:
            return GitFile("file", stat.S_IMODE(mode), stream.read(MOST_BYTES))
    finally:
        os.close(file)


def _in_the_way(path: str, what: str) -> Conflict:
    return Conflict(
        f"git: {visible(path)} cannot be put back: {what}",
        hint="Look at it, move it away, and plan again.",
        details={"name": path},
    )


def _moved(path: str, kept: str = "") -> Conflict:
    twice = f", and once more: what was there before that is {kept} in the git folder now"
    return Conflict(
        f"git: {visible(path)} was changed by somebody else just now{twice if kept else ''}",
        hint="Look at the new plan and decide again.",
        details={"name": path},
    )
