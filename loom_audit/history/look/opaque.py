"""Opaque entries: left-out folders and `.git`, of which only name and identity are recorded.

What is in one is nowhere in the store. So nothing brings it back but a rename, which needs proof
that it is the same folder: its identity.
"""

import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment, OnDisk, StoredLog
from loom_audit.history.look.change_index import catch_up, update_index
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import BaselineFinished, Draft, Fact, FilesChanged
from loom_audit.model.files import FileChange, FileState, Move, is_opaque, is_other_file, parents
from loom_audit.model.plans.left_out import is_remade
from loom_audit.model.scope import NEVER, LeftOut
from loom_audit.model.text.display import count_text, visible
from loom_audit.ports import (
    OPAQUE,
    EventFilter,
    IndexEntry,
    LeftOutFiles,
    Stamp,
    opaque_stamp,
)


def observe_opaque(
    attachment: Attachment, path: str, stamp: Stamp
) -> tuple[FileState, IndexEntry] | None:
    """The state and index entry of an opaque entry; None where the path is none.

    The stamp is that of a scan, which says that the entry is opaque, or that of an lstat.
    """
    if stat.S_IFMT(stamp.mode) != OPAQUE:
        plain = not stat.S_ISDIR(stamp.mode) and path.rpartition("/")[2] not in NEVER
        if plain or not attachment.scope.is_opaque(path):
            return None
    attachment.process.last_seen.git.note_path(path)
    identity = attachment.on_disk.workspace.identity(path)
    if stat.S_IFMT(stamp.mode) != OPAQUE:
        stamp = opaque_stamp(identity, stamp.ino)
    return FileState("opaque", None, 0, 0, identity=identity), IndexEntry(stamp, None, identity)


def opaque_change(
    on_disk: OnDisk, path: str, before: FileState | None, after: FileState | None
) -> FileChange | None:
    """The change of a path that is opaque before or after, with the identities that are known.

    None where that is not a change: an identity of another boot or mount says nothing; caches that
    tools make again by themselves come and go.
    """
    entry = on_disk.index.get(path)
    known = entry.identity if entry else ""
    if before is None and after is not None:
        return None if is_remade(path) else FileChange(path, None, after)
    if is_opaque(before):
        if is_opaque(after) and not is_other_file(known, after.identity):
            return None
        before = replace(before, identity=known)
    return FileChange(path, before, after)


def is_listed(attachment: Attachment) -> bool:
    """Whether opaque entries are on record at all: logs of older versions have none. Corrupt."""
    if not attachment.process.last_seen.listed:
        # the first is near the start of the log; for any other the whole of it is read
        found = (fact for limit in (1, None) for fact in _baselines(attachment.stored, limit))
        attachment.process.last_seen.listed = any(fact.left_out for fact in found)
    return attachment.process.last_seen.listed


def record_opaque_entries(attachment: Attachment) -> None:
    """Put the opaque entries of a workspace on record if its log has none; the lock is held.

    Nobody knows since when they are there, so they are recorded as found. Nothing is done before
    the baseline is complete: it lists them itself. AuditUnavailable, Corrupt.
    """
    if is_listed(attachment) or (finished := next(_baselines(attachment.stored, 1), None)) is None:
        return
    changes: list[FileChange] = []
    entries: dict[str, IndexEntry | None] = {}
    files: LeftOutFiles = {}
    known = catch_up(attachment)
    for path, stamp in attachment.on_disk.workspace.differences(attachment.scope, known, files):
        if (
            not isinstance(stamp, Stamp)
            or (seen := observe_opaque(attachment, path, stamp)) is None
        ):
            continue
        state, entries[path] = seen
        change = opaque_change(
            attachment.on_disk, path, attachment.stored.reading.state(path), state
        )
        changes += [change] if change else []
    facts: list[Fact] = [replace(finished, left_out=left_out_rows(files))]
    if changes:
        facts.insert(0, FilesChanged(tuple(changes), "baseline"))
    events = attachment.stored.log.append([Draft(fact, "", OUTSIDE) for fact in facts])
    update_index(attachment, entries, events)
    attachment.process.last_seen.listed = True


