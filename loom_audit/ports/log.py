"""The append-only log of one workspace, and the tables derived from it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from loom_audit.model.conversation import Role
from loom_audit.model.events import Draft, Event, TreeHead
from loom_audit.model.files import FileState
from loom_audit.model.plans.taking_back.taken_back import TakenBack
from loom_audit.model.records import (
    Call,
    Checkpoint,
    FoundKind,
    FoundPlaces,
    OutsideChange,
    RecordedChange,
    Session,
    Spoken,
    Tally,
)
from loom_audit.model.scope import Scope

BLOCK = 256
"""The number of events in a block of a log; the first block begins with its first event."""

Wanted = Callable[[Mapping[str, Any]], bool]
"""Whether an event is to be decoded, by its envelope."""


class Clock(Protocol):
    """The time of day, as events are stamped with it."""

    def now(self) -> datetime:
        """The present, in UTC, with microseconds."""
        ...


class EventFilter(Struct, frozen=True):
    """Which events to read: `after < seq < before`; None and () mean all."""

    after: int = 0
    before: int | None = None
    kinds: tuple[str, ...] = ()
    session: str | None = None
    call_id: str | None = None
    newest_first: bool = False
    limit: int | None = None

    @classmethod
    def only(cls, seq: int) -> "EventFilter":
        """The event of this seq, if there is one."""
        return cls(after=seq - 1, before=seq + 1)


class EventLog(Protocol):
    """The append-only, totally ordered log of one workspace. Safe to use from any thread."""

    @property
    def id(self) -> str:
        """The log's id, which is also the workspace's."""
        ...

    def append(self, drafts: Sequence[Draft]) -> Sequence[Event]:
        """Store the drafts as one durable transaction, with all blobs put since the last one.

        Either all are stored, with consecutive seqs, or none. A draft whose id is already in
        the log is not stored again: the event that has it is returned in its place (then no
        other draft of the batch may be new: Conflict). A second `call.finished` of one
        (session, call_id), or one that was never requested, raises Conflict.
        AuditUnavailable when it cannot be written: after an I/O error the connection is
        closed, reopened and the tail verified before the next append.
        A reader that has seen seq n never later sees a new seq below n.
        """
        ...

    def read(self, filter: EventFilter = EventFilter()) -> Iterator[Event]:
        """The events that match, in order of seq, with whole facts. Corrupt names the event.

        Each event is checked: its leaf by its hash, its payloads by the commitments in the leaf,
        and the intention that it names. That no event is passed over is checked by `stretch` alone.
        """
        ...

    def picked(self, seqs: Sequence[int]) -> Sequence[Event]:
        """The events of these seqs, in order of seq, checked as `read` does. Corrupt."""
        ...

    def stretch(self, after: int, until: int, wanted: Wanted) -> Iterator[Event]:
        """The wanted events with `after < seq <= until`, in order of seq.

        Every leaf of the stretch is read and checked, and `wanted` is asked once for each: none
        is missing, each stands in its place and names the hash of the one before it, at both ends
        too. Corrupt names the event.
        """
        ...

    def prove(self, after: int, until: int, head: TreeHead) -> None:
        """Corrupt unless the events with `after < seq <= until` are among those of the head.

        `until` and the head's size are not after the end of the log.
        """
        ...

    def blocks(self, first: int, until: int, head: TreeHead) -> Sequence[bytes]:
        """The Merkle hashes of the whole blocks `first <= n < until`, each over BLOCK events.

        Corrupt unless they are among those of the head, which is over all these events. What the
        events say is not read.
        """
        ...

    def head(self) -> int:
        """The seq of the last event, 0 for an empty log."""
        ...

    def newest(self, kinds: Sequence[str], after: int) -> tuple[int, int]:
        """The seq of the last event, and that of the last one of these kinds behind `after`.

        0 for none. The rows are not checked: who goes by the result reads that event.
        """
        ...

    def tree_head(self) -> TreeHead:
        """The Merkle root over all events, and how many they are (RFC 9162 section 2.1)."""
        ...

    def listed_before(self, at: datetime) -> int:
        """A seq up to which no event is listed as later than a time; 0 when there is none.

        The times are those of the rows, which are not checked.
        """
        ...


class Heads(Protocol):
    """The tree heads of one log that are kept outside its store."""

    def kept(self) -> Sequence[TreeHead]:
        """The heads that were kept, oldest first. StorageFailed when they cannot be read."""
        ...

    def keep(self, head: TreeHead) -> None:
        """Add a head, durably, unless it is the last. StorageFailed when that fails."""
        ...


class CallFilter(Struct, frozen=True):
    """Which calls to list, by the seq of their request: `after < requested < before`.

    `path` matches a changed path exactly or below it as a folder; `typed` is what a person types
    of a path, and matches also what only names it (`model.naming`). `failed_only` are calls that
    ended and not well; `since`/`until` are on the time of the request; `ended_after` bounds the
    call's number. `partial_only` are calls whose coverage is not full. `words` are those that the
    call's tool, arguments, result and paths say, all of them and in any order; the last may be the
    beginning of one. `only` are the seqs of the requests themselves, `numbers` those of the
    finishes; of both any number.
    """

    after: int = 0
    before: int | None = None
    session: str | None = None
    tool: str | None = None
    actor: str | None = None
    status: str | None = None
    path: str | None = None
    typed: str | None = None
    words: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ended_after: int | None = None
    changed_only: bool = False
    failed_only: bool = False
    partial_only: bool = False
    only: tuple[int, ...] | None = None
    numbers: tuple[int, ...] | None = None
    newest_first: bool = True
    limit: int | None = 100


class WordsFilter(Struct, frozen=True):
    """Which places to find: those that say all `words`, before a seq, at most `limit`.

    The words are as in `CallFilter`. `status` is that of a call, or "failed" for any that ended and
    not well.
    """

    words: str
    kind: FoundKind | None = None
    tool: str | None = None
    status: str | None = None
    actor: str | None = None
    session: str | None = None
    before: int | None = None
    limit: int = 100


class Reading(Protocol):
    """What the log tells of trees, changes, calls and sessions, from its tables or from itself."""

    def session(self, id: str) -> Session:
        """The session of this id. NotFound."""
        ...

    def calls(self, filter: CallFilter = CallFilter()) -> Sequence[Call]:
        """The calls that match, by the seq of their request."""
        ...

    def call_at(self, seq: int) -> Call:
        """The call that the event of this seq belongs to. NotFound for an event without one."""
        ...

    def call(self, session: str, call_id: str) -> Call:
        """The call of this session and call id. NotFound."""
        ...

    def changes(
        self,
        *,
        after: int = 0,
        until: int | None = None,
        paths: Iterable[str] | None = None,
        calls: Iterable[int] | None = None,
    ) -> Iterator[RecordedChange]:
        """The changes of `files.changed` events with `after < seq <= until`, in log order.

        `paths` are exact; `calls` are the seqs of the requests of calls that made the changes or
        may have. Streams: memory does not grow with the number of changes.
        """
        ...

    def tree(self, at: int | None = None) -> dict[str, FileState]:
        """The tree after event `at`, by default the head's."""
        ...

    def state(self, path: str, at: int | None = None) -> FileState | None:
        """The state of one path in the tree after event `at`; None when absent."""
        ...

    def untracked(self, at: int | None = None) -> set[str]:
        """The paths that have left the tree and may be there, each with all below it."""
        ...


