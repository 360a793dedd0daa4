"""Carrying out plans: undo, redo, revert and rollback are ordinary calls, on record."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import AuditError, Conflict
from loom_audit.history.ground.attachment import Attachment, is_undo
from loom_audit.history.ground.without_gc import without_gc
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.call import OpenCall
from loom_audit.history.record.drift import record_drift
from loom_audit.history.record.interrupted import record_interrupted
from loom_audit.history.record.open_calls import calls_in_the_way, check_open, open_call_error
from loom_audit.history.record.recovery import RecoveredCall, decision_needed, recover
from loom_audit.history.undo.finishing import finish
from loom_audit.history.undo.left_alone import would_stay
from loom_audit.history.undo.planner import Planner
from loom_audit.model.files import moves_among
from loom_audit.model.plans.planning import Note, Plan, is_equivalent
from loom_audit.model.records import Call
from loom_audit.model.text.display import first_few
from loom_audit.ports import OnProgress


class UndoResult(Struct, frozen=True):
    """The call that carried out a plan, and the paths that are different now.

    `left_open` are calls of held sessions that went on meanwhile, and still do; `in_use` are paths
    that they were writing all the while, which are as they left them.
    """

    call: Call
    changed: tuple[str, ...]
    plan: Plan
    left_open: tuple[Call, ...] = ()
    in_use: tuple[str, ...] = ()


class Undo:
    """Carries out undos and redos; one at a time per workspace, across processes."""

    def __init__(self, attachment: Attachment, planner: Planner) -> None:
        self.attachment = attachment
        self.planner = planner

    @without_gc()
    def carry_out(
        self,
        plan: Plan,
        session: AbstractContextManager[Writer],
        *,
        call_id: str,
        label: str = "",
        held: bool = False,
        report: OnProgress | None = None,
    ) -> UndoResult:
        """Carry out the plan in a session that begins when nothing speaks against it any more: if a
        plan made now does the same.

        `label` is what the person calls themselves; it stands in the arguments of the call.
        Conflict, with nothing changed, when it does not, when the plan is blocked or empty, when it
        would keep everything without having been told to, while a call that changes files is open
        in the workspace, and while an interrupted undo waits to be continued or abandoned. With
        `held` open calls of held sessions are left open: what they changed until now is as the
        request says, also where the plan did not know it yet, and what they change from then on is
        theirs, and later than the undo.
        """
        if plan.blocked:
            raise blocked_error(plan)
        if plan.keeps_all:
            raise _all_kept_error(plan)
        release = self.attachment.stored.lock.acquire(self.attachment.undo_lock)
        try:
            left_open = self._left_open(held)
            with self.attachment.exclusive():
                record_drift(self.attachment)  # the plan starts from what is there
            fresh = self.planner.renew(plan)
            if fresh.blocked:
                raise blocked_error(fresh)
            if not left_open and not is_equivalent(plan, fresh):
                raise Conflict(
                    "the workspace changed since this plan was made",
                    hint="Look at the new plan and decide again.",
                    details={"planned_at": plan.head, "head": fresh.head},
                )
            if fresh.is_empty:
                raise _nothing_error(fresh)
            self.planner.check_named(fresh)
            more: dict[str, object] = {"label": label} if label else {}
            if left_open:
                more |= {"left_open": [call.requested for call in left_open]}
            with session as writer:
                return self._do(fresh, writer, call_id, more, left_open, report)
        finally:
            release()

    def _do(
        self,
        plan: Plan,
        writer: Writer,
        call_id: str,
        more: Mapping[str, object],
        left_open: Sequence[Call],
        report: OnProgress | None,
    ) -> UndoResult:
        self.attachment.on_disk.workspace.make_again()
        for content in plan.contents.values():
            self.attachment.stored.blobs.put(content)
        arguments = {**_arguments(plan), **more}
        try:
            with OpenCall(writer, plan.verb, arguments, "write", call_id=call_id) as call:
                *before, last = plan.stages or (plan.changes,)
                for stage in before:  # what they take back is not taken back before the last
                    call.apply(stage, moves=moves_among(stage, plan.moves), progress=report)
                call.apply(
                    last,
                    moves=moves_among(last, plan.moves),
                    reverts=plan.reverts,
                    final=True,
                    progress=report,
                )
                call.result["output"] = _summary(plan, left_open)
        except AuditError as error:
            if call.files_changed and call.finish_event is not None:
                seq, made = call.finish_event.seq, len(call.files_changed)
                far = f"{made} of {len(plan.changes)} paths are changed already"
                error.hint = f"{far}; `loom-audit revert {seq}` takes that back. {error.hint}"
                error.details["changed"] = list(call.files_changed)
            raise
        done = self.attachment.stored.reading.call(writer.session, call_id)
        return UndoResult(done, tuple(call.files_changed), plan, tuple(left_open))

    def _left_open(self, held: bool) -> Sequence[Call]:
        """The calls that are open all the while: with `held` those of sessions that are held.

        Conflict for the others, and for an undo that was interrupted.
        """
        waiting = self._open_undos()
        if waiting:
            raise decision_needed(waiting[0])
        with self.attachment.exclusive():
            # a call of one step holds the lock, so the open ones have several
            calls = calls_in_the_way(self.attachment)
            busy = [c for c in calls if not held or self.attachment.hold(c.session) is None]
        if busy:
            raise open_call_error(self.attachment, busy)
        return calls

    # --- after a crash --------------------------------------------------------------------

    def recover(
        self, mode: Literal["auto", "continue", "abandon"], *, actor: str
    ) -> Sequence[RecoveredCall]:
        """Close interrupted calls; continue or abandon an interrupted undo when told to."""
        if mode != "continue":
            found = recover(self.attachment, abandon=mode == "abandon")
            return [self._with_kept(one) if one.waiting else one for one in found]
        release = self.attachment.stored.lock.acquire(self.attachment.undo_lock)
        try:
            interrupted = self._open_undos()
            check_open(self.attachment.stored.log, interrupted)
            if len(interrupted) > 1:  # what one made is not somebody else's to the other
                with self.attachment.exclusive():
                    record_interrupted(self.attachment, interrupted)
            timeline = self.planner.timeline
            newest_first = reversed(interrupted)
            done = [finish(self.attachment, timeline, call, actor) for call in newest_first]
        finally:
            release()
        return [*reversed(done), *recover(self.attachment)]

    def _with_kept(self, one: RecoveredCall) -> RecoveredCall:
        """The undo that waits, with what stays as it is when it is finished."""
        with self.attachment.exclusive():
            return replace(one, kept=would_stay(self.attachment, one.call))

    def _open_undos(self) -> list[Call]:
        """The open undos; they are interrupted ones, since the undo lock is held."""
        return [call for call in self.attachment.stored.tables.open_calls() if is_undo(call)]


def blocked_error(plan: Plan) -> Conflict:
    """The error for a plan that needs choices first."""
    return Conflict(
        first_few(plan.blocked, 1, _said),
        hint="Choose per path: keep current, take old, or write a merge with markers.",
        details={
            "blocked": [
                {"path": note.path, "reason": note.reason, "calls": list(note.calls)}
                for note in plan.blocked
            ]
        },
    )


def _nothing_error(plan: Plan) -> Conflict:
    """The error for a plan that would take nothing back and write nothing."""
    return Conflict(
        f"{plan.verb} of {plan.target} would change nothing: there is nothing left to take back",
        hint="Nothing was changed, and nothing is recorded.",
    )


def _all_kept_error(plan: Plan) -> Conflict:
    """The error for a plan that keeps all that it is asked to take back."""
    return Conflict(
        f"nothing would be taken back: {first_few(plan.kept, 1, _said)}",
        hint="Choose per path: old takes it back all the same, current keeps it; the next undo "
        "then goes on to the call before.",
        details={"kept": [note.path for note in plan.kept]},
    )


def _said(note: Note) -> str:
    return f"{note.path}: {note.reason}"


def _arguments(plan: Plan) -> dict[str, object]:
    request = plan.request
    return {
        "target": plan.target,
        "targets": [str(target) for target in request.targets],
        "paths": list(request.paths),
        "choices": dict(request.choices),
        "outside": False,
        **{flag.field: True for flag in request.flags},
        **({"stages": len(plan.stages)} if plan.stages else {}),
    }


def _summary(plan: Plan, left_open: Sequence[Call]) -> str:
    still = f"; still open: {first_few([c.requested for c in left_open], 8)}" if left_open else ""
    return (
        f"{plan.verb} of {plan.target}: {len(plan.changes)} changed "
        f"({len(plan.merged)} merged), {len(plan.already)} already so, {len(plan.kept)} kept{still}"
    )
