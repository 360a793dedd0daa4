"""Recovery after a crash: closes calls whose process has ended.

Of the workspace it removes temporaries, once what is in them is in the store, and nothing else.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache

from msgspec import Struct

from loom_audit.errors import Conflict, NoWorkspace
from loom_audit.history.ground.attachment import Attachment, StoredLog, is_undo
from loom_audit.history.ground.questions import is_waiting
from loom_audit.history.look.attribution import changes_by_itself
from loom_audit.history.look.survivors import Running
from loom_audit.history.record.call import close_interrupted
from loom_audit.history.record.interrupted import (
    SOURCE,
    PathOutcome,
    half_moves,
    intentions,
    record_interrupted,
)
from loom_audit.history.record.looks import record_found_changes
from loom_audit.history.record.open_calls import check_open
from loom_audit.history.record.temporaries import remove_temporaries
from loom_audit.model.coverage import Status
from loom_audit.model.events import Draft, SessionEnded
from loom_audit.model.files import Move
from loom_audit.model.plans.planning import Note
from loom_audit.model.records import Call, Session

GONE = "the process that made this call ended before the call did"
UNANSWERED = "the process that asked whether this call may run ended before it had an answer"
OVERDUE = "nobody reported the end of this call in time"
WORKSPACE_GONE = "the workspace is gone"


class RecoveredCall(Struct, frozen=True):
    """A call that recovery closed, and the outcome for each path it intended to change.

    `waiting` is true for an undo or a rollback that waits for a person to decide. `halves` are
    moves that were interrupted between both ends: what was moved is in the store. `kept` is what
    stays as it is when the undo is finished, or stayed so: somebody changed it since.
    """

    call: Call
    outcomes: tuple[tuple[str, PathOutcome], ...] = ()
    waiting: bool = False
    halves: tuple[Move, ...] = ()
    kept: tuple[Note, ...] = ()


def interrupted_calls(attachment: Attachment) -> list[Call]:
    """Open calls whose process has ended, oldest first."""
    return _ended(attachment)[0]


def recover(
    attachment: Attachment, *, abandon: bool = False, sparing: str = ""
) -> Sequence[RecoveredCall]:
    """Close every call whose process has ended, recording what is on disk now.

    An undo, redo, revert or rollback is left open for a person to decide, or closed with
    `abandon`. The session `sparing`, of which somebody reports just now, is left as it is.
    """
    if not any(_ended(attachment, sparing)):
        return []
    with attachment.exclusive():
        calls, sessions = _ended(attachment, sparing)
        check_open(attachment.stored.log, calls, sessions)
        waiting = [] if abandon else [call for call in calls if is_undo(call)]
        ended = [call for call in calls if call not in waiting]
        closed = close_calls(attachment, ended)
        kept = {call.session for call in waiting}
        gone = [one for one in sessions if one.id not in kept]
        begun = all(any(True for _ in intentions(attachment.stored, call)) for call in waiting)
        remove_temporaries(attachment, calls, everywhere=bool(ended or gone or not begun))
        _end_sessions(attachment.stored, gone)
        left = [
            RecoveredCall(call, waiting=True, halves=half_moves(attachment, call))
            for call in waiting
        ]
        return sorted([*closed, *left], key=lambda one: one.call.requested)


def recover_all(attachment: Attachment) -> None:
    """As `recover`. Conflict where an undo waits for a person to decide."""
    for one in recover(attachment):
        if one.waiting:
            raise decision_needed(one.call)


def _ended(attachment: Attachment, sparing: str = "") -> tuple[list[Call], list[Session]]:
    """The open calls and sessions whose processes have ended, without those of one session."""
    is_alive = cache(attachment.is_session_alive)
    calls = [
        call
        for call in attachment.stored.tables.open_calls()
        if (
            not attachment.is_undo_running
            if is_undo(call)
            else call.session != sparing and not is_alive(call.session)
        )
    ]
    sessions = attachment.stored.tables.open_sessions()
    return calls, [one for one in sessions if one.id != sparing and not is_alive(one.id)]


def close_calls(
    attachment: Attachment, calls: Sequence[Call], why: str = ""
) -> list[RecoveredCall]:
    """Close open calls whose end nobody will report, with what is on disk now; the lock is held.

    `why` is the reason, when it is another than that their process has ended. Where the workspace
    is gone they are closed unseen for such a reason; else NoWorkspace, as it may come back.
    """
    if len(calls) > 1:  # what one of them made is not somebody else's to another
        with suppress(NoWorkspace):
            record_interrupted(attachment, calls)
    asking = {call.requested for call in calls if is_waiting(attachment.stored.log, call)}
    acting = [
        call
        for call in calls
        if call.requested not in asking and changes_by_itself(attachment.stored, call)
    ]
    unseen = ""
    try:
        if acting:
            Running(attachment).recall_looks(acting)
            record_found_changes(attachment, acting)
    except NoWorkspace:
        if not why:
            raise
        unseen = WORKSPACE_GONE
    closed = []
    for call in calls:
        ran = call.requested not in asking
        status, reason = _end_of(attachment, call, why)
        halves = () if unseen else half_moves(attachment, call)
        found = close_interrupted(
            attachment,
            call,
            reason if ran else UNANSWERED,
            ran=ran,
            status=status,
            unseen=unseen,
        )
        Running(attachment).discard_look(call)
        finished = attachment.stored.reading.call(call.session, call.call_id)
        outcomes = tuple(found.outcomes.items())
        closed.append(RecoveredCall(finished, outcomes, halves=halves))
    return closed


def _end_of(attachment: Attachment, call: Call, why: str) -> tuple[Status, str]:
    if why:
        return "unknown", why
    lease = attachment.lease(call.session)
    if lease is not None and attachment.on_disk.processes.is_alive(lease) is None:
        return "unknown", OVERDUE
    return "interrupted", GONE


def decision_needed(call: Call) -> Conflict:
    """The error for an operation that an interrupted undo prevents until a person decides."""
    return Conflict(
        f"an interrupted {call.tool} waits for a decision",
        hint="Run `loom-audit recover --continue` or `loom-audit recover --abandon`.",
        details={"calls": [call.requested]},
    )


def _end_sessions(stored: StoredLog, sessions: Collection[Session]) -> None:
    fact = SessionEnded("interrupted")
    stored.log.append([Draft(fact, s.id, s.actor, source=SOURCE) for s in sessions])
