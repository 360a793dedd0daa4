"""Events: facts with a place in the log, and the closed union of facts.

A fact says what happened, in the past tense; its kind is the stored name (`files.changed`).
JSON means: None, bool, int, float, str, and lists and string-keyed dicts of these.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from loom_audit.model.files import FileChange, Move

Effect = Literal["read", "write", "execute", "network"]
Status = Literal["ok", "error", "denied", "timeout", "cancelled", "interrupted"]
Level = Literal["full", "partial", "none"]
Origin = Literal["baseline", "tool", "command", "undo", "outside"]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How completely a call's effects were captured within the scope, and why not fully.

    Reasons are short stable texts, such as `shared: 12, 15` or `too large: big.bin`.
    """

    level: Level = "full"
    reasons: tuple[str, ...] = ()

    def lowered(self, *reasons: str, level: Level = "partial") -> "Coverage":
        """This coverage lowered to the level for these reasons; unchanged without any."""
        if not reasons:
            return self
        worst: Level = "none" if "none" in (self.level, level) else "partial"
        return Coverage(worst, (*self.reasons, *(r for r in reasons if r not in self.reasons)))


FULL = Coverage()


@dataclass(frozen=True, slots=True)
class Untracked:
    """A path that is no longer recorded, and why: `unreadable`, `out of scope`, …"""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkspaceAttached:
    kind: ClassVar[str] = "workspace.attached"
    root: str
    ignore: str
    max_file_bytes: int


@dataclass(frozen=True, slots=True)
class BaselineFinished:
    """The first listing is complete; the points before this one cannot be rolled back to."""

    kind: ClassVar[str] = "baseline.finished"
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class ScopeAccepted:
    """A person accepted the text of `.loomignore` as the scope from here on."""

    kind: ClassVar[str] = "scope.accepted"
    ignore: str


@dataclass(frozen=True, slots=True)
class PathsUntracked:
    """Paths of the tree that could not be read; the tree keeps their last recorded state."""

    kind: ClassVar[str] = "paths.untracked"
    paths: tuple[Untracked, ...]


@dataclass(frozen=True, slots=True)
class SessionStarted:
    kind: ClassVar[str] = "session.started"
    agent: str
    title: str = ""
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class SessionEnded:
    kind: ClassVar[str] = "session.ended"
    status: Literal["completed", "failed", "interrupted"] = "completed"


@dataclass(frozen=True, slots=True)
class CallRequested:
    kind: ClassVar[str] = "call.requested"
    call_id: str
    tool: str
    arguments: Any
    effect: Effect


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A question whether a call may run, and the preview it was shown with.

    `rule` names what asks: a rule of the policy, or "" for the tool itself; `preview` is what
    would change, `state` the hash that the answer is bound to; `number` counts from 1 when the
    same call is asked about again. It is answered by the next `call.decided` of its call.
    """

    kind: ClassVar[str] = "approval.requested"
    call_id: str
    tool: str
    arguments: Any
    reason: str
    rule: str = ""
    preview: str = ""
    state: str = ""
    number: int = 1


@dataclass(frozen=True, slots=True)
class CallDecided:
    """A gate's answer; `arguments` are the modified ones, or None when they were kept.

    A `lasting` one also answers later questions for the same reason in the session.
    """

    kind: ClassVar[str] = "call.decided"
    call_id: str
    tool: str
    decision: Literal["allowed", "denied"]
    by: str
    reason: str = ""
    arguments: Any = None
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class ChangeIntended:
    """The changes that will be made next; contents before and after are durable with this event."""

    kind: ClassVar[str] = "change.intended"
    call_id: str
    changes: tuple[FileChange, ...]
    moves: tuple[Move, ...] = ()
    reverts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FilesChanged:
    """What is on disk now. Trees are folded from these events only.

    `call_id` is None for the baseline and for changes from outside. `causes` are the call ids
    that may have done it, when more than one was open; `reverts` the seqs this takes back.
    """

    kind: ClassVar[str] = "files.changed"
    changes: tuple[FileChange, ...]
    origin: Origin
    call_id: str | None = None
    moves: tuple[Move, ...] = ()
    reverts: tuple[int, ...] = ()
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The one finish of a call; a call's number is the seq of this event.

    `result` is the ToolResult as JSON; `duration` is in microseconds.
    """

    kind: ClassVar[str] = "call.finished"
    call_id: str
    tool: str
    effect: Effect
    status: Status
    result: Any
    coverage: Coverage = FULL
    sandbox: str = ""
    duration: int = 0
    reverts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointMarked:
    kind: ClassVar[str] = "checkpoint.marked"
    name: str
    point: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class UnknownFact:
    """A fact of a kind that this version does not know; envelope and payloads are kept."""

    kind: str
    envelope: Mapping[str, Any]
    payloads: Mapping[str, Any] = field(default_factory=dict)


Fact = (
    WorkspaceAttached
    | BaselineFinished
    | ScopeAccepted
    | PathsUntracked
    | SessionStarted
    | SessionEnded
    | CallRequested
    | ApprovalRequested
    | CallDecided
    | ChangeIntended
    | FilesChanged
    | CallFinished
    | CheckpointMarked
    | UnknownFact
)


@dataclass(frozen=True, slots=True)
class Draft:
    """A fact without a place in the log yet, as it is given to `append`.

    `id` is the idempotency key (UUIDv7 when None); `occurred_at` is when it happened, if that
    is not when it was recorded. `session` is "" for a fact outside of sessions.
    """

    fact: Fact
    session: str
    actor: str
    id: str | None = None
    occurred_at: datetime | None = None
    source: str = ""
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A fact with its place: `seq` counts from 1 without gaps within one log."""

    log: str
    seq: int
    id: str
    at: datetime
    session: str
    actor: str
    fact: Fact
    leaf_hash: bytes
    occurred_at: datetime | None = None
    source: str = ""
    parent: str | None = None

    @property
    def kind(self) -> str:
        return self.fact.kind


@dataclass(frozen=True, slots=True)
class TreeHead:
    """Merkle root over the first `size` leaves of a log (RFC 9162 §2.1.1)."""

    log: str
    size: int
    root: bytes


@dataclass(frozen=True, slots=True)
class Session:
    """A session as lists show it; `ended` is None while it is open."""

    id: str
    agent: str
    actor: str
    title: str
    started: int
    started_at: datetime
    ended: int | None
    ended_at: datetime | None
    status: str
    calls: int
    errors: int
    files: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call as lists show it; `seq` is its number, None while it is open.

    `paths` are the first 20 it changed and `changed` how many there are; `undone_by` is the
    number of the call that took it back, when that one has not been taken back itself.
    """

    call_id: str
    seq: int | None
    requested: int
    at: datetime
    session: str
    actor: str
    tool: str
    effect: Effect
    status: str
    coverage: Coverage
    summary: str
    error: str
    paths: tuple[str, ...]
    changed: int
    reverts: tuple[int, ...]
    duration: int
    sandbox: str = ""
    undone_by: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """One path's change with the event that holds it; `number` is its call's, when finished."""

    seq: int
    at: datetime
    session: str
    actor: str
    origin: Origin
    call_id: str | None
    causes: tuple[str, ...]
    change: FileChange
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    name: str
    point: int
    seq: int
    at: datetime
    note: str
