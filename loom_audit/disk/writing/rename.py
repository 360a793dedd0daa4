"""Renaming a folder whose inside is not on record: only this one, and only to an absent name."""

import errno
import os
import stat

from loom_audit.disk.access import system
from loom_audit.disk.access.identity import identity_at
from loom_audit.disk.access.opening import opened
from loom_audit.disk.access.paths import conflict, printable
from loom_audit.disk.access.root_directory import OpenFolders
from loom_audit.disk.writing.exchange import Location, location_of, move
from loom_audit.errors import Conflict


def rename(folders: OpenFolders, source: str, target: str, identity: str) -> None:
    """Rename what has the identity, durably. OSError.

    Conflict, with nothing changed, when something else is there or at the target.
    """
    old, new = location_of(folders, source), location_of(folders, target)
    if not folders.beneath.calls.renameat2:
        raise conflict(
            source,
            "this system cannot rename {} without replacing what may come",
            hint="Rename it yourself, or keep it where it is.",
        )
    if not _is_there(old, identity):
        raise conflict(
            source,
            "{} is not the one that was moved",
            hint="Look at it; what is there is not on record.",
        )
    found = old.lstat()
    inside = [old.parent, new.parent]
    if found is not None and stat.S_ISDIR(found.st_mode):
        folders.forget(source)
        if old.parent != new.parent:
            inside.append(source)  # it is told of its new parent
    try:
        with opened(folders.beneath, inside):
            move(old, new)
    except FileExistsError as error:
        raise conflict(target, "something is at {}", hint="Move that away first.") from error
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        raise Conflict(f"{printable(target)} is on another filesystem") from error
    if not _is_there(new, identity):
        move(new, old)
        raise conflict(source, "somebody else is changing {}", hint="Try again.")
    for parent in dict.fromkeys((old.parent, new.parent)):
        folders.sync(parent)


def rename_to_absent(source_in: int, source: bytes, target_in: int, target: bytes) -> None:
    """Rename from an open folder into another, only onto a name that nothing has: FileExistsError.
    OSError.
    """
    if not system.probe().renameat2:
        raise OSError(errno.ENOSYS, "this system cannot rename without replacing what may come")
    system.renameat2(source_in, source, target_in, target, system.RENAME_NOREPLACE)


def exchange_names(source_in: int, source: bytes, target_in: int, target: bytes) -> None:
    """Let two names in open folders change what they name, in one step. OSError."""
    if not system.probe().renameat2:
        raise OSError(errno.ENOSYS, "this system cannot exchange two files")
    system.renameat2(source_in, source, target_in, target, system.RENAME_EXCHANGE)


def _is_there(location: Location, identity: str) -> bool:
    return bool(identity) and identity_at(location.fd, os.fsencode(location.name)) == identity
