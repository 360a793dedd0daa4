"""Plans file operations: which changes each makes, by what is on disk now. Nothing is changed."""

from collections.abc import Callable
from hashlib import sha256

from msgspec.structs import replace

from loom_audit.errors import (
    Conflict,
    FileNotFound,
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotEmpty,
)
from loom_audit.history.ground.attachment import Attachment, OnDisk
from loom_audit.history.look.arrivals import arrived_among
from loom_audit.history.look.change_index import catch_up
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.model.files import FileChange, FileState, Move, mode_after_write, parents

Transform = Callable[[bytes | None], bytes]
"""Returns the new content for the old one (None when absent)."""


def plan_edit(
    preconditions: Preconditions,
    path: str,
    new: Transform | bytes,
    *,
    mode: int | None,
    create: bool,
) -> list[FileChange]:
    """The changes of a write: directories to make, the file's other names, last the file itself.

    `new` is the content, or gives it for the old one. `mode` are permission bits, None for those
    of the file, or 0o644 for a new one. IsADirectory, InvalidPath; FileNotFound where a directory
    is missing and `create` is false, NotADirectory where a file is in its place.
    """
    attachment = preconditions.attachment
    target = attachment.on_disk.workspace.resolve(attachment.on_disk.workspace.relative(path))
    before = preconditions.look(target)
    if not target or (before and before.kind == "directory"):
        raise IsADirectory(f"{path or '.'} is a directory", hint="Name a file in it.")
    if not isinstance(new, bytes):
        new = new(attachment.on_disk.workspace.read(target) if before else None)
    if before is None:
        has = attachment.on_disk.workspace.attributes_of_new(
            target, 0o644 if mode is None else mode
        )
        bits, acl = has.mode, has.acl
    else:
        bits, acl = mode_after_write(before.mode) if mode is None else mode, before.acl
    blob = preconditions.put(new, similar_to=before.blob if before else None)
    group = None if before is None else before.group
    change = FileChange(target, before, FileState("file", blob, bits, len(new), group, acl))
    others = [other for other in preconditions.with_all_names([change]) if other.path != target]
    if before is not None and not preconditions.drift:
        return [*others, change]  # the folders above a recorded path are on record, too
    return [*missing_parents(preconditions, target, create=create), *others, change]


def plan_delete(preconditions: Preconditions, path: str, *, recursive: bool) -> list[FileChange]:
    """The changes that delete a path and, with `recursive`, everything below it.

    FileNotFound; NotEmpty for a directory that is not empty; Conflict where something is not
    recorded, InvalidPath for the workspace itself.
    """
    target = resolve_name(preconditions, path)
    state = preconditions.look(target)
    if state is None:
        raise FileNotFound(f"File not found: {path}")
    check_recorded(preconditions, target, state)
    changes = [FileChange(target, state, None)]
    if state.kind == "directory":
        inside = descendants(preconditions, target)
        if inside and not recursive:
            raise NotEmpty(
                f"{path} is a directory that is not empty",
                hint="Pass recursive=true to delete it with all it holds.",
            )
        changes += [FileChange(below, there, None) for below, there in inside.items()]
    return [*preconditions.with_all_names(changes)]


def plan_move(
    preconditions: Preconditions, source: str, target: str, *, overwrite: bool
) -> tuple[list[FileChange], tuple[Move, ...]]:
    """The deletions at the old paths, the creations at the new ones, and the moves that pair them.

    A folder that arrived from a place that is not recorded has its identity in the plan, so that
    it is renamed as a whole and stays the same folder. FileNotFound; InvalidPath where the target
    is the source or in it; Conflict where the target exists, unless `overwrite` replaces a file,
    and where something is not recorded.
    """
    old, new = resolve_name(preconditions, source), resolve_name(preconditions, target)
    state, there = preconditions.look(old), preconditions.look(new)
    if state is None:
        raise FileNotFound(f"File not found: {source}")
    check_recorded(preconditions, old, state)
    if new == old or new.startswith(old + "/"):
        raise InvalidPath(
            f"Cannot move {source} to {target}: it is the same or inside",
            hint="Name a target outside of what is moved.",
        )
    if there and (not overwrite or "directory" in (there.kind, state.kind)):
        raise Conflict(
            f"{target} already exists",
            hint="Pass overwrite=true to replace a file; directories are never replaced.",
        )
    inside = descendants(preconditions, old) if state.kind == "directory" else {}
    going = {old: state, **inside}
    arrived = arrived_among(preconditions.attachment, going)
    going |= {path: replace(going[path], identity=which) for path, which in arrived.items()}
    changes = missing_parents(preconditions, new, create=True)
    changes += [FileChange(path, was, None) for path, was in going.items()]
    changes += [
        FileChange(new + path[len(old) :], there if path == old else None, was)
        for path, was in going.items()
    ]
    moves = tuple(
        Move(path, new + path[len(old) :])
        for path, was in going.items()
        if was.kind != "directory" or path in arrived
    )
    return [*preconditions.with_all_names(changes)], moves


