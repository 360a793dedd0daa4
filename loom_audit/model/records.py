"""Sessions, calls, changes and checkpoints as they are listed."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal

from msgspec import Struct

from loom_audit.model.conversation import Role
from loom_audit.model.coverage import Coverage, Effect, Origin
from loom_audit.model.files import FileChange
from loom_audit.model.git.record import CANNOT_BE_TOLD
from loom_audit.model.text.display import one_line


class Session(Struct, frozen=True):
    """A session as lists show it; `ended` is None while it is open.

    `parent` is the session that it is a part of.
    """

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
    parent: str | None = None


class Spoken(Struct, frozen=True):
    """Where a prompt or message of a session is on record, and whose words it tells."""

    seq: int
    role: Role


class SessionHold(Struct, frozen=True):
    """A hold, under which no call of a session runs: by whom, why, since when, by which event.

    `session` is the one that was held; the sessions within it are held with it.
    """

    session: str
    by: str
    reason: str
    since: datetime
    seq: int

    @property
    def text(self) -> str:
        """The hold on one visible line: who holds the session, since when and why."""
        why = f": {one_line(self.reason, 2_000)}" if self.reason.strip() else ""
        since = f"{self.since:%Y-%m-%d %H:%M:%S} UTC"
        return f"session {self.session} is held by {one_line(self.by)} since {since}{why}"

    @property
    def refusal(self) -> str:
        """The reason why a call of the session does not run, for the model that reads it."""
        return f"{self.text}. None of its calls runs until a person releases it."


class Call(Struct, frozen=True):
    """A call as lists show it; `seq` is its number, None while it is open.

    `paths` are the first 20 it changed and `changed` how many there are; `undone_by` is the
    number of the call that took it back, when that one has not been taken back itself, and
    `undone_in_part_by` the numbers of those that took back some of its paths, while it is in effect
    at others; `within` is the seq of the request of the call that contains it.
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
    undone_in_part_by: tuple[int, ...] = ()
    within: int | None = None


def untold_last(calls: Iterable[Call]) -> Iterator[tuple[Call, tuple[str, ...]]]:
    """The newest calls after which git could not be told, each with the reasons, until one after
    which it was; `calls` are the newest first.

    Calls that say which files they change are passed over: git is not looked at after each.
    """
    for call in calls:
        if call.seq is None or call.effect != "execute" or call.coverage.level == "none":
            continue
        reasons = tuple(one for one in call.coverage.reasons if one.startswith(CANNOT_BE_TOLD))
        if not reasons:
            return
        yield call, reasons


class RecordedChange(Struct, frozen=True):
    """The change of a path with its event; `number` is that of its call, when finished.

    `requested` is the seq of its call's request. `causes` are those of all calls that may have
    done it, when there are several; 0 stands for one of format 1 that is not known. `told_later`
    are those of calls of which it was told later that they may have done it.
    """

    seq: int
    at: datetime
    session: str
    actor: str
    origin: Origin
    call_id: str | None
    causes: tuple[int, ...]
    change: FileChange
    number: int | None = None
    requested: int | None = None
    told_later: tuple[int, ...] = ()


class OutsideChange(Struct, frozen=True):
    """Paths that one event says changed without a call; `paths` are the first of `changed` many.

    `actor` is `OUTSIDE`, or the person for whom `connect` made the change.
    """

    seq: int
    at: datetime
    actor: str
    paths: tuple[str, ...]
    changed: int


class Checkpoint(Struct, frozen=True):
    """A checkpoint as lists show it: `point` is the seq that it names, `seq` that of its event."""

    name: str
    point: int
    seq: int
    at: datetime
    note: str


FoundKind = Literal["call", "prompt", "message", "outside"]


class FoundPlace(Struct, frozen=True):
    """A place of the log where sought words stand: a call, a prompt, a message, or an `outside`
    change.

    `seq` is that of the event by which it is found. A call has its request, tool and status, a
    change from outside no session.
    """

    seq: int
    kind: FoundKind
    session: str
    actor: str
    requested: int | None = None
    tool: str = ""
    status: str = ""


class FoundPlaces(Struct, frozen=True):
    """Places in order, the newest first; those `before` a seq have not been looked at, None where
    all have.
    """

    places: tuple[FoundPlace, ...]
    before: int | None


class Tally(Struct, frozen=True):
    """How many calls failed, how many of them were denied, and how many are not covered in full;
    how many changes came from outside. Each is counted up to TALLIED, more are one more than that.
    """

    failed: int
    denied: int
    partial: int
    outside: int


TALLIED = 1_000
