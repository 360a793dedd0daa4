"""What changed on disk since the log last knew, found by comparing stamps and hashing doubts."""

import hashlib
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from loom_audit.errors import (
    AuditError,
    AuditUnavailable,
    FileNotFound,
    PermissionDenied,
    TooLarge,
)
from loom_audit.history.attachment import HIDDEN, STALE, Attachment
from loom_audit.model.display import size_text
from loom_audit.model.events import Draft, Event, FilesChanged, Origin, Untracked
from loom_audit.model.files import BlobId, FileChange, FileState, find_moves
from loom_audit.ports import EventFilter, IndexEntry, Progress, Report, Stamp, Stamps

CHUNK_BYTES = 8 * 1024 * 1024
"""Stored bytes that are put on record at once: half of what the ballast frees on a full disk."""

CHUNK_PATHS = 10_000
IN_MEMORY = 1024 * 1024
"""Bytes of a file that is read at once rather than as a stream."""

READABLE = 32 * 1024 * 1024 * 1024
"""Bytes of a file that is not read at all: its hash would take most of a minute, and a sparse
file of petabytes costs nothing to make."""

MANY = 500
"""From this many doubtful paths on, the whole tree is read once instead of path by path."""

OUTSIDE = "outside"
_MARK = ""
"""Under the root's path, which has no entry, the index keeps the last event it followed."""


@dataclass(slots=True)
class Found:
    """A part of a scan: changes against the log's tree, and index entries to store with them.

    `returned` are changed paths that were untracked until now: when and by whom is not known.
    """

    changes: list[FileChange] = field(default_factory=list)
    entries: dict[str, IndexEntry | None] = field(default_factory=dict)
    untracked: list[Untracked] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why coverage is less than full, at most ten of them spelled out."""
        texts = [f"too large, recorded by hash: {path}" for path in self.too_large]
        texts += [f"{u.reason}: {u.path}" for u in self.untracked]
        texts += [f"untracked until now: {path}" for path in self.returned]
        more = len(texts) - 10
        return (*texts[:10], f"and {more} more") if more > 0 else tuple(texts)


def catch_up(at: Attachment) -> Stamps:
    """What the index knows, made to agree with the log's tree; the workspace lock is held.

    A path whose content the log learned after the index did is stale: it will be hashed.
    """
    known, head = at.known, at.index.head()
    if head != known.head and (
        head > at.log.head() or (known.head < 0 and head and not _is_of_this_log(at))
    ):
        at.index.clear()
        head = 0
        known.head = -1
    if known.head < 0:
        known.stamps = Stamps()
        for path, entry in at.index.load().items() if head else ():
            known.stamps[path] = entry.stamp
        known.stamps.forget(_MARK)
        if not head:
            _all_stale(at)
        known.head = head
    elif head != known.head:
        for recorded in at.projections.changes(after=min(known.head, head), until=head):
            _note(at, recorded.change.path, at.index.get(recorded.change.path))
        known.head = head
    for recorded in at.projections.changes(after=head):
        path, after = recorded.change.path, recorded.change.after
        if after is None or not at.scope.includes(path, directory=after.kind == "directory"):
            known.stamps.forget(path)
        else:
            known.stamps[path] = STALE
    return known.stamps


def _note(at: Attachment, path: str, entry: IndexEntry | None) -> None:
    if entry is None:
        at.known.stamps.forget(path)
    else:
        at.known.stamps[path] = entry.stamp


def _is_of_this_log(at: Attachment) -> bool:
    """Whether the index followed this log, not one that an older copy has replaced since."""
    mark = at.index.get(_MARK)
    if mark is None:
        return False
    seq = mark.stamp.size
    found = list(at.log.read(EventFilter(after=seq - 1, before=seq + 1)))
    return bool(found) and found[0].leaf_hash.hex() == mark.blob


def _mark(event: Event) -> IndexEntry:
    return IndexEntry(Stamp(0, event.seq, 0, 0, 2), BlobId(event.leaf_hash.hex()))


def _all_stale(at: Attachment) -> None:
    for path, state in at.projections.tree().items():
        if at.scope.includes(path, directory=state.kind == "directory"):
            at.known.stamps[path] = STALE


def remember(
    at: Attachment, entries: Mapping[str, IndexEntry | None], events: Sequence[Event]
) -> None:
    """Let the index follow the commit of these events, which recorded the paths (with none,
    what was seen of them was on record already); the workspace lock is held.

    An index that cannot be written stays behind the log: what it does not know is hashed
    again. What is on record is on record, so this must not fail the call that recorded it.
    """
    head = events[-1].seq if events else at.log.head()
    if not entries and at.known.head == head:
        return
    try:
        if _is_behind(at, events[0].seq if events else head + 1):
            known = catch_up(at)  # what the index has not followed must not be passed over
            stale = (path for path in known if known.get(path) == STALE)
            entries = {**dict.fromkeys(stale, IndexEntry(STALE, None)), **entries}
        marked = {**entries, _MARK: _mark(events[-1])} if events else entries
        at.index.update(marked, head=head)
    except AuditError:
        at.known.head = -1
        return
    at.known.head = head
    for path, entry in entries.items():
        _note(at, path, entry)


def _is_behind(at: Attachment, seq: int) -> bool:
    """Whether somebody else recorded changes before this seq, or the index is not as we left it."""
    head = at.known.head
    if head < 0 or at.index.head() != head:
        return True
    return seq > head + 1 and any(True for _ in at.projections.changes(after=head, until=seq - 1))


def observe(
    at: Attachment,
    path: str,
    before: FileState | None,
    *,
    keep: bool = True,
    seen: Stamp | None = None,
) -> tuple[FileState | None, IndexEntry | None]:
    """What is at the path now, its content put into the blob store (only hashed unless `keep`).

    `seen` is a stamp taken before, which spares the first look when it still holds after it.
    A file that changes while it is read is looked at again; one that never rests is given a
    stale entry so that the next scan looks once more. PermissionDenied, InvalidPath.
    """
    for attempt in range(3):
        stamp = seen or at.workspace.stamp(path)
        seen = None
        if stamp is None:
            return None, None
        try:
            state, after = _state(at, path, stamp, before, keep=keep)
        except FileNotFound:
            continue
        if _rests(stamp, after):
            return state, IndexEntry(stamp, state.blob)
        if attempt == 2:
            return state, IndexEntry(STALE, state.blob)
    return None, None


def _rests(before: Stamp, after: Stamp | None) -> bool:
    """Whether nothing moved between two looks; a racy stamp's ctime is no evidence."""
    return after is not None and before[:3] == after[:3] and before.ino == after.ino


