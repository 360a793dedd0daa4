"""What the outside must offer: one protocol per port, its contract in the comments.

All ports are synchronous and raise the errors of `loom_audit.errors`. "Durable" means: there
after `kill -9` and after power loss. Doubles in `testing.py` pass the same contract tests.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol

from loom_audit.model.events import (
    Call,
    Checkpoint,
    Draft,
    Event,
    RecordedChange,
    Session,
    TreeHead,
)
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.model.merkle import Node
from loom_audit.model.scope import Scope


class Clock(Protocol):
    def now(self) -> datetime:
        """The present, in UTC, with microseconds."""
        ...


# --- the log ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events to read: `after < seq < before`; None and () mean all."""

    after: int = 0
    before: int | None = None
    kinds: tuple[str, ...] = ()
    session: str | None = None
    call_id: str | None = None
    newest_first: bool = False
    limit: int | None = None


class EventLog(Protocol):
    """The append-only, totally ordered log of one workspace. Safe to use from any thread."""

    @property
    def id(self) -> str:
        """The log's id, which is also the workspace's."""
        ...

    def append(
        self, drafts: Sequence[Draft], *, expected_head: int | None = None
    ) -> Sequence[Event]:
        """Store the drafts as one durable transaction, with all blobs put since the last one.

        Either all are stored, with consecutive seqs, or none. A draft whose id is already in
        the log is not stored again: the event that has it is returned in its place (then no
        other draft of the batch may be new: Conflict). A second `call.finished` of one
        (session, call_id), or one that was never requested, raises Conflict, as does a head
        past `expected_head`. AuditUnavailable when it cannot be written: after an I/O error
        the connection is closed, reopened and the tail verified before the next append.
        A reader that has seen seq n never later sees a new seq below n.
        """
        ...

    def read(self, filter: EventFilter = EventFilter()) -> Iterator[Event]:
        """The events that match, in order of seq, facts whole. Corrupt names the event."""
        ...

    def head(self) -> int:
        """The seq of the last event, 0 for an empty log."""
        ...

    def tree_head(self, size: int | None = None) -> TreeHead:
        """The Merkle root over the first `size` events, by default all. NotFound past head."""
        ...

    def before(self, at: datetime) -> int:
        """The seq before the first event later than `at` (0 when all are later)."""
        ...


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Which calls to list, by the seq of their request: `after < requested < before`.

    `path` matches a changed path exactly or below it as a folder; `since`/`until` are on the
    time of the request; `point_*` bound the call's number.
    """

    after: int = 0
    before: int | None = None
    session: str | None = None
    tool: str | None = None
    actor: str | None = None
    status: str | None = None
    path: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    changed_only: bool = False
    newest_first: bool = True
    limit: int | None = 100


class Projections(Protocol):
    """Tables derived from the log, written in the same transaction as the event. Read only."""

    def sessions(self, *, before: int | None = None, limit: int = 100) -> Sequence[Session]:
        """Newest first, by the seq of their start."""
        ...

    def session(self, id: str) -> Session:
        """NotFound when there is none."""
        ...

    def calls(self, filter: CallFilter = CallFilter()) -> Sequence[Call]: ...

    def call_at(self, seq: int) -> Call:
        """The call that the event of this seq belongs to. NotFound when it belongs to none."""
        ...

    def call(self, session: str, call_id: str) -> Call:
        """NotFound when there is none."""
        ...

    def open_calls(self) -> Sequence[Call]:
        """Calls requested and not finished, oldest first."""
        ...

    def changes(
        self,
        *,
        after: int = 0,
        until: int | None = None,
        paths: Iterable[str] | None = None,
        call_ids: Iterable[str] | None = None,
    ) -> Iterator[RecordedChange]:
        """Changes of `files.changed` events with `after < seq <= until`, in log order.

        `paths` are exact. Streams: memory does not grow with the number of changes.
        """
        ...

    def history(
        self, path: str, *, below: bool = False, before: int | None = None, limit: int = 100
    ) -> Sequence[RecordedChange]:
        """Changes of one path, newest first; with `below` of all paths inside it too."""
        ...

    def tree(self, at: int | None = None) -> dict[str, FileState]:
        """The tree after event `at`, by default the head's."""
        ...

    def state(self, path: str, at: int | None = None) -> FileState | None:
        """One path of that tree."""
        ...

    def checkpoints(self) -> Sequence[Checkpoint]:
        """Newest first; a name marked again appears once, with its newest point."""
        ...

    def reverted(self) -> Mapping[int, int]:
        """Call number → number of the call that took it back, for those still taken back."""
        ...


