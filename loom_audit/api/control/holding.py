"""Holding sessions, so that none of their calls runs, and releasing them.

A client may work in several workspaces of a store with one session: it is held in all of them.
"""

from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from loom_audit.api.ground.held import other_logs
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.errors import AuditError, Conflict, FileNotFound, InvalidArguments
from loom_audit.history.ground.attachment import Attachment, is_undo
from loom_audit.history.ground.writer import Writer
from loom_audit.history.read.call_detail import CallDetail
from loom_audit.history.record import hold as holding
from loom_audit.history.record.open_calls import calls_in_the_way, open_call_error
from loom_audit.history.record.recovery import decision_needed
from loom_audit.history.told.unread_transcripts import unread_transcripts
from loom_audit.history.undo.undo import UndoResult
from loom_audit.model.plans.planning import Plan
from loom_audit.model.plans.request import Choice
from loom_audit.model.records import Call, SessionHold
from loom_audit.model.text.display import visible
from loom_audit.ports import OnProgress

MAX_REASON = 1_000
"""Characters of a reason: a model has to read it."""

TRIES = 6
"""How often a plan is made for a workspace that is being written."""


def hold(
    workspace: AuditedWorkspace,
    session: str,
    reason: str = "",
    *,
    actor: str | None = None,
    label: str = "",
) -> SessionHold:
    """Hold a session, given by its whole id; once when asked twice.

    Returned is what holds it: itself, or the session that contains it. How its open calls ended is
    put on record as far as its client has told it by then. NotFound; Conflict when it has ended,
    InvalidArguments for a reason that is too long or not visible text.
    """
    held = _hold(workspace, session, reason, actor, label)
    record_ended_calls(workspace)
    return held


def record_ended_calls(workspace: AuditedWorkspace) -> None:
    """Put on record how calls of other programs ended, as far as their clients have told it."""
    attachment = workspace.attachment
    leases = map(attachment.lease, {call.session for call in workspace.timeline.open_calls()})
    if any(leases) or any(unread_transcripts(attachment)):
        # loaded only then: most of what is held or taken back is not a client's
        from loom_audit.api.agents.reading import read_transcripts

        read_transcripts(workspace)


def _hold(
    workspace: AuditedWorkspace, session: str, reason: str, actor: str | None, label: str
) -> SessionHold:
    _check_reason(reason)
    own, *others = _attachments(workspace, session)
    held = holding.hold(_writer(workspace, own, session, actor), reason, label=label)
    for other in others:
        holding.hold(_writer(workspace, other, session, actor), reason, label=label)
    return held


def release(
    workspace: AuditedWorkspace,
    session: str,
    reason: str = "",
    *,
    actor: str | None = None,
    label: str = "",
) -> bool:
    """Let a session go on; whether it was held.

    NotFound; Conflict when it is held with the one that contains it; InvalidArguments as `hold`.
    """
    _check_reason(reason)
    released = [
        holding.release(_writer(workspace, one, session, actor), reason, label=label)
        for one in _attachments(workspace, session)
    ]
    return any(released)


def hold_all(
    workspace: AuditedWorkspace, reason: str = "", *, actor: str | None = None, label: str = ""
) -> Sequence[SessionHold]:
    """Hold every session of which somebody may still call something, as `hold`; oldest first.

    They are held before anything else is done.
    """
    for one in workspace.timeline.open_sessions():
        if workspace.attachment.is_session_alive(one.id):
            _hold(workspace, one.id, reason, actor, label)
    record_ended_calls(workspace)
    return workspace.timeline.holds()


def still_running(workspace: AuditedWorkspace) -> Sequence[tuple[str, int | None]]:
    """The held sessions whose agent still runs, each with its process where that is known."""
    attachment = workspace.attachment
    alive = [
        held for held in workspace.timeline.holds() if attachment.is_session_alive(held.session)
    ]
    leases = [(held.session, attachment.lease(held.session)) for held in alive]
    return [(session, lease.pid if lease else None) for session, lease in leases]


