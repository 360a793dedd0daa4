"""Paths as text, and the system's errors about them as our own; no I/O."""

import errno
import stat
from collections.abc import Mapping

from loom_audit.errors import (
    AuditError,
    Conflict,
    FileNotFound,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    PermissionDenied,
    StorageFailed,
)

_NO_NAMES = frozenset({"", ".", ".."})
NAME_BYTES = 255
PATH_BYTES = 4095

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFLNK: "symlink",
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


def kind_of(mode: int) -> str:
    """The kind that an st_mode says: file, symlink, directory, fifo, socket, … ."""
    return _KINDS.get(stat.S_IFMT(mode), "special file")


def printable(path: str) -> str:
    """A path that can be put in a message and in JSON: bytes that are not UTF-8 escaped."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def join(parent: str, name: str) -> str:
    """The path of a name in a folder, where "" is the root."""
    return f"{parent}/{name}" if parent else name


def split(path: str) -> tuple[str, str]:
    """The parent of a path, "" for the root, and the name in it."""
    parent, _, name = path.rpartition("/")
    return parent, name


def normalize(text: str) -> str:
    """`a/./b//c` as `a/b/c`, and `..` taken lexically; InvalidPath when it is not a path here."""
    if "\0" in text:
        raise InvalidPath("the path holds a NUL character", hint="Remove it.")
    named = text.split("/")
    if text.isascii() and len(text) <= NAME_BYTES and _NO_NAMES.isdisjoint(named):
        return text
    parts: list[str] = []
    for part in named:
        if part == "..":
            if not parts:
                raise InvalidPath(
                    f"the path leaves the workspace: {_excerpt(text)}",
                    hint="Name a path inside the workspace.",
                )
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    path = "/".join(parts)
    try:
        size = len(path.encode("utf-8", "surrogateescape"))
        longest = max((len(part.encode("utf-8", "surrogateescape")) for part in parts), default=0)
    except UnicodeEncodeError as error:
        raise InvalidPath("the path holds characters that no file name can have") from error
    if longest > NAME_BYTES:
        raise InvalidPath(
            f"a name in the path is {longest} bytes long",
            hint=f"Names are at most {NAME_BYTES} bytes.",
        )
    if size > PATH_BYTES:
        raise InvalidPath(
            f"the path is {size} bytes long", hint=f"Paths are at most {PATH_BYTES} bytes."
        )
    return path


def _excerpt(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")[:200]


def outside_error(path: str) -> InvalidPath:
    """The error about a path that leads out of a workspace or of a scratch directory."""
    return InvalidPath(
        f"the path leads outside: {printable(path)}",
        hint="Name a path inside the workspace or the scratch directory, "
        "or the link's target where it may be read.",
        details={"path": printable(path)},
    )


def not_a_file_error(path: str, mode: int) -> InvalidPath:
    """The error about a path at which something else is than a file."""
    kind = kind_of(mode)
    error = IsADirectory if kind == "directory" else InvalidPath
    return error(
        f"not a file but a {kind}: {printable(path)}",
        hint="List what is in it."
        if kind == "directory"
        else "Only files can be read and written.",
        details={"path": printable(path), "kind": kind},
    )


def conflict(path: str, message: str, *, hint: str) -> Conflict:
    """The error about a path that somebody else uses; `{}` in the message stands for it."""
    shown = printable(path)
    return Conflict(message.format(shown), hint=hint, details={"path": shown})


def to_audit_error(error: OSError, path: str) -> AuditError:
    """The error of ours that says what the system's error says, with the path."""
    number = error.errno or 0
    where = printable(path) or "the workspace's root"
    details = {"path": printable(path), "errno": errno.errorcode.get(number, str(number))}
    if number == errno.EXDEV:
        return outside_error(path)
    if number == errno.EISDIR:
        return not_a_file_error(path, stat.S_IFDIR)
    other = (StorageFailed, error.strerror or str(error), "Check the disk.")
    kind, text, hint = _BY_NUMBER.get(number, other)
    return kind(f"{text}: {where}", hint=hint, details=details)


_DENIED = (PermissionDenied, "permission denied", "Check its owner and mode.")
_IN_THE_WAY = (Conflict, "something is there already", "Look at it, then choose another path.")
_FULL = (StorageFailed, "the disk is full", "Free some space and try again.")
_CIRCLE = "a symlink is in the way, or links go round in a circle"
_BY_NUMBER: Mapping[int, tuple[type[AuditError], str, str]] = {
    errno.ENOENT: (FileNotFound, "File not found", ""),
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: (PermissionDenied, "read-only file system", "Check its owner and mode."),
    errno.ELOOP: (InvalidPath, _CIRCLE, "Name the path that the link leads to."),
    errno.ENOTDIR: (
        NotADirectory,
        "a folder of the path is not a directory",
        "Choose another path.",
    ),
    errno.ENOTEMPTY: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.ENAMETOOLONG: (InvalidPath, "the path is too long", "A name has at most 255 bytes."),
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
}
"""The class, message and hint of each of the system's errors."""


class audit_errors:
    """A block in which an OSError becomes an AuditError that names the path."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, OSError):
            raise to_audit_error(error, self._path) from error
