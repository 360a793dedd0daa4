"""Finds what changed on disk: stamps are compared, and only files whose stamp differs are read."""

import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from loom_audit.errors import AuditError, AuditUnavailable, PermissionDenied
from loom_audit.history.ground.attachment import ABSENT, UNTRACKED, Attachment, StoredLog
from loom_audit.history.look.batches import Batch, Unmatched, WholeLook
from loom_audit.history.look.change_index import (
    catch_up,
    every_path_stale,
    is_newly_untracked,
)
from loom_audit.history.look.closed_folders import closed_folders
from loom_audit.history.look.links import ScannedLinks
from loom_audit.history.look.observation import is_missed, observe
from loom_audit.history.look.opaque import (
    arrivals,
    is_listed,
    lost_files,
    opaque_change,
    record_opaque_entries,
    unrecorded,
    written_inside,
)
from loom_audit.history.look.spared import Spared
from loom_audit.history.look.timing import CLOCK_OF_FILES
from loom_audit.history.look.tracked_again import (
    NOT_A_FILE,
    came_back,
    record_back,
    record_seen_again,
    unreadable_file,
)
from loom_audit.model.events import Untracked
from loom_audit.model.files import (
    FileChange,
    FileState,
    is_directory,
    is_opaque,
    opaque_moves,
    parents,
    proven_moves,
)
from loom_audit.ports import (
    OPAQUE,
    IndexEntry,
    OnProgress,
    Progress,
    Stamp,
    StampedPaths,
    Stamps,
    Watch,
)

WHOLE_TREE_FROM = 500
"""The number of paths beyond which the recorded tree is read as a whole, not path by path."""

MOST_IN_MEMORY = 100_000
"""A recorded tree of more files is read path by path: it is not to be in memory with a scan."""

_FOLDERS = ("directory", "opaque")

Differences = Iterable[tuple[str, Stamp | str | None]]
"""Paths that differ from what was last seen: each with its stamp, None where it is gone, or the
reason why it cannot be recorded."""


def scan(
    attachment: Attachment,
    *,
    keep: bool = True,
    after_the_fact: bool = False,
    anew: bool = False,
    progress: OnProgress | None = None,
    stage: str = "scan",
    spared: Spared | None = None,
) -> Iterator[Batch]:
    """Find every path in scope whose state differs from the log's tree; the lock is held.

    The caller commits each batch but the last before it asks for the next, so that memory stays
    bounded. Without `keep` nothing is stored, and there is one batch. `anew` reads every file, also
    where the index says that it did not change. `progress` is told how many paths of the `stage`
    were looked at. Where a content cannot be stored: AuditUnavailable; or, for a look
    `after_the_fact`, its path becomes untracked, since the call cannot be refused any more.
    What is `spared` is left to the next look. NoWorkspace, Corrupt.
    """
    if keep:
        record_opaque_entries(attachment)
    ticked, began = time.clock_gettime_ns(CLOCK_OF_FILES), time.time_ns()
    known = catch_up(attachment)
    if anew:
        known = every_path_stale(attachment)
    look = _Scan(attachment, known, keep=keep, after_the_fact=after_the_fact)
    watch = attachment.process.last_seen.watch if keep and not anew else None
    differences = _differences(attachment, known, look.whole, watch)
    look.sort_out(spared.without(attachment, differences, known) if spared else differences)
    if watch is not None:
        if spared is not None:
            look.differing.extend(spared.met)
        attachment.process.last_seen.differing = look.differing
        ticked, began = ticked - watch.lag, began - watch.lag
    for batch in look.batches(progress, stage):
        if keep and batch.last:
            seen, whole = attachment.process.last_seen, look.whole
            whole.lost = lost_files(seen.left_out, whole.left_out)
            seen.last_look, seen.last_tick = began, ticked
            seen.left_out, seen.created = whole.left_out, look.created
        yield batch


