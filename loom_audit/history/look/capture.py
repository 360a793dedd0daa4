"""Finds what changed on disk: stamps are compared, and files whose stamp differs are hashed."""

import stat
import sys
import time
from collections.abc import Callable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.errors import AuditError, AuditUnavailable, PermissionDenied
from loom_audit.history.ground.attachment import UNTRACKED, Attachment
from loom_audit.history.look.change_index import (
    catch_up,
    every_path_stale,
    is_newly_untracked,
)
from loom_audit.history.look.closed_folders import closed_folders
from loom_audit.history.look.links import ScannedLinks
from loom_audit.history.look.observation import observe
from loom_audit.history.look.opaque import (
    arrivals,
    is_listed,
    list_opaque,
    lost_files,
    opaque_change,
    unrecorded,
    written_inside,
)
from loom_audit.history.look.scan_parts import HeldDeletions, LooseEnds
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
    Move,
    is_directory,
    is_opaque,
    opaque_moves,
    parents,
    proven_moves,
)
from loom_audit.model.text.display import visible_path
from loom_audit.ports import (
    OPAQUE,
    IndexEntry,
    LeftOutFiles,
    Progress,
    Report,
    Stamp,
    Stamps,
    Watch,
)

CHUNK_BYTES = 8 * 1024 * 1024
"""Most bytes stored in one commit: half of what the ballast file frees on a full disk."""

CHUNK_PATHS = 10_000

CLOCK_OF_FILES = 5 if sys.platform == "linux" else time.CLOCK_REALTIME
"""Linux's CLOCK_REALTIME_COARSE (clock_gettime(2)), by which the kernel dates files.

It is up to a tick behind the clock, so that only by it nothing is dated before it was made.
"""

WHOLE_TREE_FROM = 500
"""For more paths than this the whole tree is read once instead of path by path."""


