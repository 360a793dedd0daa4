"""Recovery after a crash: closes calls whose process has ended. Never writes the workspace."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from loom_audit.errors import Conflict
from loom_audit.history.attachment import Attachment, is_undo, session_lock
from loom_audit.history.capture import ScanResult, outside_draft, scan
from loom_audit.history.change_index import update_index
from loom_audit.history.questions import is_waiting
from loom_audit.history.steps import observe_all
from loom_audit.model.events import (
    Call,
    CallFinished,
    ChangeIntended,
    Coverage,
    Draft,
    FilesChanged,
    Origin,
    Session,
    SessionEnded,
)
from loom_audit.model.files import FileChange, find_moves
from loom_audit.ports import EventFilter, IndexEntry

PathOutcome = Literal["happened", "did not happen", "unknown"]
SOURCE = "recovery"
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
            call for call in dead if call.effect == "execute" and call.requested not in asking
        ]
        if commands:
            _record_command_changes(attachment, commands)
        for call in dead:
            if is_undo(call) and not abandon:
                closed.append(RecoveredCall(call, waiting=True))
                continue
            unanswered = call.requested in asking
            closed.append(_close(attachment, call, UNANSWERED if unanswered else GONE))
        _end_sessions(attachment, excluding={one.call.session for one in closed if one.waiting})
        return closed


def intended_changes(attachment: Attachment, call: Call) -> tuple[FileChange, ...]:
    """The changes that a call intended, the last one per path."""
    wanted = EventFilter(
        after=call.requested - 1, kinds=(ChangeIntended.kind,), call_id=call.call_id
    )
    intended: dict[str, FileChange] = {}
    for event in attachment.log.read(wanted):
        if isinstance(event.fact, ChangeIntended) and event.session == call.session:
            intended.update({change.path: change for change in event.fact.changes})
    return tuple(intended.values())


def compare_with_disk(
    attachment: Attachment, call: Call
) -> tuple[list[Draft], dict[str, PathOutcome], dict[str, IndexEntry | None]]:
    """Compare a call's intended changes with disk: drafts, outcomes by path, index entries."""
    intended = intended_changes(attachment, call)
    made: list[FileChange] = []
    foreign: list[FileChange] = []
    outcomes: dict[str, PathOutcome] = {}
    entries: dict[str, IndexEntry | None] = {}
    for change in intended:
        now, entry = observe_all(attachment, [change])[change.path]
        recorded = attachment.projections.state(change.path)
        entries[change.path] = entry
        if now == change.after:
            outcomes[change.path] = "happened"
        elif now == change.before:
            outcomes[change.path] = "did not happen"
        else:
            outcomes[change.path] = "unknown"
        if now != recorded:
            found = FileChange(change.path, recorded, now)
            (made if outcomes[change.path] == "happened" else foreign).append(found)
    drafts = []
    if made:
        origin: Origin = "undo" if is_undo(call) else "tool"
        fact = FilesChanged(tuple(made), origin, call.call_id, find_moves(made))
        drafts.append(Draft(fact, call.session, call.actor, source=SOURCE))
    if foreign:
        drafts.append(outside_draft(foreign))
    return drafts, outcomes, entries


def decision_needed(call: Call) -> Conflict:
    """The error for an operation that an interrupted undo prevents until a person decides."""
    return Conflict(
        f"an interrupted {call.tool} waits for a decision",
        hint="Run `loom-audit recover --continue` or `loom-audit recover --abandon`.",
    )


def close_unfinished(attachment: Attachment, session: str, ids: Collection[str]) -> None:
    """Close calls of an open session whose end could not be recorded; the lock is held."""
    for call in attachment.projections.open_calls():
        if call.session == session and call.call_id in ids:
            if call.effect == "execute":
                _record_command_changes(attachment, [call])
            _close(attachment, call, message="the log could not be written when this call ended")


def _close(attachment: Attachment, call: Call, message: str = GONE) -> RecoveredCall:
    drafts, outcomes, entries = compare_with_disk(attachment, call)
    unknown = [path for path, outcome in outcomes.items() if outcome == "unknown"]
    ran = call.effect == "execute" and message != UNANSWERED
    coverage = Coverage("partial", ("interrupted",)) if ran else Coverage()
    coverage = coverage.lowered(*(f"outcome unknown: {path}" for path in unknown[:10]))
    result = {
        "success": False,
        "error": {"code": "EXECUTION_ERROR", "message": message},
        "data": {"recovered": [[path, outcome] for path, outcome in outcomes.items()]},
    }
    fact = CallFinished(
        call.call_id, call.tool, call.effect, "interrupted", result, coverage, call.sandbox
    )
    drafts.append(Draft(fact, call.session, call.actor, source=SOURCE))
    events = attachment.log.append(drafts)
    update_index(attachment, entries, events)
    return RecoveredCall(
        attachment.projections.call(call.session, call.call_id), tuple(outcomes.items())
    )


def _record_command_changes(attachment: Attachment, commands: Sequence[Call]) -> None:
    """Record what changed on disk as the interrupted commands', shared with running ones."""
    mine = {call.requested for call in commands}
    running = [call for call in attachment.running_commands() if call.requested not in mine]
    candidates = [*commands, *running]
    owner = commands[0]
    causes = tuple(call.call_id for call in candidates) if len(candidates) > 1 else ()

    def flush(found: ScanResult) -> None:
        drafts = []
        if found.changes:
            fact = FilesChanged(
                tuple(found.changes),
                "command",
                owner.call_id,
                find_moves(found.changes),
                causes=causes,
            )
            drafts.append(Draft(fact, owner.session, owner.actor, source=SOURCE))
        update_index(attachment, found.entries, attachment.log.append(drafts))

    flush(scan(attachment, flush, after_the_fact=True))


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
