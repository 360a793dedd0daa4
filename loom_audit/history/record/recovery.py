"""Recovery after a crash: closes calls and sessions whose process has ended.

It changes no file of the workspace. It removes temporaries once their content is in the store, and
closes the folders that an interrupted call had opened.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache

from msgspec import Struct

from loom_audit.errors import Conflict, NoWorkspace
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.ground.questions import is_waiting
from loom_audit.history.look.attribution import changes_by_itself
from loom_audit.history.look.survivors import Running
from loom_audit.history.record.backgrounds import lost_ends
from loom_audit.history.record.call import close_interrupted
from loom_audit.history.record.git.unfinished import close_restores
from loom_audit.history.record.interrupted import (
    SOURCE,
    PathOutcome,
    half_moves,
    record_interrupted,
)
from loom_audit.history.record.looks import look_after_interrupted
from loom_audit.history.record.open_calls import check_open
from loom_audit.history.record.temporaries import remove_temporaries
from loom_audit.model.coverage import Status
from loom_audit.model.events import Draft, Fact, SessionEnded
from loom_audit.model.files import Move
from loom_audit.model.plans.planning import Note
from loom_audit.model.records import Call, Session

GONE = "the process that made this call ended before the call did"
UNANSWERED = "the process that asked whether this call may run ended before it had an answer"
OVERDUE = "nobody reported the end of this call in time"
"""What the result of a call that recovery closed gives as its error."""

WORKSPACE_GONE = "the workspace is gone"
"""Why nothing could be seen of what a call changed, in its coverage."""


class RecoveredCall(Struct, frozen=True):
    """A call that recovery closed, and what came of each path that it intended to change.

    `waiting` is true for an undo or a rollback that waits for a person to decide. `halves` are
    moves that were interrupted when nothing was at either end: the content is in the store. `kept`
    are the paths that stay as they are when an undo is finished, each with the reason: somebody
    has changed them since.
    """

    call: Call
    outcomes: tuple[tuple[str, PathOutcome], ...] = ()
    waiting: bool = False
    halves: tuple[Move, ...] = ()
    kept: tuple[Note, ...] = ()


def interrupted_calls(attachment: Attachment) -> list[Call]:
    """The open calls whose process has ended, oldest first."""
    return _ended_calls_and_sessions(attachment)[0]


def recover(
    attachment: Attachment, *, abandon: bool = False, sparing: str = ""
) -> Sequence[RecoveredCall]:
    """Close every call and session whose process has ended, and record what is on disk now.

    An undo, redo, revert or rollback of a person stays open until one decides, unless `abandon`
    closes it.
    The session `sparing`, about which somebody reports just now, is left as it is. Returns the
    calls that were closed and those that wait. Corrupt where the log has one of them as ended, or
    not as begun.
    """
    if not any(_ended_calls_and_sessions(attachment, sparing)):
        return []
    with attachment.exclusive():
        # once more, under the lock: another process may have recovered them meanwhile
        calls, sessions = _ended_calls_and_sessions(attachment, sparing)
        # the tables only suggest which are open, and a wrong finish could not be taken back
        check_open(attachment.stored.log, calls, sessions)
        # first of all: the lock of a killed restore keeps a person's git from working
        close_restores(attachment, calls)
        waiting = [] if abandon else [c for c in calls if attachment.waits_for_decision(c)]
        ended = [call for call in calls if call not in waiting]
        closed = close_calls(attachment, ended)
        kept = {call.session for call in waiting}
        gone = [one for one in sessions if one.id not in kept]
        # before the intention of a step there may be temporaries of it, which none names. Sessions
        # end last: should recovery be killed before that, the next one finds them and searches, too
        remove_temporaries(attachment, calls, everywhere=bool(calls or gone))
        _end_sessions(attachment.stored, gone)
        undecided = [
            RecoveredCall(call, waiting=True, halves=half_moves(attachment, call))
            for call in waiting
        ]
        return sorted([*closed, *undecided], key=lambda one: one.call.requested)


def recover_all(attachment: Attachment) -> None:
    """Recover as `recover` does; Conflict where an undo waits for a person to decide."""
    for one in recover(attachment):
        if one.waiting:
            raise decision_needed(one.call)


def _ended_calls_and_sessions(
    attachment: Attachment, sparing: str = ""
) -> tuple[list[Call], list[Session]]:
    """The open calls and sessions whose process has ended, but for the session `sparing`.

    An undo of a person is running as long as its lock is held, whatever its session does.
    """
    is_alive = cache(attachment.is_session_alive)
    calls = [
        call
        for call in attachment.stored.tables.open_calls()
        if (
            not attachment.is_undo_running
            if attachment.waits_for_decision(call)
            else call.session != sparing and not is_alive(call.session)
        )
    ]
    sessions = attachment.stored.tables.open_sessions()
    return calls, [one for one in sessions if one.id != sparing and not is_alive(one.id)]


def close_calls(
    attachment: Attachment, calls: Sequence[Call], why: str = ""
) -> list[RecoveredCall]:
    """Close open calls whose end nobody will report, with what is on disk now; the lock is held.

    `why` is the reason where it is another than that their process has ended. Where the workspace
    is gone, calls are closed for such a reason without a look. Without one NoWorkspace is raised,
    since the workspace may come back.
    """
    # all of their own changes first: what one call made would be somebody else's to another, when
    # they are closed one after the other
    if len(calls) > 1:
        with suppress(NoWorkspace):
            record_interrupted(attachment, calls)
    # a call that waits for an answer has not run, so it is not a candidate
    asking = {call.requested for call in calls if is_waiting(attachment.stored.log, call)}
    acting = [
        call
        for call in calls
        if call.requested not in asking and changes_by_itself(attachment.stored, call)
    ]
    unseen = ""
    # one look for all of them, while all are still open and so share what it finds
    try:
        if acting:
            Running(attachment).recall_looks(acting)
            look_after_interrupted(attachment, acting)
    except NoWorkspace:
        if not why:
            raise
        unseen = WORKSPACE_GONE
    closed = []
    for call in calls:
        ran = call.requested not in asking
        status, reason = _status_and_reason(attachment, call, why)
        halves = () if unseen else half_moves(attachment, call)
        comparison = close_interrupted(
            attachment,
            call,
            reason if ran else UNANSWERED,
            ran=ran,
            status=status,
            unseen=unseen,
        )
        Running(attachment).discard_look(call)
        finished = attachment.stored.reading.call(call.session, call.call_id)
        outcomes = tuple(comparison.outcomes.items())
        closed.append(RecoveredCall(finished, outcomes, halves=halves))
    return closed


def _status_and_reason(attachment: Attachment, call: Call, why: str) -> tuple[Status, str]:
    """The status of a call that is closed, and the message of its error.

    The status is "unknown" unless the process of the call is known to have ended.
    """
    if why:
        return "unknown", why
    lease = attachment.lease(call.session)
    if lease is not None and attachment.on_disk.processes.is_alive(lease) is None:
        return "unknown", OVERDUE
    return "interrupted", GONE


def decision_needed(call: Call) -> Conflict:
    """The error for an operation that has to wait until a person decides on an interrupted undo."""
    return Conflict(
        f"an interrupted {call.tool} waits for a decision",
        hint="Run `loom-audit recover --continue` or `loom-audit recover --abandon`.",
        details={"calls": [call.requested]},
    )


def _end_sessions(stored: StoredLog, sessions: Collection[Session]) -> None:
    """Put on record, in one commit, that sessions ended as their process did."""
    drafts: list[Draft] = []
    for one in sessions:
        facts: list[Fact] = [*lost_ends(stored, one.id), SessionEnded("interrupted")]
        drafts += [Draft(fact, one.id, one.actor, source=SOURCE) for fact in facts]
    stored.log.append(drafts)