def look_once(attachment: Attachment, *, anew: bool = False) -> Batch:
    """All that `scan` finds, in one batch and with nothing stored; the lock is held."""
    [found] = scan(attachment, keep=False, anew=anew)
    return found


def scan_whole(attachment: Attachment, progress: OnProgress | None = None) -> Iterator[Batch]:
    """As `scan`, as if nothing were on record; the lock is held.

    Every file is read, and the change index is emptied.
    """
    seen = attachment.process.last_seen
    attachment.on_disk.index.clear()
    seen.stamps, seen.head = Stamps(), -1
    seen.listed = True
    look = _Scan(attachment, Stamps(), recorded=lambda _: None)
    found = attachment.on_disk.workspace.differences(
        attachment.scope, Stamps(), look.whole.left_out
    )
    look.sort_out(found)
    yield from look.batches(progress, "listing")


def recorded_state_lookup(stored: StoredLog, count: int) -> Callable[[str], FileState | None]:
    """A function that gives the log's state of a path, fit for `count` paths; the lock is held."""
    return stored.reading.tree().get if count > WHOLE_TREE_FROM else stored.reading.state


def _differences(
    attachment: Attachment, known: Stamps, whole: WholeLook, watch: Watch | None
) -> Differences:
    """Yield what differs from `known`; with a watch, only where it tells that something happened.

    A path that the look before saw with another stamp than the known one could not be recorded
    then. The kernel does not tell of it again, so it is looked at once more.
    """
    workspace, seen = attachment.on_disk.workspace, attachment.process.last_seen
    if watch is None:
        yield from workspace.differences(attachment.scope, known, whole.left_out)
        return
    for path, stamp in seen.differing:
        if (known.get(path) or ABSENT) != stamp:
            watch.touch(path)
    yield from workspace.differences(attachment.scope, known, whole.left_out, watch)
    if watch.why_whole:
        seen.unchecked.clear()