class ScanResult(Struct):
    """A part of a scan: changes against the log's tree, and index entries to store with them.

    `tracked_again` are changed paths that were untracked until now, so that it is not known
    when and by whom they were changed. `moves` are those with proof in this part, `arrived` the
    created paths whose content came from a place that is not recorded. Of the whole scan, in every
    part: `left_out` counts the files, `unrecorded` are opaque entries that came or went and what
    was untracked and is gone, `moved_in` those that are in scope by now, `gone` the vanished caches
    by identity, `known` the identities that were on record, `lost` says which left-out files are
    gone, `created` are the new paths that did not arrive with a folder, `apart` those to which a
    file was moved that left its old path in another part, `written` what changed since the last
    look in a folder of which only one of the places before and after a move is recorded, or none,
    and `missed` the files that were changed before the last look began, which was not told of it.
    """

    changes: list[FileChange] = field(default_factory=list)
    entries: dict[str, IndexEntry | None] = field(default_factory=dict)
    untracked: list[Untracked] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)
    tracked_again: list[str] = field(default_factory=list)
    moves: tuple[Move, ...] = ()
    arrived: tuple[str, ...] = ()
    left_out: LeftOutFiles = field(default_factory=dict)
    unrecorded: list[str] = field(default_factory=list)
    moved_in: set[str] = field(default_factory=set)
    gone: dict[str, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    lost: tuple[str, ...] = ()
    created: set[str] = field(default_factory=set)
    ends: LooseEnds = field(default_factory=LooseEnds)
    apart: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    missed: set[str] = field(default_factory=set)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why coverage is less than full; at most ten reasons, and how many more there are."""
        texts = [f"too large, recorded by hash: {path}" for path in self.too_large]
        texts += [f"{u.reason}: {u.path}" for u in self.untracked]
        texts += [f"untracked until now: {path}" for path in self.tracked_again]
        texts += [f"not on record: {visible_path(path)}" for path in self.unrecorded]
        texts += [f"not on record: {one}" for one in self.lost]
        texts += [f"written in a folder that was moved: {visible_path(p)}" for p in self.written]
        texts += [f"a move that is not on record: {visible_path(path)}" for path in self.apart]
        more = len(texts) - 10
        return (*texts[:10], f"and {more} more") if more > 0 else tuple(texts)


def scan(
    attachment: Attachment,
    flush: Callable[[ScanResult], None],
    *,
    keep: bool = True,
    after_the_fact: bool = False,
    anew: bool = False,
    report: Report | None = None,
    stage: str = "scan",
) -> ScanResult:
    """Find every path in scope whose state differs from the log's tree; the lock is held.

    `anew` reads every file, also where the index says that it is as it was.

    Full parts are handed to `flush` so that memory stays bounded; the last part is returned.
    Without `keep` nothing is stored. When a content cannot be stored: AuditUnavailable, or,
    `after_the_fact`, its path is listed as untracked.
    """
    if keep:
        list_opaque(attachment)
    began = time.clock_gettime_ns(CLOCK_OF_FILES)
    known = catch_up(attachment)
    if anew:
        known = every_path_stale(attachment)
    doubtful: list[tuple[str, Stamp]] = []
    untracked: list[Untracked] = []
    gone: set[str] = set()
    left_out: LeftOutFiles = {}
    watch = attachment.last_seen.watch if keep and not anew else None
    for path, stamp in _differences(attachment, known, left_out, watch):
        if isinstance(stamp, str):
            untracked.append(Untracked(path, stamp))
        elif stamp is None:
            gone.add(path)
        else:
            doubtful.append((path, stamp))
    gone = _surely_gone(gone, untracked, known)
    doubtful.sort(key=_is_content)
    found = ScanResult(
        untracked=[u for u in untracked if not keep or is_newly_untracked(attachment, u)],
        left_out=left_out,
    )
    state_of = recorded_state_lookup(attachment, len(doubtful) + len(gone))
    held = HeldDeletions()
    for path in sorted(gone):
        _add_gone(attachment, found, held, path, state_of(path))
    for change, entry in closed_folders(attachment, found.untracked):
        if change.before != change.after:
            found.changes.append(change)
        found.entries[change.path] = entry
    found = _scan_paths(
        attachment,
        doubtful,
        ScannedLinks(doubtful, gone, known, state_of),
        found,
        held,
        state_of,
        flush,
        keep=keep,
        after_the_fact=after_the_fact,
        report=report,
        stage=stage,
    )
    if keep:
        found.lost = lost_files(attachment.last_seen.left_out, left_out)
        attachment.last_seen.looked, attachment.last_seen.left_out = began, left_out
        attachment.last_seen.created = found.created
    return found


def scan_whole(
    attachment: Attachment, flush: Callable[[ScanResult], None], report: Report | None = None
) -> ScanResult:
    """Find every path in scope as if nothing were on record; the lock is held.

    All is read, and what the index knew is forgotten. In parts, as `scan`.
    """
    seen = attachment.last_seen
    attachment.index.clear()
    seen.stamps, seen.head = Stamps(), -1
    seen.listed = True
    doubtful: list[tuple[str, Stamp]] = []
    untracked: list[Untracked] = []
    left_out: LeftOutFiles = {}
    for path, stamp in attachment.workspace.differences(attachment.scope, Stamps(), left_out):
        if isinstance(stamp, str):
            untracked.append(Untracked(path, stamp))
        elif stamp is not None:
            doubtful.append((path, stamp))
    doubtful.sort(key=_is_content)

    def nothing(_: str) -> None:
        return None

    return _scan_paths(
        attachment,
        doubtful,
        ScannedLinks(doubtful, set(), Stamps(), nothing),
        ScanResult(untracked=untracked, left_out=left_out),
        HeldDeletions(),
        nothing,
        flush,
        keep=True,
        after_the_fact=False,
        report=report,
        stage="listing",
    )


def _differences(
    attachment: Attachment, known: Stamps, left_out: LeftOutFiles, watch: Watch | None
) -> Iterator[tuple[str, Stamp | str | None]]:
    """What is not as known; with a watch also of what the look before told and is not known yet."""
    workspace, seen = attachment.workspace, attachment.last_seen
    if watch is None:
        yield from workspace.differences(attachment.scope, known, left_out)
        return
    for path, stamp in seen.told.items():
        if known.get(path) != stamp:
            watch.touch(path)
    told: dict[str, Stamp | None] = {}
    for path, found in workspace.differences(attachment.scope, known, left_out, watch):
        told[path] = UNTRACKED if isinstance(found, str) else found
        yield path, found
    seen.told = told
    if watch.why_whole:
        seen.unchecked.clear()


def _add_gone(
    attachment: Attachment,
    found: ScanResult,
    held: HeldDeletions,
    path: str,
    before: FileState | None,
) -> None:
    entry = attachment.index.get(path)
    identity = entry.identity if entry else ""
    if before is None:
        if identity:
            found.gone[identity] = path
        if attachment.last_seen.stamps.get(path) == UNTRACKED:
            found.unrecorded.append(path)
    elif attachment.scope.holds(path, before.kind):
        _add_change(attachment, found, path, before, None)
        added = bool(found.changes) and found.changes[-1].path == path
        if added and held.hold(found.changes[-1], identity):
            found.changes.pop()
            return
    found.entries[path] = None


def _surely_gone(gone: set[str], untracked: list[Untracked], known: Stamps) -> set[str]:
    """The known paths that are not there any more, also where something else is now.

    What is in a folder that cannot be read may be there still.
    """
    replaced = {u.path for u in untracked if u.reason.startswith(NOT_A_FILE)}
    hidden = {u.path for u in untracked} - replaced
    gone |= {path for path in replaced if known.get(path) not in (None, UNTRACKED)}
    return {path for path in gone if hidden.isdisjoint((path, *parents(path)))}


def _scan_paths(
    attachment: Attachment,
    doubtful: list[tuple[str, Stamp]],
    links: ScannedLinks,
    found: ScanResult,
    held: HeldDeletions,
    state_of: Callable[[str], FileState | None],
    flush: Callable[[ScanResult], None],
    *,
    keep: bool,
    after_the_fact: bool,
    report: Report | None,
    stage: str,
) -> ScanResult:
    whole = True
    for n, (path, stamp) in enumerate(doubtful):
        attachment.lock.answer_signals()  # a look takes long, and is made again
        before = state_of(path)
        try:
            after, entry = observe(attachment, path, before, keep=keep, seen=stamp)
            after = links.settled(path, after, stamp)
        except AuditError as error:
            if isinstance(error, AuditUnavailable) and not after_the_fact:
                raise
            why = "unreadable" if isinstance(error, PermissionDenied) else error.message
            untracked = unreadable_file(path, why, stamp)
            if not keep or is_newly_untracked(attachment, untracked):
                found.untracked.append(untracked)
            continue
        if after != before or is_opaque(after):
            _add_change(attachment, found, path, before, after, keep=keep)
            if before is not None and entry is not None and _is_missed(attachment, path, entry):
                found.missed.add(path)
        found.entries[path] = entry
        _add_deletions(found, held.release(entry.identity if entry else "", path))
        if after and after.kind == "file" and after.size > attachment.scope.max_file_bytes:
            found.too_large.append(path)
        full = attachment.blobs.pending_bytes() > CHUNK_BYTES or len(found.changes) >= CHUNK_PATHS
        if keep and full and _is_content((path, stamp)):
            if whole:
                found.known |= _known_identities(attachment, doubtful)
                whole = False
            _settle_back(attachment, found, keep=keep)
            _complete(attachment, found)
            _hold_folders(found, held)
            _release_inside(attachment, found, held)
            flush(found)
            found = replace(found, changes=[], entries={}, moves=(), arrived=())
        if report and n % 200 == 0:
            report(Progress(stage, n, len(doubtful)))
    if report:
        report(Progress(stage, len(doubtful), len(doubtful)))
    _add_deletions(found, held.rest())
    found.changes.sort(key=lambda change: change.path)
    _settle_back(attachment, found, keep=keep)
    _complete(attachment, found)
    return found


def _settle_back(attachment: Attachment, found: ScanResult, *, keep: bool) -> None:
    """Leave out what was untracked and is as it was; with `keep` it goes on record by itself."""
    if not found.tracked_again:
        return
    again = set(found.tracked_again)
    back = came_back(attachment, [one for one in found.changes if one.path in again])
    paths = {change.path for change in back}
    found.changes = [one for one in found.changes if one.path not in paths]
    found.tracked_again = [path for path in found.tracked_again if path not in paths]
    if keep:
        record_back(attachment, back, {path: found.entries.pop(path) for path in paths})
        again -= paths
        seen = [one for one in found.changes if one.path in again]
        left, known, special = record_seen_again(attachment, seen, found.entries)
        found.changes = [one for one in found.changes if one.path not in again] + left
        found.tracked_again = [p for p in found.tracked_again if p not in known | special]
        found.unrecorded += sorted(special)


def _known_identities(attachment: Attachment, paths: list[tuple[str, Stamp]]) -> set[str]:
    known = attachment.index.load()
    return {known[path].identity for path, _ in paths if path in known}


def _add_deletions(found: ScanResult, deletions: list[FileChange]) -> None:
    found.changes += deletions
    found.entries.update(dict.fromkeys(change.path for change in deletions))


def _hold_folders(found: ScanResult, held: HeldDeletions) -> None:
    """Leave the deletions of folders to the last part, since what was in them may be held."""
    left = held.without_folders(found.changes, found.moves)
    for path in {change.path for change in found.changes} - {change.path for change in left}:
        del found.entries[path]
    found.changes = left


def _release_inside(attachment: Attachment, found: ScanResult, held: HeldDeletions) -> None:
    """Add what was in folders that are none any more: nothing is left below what is no folder."""
    gone = {c.path for c in found.changes if is_directory(c.before) and not is_directory(c.after)}
    released = held.release_below(gone)
    known = ((one.path, attachment.index.get(one.path)) for one in released)
    was = {path: entry.identity for path, entry in known if entry is not None}
    found.apart += found.ends.add(released, (), was, {})
    _add_deletions(found, released)


def _is_content(one: tuple[str, Stamp]) -> bool:
    """Whether a path has content: what has none comes first, so that moves of it are seen."""
    return stat.S_IFMT(one[1].mode) not in (stat.S_IFDIR, OPAQUE)


def _complete(attachment: Attachment, found: ScanResult) -> None:
    """Find the moves of a part, what arrived, and what came or went unrecorded."""
    now = {path: entry.identity for path, entry in found.entries.items() if entry is not None}
    was: dict[str, str] = {}
    if any(change.before for change in found.changes):
        before = ((c.path, attachment.index.get(c.path)) for c in found.changes if c.before)
        was = {path: entry.identity for path, entry in before if entry is not None}
        found.moves = proven_moves(found.changes, was, now)
        found.known |= set(was.values())
    found.apart += found.ends.add(found.changes, found.moves, was, now)
    for move in opaque_moves(found.changes, found.moves):
        found.written += written_inside(attachment, move.target)
    found.moved_in |= arrivals(found.changes, now, found.gone)
    arrived = []
    for change in found.changes:
        path = change.path
        if change.before is not None or change.after is None:
            continue
        if found.moved_in.isdisjoint((path, *parents(path))):
            found.created.add(path)
            if now.get(path, "") in found.known or not _is_older(attachment, path):
                continue
            if change.after.kind == "directory":
                found.moved_in.add(path)
        arrived.append(path)
    arrived += [path for path in found.tracked_again if path not in arrived]
    found.arrived = tuple(arrived)
    found.unrecorded = unrecorded(found.changes, found.moves, found.moved_in, found.unrecorded)


def _is_older(attachment: Attachment, path: str) -> bool:
    """Whether what is new at a path was made before the last look: then it was elsewhere."""
    looked = attachment.last_seen.looked
    if looked is None or path in attachment.last_seen.created:
        return False  # what was found then could not be recorded
    born = attachment.workspace.born(path)
    return born is not None and born < looked


def _is_missed(attachment: Attachment, path: str, entry: IndexEntry) -> bool:
    """Whether a file that is another now was last changed before the last look began.

    That look was of what the kernel told of, and of this it did not tell: a name by which the file
    was written came and went between two looks.
    """
    seen = attachment.last_seen
    if not seen.unchecked or seen.looked is None or not stat.S_ISREG(entry.stamp.mode):
        return False
    known = attachment.index.get(path)
    if known is None or not known.identity or known.identity != entry.identity:
        return False
    # a stamp that may be racy, or of a file mapped into memory, has no ctime above zero
    return 0 < entry.stamp.ctime_ns < seen.looked


def _add_change(
    attachment: Attachment,
    found: ScanResult,
    path: str,
    before: FileState | None,
    after: FileState | None,
    *,
    keep: bool = True,
) -> None:
    change: FileChange | None = FileChange(path, before, after)
    if is_opaque(before) or is_opaque(after):
        if before is None and not keep and not is_listed(attachment):
            return
        change = opaque_change(attachment, path, before, after)
    if change is None:
        return
    found.changes.append(change)
    if attachment.last_seen.stamps.get(path) == UNTRACKED:
        found.tracked_again.append(path)


def recorded_state_lookup(attachment: Attachment, count: int) -> Callable[[str], FileState | None]:
    """A function that gives the log's state of a path, fit for `count` calls; the lock is held."""
    return (
        attachment.projections.tree().get
        if count > WHOLE_TREE_FROM
        else attachment.projections.state
    )
