"""Events: facts with a place in the log, and the closed union of facts.

A fact says what happened, in the past tense; its kind is the stored name (`files.changed`).
JSON means: None, bool, int, float, str, and lists and string-keyed dicts of these.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Struct, field

from loom_audit.model.actors import is_person
from loom_audit.model.backgrounds import BackgroundFinished, BackgroundStarted
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.coverage import FULL, Coverage, Effect, Inferred, Origin, Status
from loom_audit.model.files import FileChange, FileState, Move
from loom_audit.model.git.record import GitChanged, GitIntended
from loom_audit.model.noted import HeadNoted
from loom_audit.model.scope import LeftOut


class Untracked(Struct, frozen=True):
    """A path that is no longer recorded, and why: `unreadable`, `out of scope`, …

    Of a file that could not be read also what was seen of it then: permission bits, size, time of
    writing in µs since 1970, and inode.
    """

    path: str
    reason: str
    mode: int | None = None
    size: int | None = None
    written: int | None = None
    inode: str | None = None


LEASE_SECONDS = 3600
"""How long a client that cannot be seen may be silent before its session counts as ended."""


class Lease(Struct, frozen=True):
    """The process that a foreign session lives by, and its time where none can be seen.

    `started` is when process `pid` started, in clock ticks since boot; `boot` and `namespace` name
    the machine's boot and the process namespace of both. `seconds` count from the latest event.
    """

    pid: int | None
    started: int | None
    boot: str
    namespace: str
    seconds: int


Rules = tuple[tuple[str, str], ...]
"""The rules in force: name and SHA-256 of each, as `("scope", "9f86…")`, in order of name."""


class WorkspaceAttached(Struct, frozen=True):
    """A folder was tied to the log, for the first time or after it was `moved_from` another path.

    `ignore` and `max_file_bytes` (bytes) are the scope; `proof` says by what the folder was known
    again.
    """

    kind: ClassVar[str] = "workspace.attached"
    root: str
    ignore: str
    max_file_bytes: int
    moved_from: str = ""
    proof: str = ""


class BaselineFinished(Struct, frozen=True):
    """The first listing is complete; the points before this one cannot be rolled back to."""

    kind: ClassVar[str] = "baseline.finished"
    files: int
    size: int
    left_out: tuple[LeftOut, ...] = ()


class ScopeAccepted(Struct, frozen=True):
    """A person accepted the text of `.loomignore` as the scope from here on.

    `untracked` are the paths that leave the tree by this, each with all below it.
    """

    kind: ClassVar[str] = "scope.accepted"
    ignore: str
    left_out: tuple[LeftOut, ...] = ()
    untracked: tuple[str, ...] = ()


class RulesChanged(Struct, frozen=True):
    """Other rules are in force in a session from here on."""

    kind: ClassVar[str] = "rules.changed"
    rules: Rules


class PathsUntracked(Struct, frozen=True):
    """Paths that could not be read: they leave the tree, with all below, until recorded again.

    In formats before 2.1 the tree `kept` their last recorded state. `causes` are the requests of
    the calls in which that happened.
    """

    kind: ClassVar[str] = "paths.untracked"
    paths: tuple[Untracked, ...]
    kept: bool = False
    causes: tuple[int, ...] = ()


class SessionStarted(Struct, frozen=True):
    """An agent's run begins, or goes on in another process.

    `parent` is the session it is a part of, `version` that of this program. A session with a
    `lease` is a foreign one: another program reports its calls.
    """

    kind: ClassVar[str] = "session.started"
    agent: str
    title: str = ""
    parent: str | None = None
    cwd: str = ""
    version: str = ""
    rules: Rules = ()
    lease: Lease | None = None


class SessionEnded(Struct, frozen=True):
    """An agent's run ended."""

    kind: ClassVar[str] = "session.ended"
    status: Literal["completed", "failed", "interrupted"] = "completed"


class SessionHeld(Struct, frozen=True):
    """From here on no call of the session runs until it is released."""

    kind: ClassVar[str] = "session.held"
    by: str
    reason: str = ""