class _Scan:
    """One look: what differs from what is `known`, given as batches.

    `recorded` gives the log's state of a path. Kept over all batches are `_moved_in`, the folders
    that came into scope by a move; `_vanished`, by identity the paths of what went and had no
    recorded state; `_displaced`, the identities of files and folders in whose place another folder
    is now, since such a one may be seen at another path; `created`, the new paths that did not come
    with a folder that was moved in; and `differing`, every path that differs, with its stamp.
    """

    def __init__(
        self,
        attachment: Attachment,
        known: Stamps,
        *,
        recorded: Callable[[str], FileState | None] | None = None,
        keep: bool = True,
        after_the_fact: bool = False,
    ) -> None:
        self._attachment = attachment
        self._known = known
        self._recorded = recorded
        self._keep = keep
        self._after_the_fact = after_the_fact
        self.whole = WholeLook()
        self._batch = Batch(self.whole)
        self._unmatched = Unmatched()
        self._gone: set[str] = set()
        self._folders: list[tuple[str, Stamp]] = []
        self._contents = StampedPaths()
        self.differing = StampedPaths()
        self._moved_in: set[str] = set()
        self._vanished: dict[str, str] = {}
        self._on_record: set[str] | None = None
        self._displaced: set[str] = set()
        self._is_split = False
        self.created: set[str] = set()

    def sort_out(self, differences: Differences) -> None:
        """Sort the paths that differ by what is there now; no content is read yet."""
        attachment = self._attachment
        untracked: list[Untracked] = []
        gone: set[str] = set()
        replacing = StampedPaths()
        for path, stamp in differences:
            if isinstance(stamp, str):
                untracked.append(Untracked(path, stamp))
            elif stamp is None:
                gone.add(path)
            elif stat.S_IFMT(stamp.mode) in (stat.S_IFDIR, OPAQUE):
                self._folders.append((path, stamp))
            elif path in self._known.directories:
                replacing.add(path, stamp)
            else:
                self._contents.add(path, stamp)
        self._contents.extend(replacing)
        self.differing = self._contents.copy()
        for path, stamp in self._folders:
            self.differing.add(path, stamp)
        for path in gone:
            self.differing.add(path, ABSENT)
        for one in untracked:
            self.differing.add(one.path, UNTRACKED)
        self._gone = _surely_gone(gone, untracked, self._known)
        for one in untracked:
            self._add_untracked(one)
        if self._recorded is None:
            count = len(self._folders) + len(self._contents) + len(self._gone)
            is_large = sum(map(len, self._known.files.values())) > MOST_IN_MEMORY
            self._recorded = recorded_state_lookup(attachment.stored, 0 if is_large else count)
        self._links = ScannedLinks(self._contents, self._gone, self._known, self._state)

    def batches(self, progress: OnProgress | None, stage: str) -> Iterator[Batch]:
        """The batches, each of changes that apply to the tree after the batches before it.

        The order: folders and opaque entries, outermost first; then files and symlinks, each with
        the deletion at the path that it was moved from; then what replaces a folder, once that is
        empty; then the other deletions. Where an opaque entry came, went or changed, all folders
        and opaque entries are in one batch, so that their moves are seen.
        """
        count = len(self._folders) + len(self._contents)
        for path in sorted(self._gone):
            self._add_gone(path)
        for change, entry in closed_folders(self._attachment, self.whole.untracked):
            if change.before != change.after:
                self._batch.add(change)
            self._batch.entries[change.path] = entry
        plain = not self._has_opaque()
        for path, stamp in self._folders:
            self._look_at(path, stamp, self._state(path))
            if plain and self._is_full():
                yield self._finished()
        if not plain:
            self._delete_moved_folders()
        for n, (path, stamp) in enumerate(self._contents.take(), len(self._folders)):
            before = self._state(path)
            for inside in self._inside_of(path) if is_directory(before) else ():
                self._delete(inside)
                if self._is_full():
                    yield self._finished()
            self._look_at(path, stamp, before)
            if self._is_full():
                yield self._finished()
            if progress and n % 200 == 0:
                progress(Progress(stage, n, count))
        for path in (*self._unmatched.take_files(), *self._unmatched.take_folders()):
            self._delete(path)
            if self._is_full():
                yield self._finished()
        if progress:
            progress(Progress(stage, count, count))
        yield self._finished(last=True)

    # --- one path -------------------------------------------------------------------------

    def _state(self, path: str) -> FileState | None:
        assert self._recorded is not None
        return self._recorded(path)

    def _has_opaque(self) -> bool:
        """Whether an opaque entry came, went or became something else."""
        stamps = [stamp for _, stamp in self._folders]
        paths = (*(path for path, _ in self._folders), *self._gone)
        stamps += [stamp for path in paths if (stamp := self._known.get(path)) is not None]
        return any(stat.S_IFMT(stamp.mode) == OPAQUE for stamp in stamps)

    def _add_gone(self, path: str) -> None:
        """Note that what was known at a path is gone; the deletion of what is recorded may wait."""
        attachment, before = self._attachment, self._state(path)
        entry = attachment.on_disk.index.get(path)
        identity = entry.identity if entry else ""
        if before is None:
            if identity:
                self._vanished[identity] = path
            if attachment.process.last_seen.stamps.get(path) == UNTRACKED:
                self.whole.unrecorded.append(path)
            self._batch.entries[path] = None
        elif not attachment.scope.holds(path, before.kind):
            self._batch.entries[path] = None
        elif is_opaque(before):
            self._delete(path)
        else:
            self._unmatched.defer(path, identity, folder=is_directory(before))

    def _delete(self, path: str) -> None:
        self._add_change(path, self._state(path), None)
        self._batch.entries[path] = None

    def _inside_of(self, folder: str) -> list[str]:
        """The files that were in a folder, but for one that moved to where the folder was."""
        identity = ""
        with suppress(AuditError):  # a folder above may forbid to look
            identity = self._attachment.on_disk.workspace.identity(folder)
        return self._unmatched.take_files(folder, besides=identity)

    def _delete_moved_folders(self) -> None:
        """Delete the folders that are opaque entries elsewhere now, with all that was in them."""
        index, folders = self._attachment.on_disk.index, self._unmatched.take_folders()
        lost = [FileChange(path, self._state(path), None) for path in folders]
        changes = [*self._batch.changes, *lost]
        entries = {change.path: index.get(change.path) for change in changes if change.before}
        moves = proven_moves(changes, _identities(entries), _identities(self._batch.entries))
        moved = {move.source for move in moves}
        for path in folders:
            if path not in moved:
                self._unmatched.defer(path, "", folder=True)
        for path in moved.intersection(folders):
            self._delete(path)
            self._empty(path)

    def _empty(self, folder: str) -> None:
        """Delete all that was in a folder which is not a folder any more."""
        for path in (*self._unmatched.take_files(folder), *self._unmatched.take_folders(folder)):
            self._delete(path)

    def _look_at(self, path: str, stamp: Stamp, before: FileState | None) -> None:
        """Find out what is at a path that had this stamp, and put its change into the batch."""
        attachment, batch = self._attachment, self._batch
        attachment.stored.lock.answer_signals()  # a look takes long, and is made again when ended
        try:
            after, entry = observe(attachment, path, before, keep=self._keep, seen=stamp)
            after = self._links.with_group(path, after, stamp)
        except AuditError as error:
            if isinstance(error, AuditUnavailable) and not self._after_the_fact:
                raise
            why = "unreadable" if isinstance(error, PermissionDenied) else error.message
            self._add_untracked(unreadable_file(path, why, stamp))
            return
        if before and before.kind != "opaque" and after and after.kind in _FOLDERS:
            known = attachment.on_disk.index.get(path)
            if known and (entry is None or entry.identity != known.identity):
                self._displaced.add(known.identity)
        if after is None and is_directory(before):
            self._unmatched.defer(path, "", folder=True)  # gone since it was listed
        elif after != before or is_opaque(after):
            self._add_change(path, before, after)
            if before is not None and entry is not None and is_missed(attachment, path, entry):
                batch.missed.add(path)
        batch.entries[path] = entry
        for source in self._unmatched.take(entry.identity if entry else "", path):
            self._delete(source)
        if is_directory(before) and not is_directory(after):
            self._empty(path)
        if after and after.kind == "file" and after.size > attachment.scope.max_file_bytes:
            self.whole.too_large.append(path)

    def _add_untracked(self, one: Untracked) -> None:
        if not self._keep or is_newly_untracked(self._attachment, one):
            self.whole.untracked.append(one)
            self._batch.untracked.append(one)

    def _add_change(self, path: str, before: FileState | None, after: FileState | None) -> None:
        attachment = self._attachment
        change: FileChange | None = FileChange(path, before, after)
        if is_opaque(before) or is_opaque(after):
            if before is None and not self._keep and not is_listed(attachment):
                return
            change = opaque_change(attachment.on_disk, path, before, after)
        if change is None:
            return
        self._batch.add(change)
        if attachment.process.last_seen.stamps.get(path) == UNTRACKED:
            self._batch.tracked_again.append(path)

    # --- one batch ------------------------------------------------------------------------

    def _is_full(self) -> bool:
        return self._keep and self._batch.is_full(self._attachment.stored.blobs.pending_bytes())

    def _finished(self, *, last: bool = False) -> Batch:
        """Complete the batch that was filled and give it; the next one is begun."""
        batch, self._batch = self._batch, Batch(self.whole)
        batch.last = last
        self._is_split = self._is_split or not last
        batch.changes.sort(key=lambda change: change.path)
        self._sort_out_tracked_again(batch)
        self._complete(batch)
        return batch

    def _sort_out_tracked_again(self, batch: Batch) -> None:
        """Take out what was untracked and can be seen again, where more is known of it.

        What is as it was recorded last did not change, and of other files it may be known who
        changed them. With `keep` both go on record here.
        """
        if not batch.tracked_again:
            return
        attachment, again = self._attachment, set(batch.tracked_again)
        back = came_back(attachment.stored, [one for one in batch.changes if one.path in again])
        paths = {change.path for change in back}
        batch.changes = [one for one in batch.changes if one.path not in paths]
        again -= paths
        if self._keep:
            record_back(attachment, back, {path: batch.entries.pop(path) for path in paths})
            seen = [one for one in batch.changes if one.path in again]
            left, known, special = record_seen_again(attachment, seen, batch.entries)
            batch.changes = [one for one in batch.changes if one.path not in again] + left
            again -= known | special
            self.whole.unrecorded += sorted(special)
        batch.tracked_again = [path for path in batch.tracked_again if path in again]
        self.whole.tracked_again += batch.tracked_again

    def _complete(self, batch: Batch) -> None:
        """Find the moves of a batch, what arrived by a move, and what came or went unrecorded."""
        attachment, whole = self._attachment, self.whole
        now, was = _identities(batch.entries), dict[str, str]()
        if any(change.before for change in batch.changes):
            index = attachment.on_disk.index
            was = _identities({c.path: index.get(c.path) for c in batch.changes if c.before})
            batch.moves = proven_moves(batch.changes, was, now)
        whole.apart += self._unmatched.note_ends(batch.changes, batch.moves, was, now)
        for move in opaque_moves(batch.changes, batch.moves):
            whole.written += written_inside(attachment, move.target)
        self._moved_in |= arrivals(batch.changes, now, self._vanished)
        were, arrived = set(was.values()), list[str]()
        for change in batch.changes:
            path = change.path
            if change.before is not None or change.after is None:
                continue
            if self._moved_in.isdisjoint((path, *parents(path))):
                self.created.add(path)
                identity = now.get(path, "")
                # made since the last look, or recorded before at another path: it has not arrived
                known = identity in were or identity in self._displaced
                if known or not self._is_older(path) or self._was_known(identity):
                    continue
                if change.after.kind == "directory":
                    self._moved_in.add(path)
            arrived.append(path)
        batch.arrived = tuple(dict.fromkeys((*arrived, *batch.tracked_again)))
        whole.unrecorded = unrecorded(batch.changes, batch.moves, self._moved_in, whole.unrecorded)

    def _is_older(self, path: str) -> bool:
        """Whether what is new at a path was made before the last look: then it was elsewhere."""
        looked = self._attachment.process.last_seen.last_look
        if looked is None or path in self._attachment.process.last_seen.created:
            return False  # the last look saw it here, and could not record it
        born = self._attachment.on_disk.workspace.born(path)
        return born is not None and born <= looked

    def _was_known(self, identity: str) -> bool:
        """Whether a file was on record at a path that another batch of this look has."""
        if not self._is_split:
            return False
        if self._on_record is None:
            entries = (self._attachment.on_disk.index.get(path) for path, _ in self._contents)
            self._on_record = {entry.identity for entry in entries if entry is not None}
        known = self._unmatched.gone, self._displaced, self._on_record
        return any(identity in some for some in known)


def _identities(entries: dict[str, IndexEntry | None]) -> dict[str, str]:
    return {path: entry.identity for path, entry in entries.items() if entry is not None}


def _surely_gone(gone: set[str], untracked: list[Untracked], known: Stamps) -> set[str]:
    """The known paths that are gone, also those at which something is now that is not recorded.

    What is in a folder that cannot be read may still be there, and is not among them.
    """
    replaced = {u.path for u in untracked if u.reason.startswith(NOT_A_FILE)}
    hidden = {u.path for u in untracked} - replaced
    gone |= {path for path in replaced if known.get(path) not in (None, UNTRACKED)}
    return {path for path in gone if hidden.isdisjoint((path, *parents(path)))}
