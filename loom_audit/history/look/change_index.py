"""Keeps the change index in step with the log.

The index is a cache: what it has not followed gets a stale stamp and is read again. It must never
say of a path that it is as last seen where the log does not have that state.
"""

import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import STALE, UNTRACKED, Attachment, OnDisk
from loom_audit.history.ground.process_state import ProcessState
from loom_audit.history.look.closed_folders import seen_stamp
from loom_audit.model.events import Event, Untracked
from loom_audit.model.files import BlobId, is_other_file
from loom_audit.ports import EventFilter, IndexEntry, Stamp, Stamps

_MARK = ""
"""The path of the root, which has no entry in the index: there the index names the last event that
it followed."""


def catch_up(attachment: Attachment) -> Stamps:
    """Bring the last seen stamps up to the log's head, and return them; the lock is held.

    A path that was recorded after the index was written gets a stale stamp, so that it is read
    again. Corrupt, and StorageFailed where the index cannot be read.
    """
    seen, head = attachment.process.last_seen, attachment.on_disk.index.head()
    if head != seen.head and head > attachment.stored.log.head():
        # it followed events that the log does not have: kept, so that verification tells of it
        attachment.on_disk.index.displace()
        head, seen.head = 0, -1
    elif seen.head < 0 and head and not _is_of_this_log(attachment):
        attachment.on_disk.index.clear()
        head = 0
    if seen.head < 0 and seen.watch is not None:
        # the watch tells what changed since a look whose stamps are not these
        seen.watch.distrust("the change index was read anew")
    if seen.head < 0 and not head:
        seen.stamps = every_path_stale(attachment)
    elif seen.head < 0:
        loaded = attachment.on_disk.index.load().items()
        seen.stamps = Stamps.of((path, entry[0]) for path, entry in loaded)
        seen.stamps.forget(_MARK)
    elif head != seen.head:
        for recorded in attachment.stored.tables.changes(after=min(seen.head, head), until=head):
            _set_stamp(
                attachment.process,
                recorded.change.path,
                attachment.on_disk.index.get(recorded.change.path),
            )
    seen.head = head
    for recorded in attachment.stored.tables.changes(after=head):
        path, after = recorded.change.path, recorded.change.after
        seen.git.note_path(path)
        if after is None or not attachment.scope.holds(path, after.kind):
            seen.stamps.forget(path)
        else:
            seen.stamps[path] = STALE
    return seen.stamps


def every_path_stale(attachment: Attachment) -> Stamps:
    """Stamps with which a look reads every path of the log's tree that is in scope. Corrupt."""
    tree = attachment.stored.reading.tree()
    return Stamps.of(
        (path, STALE) for path, state in tree.items() if attachment.scope.holds(path, state.kind)
    )


def _set_stamp(process: ProcessState, path: str, indexed: IndexEntry | None) -> None:
    process.last_seen.git.note_path(path)
    if indexed is None:
        process.last_seen.stamps.forget(path)
    else:
        process.last_seen.stamps[path] = indexed.stamp


def _is_of_this_log(attachment: Attachment) -> bool:
    """Whether the index followed this very log, and not one that an older copy has replaced.

    The last event that it followed must be the same, by seq and hash: after an older store was put
    back, other events have taken those seqs.
    """
    mark = attachment.on_disk.index.get(_MARK)
    if mark is None:
        return False
    seq = mark.stamp.size
    found = list(attachment.stored.log.read(EventFilter.only(seq)))
    return bool(found) and found[0].leaf_hash.hex() == mark.blob


def _mark_of(event: Event) -> IndexEntry:
    """The entry that names the last event followed: its seq as size, its hash as content."""
    return IndexEntry(Stamp(0, event.seq, 0, 0, 2), BlobId(event.leaf_hash.hex()))


