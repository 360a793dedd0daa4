"""Opaque entries: left-out folders and `.git`, of which only presence and identity are recorded."""

import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment, OnDisk, StoredLog
from loom_audit.history.look.change_index import catch_up, update_index
from loom_audit.model.events import OUTSIDE, BaselineFinished, Draft, Fact, FilesChanged, LeftOut
from loom_audit.model.files import FileChange, FileState, Move, is_opaque, is_other_file, parents
from loom_audit.model.plans.left_out import is_remade
from loom_audit.model.scope import NEVER
from loom_audit.model.text.display import count_text, visible_path
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
    """The state of an opaque entry, whose stamp is that of a scan or an lstat; None of others."""
    if stat.S_IFMT(stamp.mode) != OPAQUE:
        plain = not stat.S_ISDIR(stamp.mode) and path.rpartition("/")[2] not in NEVER
        if plain or not attachment.scope.is_opaque(path):
            return None
    identity = attachment.on_disk.workspace.identity(path)
    if stat.S_IFMT(stamp.mode) != OPAQUE:
        stamp = opaque_stamp(identity, stamp.ino)
    return FileState("opaque", None, 0, 0, identity=identity), IndexEntry(stamp, None, identity)


def opaque_change(
    on_disk: OnDisk, path: str, before: FileState | None, after: FileState | None
) -> FileChange | None:
    """The change of a path that is opaque before or after, with the identities known of it.

    None where there is none: what was seen in another boot or mount is seen anew, and caches come
    and go.
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
    """Whether opaque entries are on record since the baseline or since a later listing."""
    if not attachment.process.last_seen.listed:
        # the first is near the start of the log; for any other the whole of it is read
        found = (fact for limit in (1, None) for fact in _baselines(attachment.stored, limit))
        attachment.process.last_seen.listed = any(fact.left_out for fact in found)
    return attachment.process.last_seen.listed


def record_opaque_entries(attachment: Attachment) -> None:
    """Put the opaque entries on record of a workspace whose log has none; the lock is held.

    It is not known since when they are there. A baseline that is not complete yet lists them.
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
    """The left-out files by folder and reason; the root has a row also where none are in it."""
    rows = {("", "ignored"): (0, 0), **files}
    return tuple(LeftOut(*key, *counted) for key, counted in sorted(rows.items()))


def lost_files(before: LeftOutFiles, after: LeftOutFiles) -> tuple[str, ...]:
    """By folder how many left-out files are gone, when there are fewer in all than before."""
    if sum(files for files, _ in before.values()) <= sum(files for files, _ in after.values()):
        return ()
    fewer = {key: files - after.get(key, (0, 0))[0] for key, (files, _) in before.items()}
    return tuple(
        f"{count_text(files, 'file')} in {visible_path(folder) or 'the root'}"
        for (folder, _), files in sorted(fewer.items())
        if files > 0
    )


def arrivals(
    changes: list[FileChange], identities: Mapping[str, str], gone: Mapping[str, str]
) -> set[str]:
    """The created folders that were opaque until now, by the identities of those that are gone."""
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
    """The first path in a folder at which something changed since the last look, if one did.

    A rename leaves the times of what is inside as they are, and a folder's own time of writing.
    """
    since = attachment.process.last_seen.last_look
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
    """Whether what has this stamp changed since; of a folder that is not in it."""
    if stat.S_ISDIR(stamp.mode):
        return False
    # of what changed a moment ago a stamp does not say when
    at = stamp.ctime_ns if stamp.ctime_ns > 0 else on_disk.workspace.changed_at(path)
    return at is None or at >= since


def unrecorded(
    changes: Sequence[FileChange],
    moves: Sequence[Move],
    moved_in: Set[str],
    others: Iterable[str],
) -> list[str]:
    """The opaque entries that came, went or were replaced, so that what was in them is not known.

    `others` are more such paths. What was moved with proof, by itself or in a folder, is known.
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
