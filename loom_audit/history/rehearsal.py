"""What an operation on files would change now. Nothing is changed, stored or locked."""

from hashlib import sha256

from loom_audit.errors import Conflict, InvalidPath
from loom_audit.history import edits
from loom_audit.history.attachment import Attachment
from loom_audit.history.edits import Transform
from loom_audit.history.steps import Footing, missing_parents
from loom_audit.model.files import BlobId, FileChange, FileState, Move


def written(
    attachment: Attachment, path: str, new: Transform | bytes, *, create: bool = True
) -> tuple[list[FileChange], bytes | None, bytes]:
    """The changes that putting a content at a path comes to, the old content and the new."""
    footing = Footing(attachment, {}, keep=False)
    target = attachment.workspace.resolve(attachment.workspace.relative(path))
    before = footing.look(target)
    if not target or (before and before.kind == "directory"):
        raise InvalidPath(f"{path or '.'} is a directory", hint="Name a file in it.")
    old = content(attachment, target, before) if before else None
    made = new if isinstance(new, bytes) else new(old)
    blob = BlobId(sha256(made).hexdigest())
    after = FileState("file", blob, before.mode if before else 0o644, len(made))
    change = FileChange(target, before, after)
    return [*missing_parents(footing, target, create=create), change], old, made


def deleted(attachment: Attachment, path: str, *, recursive: bool) -> list[FileChange]:
    return edits.deleted(Footing(attachment, {}, keep=False), path, recursive=recursive)


def moved(
    attachment: Attachment, source: str, target: str, *, overwrite: bool
) -> tuple[list[FileChange], tuple[Move, ...]]:
    return edits.moved(Footing(attachment, {}, keep=False), source, target, overwrite=overwrite)


def content(attachment: Attachment, path: str, state: FileState) -> bytes:
    """The bytes of a file or of a symlink's target. Conflict when they are not the state's."""
    read = attachment.workspace.read_link if state.kind == "symlink" else attachment.workspace.read
    found = read(path)
    if sha256(found).hexdigest() != state.blob:
        raise Conflict(f"{path} is being changed right now", hint="Try again.")
    return found