def _state(
    at: Attachment, path: str, stamp: Stamp, before: FileState | None, *, keep: bool
) -> tuple[FileState, Stamp | None]:
    """What a path of this stamp holds, and its stamp once that was read."""
    mode = stat.S_IMODE(stamp.mode)
    if stat.S_ISDIR(stamp.mode):
        return FileState("directory", None, mode, 0), at.workspace.stamp(path)
    if stat.S_ISLNK(stamp.mode):
        target = at.workspace.read_link(path)
        state = FileState("symlink", _named(at, target, None, keep), 0o777, len(target))
        return state, at.workspace.stamp(path)
    similar = before.blob if before and before.kind == "file" else None
    kept = keep and stamp.size <= at.scope.max_file_bytes
    if stamp.size <= IN_MEMORY and kept == keep:
        content, after = at.workspace.read_at_once(path, stamp.size)
        return FileState("file", _named(at, content, similar, keep), mode, len(content)), after
    if stamp.size > max(READABLE, at.scope.max_file_bytes):
        raise TooLarge(
            f"too large to be read ({size_text(stamp.size)})",
            hint="Exclude it in .loomignore and run `loom-audit scope accept`.",
        )
    with at.workspace.open(path) as stream:
        first = _First(stream, stamp.size)
        if kept:
            blob = at.blobs.put(cast("BinaryIO", first), similar_to=similar)
            return FileState("file", blob, mode, at.blobs.size(blob)), at.workspace.stamp(path)
        digest, size = hashlib.sha256(), 0
        while part := first.read(1024 * 1024):
            digest.update(part)
            size += len(part)
    blob = BlobId(digest.hexdigest())
    return FileState("file", blob, mode, size), at.workspace.stamp(path)