class Projections(Reading, Protocol):
    """Tables derived from the log, written in the same transaction as the event. Read only."""

    def sessions(
        self, *, before: int | None = None, limit: int = 100, outermost: bool = False
    ) -> Sequence[Session]:
        """The sessions that began before a seq, newest first; `outermost`: those in no other."""
        ...

    def open_sessions(self) -> Sequence[Session]:
        """The sessions that have not ended, oldest first."""
        ...

    def sessions_within(self, session: str) -> Sequence[Session]:
        """The sessions that are parts of a session, oldest first."""
        ...

    def spoken(
        self,
        session: str,
        *,
        roles: Sequence[Role] = (),
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> Sequence[Spoken]:
        """Where the prompts and messages of a session are, `after < seq < before`; () is any role.

        None of a session that is not known.
        """
        ...

    def scope(self) -> Scope:
        """The scope as last accepted; the default one before the workspace is attached."""
        ...

    def open_calls(self) -> Sequence[Call]:
        """The calls that were requested and are not finished, oldest first."""
        ...

    def history(
        self, path: str, *, below: bool = False, before: int | None = None, limit: int = 100
    ) -> Sequence[RecordedChange]:
        """The changes of one path, newest first; with `below` of all paths inside it too."""
        ...

    def ends(
        self, paths: Sequence[str], after: int
    ) -> Mapping[str, tuple[RecordedChange, RecordedChange]]:
        """The first and last change of each of these paths after an event, where there is one."""
        ...

    def outside(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        typed: str | None = None,
        limit: int = 100,
    ) -> Sequence[OutsideChange]:
        """The changes without a call, newest first; with `typed` of paths that it means."""
        ...

    def tree_since(self, point: int, paths: Collection[str]) -> dict[str, FileState | None]:
        """The states of these paths at the head, where the path changed since a point's listing.

        None for a path that the tree does not have. At point 0 nothing is listed.
        """
        ...

    def tally(self, after: int, since: datetime) -> Tally:
        """What is counted of the calls and changes behind an event, from a time on."""
        ...

    def index_words(self, most: int | None = None) -> int:
        """Bring the index of words up to date, or about `most` events further; the seq up to which
        all is in it. AuditUnavailable when there is something to add and nothing can be written.
        """
        ...

    def places(self, wanted: WordsFilter) -> FoundPlaces:
        """Where the words stand, as far as they are in the index."""
        ...

    def followed(self) -> int:
        """The seq of the last event that any of the tables tells of; 0 for none."""
        ...

    def keyframes(self, at: int) -> Sequence[int]:
        """The points up to `at` of which a listing of the whole tree is kept, newest first."""
        ...

    def keyframe(self, point: int) -> tuple[dict[str, FileState], set[str]]:
        """The tree that is listed at a point, and what is untracked then. NotFound."""
        ...

    def checkpoints(self) -> Sequence[Checkpoint]:
        """The checkpoints, newest first; a name marked again stands once, with its newest point."""
        ...

    def actors(self, numbers: Collection[int]) -> Mapping[int, str]:
        """Who made the calls of these numbers, by number."""
        ...

    def taken_back(self, of: Collection[int] | None = None) -> TakenBack:
        """What calls took back: all, or what says whether these calls and events are taken back."""
        ...

    def lowered(self, number: int) -> Sequence[int]:
        """The seqs of the events that lowered the coverage of a call, in order."""
        ...