# --- content ------------------------------------------------------------------------------


class BlobStore(Protocol):
    """Content by its SHA-256. Putting the same bytes twice is a no-op. Safe in any thread.

    What is put can be read at once through the same store; it is durable with the next
    `append` of a log opened on it, in the same transaction. Content over the inline limit is
    written, fsynced and renamed into the large-object store before `put` returns.
    """

    def put(self, content: bytes | BinaryIO, *, similar_to: BlobId | None = None) -> BlobId:
        """Keep the content; `similar_to` names an earlier version to store a delta against.

        A stream is read to its end in bounded memory.
        """
        ...

    def get(self, blob: BlobId) -> bytes:
        """The whole content. NotFound when it is not here, Corrupt when it does not match."""
        ...

    def open(self, blob: BlobId) -> BinaryIO:
        """The content as a stream in bounded memory, checked when it is read to the end."""
        ...

    def __contains__(self, blob: BlobId) -> bool: ...

    def size(self, blob: BlobId) -> int:
        """Bytes of the content. NotFound when it is not here."""
        ...

    def pending_bytes(self) -> int:
        """Bytes put and not yet durable, for callers that bound memory by appending."""
        ...


# --- the workspace ------------------------------------------------------------------------


class Stamp(NamedTuple):
    """What `lstat` says, enough to tell that a path may have changed (git's index rule).

    `mode` is the full st_mode; for a directory every other field is 0. A stamp is taken before
    the content it stands for is read. When the last change is so recent that another could
    leave the ctime as it is (git calls that racy), `ctime_ns` is the negated time of the look
    instead, so that the stamp equals no other and whoever compares looks again.
    """

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int


