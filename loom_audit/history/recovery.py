"""Recovery after a crash: closes calls whose process has ended. Never writes the workspace."""

from collections.abc import Sequence
from dataclasses import dataclass

from loom_audit.errors import Conflict
from loom_audit.history.attachment import Attachment, is_undo, session_lock
from loom_audit.history.call import close_interrupted
from loom_audit.history.interrupted import SOURCE, PathOutcome, record_command_changes
from loom_audit.history.questions import is_waiting
from loom_audit.model.events import Call, Draft, Session, SessionEnded

GONE = "the process that made this call ended before the call did"
UNANSWERED = "the process that asked whether this call may run ended before it had an answer"


@dataclass(frozen=True, slots=True)
class RecoveredCall:
    """A call that recovery closed, and the outcome for each path it intended to change.

    `waiting` is true for an undo or a rollback that waits for a person to decide.
    """

    call: Call
    outcomes: tuple[tuple[str, PathOutcome], ...] = ()
    waiting: bool = False


def interrupted_calls(attachment: Attachment) -> list[Call]:
    """Open calls whose process has ended, oldest first."""
    return [call for call in attachment.projections.open_calls() if not attachment.is_alive(call)]


def recover(attachment: Attachment, *, abandon: bool = False) -> Sequence[RecoveredCall]:
    """Close every call whose process has ended, recording what is on disk now.

    An undo, redo, revert or rollback is left open for a person to decide, or closed with
    `abandon`.
    """
    if not interrupted_calls(attachment) and not _dead_sessions(attachment):
        return []
    with attachment.exclusive():
        dead = interrupted_calls(attachment)
        closed: list[RecoveredCall] = []
        asking = {call.requested for call in dead if is_waiting(attachment.log, call)}
        commands = [
            call
            for call in dead
            if attachment.changes_by_itself(call) and call.requested not in asking
        ]
        if commands:
            record_command_changes(attachment, commands)
        for call in dead:
            if is_undo(call) and not abandon:
                closed.append(RecoveredCall(call, waiting=True))
                continue
            ran = call.requested not in asking
            found = close_interrupted(attachment, call, GONE if ran else UNANSWERED, ran=ran)
            finished = attachment.projections.call(call.session, call.call_id)
            closed.append(RecoveredCall(finished, tuple(found.outcomes.items())))
        _end_sessions(attachment, excluding={one.call.session for one in closed if one.waiting})
        return closed


def decision_needed(call: Call) -> Conflict:
    """The error for an operation that an interrupted undo prevents until a person decides."""
    return Conflict(
        f"an interrupted {call.tool} waits for a decision",
        hint="Run `loom-audit recover --continue` or `loom-audit recover --abandon`.",
    )


def _dead_sessions(attachment: Attachment) -> list[Session]:
    return [
        session
        for session in attachment.projections.open_sessions()
        if not attachment.lock.is_held(session_lock(session.id))
    ]


def _end_sessions(attachment: Attachment, *, excluding: set[str]) -> None:
    fact = SessionEnded("interrupted")
    ended = [Draft(fact, s.id, s.actor, source=SOURCE) for s in _dead_sessions(attachment)]
    attachment.log.append([draft for draft in ended if draft.session not in excluding])