def update_index(
    attachment: Attachment, entries: Mapping[str, IndexEntry | None], events: Sequence[Event]
) -> None:
    """Put these entries into the index after the commit of the events that recorded them; the lock
    is held.

    Without events the states of the paths were on record already. It raises nothing, since the
    events are on record: an index that cannot be written stays behind the log, and the next look
    hashes again what it misses.
    """
    head = events[-1].seq if events else attachment.stored.log.head()
    if not entries and attachment.process.last_seen.head == head:
        return
    try:
        first = events[0].seq if events else head + 1
        if _is_unread(attachment, first):
            marked = {**entries, _MARK: _mark_of(events[-1])} if events else entries
            attachment.on_disk.index.update(marked, head=head)
            attachment.process.last_seen.followed = head
            return
        if _is_behind(attachment, first):
            # the index would say that it followed all up to `head`: what others recorded is in it
            stamps = catch_up(attachment)
            stale = (path for path in stamps if stamps.get(path) == STALE)
            entries = {**dict.fromkeys(stale, IndexEntry(STALE, None)), **entries}
        marked = {**entries, _MARK: _mark_of(events[-1])} if events else entries
        attachment.on_disk.index.update(marked, head=head)
    except AuditError:
        attachment.process.last_seen.head = -1
        return
    attachment.process.last_seen.head = head
    for path, entry in entries.items():
        _set_stamp(attachment.process, path, entry)


def _is_unread(attachment: Attachment, seq: int) -> bool:
    """Whether the index can be written without loading its stamps.

    So it is where this process has loaded none, and the index misses no change before this seq. A
    process that only writes files then never loads the stamps of all the other files.
    """
    seen, head = attachment.process.last_seen, attachment.on_disk.index.head()
    if seen.head >= 0 or seen.watch is not None or not 0 < head < seq:
        return False
    if head != seen.followed and not _is_of_this_log(attachment):
        return False
    return seq == head + 1 or not any(
        True for _ in attachment.stored.tables.changes(after=head, until=seq - 1)
    )


def _is_behind(attachment: Attachment, seq: int) -> bool:
    """Whether another process recorded changes before this seq, or wrote the index, since this
    process last did.
    """
    head = attachment.process.last_seen.head
    if head < 0 or attachment.on_disk.index.head() != head:
        return True
    return seq > head + 1 and any(
        True for _ in attachment.stored.tables.changes(after=head, until=seq - 1)
    )


def is_newly_untracked(attachment: Attachment, hidden: Untracked) -> bool:
    """Whether the path, or a known path below it, is not on record as untracked yet.

    It counts as new too where another file is at the path than the one that was untracked.
    """
    known = _known_paths(attachment.process, hidden.path)
    own = attachment.process.last_seen.stamps.get(hidden.path)
    closed = own is not None and stat.S_ISDIR(own.mode)
    if closed and seen_stamp(attachment.on_disk, hidden.path) == own:
        # a folder that is on record as closed, whose own stamp did not change
        return any(
            attachment.process.last_seen.stamps.get(p) not in (UNTRACKED, own) for p in known
        )
    if not known or any(
        attachment.process.last_seen.stamps.get(path) != UNTRACKED for path in known
    ):
        return True
    entry = attachment.on_disk.index.get(hidden.path)
    return entry is not None and is_other_file(
        entry.identity, _identity(attachment.on_disk, hidden.path)
    )


def untracked_entries(
    attachment: Attachment, paths: Iterable[Untracked]
) -> dict[str, IndexEntry | None]:
    """Index entries for paths that went on record as untracked, and for all known paths below."""
    hidden: dict[str, IndexEntry | None] = {}
    for one in paths:
        for path in _known_paths(attachment.process, one.path):
            hidden[path] = IndexEntry(UNTRACKED, None)
        hidden[one.path] = IndexEntry(UNTRACKED, None, _identity(attachment.on_disk, one.path))
    return hidden


def _identity(on_disk: OnDisk, path: str) -> str:
    """Which file is at a path; "" where that cannot be asked, as of a path that is too long."""
    with suppress(AuditError):
        return on_disk.workspace.identity(path)
    return ""


def _known_paths(process: ProcessState, path: str) -> list[str]:
    """The known paths at and below a path; it is quick where there are few."""
    stamps = process.last_seen.stamps
    stamp = stamps.get(path)
    if stamp is not None and (stamp == STALE or stat.S_ISDIR(stamp.mode)):
        below = path + "/"
        return [known for known in stamps if known == path or known.startswith(below)]
    found = [path] if stamp else []
    folders = [path]
    while folders:
        folder = folders.pop()
        inside = [f"{folder}/{name}" for name in stamps.files.get(folder, ())]
        found += inside
        folders += inside
    return found