class SessionReleased(Struct, frozen=True):
    """The session is no longer held; its calls run again."""

    kind: ClassVar[str] = "session.released"
    by: str
    reason: str = ""


class CallRequested(Struct, frozen=True):
    """A tool is called.

    `cwd` is the directory of a foreign call; `paths` are the only ones it changes, None when it
    does not say; `within` is the seq of the request of the call that contains it. `names` are what
    its command names as written, deleted or moved, with all below it where it ends with a slash;
    None where there is no command, or nobody looked (before 2.1).
    """

    kind: ClassVar[str] = "call.requested"
    call_id: str
    tool: str
    arguments: Any
    effect: Effect
    cwd: str = ""
    paths: tuple[str, ...] | None = None
    within: int | None = None
    names: tuple[str, ...] | None = None


class ApprovalRequested(Struct, frozen=True):
    """A gate asked whether a call may run, and showed a preview of what the call would do.

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


class CallDecided(Struct, frozen=True):
    """A gate answered; `arguments` are the modified ones, or None when they were kept.

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

    @property
    def is_allowed_by_person(self) -> bool:
        """Whether a person, not a rule, let the call run."""
        return self.decision == "allowed" and is_person(self.by)


class Temporary(Struct, frozen=True):
    """A file that exists beside `path` while it is replaced: its name, and which file it is."""

    path: str
    name: str
    identity: str


OPENED = 0o300
"""What is added to a folder's mode to open it: its owner writes and searches."""


class OpenedFolder(Struct, frozen=True):
    """A folder that forbids its owner to change it and is opened for a change; `mode` comes back.

    `identity` says which folder it is, "" for one that is made.
    """

    path: str
    mode: int
    identity: str = ""


class ChangeIntended(Struct, frozen=True):
    """Changes will be made next; their contents before and after are durable with this event."""

    kind: ClassVar[str] = "change.intended"
    call_id: str
    changes: tuple[FileChange, ...]
    moves: tuple[Move, ...] = ()
    reverts: tuple[int, ...] = ()
    temporaries: tuple[Temporary, ...] = ()
    opened: tuple[OpenedFolder, ...] = ()


class FilesChanged(Struct, frozen=True):
    """Files changed: the states on disk now. Trees are folded from these events only.

    `call_id` is None for the baseline and for changes from outside. `causes` are the seqs of
    the requests of the calls that may have done it, of any session, when there are several (their
    ids in format 1); `reverts` the seqs this takes back.
    `intention` is the seq of the call's change.intended where exactly that happened: then the
    changes and moves are stored there only. `arrived` are created paths whose content existed
    before at a place that is not recorded; no plan deletes them.
    """

    kind: ClassVar[str] = "files.changed"
    changes: tuple[FileChange, ...]
    origin: Origin
    call_id: str | None = None
    moves: tuple[Move, ...] = ()
    reverts: tuple[int, ...] = ()
    causes: tuple[int | str, ...] = ()
    intention: int | None = None
    arrived: tuple[str, ...] = ()


class TreeRelisted(Struct, frozen=True):
    """A part of a listing of all that is on disk, taken where the log contradicted itself.

    Trees begin anew with its `last` part: they hold what its parts list, and nothing else. Each
    change is from null, which says nothing of what was there before.
    """

    kind: ClassVar[str] = "tree.relisted"
    changes: tuple[FileChange, ...]
    part: int = 1
    last: bool = True
    untracked: tuple[Untracked, ...] = ()


class ContentFound(Struct, frozen=True):
    """A late writer left a content, which is kept here; trees do not fold it."""

    kind: ClassVar[str] = "content.found"
    path: str
    state: FileState
    reason: str
    call_id: str | None = None