class Displaced(Protocol):
    """What a replace took out of the way, still on disk under a temporary name."""

    @property
    def state(self) -> FileState | None:
        """Kind, mode, size and hash of what was displaced; None when the path was absent."""
        ...

    @property
    def links(self) -> int:
        """How many names the displaced inode had; over 1, a hard link was broken."""
        ...

    @property
    def stamp(self) -> Stamp | None:
        """The stamp of what was put, surely of that and of nothing later; else None."""
        ...

    def open(self) -> BinaryIO:
        """Its content (a symlink's target), for putting into the blob store."""
        ...

    def discard(self) -> None:
        """Delete it; the replacement stands."""
        ...

    def put_back(self) -> None:
        """Exchange it with the replacement again and delete the replacement.

        Conflict when the replacement has been changed or replaced itself: then nothing is,
        and what was displaced is still to be had by `open`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Replacement:
    """One step of `replace_all`: what to put at a path and what is expected to be there.

    `content` opens the bytes (a symlink's target); None for directories and deletions.
    """

    change: FileChange
    content: Callable[[], BinaryIO] | None = None


class Workspace(Protocol):
    """The directory an agent works in. Paths are relative, beneath the root, and race-free.

    Symlinks inside are followed by read, stat(follow=True) and open; one that leads outside,
    `..` and absolute paths outside raise InvalidPath. Anything but a regular file, a symlink
    or a directory is refused with InvalidPath. The caller holds the workspace lock for every
    method that writes.
    """

    @property
    def root(self) -> str:
        """The absolute path of the directory."""
        ...

    def relative(self, path: str) -> str:
        """A path as callers write it (relative or absolute inside) as a workspace path.

        Lexical: `a/./b//c` becomes `a/b/c`; the root is "". Absolute paths may begin with the
        root as it was given or as it really is. InvalidPath for `..` that leaves the root, NUL,
        names over 255 bytes, paths over 4,095 bytes, outside. `.git` may be read; it is
        `replace` that refuses it.
        """
        ...

    def resolve(self, path: str, *, follow: bool = True) -> str:
        """The workspace path behind the symlinks of a path's parents and itself.

        What does not exist yet stays as it is written; with `follow` false a link at the end
        stands for itself. InvalidPath when a link leads outside or round in a circle.
        """
        ...

    def stamp(self, path: str) -> Stamp | None:
        """lstat of the path, None when absent or when a folder on the way is a symlink."""
        ...

    def mtime(self, path: str) -> datetime: ...

    def open(self, path: str) -> BinaryIO:
        """A regular file's content, symlinks inside followed. FileNotFound, PermissionDenied."""
        ...

    def read(self, path: str, limit: int | None = None) -> bytes:
        """At most `limit` bytes of it."""
        ...

    def read_link(self, path: str) -> bytes:
        """The bytes of a symlink's target."""
        ...

    def list(self, path: str = "") -> Sequence[tuple[str, Stamp]]:
        """Names and stamps in a directory, sorted by name."""
        ...

    def walk(
        self, scope: Scope, known: Mapping[str, Any], path: str = ""
    ) -> Iterator[tuple[str, Stamp | str]]:
        """Every path in scope below `path`, parents before children.

        A str instead of a stamp is the reason why the path (and all below it) cannot be
        recorded: `unreadable`, `not a file: fifo`, `mount`, `store`.

        A path that is a key of `known` is in scope without asking.
        """
        ...

    def replace(self, change: FileChange, content: BinaryIO | None) -> Displaced:
        """Put `change.after` at the path, durably and atomically, and hand back what was there.

        A file is written beside it, fsynced, exchanged, and the directory fsynced. Where
        `before` and `after` are of one content and the file has it, or both are directories,
        only the mode is changed, in place. Otherwise `change.before` is not looked at: the
        caller compares it with `Displaced.state`. Nothing on the path may be a symlink: see
        `resolve`. InvalidPath for `.git` and what is in it, our temporaries, the store; Corrupt
        when the content has not the hash of `after`.
        For an absent `after` the path is moved away; a directory is removed only when empty
        (Conflict when it is not).
        """
        ...

    def replace_all(
        self, steps: Sequence[Replacement], done: dict[int, Displaced] | None = None
    ) -> Sequence[Displaced]:
        """Many in two phases: all temporaries, one sync, all exchanges, one sync.

        Order: deletions of files, directories deepest first, then directories made outermost
        first, then files. What is displaced is handed back in the order of `steps`. When a
        step fails, those already exchanged stay, and the error's details name it as `path`,
        and how many were done as `done`; the dict `done` then holds what each of them
        displaced, by the step's number.
        """
        ...

    def sync(self) -> None:
        """Flush the whole filesystem of the workspace (syncfs)."""
        ...

    def leftovers(self) -> Sequence[str]:
        """Temporary files of ours that a crash left behind, as workspace paths."""
        ...

    def remove_leftover(self, path: str) -> None: ...

    def free_bytes(self) -> int: ...

    def folds_case(self) -> bool:
        """Whether two names that differ only in case are one file here."""
        ...


class IndexEntry(NamedTuple):
    """What was last seen at a path: its stamp and the blob recorded for it."""

    stamp: Stamp
    blob: BlobId | None


class ChangeIndex(Protocol):
    """A cache beside the workspace: what a path looked like when its content was last recorded.

    Losing it costs one full hash and nothing else. `head` is the seq up to which it knows;
    it advances only after the commit that recorded the content. Racy stamps need no care here:
    they equal no later one (see Stamp). `update` with nothing new writes nothing.
    """

    def load(self) -> dict[str, IndexEntry]:
        """All entries; the caller may keep and mutate the dict."""
        ...

    def get(self, path: str) -> IndexEntry | None: ...

    def update(self, entries: Mapping[str, IndexEntry | None], *, head: int) -> None:
        """Set entries (None deletes) and the head, as one transaction; not durable."""
        ...

    def head(self) -> int: ...

    def clear(self) -> None: ...


# --- processes ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: an argument vector; a shell's text is `("sh", "-c", text)`.

    `cwd` is a workspace path. `environment` replaces ours when given; by default it is ours
    without LOOM_AUDIT_*. `stdio` "capture" keeps up to `limit` bytes of each stream (half
    head, half tail); "inherit" passes the terminal through. `timeout` in seconds, None for none.
    """

    argv: tuple[str, ...]
    cwd: str = ""
    environment: Mapping[str, str] | None = None
    stdin: bytes | None = None
    timeout: float | None = 60.0
    limit: int = 256 * 1024
    stdio: Literal["capture", "inherit"] = "capture"


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended: exit code (128+n by signal n), streams, and who outlived it.

    `stdout_bytes` and `stderr_bytes` count what was written, kept or not. `survivors` are
    processes that were still alive at its end and were killed, as `pid name`.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    stdout_bytes: int
    stderr_bytes: int
    timed_out: bool
    duration: int
    survivors: tuple[str, ...] = ()
    truncated: bool = False


class Runner(Protocol):
    """Runs a command confined as asked. Blocks until the whole process tree is dead."""

    @property
    def name(self) -> str:
        """The backend as it stands in every event: `plain`, `bubblewrap`, `landlock`."""
        ...

    def run(
        self, root: str, command: Command, *, cancelled: Callable[[], bool] | None = None
    ) -> Completed:
        """Run in `root`. Polls `cancelled`; when it says so the tree is killed, as at timeout.

        ExecutionFailed when it cannot be started. When our own process dies the tree dies.
        """
        ...


class Lock(Protocol):
    """OS locks by name: across processes and threads, released when the holder's process dies."""

    def hold(self, name: str, *, timeout: float = 30.0) -> AbstractContextManager[None]:
        """Wait for it, then hold it to the end of the block. Conflict when the time is up.

        Not re-entrant.
        """
        ...

    def keep(self, name: str) -> Callable[[], None]:
        """Take it at once and keep it until the returned function is called. Conflict if held."""
        ...

    def is_held(self, name: str) -> bool:
        """Whether some living process or thread holds it."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far long work has come; `total` is None while it is not known."""

    stage: str
    done: int
    total: int | None = None
    unit: str = "files"
    details: Mapping[str, Any] = field(default_factory=dict)


Report = Callable[[Progress], None]


# --- evidence -----------------------------------------------------------------------------


class StoredEvent(NamedTuple):
    """A row of the log as it lies there; `leaf` is None where it cannot be unpacked."""

    seq: int
    id: str
    kind: str
    leaf: bytes | None
    leaf_hash: bytes


class StoredPart(NamedTuple):
    """A payload as it lies there: `content` when it is in the row, else its blob's SHA-256."""

    seq: int
    role: str
    n: int
    salt: bytes
    content: bytes | None
    digest: bytes | None
    size: int | None


class NotedBlob(NamedTuple):
    """A content that events name, and the first event that does; `size` as that one says.

    `here` is whether the store has a row for it, `kept` whether it says to have the bytes.
    """

    digest: bytes
    seq: int
    size: int
    here: bool
    kept: bool


class Evidence(Protocol):
    """What the tables of one log hold, as it lies there, for verification. Read only.

    All answers of one instance are of one moment. StorageFailed where the store is damaged.
    """

    @property
    def log(self) -> str:
        """The id of the log."""
        ...

    @property
    def blobs(self) -> "BlobStore":
        """The contents as they are stored now, nothing remembered from earlier reading."""
        ...

    @property
    def node_levels(self) -> int:
        """Complete Merkle nodes are stored at the multiples of this level."""
        ...

    def events(self, after: int = 0, until: int | None = None) -> Iterator[Sequence[StoredEvent]]:
        """The rows with `after < seq <= until` in order of seq, a few hundred at a time."""
        ...

    def parts(self, after: int = 0, until: int | None = None) -> Iterator[StoredPart]:
        """The payloads of these events, in order of seq."""
        ...

    def nodes(self) -> Iterator[Node]:
        """Every stored node of the Merkle tree."""
        ...

    def note(self, contents: Iterable[tuple[bytes, int, int]]) -> None:
        """Remember contents as (SHA-256, seq, size), outside memory, for `noted`."""
        ...

    def noted(self) -> Iterator[NotedBlob]:
        """Each content noted, once, in the order in which they are best read."""
        ...

    def differences(self, report: Report | None = None) -> Iterator[tuple[int | None, str]]:
        """Where projections differ from what the log says, as (seq if known, message)."""
        ...

    def damage(self) -> Iterator[str]:
        """What the database's own check of its structure finds."""
        ...

    def close(self) -> None: ...