def _baselines(stored: StoredLog, limit: int | None) -> Iterator[BaselineFinished]:
    for event in stored.log.read(EventFilter(kinds=(BaselineFinished.kind,), limit=limit)):
        if isinstance(event.fact, BaselineFinished):
            yield event.fact


def left_out_rows(files: LeftOutFiles) -> tuple[LeftOut, ...]:
    """The left-out files by folder and reason. The root always has a row: so a log shows that they
    were counted.
    """
    rows = {("", "ignored"): (0, 0), **files}
    return tuple(LeftOut(*key, *counted) for key, counted in sorted(rows.items()))


def lost_files(before: LeftOutFiles, after: LeftOutFiles) -> tuple[str, ...]:
    """How many left-out files are gone, in words and by folder; none unless they are fewer in all.

    Files that were only moved among left-out places are not missed.
    """
    if sum(files for files, _ in before.values()) <= sum(files for files, _ in after.values()):
        return ()
    fewer = {key: files - after.get(key, (0, 0))[0] for key, (files, _) in before.items()}
    return tuple(
        f"{count_text(files, 'file')} in {visible(folder) or 'the root'}"
        for (folder, _), files in sorted(fewer.items())
        if files > 0
    )


def arrivals(
    changes: list[FileChange], identities: Mapping[str, str], gone: Mapping[str, str]
) -> set[str]:
    """The created folders that were opaque entries until now.

    Such a folder has the identity of an entry that is gone: by the changes, or in `gone`, which has
    paths by identity.
    """
    left = {
        change.before.identity: change.path
        for change in changes
        if is_opaque(change.before) and change.before.identity
    }
    left.update(gone)
    return {
        change.path
        for change in changes
        if change.before is None
        and change.after
        and change.after.kind == "directory"
        and left.get(identities.get(change.path, ""))
    }


def written_inside(attachment: Attachment, folder: str) -> Iterator[str]:
    """The first path in a moved folder that was written since the last look, if one was.

    A rename changes neither the times of what is inside nor the folder's own time of writing, so a
    later time is of a write.
    """
    since = attachment.process.last_seen.last_tick
    waiting = [] if since is None else [folder]
    while waiting:
        path = waiting.pop()
        try:
            own = attachment.on_disk.workspace.mtime(path).timestamp() * 1e9
            inside = attachment.on_disk.workspace.list(path)
        except AuditError:  # what cannot be looked at may be written as well
            yield path
            return
        files = ((f"{path}/{name}", stamp) for name, stamp in inside)
        recent = [
            file for file, stamp in files if _is_since(attachment.on_disk, file, stamp, since or 0)
        ]
        if own >= (since or 0) or recent:
            yield (recent or [path])[0]
            return
        waiting += [f"{path}/{name}" for name, stamp in inside if stat.S_ISDIR(stamp.mode)]


def _is_since(on_disk: OnDisk, path: str, stamp: Stamp, since: int) -> bool:
    """Whether a file with this stamp changed since a time in ns; False for a folder, which is
    looked at by itself.
    """
    if stat.S_ISDIR(stamp.mode):
        return False
    # the stamp of a file that changed a moment ago has no ctime above zero
    at = stamp.ctime_ns if stamp.ctime_ns > 0 else on_disk.workspace.changed_at(path)
    return at is None or at >= since


def unrecorded(
    changes: Sequence[FileChange],
    moves: Sequence[Move],
    moved_in: Set[str],
    others: Iterable[str],
) -> list[str]:
    """The paths of opaque entries that came, went or were replaced: their inside is not known.

    `others` are more such paths. An entry that was moved with proof of its identity, by itself or
    in a folder, is the same one, and is left out; so are caches that tools make again.
    """
    sources, targets = {move.source for move in moves}, {move.target for move in moves}
    folders = {change.path for change in changes if change.before and change.after is None}
    known = (folders & sources) | moved_in
    opaque = (
        change.path
        for change in changes
        if (is_opaque(change.before) and change.path not in sources)
        or (is_opaque(change.after) and change.path not in targets)
    )
    return [
        path
        for path in (*others, *opaque)
        if not is_remade(path) and known.isdisjoint((path, *parents(path)))
    ]
