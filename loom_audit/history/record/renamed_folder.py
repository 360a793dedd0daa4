"""Renaming a folder of which it is said which one it is, and what is different on disk then."""

from collections.abc import Sequence
from stat import S_IFMT

from msgspec import Struct, field

from loom_audit.errors import AuditError, PermissionDenied
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.observation import observe
from loom_audit.model.files import (
    BlobId,
    FileChange,
    FileState,
    Move,
    is_directory,
    is_opaque,
    is_within,
)
from loom_audit.model.plans.left_out import is_remade
from loom_audit.ports import OPAQUE, IndexEntry


class Renamed(Struct, frozen=True):
    """What is different on disk after a folder was renamed, and the index entries for it.

    `arrived` are created paths of which nothing was on record, `later` what somebody else changed
    meanwhile in a folder all of which was, and `unseen` what cannot be looked at.
    """

    changes: list[FileChange]
    entries: dict[str, IndexEntry | None]
    arrived: list[str] = field(default_factory=list)
    later: list[FileChange] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)


def rename_folder(attachment: Attachment, move: Move, intended: Sequence[FileChange]) -> Renamed:
    """Rename a folder of which it is said which one it is, and look at what is there then.

    Conflict, with nothing changed, when it is not proven to be the one, or something is there.
    """
    by_path = {change.path: change for change in intended}
    ends = [by_path[move.source].before, by_path[move.target].after]
    known = [state for state in ends if state is not None]
    identity = next((s for s in known if is_opaque(s)), known[0]).identity
    attachment.workspace.rename(move.source, move.target, identity)
    gone = [change for change in intended if is_within(change.path, [move.source])]
    done = Renamed(gone, {change.path: None for change in gone})
    expected = {c.path: c.after for c in intended if not is_within(c.path, [move.source])}
    in_scope = all(map(is_directory, ends))
    found = [move.target, *(p for p, state in expected.items() if in_scope or not _blob(state))]
    if not attachment.scope.is_opaque(move.target):
        inside = attachment.workspace.walk(attachment.scope, {}, move.target, opaque=True)
        # what cannot be recorded, and caches, are for the next look
        found += [
            path
            for path, seen in inside
            if not isinstance(seen, str) and not (S_IFMT(seen.mode) == OPAQUE and is_remade(path))
        ]
    for path in dict.fromkeys(found):
        was = move.source + path.removeprefix(move.target)
        try:
            state, done.entries[path] = _seen(attachment, path, was, expected.get(path))
        except AuditError:
            done.unseen.append(path)
            continue
        if in_scope and path in expected and state != expected[path]:
            done.later.append(FileChange(path, expected[path], state))
            state = expected[path]
        done.changes.append(FileChange(path, None, state))
        if path not in expected:
            done.arrived.append(path)
    return done


def _blob(state: FileState | None) -> BlobId | None:
    return None if state is None else state.blob


def _seen(
    attachment: Attachment, path: str, was: str, expected: FileState | None
) -> tuple[FileState | None, IndexEntry | None]:
    """What is at a path to which it came from another one; it may not be read any more."""
    try:
        return observe(attachment, path, expected)
    except PermissionDenied:
        entry, recorded = attachment.index.get(was), attachment.projections.state(was)
        if entry is None or expected is None or expected != recorded:
            raise
        if entry.stamp != attachment.workspace.stamp(path) or entry.blob != expected.blob:
            raise
        return expected, entry