def calls_left_open(workspace: AuditedWorkspace) -> Sequence[Call]:
    """The calls that may go on changing files while something is taken back, oldest first."""
    return calls_in_the_way(workspace.attachment)


def why_not_now(workspace: AuditedWorkspace, *, held: bool = False) -> Conflict | None:
    """The error with which `carry_out` would refuse any plan now; None where it would not.

    Nothing is written. With `held` every session is held first, and open calls are left open.
    """
    attachment = workspace.attachment
    undos = [one for one in workspace.timeline.open_calls() if attachment.waits_for_decision(one)]
    if undos and not attachment.is_undo_running:
        return decision_needed(undos[0])
    busy = [] if held else [one for one in calls_in_the_way(attachment) if one not in undos]
    return open_call_error(attachment, busy) if busy else None


def has_to_be_told(workspace: AuditedWorkspace, error: AuditError) -> bool:
    """Whether a client may have told already how a call ended that is in the way."""
    seqs = error.details.get("calls", ())
    return any(
        call.requested in seqs and workspace.attachment.lease(call.session) is not None
        for call in workspace.timeline.open_calls()
    )


def left_open_by(detail: CallDetail) -> Sequence[int]:
    """The calls that a rollback left open, by the seqs of their requests."""
    asked = detail.arguments if is_undo(detail.call) else None
    listed = asked.get("left_open") if isinstance(asked, dict) else None
    return [seq for seq in listed if isinstance(seq, int)] if isinstance(listed, list) else []


def carry_out(
    workspace: AuditedWorkspace,
    plan: Plan,
    *,
    actor: str | None = None,
    label: str = "",
    visit: str = "",
    report: OnProgress | None = None,
) -> UndoResult:
    """Carry out a plan; one made for `running` calls while held sessions change files.

    Where they do so all the while the plan is made anew, and after a second time leaves alone, and
    names, what they were writing between the two. Conflict when that is not enough after several
    times, with what has been changed by then in its details; and as `AuditedWorkspace.carry_out`.
    """
    held = plan.request.running
    in_use: set[str] = set()
    since: int | None = None
    for left in reversed(range(TRIES if held else 1)):
        try:
            done = workspace.carry_out(
                plan, actor=actor, label=label, held=held, visit=visit, report=report
            )
            return replace(done, in_use=tuple(sorted(in_use)))
        except (Conflict, FileNotFound) as error:
            if not left or not error.details.keys() & {"path", "planned_at"}:
                raise
            if since is not None:
                in_use |= _written_since(workspace, since, error)
            since = workspace.log.head()
        plan = _plan_again(workspace, plan, in_use)
    raise AssertionError("the last try returns or raises")


def _written_since(workspace: AuditedWorkspace, since: int, error: AuditError) -> set[str]:
    """What others than we were found to have changed since an event, with what an error names."""
    found = {
        one.change.path
        for one in workspace.timeline.projections.changes(after=since)
        if one.origin in ("command", "outside")
    }
    return found | {*error.details.get("paths", [error.details.get("path", "")])} - {""}


def _plan_again(workspace: AuditedWorkspace, plan: Plan, in_use: Collection[str]) -> Plan:
    left: dict[str, Choice] = dict.fromkeys(in_use, "current")
    return workspace.plan(replace(plan.request, choices={**plan.request.choices, **left}))


def _attachments(workspace: AuditedWorkspace, session: str) -> Iterator[Attachment]:
    """The workspace itself, and the others in which the session is open or held."""
    yield workspace.attachment
    for log in other_logs(workspace.adapters, workspace.id, session):
        yield workspace.adapters.attachment(log)


def _writer(
    workspace: AuditedWorkspace, attachment: Attachment, session: str, actor: str | None
) -> Writer:
    return Writer(attachment, session, actor or workspace.actor)


def _check_reason(reason: str) -> None:
    if visible(reason) != reason or len(reason) > MAX_REASON:
        raise InvalidArguments(
            "not a reason that can be told to a model",
            hint=f"A reason is one line of visible text, at most {MAX_REASON:,} characters.",
        )