class _First:
    """A stream's first bytes, so that reading a file comes to its end while that one grows."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        self._rest = size

    def read(self, size: int = -1) -> bytes:
        part = self._stream.read(self._rest if size < 0 else min(size, self._rest))
        self._rest -= len(part)
        return part


def _named(at: Attachment, content: bytes, similar: BlobId | None, keep: bool) -> BlobId:
    if keep:
        return at.blobs.put(content, similar_to=similar)
    return BlobId(hashlib.sha256(content).hexdigest())


def scan(
    at: Attachment,
    flush: Callable[[Found], None],
    *,
    keep: bool = True,
    late: bool = False,
    report: Report | None = None,
    stage: str = "scan",
) -> Found:
    """Find every path in scope whose state differs from the log's tree; the lock is held.

    Hands full parts to `flush` so that memory stays bounded, and returns the last part. With
    `keep` false nothing is stored, for a look that must leave no trace. AuditUnavailable when
    a content cannot be stored; a `late` look, after the fact, names its path as untracked.
    """
    known = catch_up(at)
    doubtful: list[tuple[str, Stamp]] = []
    hidden: list[Untracked] = []
    gone: set[str] = set()
    for path, stamp in at.workspace.differences(at.scope, known):
        if isinstance(stamp, str):
            hidden.append(Untracked(path, stamp))
        elif stamp is None:
            gone.add(path)
        else:
            doubtful.append((path, stamp))
    if hidden:
        prefixes = tuple(u.path + "/" for u in hidden)
        exact = {u.path for u in hidden}
        gone = {p for p in gone if p not in exact and not p.startswith(prefixes)}
    found = Found(untracked=[u for u in hidden if not keep or _is_news(at, u)])
    state_of = recorded_states(at, len(doubtful) + len(gone))
    for path in sorted(gone):
        before = state_of(path)
        if before is not None and at.scope.includes(path, directory=before.kind == "directory"):
            _changed(at, found, FileChange(path, before, None))
        found.entries[path] = None
    return _look_at(
        at, doubtful, found, state_of, flush, keep=keep, late=late, report=report, stage=stage
    )


def _look_at(
    at: Attachment,
    doubtful: list[tuple[str, Stamp]],
    found: Found,
    state_of: Callable[[str], FileState | None],
    flush: Callable[[Found], None],
    *,
    keep: bool,
    late: bool,
    report: Report | None,
    stage: str,
) -> Found:
    for n, (path, stamp) in enumerate(doubtful):
        before = state_of(path)
        try:
            after, entry = observe(at, path, before, keep=keep, seen=stamp)
        except AuditError as error:
            if isinstance(error, AuditUnavailable) and not late:
                raise
            hidden = Untracked(
                path, "unreadable" if isinstance(error, PermissionDenied) else error.message
            )
            if not keep or _is_news(at, hidden):
                found.untracked.append(hidden)
            continue
        found.entries[path] = entry
        if after != before:
            _changed(at, found, FileChange(path, before, after))
        if after and after.kind == "file" and after.size > at.scope.max_file_bytes:
            found.too_large.append(path)
        if keep and (at.blobs.pending_bytes() > CHUNK_BYTES or len(found.changes) >= CHUNK_PATHS):
            flush(found)
            found = Found([], {}, found.untracked, found.too_large, found.returned)
        if report and n % 200 == 0:
            report(Progress(stage, n, len(doubtful)))
    if report:
        report(Progress(stage, len(doubtful), len(doubtful)))
    found.changes.sort(key=lambda change: change.path)
    return found


def _changed(at: Attachment, found: Found, change: FileChange) -> None:
    found.changes.append(change)
    if at.known.stamps.get(change.path) == HIDDEN:
        found.returned.append(change.path)


def recorded_states(at: Attachment, doubts: int) -> Callable[[str], FileState | None]:
    """The log's state of a path, for so many of them; the workspace lock is held."""
    return at.projections.tree().get if doubts > MANY else at.projections.state


def _is_news(at: Attachment, hidden: Untracked) -> bool:
    """A path that was never seen to be untracked, or that holds something that was not."""
    within = _within(at, hidden.path)
    return not within or any(at.known.stamps.get(path) != HIDDEN for path in within)


def hide(at: Attachment, paths: Iterable[Untracked]) -> dict[str, IndexEntry | None]:
    """Index entries for what is on record as untracked, and all that is known below it."""
    hidden: dict[str, IndexEntry | None] = {}
    for one in paths:
        hidden[one.path] = IndexEntry(HIDDEN, None)
        for path in _within(at, one.path):
            hidden[path] = IndexEntry(HIDDEN, None)
    return hidden


def _within(at: Attachment, path: str) -> list[str]:
    """What is known at a path and below it; most of what is hidden holds nothing known."""
    stamps = at.known.stamps
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


def outside(changes: Iterable[FileChange]) -> Draft:
    """Changes nobody on record made."""
    listed = tuple(changes)
    return Draft(FilesChanged(listed, "outside", moves=find_moves(listed)), "", OUTSIDE)


def attribute(
    at: Attachment, changes: Iterable[FileChange], *, but: tuple[str, str] | None = None
) -> Draft:
    """Changes found by somebody who did not make them, as a draft.

    They are the running commands' when there are any (several: all are candidates, and the
    first is the one they are listed with), otherwise they came from outside.
    """
    listed = tuple(changes)
    running = at.running(but=but)
    if not running:
        return outside(listed)
    owner = running[0]
    causes = tuple(call.call_id for call in running) if len(running) > 1 else ()
    origin: Origin = "command"
    fact = FilesChanged(listed, origin, owner.call_id, find_moves(listed), causes=causes)
    return Draft(fact, owner.session, owner.actor)
