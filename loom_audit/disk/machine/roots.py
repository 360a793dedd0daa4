"""Which directories may be put under audit."""

import contextlib
import os
import pwd
from collections.abc import Iterable
from pathlib import Path

from loom_audit.disk.access.paths import audit_errors, printable
from loom_audit.disk.access.system import mounts_below
from loom_audit.errors import Conflict, InvalidPath

_SYSTEM = ("/proc", "/sys")
_EXACT = ("/", "/dev", "/etc", "/usr", "/var", "/boot", "/run", "/tmp", "/private/tmp")


def check_root(path: str | Path, *, store_dir: str | Path, others: Iterable[str]) -> str:
    """The real path of a directory that may become a workspace.

    `others` are the roots of the existing workspaces; this directory itself may be one of
    them. InvalidPath for what is not a directory and for system and home folders;
    Conflict for a folder that holds, or lies in, the store or another workspace.
    """
    text = os.fspath(path)
    if "\0" in text:
        raise InvalidPath("the path holds a NUL character", hint="Remove it.")
    real = os.path.realpath(text)
    with audit_errors(text):
        if not os.path.isdir(real):
            os.stat(real)
            raise _refused(text, "not a directory", "Name the folder that the agent works in.")
        os.close(os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        os.stat(os.path.join(real, "."))
    if real in _EXACT or any(_holds(folder, real) for folder in _SYSTEM):
        raise _refused(real, "a folder of the system", "Name a project's own folder.")
    for home in _homes():
        if _holds(real, home):
            raise _refused(
                real,
                "the home directory" if _same(real, home) else "a folder that holds home",
                "Name a folder in it.",
            )
    if ".git" in Path(real).parts:
        raise _refused(real, "inside .git", "Name the folder that holds .git.")
    store = os.path.realpath(store_dir)
    if _holds(store, real):
        raise Conflict(
            f"{printable(real)} lies in the folder of the store",
            hint="Give the store a folder of its own outside of what is recorded.",
            details={"path": printable(real), "other": printable(store)},
        )
    _check_apart(real, store, "the store")
    for other in others:
        if not _same(real, other):
            _check_apart(real, other, f"the workspace {printable(other)}")
    return real


def is_in_place(root: str) -> bool:
    """Whether there is a folder at the real path of a workspace.

    Where a link leads from there, or from a folder above, something else is in its place. A forged
    path may not be a path at all.
    """
    return "\0" not in root and os.path.realpath(root) == root and os.path.isdir(root)


def is_mount_point(root: str) -> bool:
    """Whether something is mounted at a real path; never known off Linux."""
    above, name = os.path.split(root)
    return bool(name) and "\0" not in root and name in mounts_below(above)


def check_target(path: str | Path, *, store_dir: str | Path, others: Iterable[str]) -> None:
    """Conflict for a folder to write a tree into that lies in the store or in a workspace.

    `others` are the roots of the workspaces; one that is gone may be written anew. InvalidPath
    for a NUL character and for a symlink that leads nowhere.
    """
    if "\0" in os.fspath(path):
        raise InvalidPath("the path holds a NUL character", hint="Remove it.")
    if os.path.islink(path) and not os.path.exists(path):
        raise InvalidPath(
            f"{printable(os.fspath(path))} is a symlink that leads nowhere",
            hint="Name a new folder.",
        )
    real = os.path.realpath(path)
    _check_apart(real, os.path.realpath(store_dir), "the store")
    for other in others:
        if is_in_place(other):
            _check_apart(real, other, f"the workspace {printable(other)}")


def _refused(path: str, reason: str, hint: str) -> InvalidPath:
    return InvalidPath(
        f"{printable(path)} cannot be a workspace: it is {reason}",
        hint=hint,
        details={"path": printable(path), "reason": reason},
    )


def _check_apart(real: str, other: str, name: str) -> None:
    if _holds(other, real):
        relation, hint = "lies inside", "Use that one, or name a folder outside it."
    elif _holds(real, other):
        relation, hint = "holds", "Name a folder beside it."
    else:
        return
    raise Conflict(
        f"{printable(real)} {relation} {name}",
        hint=hint,
        details={"path": printable(real), "other": printable(other)},
    )


def _holds(folder: str, path: str) -> bool:
    """Whether `path` is the folder or lies in it, by name or (bind mounts, case) by inode."""
    if path == folder or path.startswith(folder.rstrip("/") + "/"):
        return True
    here = Path(path)
    return any(_same(str(above), folder) for above in (here, *here.parents))


def _same(one: str, other: str) -> bool:
    try:
        return one == other or Path(one).samefile(other)
    except OSError:
        return False


def _homes() -> set[str]:
    homes = set()
    with contextlib.suppress(RuntimeError):
        homes.add(os.path.realpath(Path.home()))
    with contextlib.suppress(KeyError):
        homes.add(os.path.realpath(pwd.getpwuid(os.geteuid()).pw_dir))
    return homes - {"/", "/nonexistent"}