def resolve_name(preconditions: Preconditions, path: str) -> str:
    """The workspace path behind the symlinks of a path's parents; a final symlink is itself meant.

    InvalidPath for the workspace itself, and for what is outside.
    """
    workspace = preconditions.attachment.on_disk.workspace
    relative = workspace.relative(path)
    if not relative:
        raise InvalidPath(
            "The workspace itself cannot be deleted or moved", hint="Name a path in it."
        )
    above, _, name = relative.rpartition("/")
    resolved = workspace.resolve(above) if above else ""
    return f"{resolved}/{name}" if resolved else name


def preview_edit(
    attachment: Attachment, path: str, new: Transform | bytes, *, create: bool = True
) -> tuple[list[FileChange], bytes | None, bytes]:
    """The changes of `plan_edit`, the old content and the new; nothing is stored or locked.

    The old content is None where the path is absent. Errors as of `plan_edit`; Conflict when the
    file changes while it is read.
    """
    preconditions = Preconditions(attachment, keep=False)
    changes = plan_edit(preconditions, path, new, mode=None, create=create)
    change = changes[-1]
    old = read_content(attachment.on_disk, change.path, change.before) if change.before else None
    [content] = preconditions.contents.values()
    return changes, old, content


def read_content(on_disk: OnDisk, path: str, state: FileState) -> bytes:
    """The bytes of a file or of a symlink's target. Conflict when they are not of this state."""
    read = on_disk.workspace.read_link if state.kind == "symlink" else on_disk.workspace.read
    content = read(path)
    if sha256(content).hexdigest() != state.blob:
        raise Conflict(f"{path} is being changed right now", hint="Try again.")
    return content


def missing_parents(preconditions: Preconditions, path: str, *, create: bool) -> list[FileChange]:
    """The changes that make the missing directories above a path, outermost first.

    FileNotFound where one is missing and `create` is false; NotADirectory where something else is
    in its place.
    """
    missing = []
    for above in parents(path):
        state = preconditions.look(above)
        if state is None:
            if not create:
                raise FileNotFound(
                    f"Directory not found: {above}", hint="Create it, or allow parents to be made."
                )
            has = preconditions.attachment.on_disk.workspace.attributes_of_new(above, 0o755)
            folder = FileState("directory", None, has.mode, 0, acl=has.acl)
            missing.append(FileChange(above, None, folder))
        elif state.kind not in ("directory", "opaque"):
            raise NotADirectory(
                f"{above} is not a directory", hint="Choose another path, or move that away."
            )
    return missing


def descendants(preconditions: Preconditions, path: str) -> dict[str, FileState]:
    """The states of everything below a directory, by path. Conflict when some is not recorded.

    What is not recorded could not be brought back, so it is never deleted or moved.
    """
    attachment = preconditions.attachment
    preconditions.look_below(path)
    inside: dict[str, FileState] = {}
    for below, stamp in attachment.on_disk.workspace.walk(
        attachment.scope, catch_up(attachment), path
    ):
        state = None if isinstance(stamp, str) else preconditions.look(below)
        if state is None:
            raise _unrecorded_error(path, below)
        inside[below] = state
    # the walk leaves out what is out of scope, so each folder is listed as it is on disk
    folders = [path, *(p for p, state in inside.items() if state.kind == "directory")]
    for folder in folders:
        for name, _ in attachment.on_disk.workspace.list(folder):
            if f"{folder}/{name}" not in inside:
                raise _unrecorded_error(path, f"{folder}/{name}")
    return inside


def check_recorded(preconditions: Preconditions, path: str, state: FileState) -> None:
    """Conflict for a path that is not recorded, since it could not be brought back."""
    if not preconditions.is_recorded(path, state):
        raise Conflict(
            f"{path} is out of scope, is not recorded and could not be brought back",
            hint="Use a shell command.",
            details={"path": path},
        )


def _unrecorded_error(path: str, below: str) -> Conflict:
    return Conflict(
        f"{path} holds {below}, which is not recorded and could not be brought back",
        hint="Delete that first, or use a shell command.",
        details={"path": below},
    )
