"""Changes in a session's scratch directory: on record as calls, not kept to be taken back."""

from collections.abc import Callable
from hashlib import sha256
from io import BytesIO
from stat import S_IMODE, S_ISDIR, S_ISLNK

from loom_audit.errors import (
    Conflict,
    FileNotFound,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotEmpty,
)
from loom_audit.model.files import BlobId, FileChange, FileState, parents
from loom_audit.ports import Stamp, Workspace
from loom_audit.tools.calls.places.area import SCRATCH, scratch_relative

FOLDER = FileState("directory", None, 0o755, 0)


def write(
    scratch: Workspace,
    path: str,
    new: bytes | Callable[[bytes | None], bytes],
    *,
    mode: int | None = None,
    create: bool = True,
) -> FileChange:
    """Put a content, or what `new` makes of the old content, at a path of the scratch directory.

    IsADirectory, InvalidPath; FileNotFound without `create` when a parent is missing, NotADirectory
    when a parent is a file.
    """
    target = scratch.resolve(scratch_relative(scratch, path))
    stamp = scratch.stamp(target) if target else None
    if not target or (stamp and S_ISDIR(stamp.mode)):
        raise IsADirectory(f"{SCRATCH}{path} is a directory", hint="Name a file in it.")
    old = scratch.read(target) if stamp else None
    content = new if isinstance(new, bytes) else new(old)
    _make_parents(scratch, target, create=create)
    before = None if old is None or stamp is None else _file_state(old, S_IMODE(stamp.mode))
    bits = mode if mode is not None else (before.mode if before else 0o644)
    after = _file_state(content, bits)
    # nothing here can be taken back, so what was displaced need not be kept
    scratch.replace(FileChange(target, None, after), BytesIO(content)).discard()
    return FileChange(SCRATCH + target, before, after)


def delete(scratch: Workspace, path: str, *, recursive: bool) -> tuple[str, ...]:
    """Delete a path and, when `recursive`, all below; return what is gone, after `scratch://`.

    FileNotFound, InvalidPath; NotEmpty for a directory with something in it unless `recursive`.
    """
    target = scratch_relative(scratch, path)
    stamp = _stamp(scratch, target)
    doomed = [target]
    if S_ISDIR(stamp.mode):
        inside = _list_below(scratch, target)
        if inside and not recursive:
            raise NotEmpty(
                f"{SCRATCH}{path} is a directory that is not empty",
                hint="Pass recursive=true to delete it with all it holds.",
            )
        doomed += inside
    for one in reversed(doomed):
        scratch.replace(FileChange(one, None, None), None).discard()
    return tuple(SCRATCH + one for one in sorted(doomed))


def move(
    scratch: Workspace, source: str, target: str, *, overwrite: bool
) -> tuple[FileChange, ...]:
    """Move a file within the scratch directory; return both changes.

    FileNotFound, InvalidPath; Conflict when the target exists, unless `overwrite` replaces a file.
    """
    old, new = scratch_relative(scratch, source), scratch_relative(scratch, target)
    stamp = _stamp(scratch, old)
    if S_ISDIR(stamp.mode) or S_ISLNK(stamp.mode):
        raise InvalidPath(
            f"{SCRATCH}{source} is not a file", hint="In the scratch directory files can be moved."
        )
    there = scratch.stamp(new)
    if old == new or (there and (not overwrite or S_ISDIR(there.mode))):
        raise Conflict(
            f"{SCRATCH}{target} already exists", hint="Pass overwrite=true to replace a file."
        )
    content = scratch.read(old)
    change = write(scratch, new, content, mode=S_IMODE(stamp.mode))
    delete(scratch, old, recursive=False)
    return (FileChange(SCRATCH + old, change.after, None), change)


def _stamp(scratch: Workspace, path: str) -> Stamp:
    if not path:
        raise InvalidPath(
            "The scratch directory itself cannot be deleted or moved", hint="Name a path in it."
        )
    stamp = scratch.stamp(path)
    if stamp is None:
        raise FileNotFound(f"File not found: {SCRATCH}{path}")
    return stamp


def _list_below(scratch: Workspace, directory: str) -> list[str]:
    """Everything below a directory, parents first."""
    found: list[str] = []
    waiting = [directory]
    while waiting:
        above = waiting.pop()
        for name, stamp in scratch.list(above):
            found.append(f"{above}/{name}")
            if S_ISDIR(stamp.mode):
                waiting.append(found[-1])
    return found


def _make_parents(scratch: Workspace, path: str, *, create: bool) -> None:
    for above in parents(path):
        stamp = scratch.stamp(above)
        if stamp is None:
            if not create:
                raise FileNotFound(
                    f"File not found: {SCRATCH}{above}", hint="Pass createDirs to have it made."
                )
            scratch.replace(FileChange(above, None, FOLDER), None).discard()
        elif not S_ISDIR(stamp.mode):
            raise NotADirectory(f"{SCRATCH}{above} is not a directory", hint="Name another path.")


def _file_state(content: bytes, mode: int) -> FileState:
    return FileState("file", BlobId(sha256(content).hexdigest()), mode, len(content))
