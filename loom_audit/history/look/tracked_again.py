"""What was untracked and can be seen again: whether it changed meanwhile, and who may have done it.

A plain comparison with the tree, which does not have the path, would say that it was created now.
"""

import stat
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from loom_audit.history.ground.attachment import Attachment, OnDisk, StoredLog
from loom_audit.history.look.attribution import candidates
from loom_audit.history.look.before_lost import states_before_lost
from loom_audit.history.look.change_index import update_index
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import Draft, FilesChanged, PathsUntracked, Untracked
from loom_audit.model.files import FileChange, FileState, is_directory
from loom_audit.ports import EventFilter, IndexEntry, Stamp

NOT_A_FILE = "not a file"
"""The reason why an inode of another kind is not recorded begins so."""


def came_back(stored: StoredLog, changes: list[FileChange]) -> list[FileChange]:
    """The changes that lead an untracked path back to its last recorded state.

    Each of them lies in a folder that is in the tree, or that comes back with it. Corrupt.
    """
    back: dict[str, FileChange] = {}
    made = {one.path for one in changes if one.before is None and one.after is not None}
    before = states_before_lost(stored, made)
    for change in sorted(changes, key=lambda one: one.path):
        above = change.path.rpartition("/")[0]
        if change.before is not None or change.after is None:
            continue
        folder = back[above].after if above in back else _recorded(stored, above)
        if above and not is_directory(folder):
            continue
        if before.get(change.path) == change.after:
            back[change.path] = change
    return [*back.values()]


def _recorded(stored: StoredLog, path: str) -> FileState | None:
    return stored.reading.state(path) if path else None


def record_back(
    attachment: Attachment, back: list[FileChange], entries: Mapping[str, IndexEntry | None]
) -> None:
    """Put on record what came back as it was, as of no call; the lock is held.

    AuditUnavailable, Corrupt.
    """
    if back:
        events = attachment.stored.log.append(
            [Draft(FilesChanged((*back,), "baseline"), "", OUTSIDE)]
        )
        update_index(attachment, entries, events)


def unreadable_file(path: str, reason: str, stamp: Stamp) -> Untracked:
    """A file that cannot be read, with what its stamp shows: mode, size, time of writing, inode.

    By that it is known later whether it changed while it could not be read.
    """
    if not stat.S_ISREG(stamp.mode):
        return Untracked(path, reason)
    mode, written = stat.S_IMODE(stamp.mode), stamp.mtime_ns // 1000
    return Untracked(path, reason, mode, stamp.size, written, str(stamp.ino))


def record_seen_again(
    attachment: Attachment,
    changes: Sequence[FileChange],
    entries: dict[str, IndexEntry | None],
) -> tuple[list[FileChange], set[str], set[str]]:
    """Put on record what became of files while they could not be read; the lock is held.

    A file that is as it was seen when it became unreadable was changed by the call of that time. A
    file that was not seen then, that differs now, or of which no earlier state is known, is from
    outside: that call and the open ones may have changed it.
    Returned are the changes that the caller has to record, the paths that are that call's, and the
    paths at which there was a FIFO, socket or device. The caller records permission bits that
    changed later, and what replaced a FIFO, socket or device: that had no content that could change
    unseen, so its change is one like any other. AuditUnavailable, Corrupt.
    """
    still = [one.requested for one in candidates(attachment)] if changes else []
    then = _when_lost(attachment.stored, {change.path for change in changes})
    was = states_before_lost(attachment.stored, then.keys())
    ours: dict[int, list[FileChange]] = {}
    outside: dict[tuple[int, ...], list[FileChange]] = {}
    left: list[FileChange] = []
    settled: dict[str, IndexEntry | None] = {}
    special = {path for path, (one, _) in then.items() if one.reason.startswith(NOT_A_FILE)}
    for change in changes:
        path, after = change.path, change.after
        above = path.rpartition("/")[0]
        if path not in then or path in special or after is None or after.kind != "file":
            left.append(change)
            continue
        if change.before is not None or (
            above and not is_directory(_recorded(attachment.stored, above))
        ):
            left.append(change)
            continue
        seen, causes = then[path]
        as_seen = path in was and _is_as_seen(attachment.on_disk, path, seen)
        if len(causes) != 1 or not as_seen:
            outside.setdefault(tuple(dict.fromkeys((*causes, *still))), []).append(change)
            settled[path] = entries.pop(path, None)
            continue
        closed = replace(after, mode=after.mode if seen.mode is None else seen.mode)
        ours.setdefault(causes[0], []).append(FileChange(path, was[path], closed))
        if closed == after:
            settled[path] = entries.pop(path, None)
        else:
            left.append(FileChange(path, closed, after))
    drafts = []
    for requested, made in ours.items():
        call = attachment.stored.reading.call_at(requested)
        fact = FilesChanged(tuple(made), "command", call.call_id)
        drafts.append(Draft(fact, call.session, call.actor))
    for causes, found in outside.items():
        arrived = tuple(change.path for change in found)
        fact = FilesChanged(tuple(found), "outside", causes=causes, arrived=arrived)
        drafts.append(Draft(fact, "", OUTSIDE))
    if drafts:
        update_index(attachment, settled, attachment.stored.log.append(drafts))
    return left, {change.path for made in ours.values() for change in made}, special


def _when_lost(
    stored: StoredLog, paths: Collection[str]
) -> dict[str, tuple[Untracked, tuple[int, ...]]]:
    """What was seen of each path when it last became untracked, with the requests of the calls that
    may have done that.
    """
    found: dict[str, tuple[Untracked, tuple[int, ...]]] = {}
    if not paths:
        return found
    wanted = EventFilter(kinds=(PathsUntracked.kind,), newest_first=True)
    for event in stored.log.read(wanted):
        if isinstance(event.fact, PathsUntracked):
            for one in event.fact.paths:
                if one.path in paths:
                    found.setdefault(one.path, (one, event.fact.causes))
        if len(found) == len(paths):
            break
    return found


def _is_as_seen(on_disk: OnDisk, path: str, seen: Untracked) -> bool:
    """Whether size, time of writing and inode of a file are as when it became untracked."""
    stamp = on_disk.workspace.stamp(path)
    if stamp is None:
        return False
    now = stamp.size, stamp.mtime_ns // 1000, str(stamp.ino)
    return now == (seen.size, seen.written, seen.inode)