class CallFinished(Struct, frozen=True):
    """A call finished, which happens once; the call's number is the seq of this event.

    `result` is the ToolResult as JSON; `duration` is in microseconds. An `inferred` status is what
    was made of it where nobody told or saw how the call ended.
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
    inferred: bool = False


class CallReported(Struct, frozen=True):
    """A client reported how a call ended after its finish was on record.

    It changes no status, unless it `replaces` that of the call with this number, which was
    `inferred` as this one: the first such report of a call counts.
    """

    kind: ClassVar[str] = "call.reported"
    call_id: str
    tool: str
    status: Status
    result: Any
    replaces: int | None = None
    inferred: Inferred = ""


class HookFailed(Struct, frozen=True):
    """Hooks of a client could not be handed over; nothing else is known of them.

    The event happened when the first of so many did; `session` is as they named it.
    """

    kind: ClassVar[str] = "hook.failed"
    client: str
    session: str = ""
    count: int = 1


class ChangesAttributed(Struct, frozen=True):
    """A call may have made changes on record as from outside, or as shared: so it was told later.

    The call with the request `call` may have made the changes of the event `event` at these paths.
    The fact adds a candidate and changes no tree, no coverage and no status; `grounds` say why.
    """

    kind: ClassVar[str] = "changes.attributed"
    event: int
    paths: tuple[str, ...]
    call: int
    grounds: str


class CoverageLowered(Struct, frozen=True):
    """What came out later lowered the coverage of finished calls; `calls` are their numbers."""

    kind: ClassVar[str] = "coverage.lowered"
    calls: tuple[int, ...]
    coverage: Coverage


class TreeListed(Struct, frozen=True):
    """The whole tree after event `point` was listed; `listing` is the SHA-256 of the list, in hex.

    `continuous`: every change up to it applied to the tree, so that one may begin here.
    """

    kind: ClassVar[str] = "tree.listed"
    point: int
    listing: str
    continuous: bool = False


class CheckpointMarked(Struct, frozen=True):
    """A point was given a name; `note` says why."""

    kind: ClassVar[str] = "checkpoint.marked"
    name: str
    point: int
    note: str = ""


class WorkspaceForgotten(Struct, frozen=True):
    """A person has had everything erased that the log's events before this one say.

    Erased are so many payloads, and so many contents that no other log names, of `size` bytes in
    all as they were stored. It is the last event of its log. `root` is the folder that the log was
    of, by which lists name it.
    """

    kind: ClassVar[str] = "workspace.forgotten"
    root: str
    reason: str = ""
    payloads: int = 0
    contents: int = 0
    size: int = 0


class UnknownFact(Struct, frozen=True):
    """A fact of a kind that this version does not know; envelope and payloads are kept."""

    kind: str
    envelope: Mapping[str, Any]
    payloads: Mapping[str, Any] = field(default_factory=dict)


Fact = (
    WorkspaceAttached
    | BaselineFinished
    | ScopeAccepted
    | RulesChanged
    | PathsUntracked
    | SessionStarted
    | SessionEnded
    | SessionHeld
    | SessionReleased
    | PromptSubmitted
    | MessageReceived
    | CallRequested
    | ApprovalRequested
    | CallDecided
    | ChangeIntended
    | FilesChanged
    | GitChanged
    | GitIntended
    | TreeRelisted
    | ContentFound
    | CallFinished
    | BackgroundStarted
    | BackgroundFinished
    | CallReported
    | HookFailed
    | ChangesAttributed
    | CoverageLowered
    | TreeListed
    | HeadNoted
    | WorkspaceForgotten
    | CheckpointMarked
    | UnknownFact
)


class Draft(Struct, frozen=True):
    """A fact without a place in the log yet, as it is given to `append`.

    `id` is the idempotency key; when it is None the id follows from what is stored. `occurred_at`
    is when it happened, if that is not when it was recorded. `session` is "" for a fact outside of
    sessions.
    """

    fact: Fact
    session: str
    actor: str
    id: str | None = None
    occurred_at: datetime | None = None
    source: str = ""
    parent: str | None = None


class Event(Struct, frozen=True):
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
        """The stored name of the fact: `files.changed`."""
        return self.fact.kind


class TreeHead(Struct, frozen=True):
    """The Merkle root, 32 bytes, over the first `size` leaves of a log (RFC 9162 §2.1.1)."""

    log: str
    size: int
    root: bytes
