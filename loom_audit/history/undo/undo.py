"""Carries out plans: an undo, redo, revert or rollback is an ordinary call on record.

So a crash in the middle of one leaves an intention, as of any call, and it can itself be undone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import AuditError, Conflict
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.without_gc import without_gc
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.call import OpenCall
from loom_audit.history.record.drift import record_drift, record_git_drift
from loom_audit.history.record.interrupted import record_interrupted
from loom_audit.history.record.open_calls import calls_in_the_way, check_open, open_call_error
from loom_audit.history.record.recovery import RecoveredCall, decision_needed, recover
from loom_audit.history.undo.finishing import GIT_AFTER, finish
from loom_audit.history.undo.kept_when_finished import would_be_kept
from loom_audit.history.undo.planner import Planner
from loom_audit.model.calls import IN_PART
from loom_audit.model.files import FileChange, is_directory, is_within, moves_among
from loom_audit.model.plans.git_things import GitThing
from loom_audit.model.plans.planning import Note, Plan, is_equivalent
from loom_audit.model.records import Call
from loom_audit.model.text.display import first_few
from loom_audit.ports import OnProgress

_WRITABLE = 0o300
"""The bits of the mode of a folder with which its owner writes into it."""


class UndoResult(Struct, frozen=True):
    """The call that carried out a plan, and the paths that it changed.

    `left_open` are calls of held sessions that were open meanwhile, and still are; `in_use` are
    paths that those calls kept writing, so that they are as the calls wrote them.
    """

    call: Call
    changed: tuple[str, ...]
    plan: Plan
    left_open: tuple[Call, ...] = ()
    in_use: tuple[str, ...] = ()


class Undo:
    """Carries out plans of one workspace: one at a time, by a lock that all processes share."""

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
        leave_open: bool = False,
        progress: OnProgress | None = None,
    ) -> UndoResult:
        """Carry out a plan as one call, if a plan for the same request made now does the same.

        `session` is entered only once nothing speaks against the plan, so that a refused plan
        leaves no session on record. `label` is what the person who decided calls themselves; it
        stands in the arguments of the call. With `leave_open` open calls of held sessions stay
        open: what they changed until now is taken back or kept as the request says, also where the
        plan did not know of it yet; what they change from then on is on record as later than the
        undo. `progress` is told now and then how many of the changes are made.

        Conflict, with nothing changed: when a plan made now does something else, when the plan is
        blocked or empty, when it would keep everything without having been told to, while another
        call that changes files is open in the workspace, and while an interrupted undo waits to be
        continued or abandoned.
        """
        with self._renewed(plan, leave_open=leave_open) as (fresh, left_open):
            more: dict[str, object] = {"label": label} if label else {}
            if left_open:
                more |= {"left_open": [call.requested for call in left_open]}
            with session as writer:
                return self._do(fresh, writer, call_id, more, left_open, progress)

    @without_gc()
    def carry_out_in(
        self, plan: Plan, call: OpenCall, *, check: Callable[[Plan], None]
    ) -> Sequence[str]:
        """Carry out a plan as the doing of a call that is open; the paths that it changed.

        It must be the last step of the call, which is not counted among those that are open.
        `check` raises what speaks against the plan, once all that is on disk is on record. Errors
        as of `carry_out`; one between two paths says how far it came.
        """
        with self._renewed(plan, besides=call.record.key) as (fresh, _):
            check(fresh)
            try:
                self._apply(fresh, call, None)
            except AuditError as error:
                if call.files_changed:
                    _add_how_far(error, fresh, call, "`undo` once more takes that back")
                raise
            return call.files_changed

    @contextmanager
    def _renewed(
        self, plan: Plan, *, leave_open: bool = False, besides: tuple[str, str] | None = None
    ) -> Iterator[tuple[Plan, Sequence[Call]]]:
        """The plan as of now, and the calls that stay open; nobody else takes back meanwhile."""
        if plan.blocked:
            raise blocked_error(plan)
        if plan.keeps_all:
            raise _all_kept_error(plan)
        release = self.attachment.stored.lock.acquire(self.attachment.undo_lock)
        try:
            left_open = self._left_open(leave_open, besides)
            with self.attachment.exclusive():
                record_drift(self.attachment)  # a plan is carried out from what is on record
                record_git_drift(self.attachment)
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
            yield fresh, left_open
        finally:
            release()

    def _do(
        self,
        plan: Plan,
        writer: Writer,
        call_id: str,
        more: Mapping[str, object],
        left_open: Sequence[Call],
        progress: OnProgress | None,
    ) -> UndoResult:
        """Record and carry out a call that makes the changes of a plan.

        An error says which paths are changed already, and how to take that back.
        """
        arguments = {**_arguments(plan), **more}
        try:
            with OpenCall(writer, plan.verb, arguments, "write", call_id=call_id) as call:
                self._apply(plan, call, progress)
                call.result["output"] = _summary(plan, left_open)
        except AuditError as error:
            if call.files_changed and call.finish_event is not None:
                way = f"`loom-audit revert {call.finish_event.seq}` takes that back"
                _add_how_far(error, plan, call, way)
            raise
        done = self.attachment.stored.reading.call(writer.session, call_id)
        return UndoResult(done, tuple(call.files_changed), plan, tuple(left_open))

    def _apply(self, plan: Plan, call: OpenCall, progress: OnProgress | None) -> None:
        """Make the changes of a plan as the last steps of a call."""
        self.attachment.on_disk.workspace.make_again()  # a command may have deleted the root
        for content in plan.contents.values():
            self.attachment.stored.blobs.put(content)
        if plan.partly or plan.rest:
            call.result[IN_PART] = _in_part(plan)
        *before, last = plan.stages or (plan.changes,)
        late = _built_late(plan)
        git = tuple(one for one in plan.git if one not in late)
        for stage in before:  # only the last stage takes calls back, all as a whole
            call.apply(stage, moves=moves_among(stage, plan.moves), progress=progress, git=git)
            git = ()
        call.apply(
            last,
            moves=moves_among(last, plan.moves),
            reverts=plan.reverts,
            git=git,
            final=not late,
            progress=progress,
        )
        if late:
            call.apply((), reverts=plan.reverts, git=late, final=True)

    def _left_open(self, leave_open: bool, besides: tuple[str, str] | None) -> Sequence[Call]:
        """The open calls that stay open: with `leave_open` those of sessions that are held.

        The call `besides`, which takes back, is none of them. Conflict for other open calls that
        change files, and for an undo that was interrupted.
        """
        waiting = self._open_undos()
        if waiting:
            raise decision_needed(waiting[0])
        with self.attachment.exclusive():
            # a call of one step holds the lock, so the open ones have several
            calls = calls_in_the_way(self.attachment, besides=besides)
            busy = [c for c in calls if not leave_open or self.attachment.hold(c.session) is None]
        if busy:
            raise open_call_error(self.attachment, busy)
        return calls

    # --- after a crash --------------------------------------------------------------------

    def recover(
        self, mode: Literal["auto", "continue", "abandon"], *, actor: str
    ) -> Sequence[RecoveredCall]:
        """Close interrupted calls, and continue or abandon interrupted undos where `mode` says so.

        With "auto" an interrupted undo waits for a decision; its result names what would be kept.
        Returns the calls that were closed, continued or wait. `actor` is who decided. Corrupt where
        the tables have a call as open that the log does not.
        """
        if mode != "continue":
            found = recover(self.attachment, abandon=mode == "abandon")
            return [self._with_kept(one) if one.waiting else one for one in found]
        release = self.attachment.stored.lock.acquire(self.attachment.undo_lock)
        try:
            interrupted = self._open_undos()
            check_open(self.attachment.stored.log, interrupted)
            # else each would take for somebody else's doing what another one has made
            if len(interrupted) > 1:
                with self.attachment.exclusive():
                    record_interrupted(self.attachment, interrupted)
            timeline = self.planner.timeline
            newest_first = reversed(interrupted)
            done = [finish(self.attachment, timeline, call, actor) for call in newest_first]
        finally:
            release()
        return [*reversed(done), *recover(self.attachment)]

    def _with_kept(self, one: RecoveredCall) -> RecoveredCall:
        """An undo that waits for a decision, with the notes on what finishing it would keep."""
        with self.attachment.exclusive():
            return replace(one, kept=would_be_kept(self.attachment, one.call))

    def _open_undos(self) -> list[Call]:
        """The open undos, all of them interrupted: a running one would hold the undo lock."""
        calls = self.attachment.stored.tables.open_calls()
        return [call for call in calls if self.attachment.waits_for_decision(call)]


def blocked_error(plan: Plan) -> Conflict:
    """The Conflict for a plan that is blocked: it names the paths that need a choice."""
    return Conflict(
        first_few(plan.blocked, 1, _said),
        hint="Choose per path: keep current, take old, or write a merge with markers."
        if all(note.path for note in plan.blocked)
        else "Leave git as it is (--no-git), or put it back yourself first.",
        details={
            "blocked": [
                {"path": note.path, "reason": note.reason, "calls": list(note.calls)}
                for note in plan.blocked
            ]
        },
    )


def _add_how_far(error: AuditError, plan: Plan, call: OpenCall, way: str) -> None:
    """Say in an error which paths of a plan are changed already, and the way to take that back."""
    far = f"{len(call.files_changed)} of {len(plan.changes)} paths are changed already"
    error.hint = f"{far}; {way}. {error.hint}"
    error.details["changed"] = [*call.files_changed]


def _nothing_error(plan: Plan) -> Conflict:
    """The Conflict for a plan that would take nothing back and write nothing."""
    return Conflict(
        f"{plan.verb} of {plan.target} would change nothing: there is nothing left to take back",
        hint="Nothing was changed, and nothing is recorded.",
    )


def _all_kept_error(plan: Plan) -> Conflict:
    """The Conflict for a plan that would keep everything it was asked to take back."""
    return Conflict(
        f"nothing would be taken back: {first_few(plan.kept, 1, _said)}",
        hint="Choose per path: old takes it back all the same, current keeps it; the next undo "
        "then goes on to the call before.",
        details={"kept": [note.path for note in plan.kept]},
    )


def _built_late(plan: Plan) -> Sequence[GitThing]:
    """The repositories whose folder comes with the files, or can be written only then: they are
    built after these.
    """
    stages = plan.stages or (plan.changes,)
    made = {change.path for stage in stages for change in stage if _is_opened(change)}
    return tuple(one for one in plan.git if one.is_whole and is_within(one.folder, made))


def _is_opened(change: FileChange) -> bool:
    """Whether a folder can be written into only once it is made, or has its mode."""
    before, after = change.before, change.after
    if before is None or after is None or not is_directory(after):
        return before is None
    return before.mode & _WRITABLE != _WRITABLE == after.mode & _WRITABLE


def _said(note: Note) -> str:
    return f"{note.path}: {note.reason}" if note.path else note.reason


def _arguments(plan: Plan) -> dict[str, object]:
    """The arguments of the call on record: the request, by which recovery can go on."""
    request = plan.request
    return {
        "target": plan.target,
        "targets": [str(target) for target in request.targets],
        "paths": list(request.paths),
        "choices": {**request.choices, **plan.decided},
        "outside": False,
        **{flag.field: True for flag in request.flags},
        **({"stages": len(plan.stages)} if plan.stages else {}),
        **({GIT_AFTER: [one.folder for one in late]} if (late := _built_late(plan)) else {}),
        **({IN_PART: _in_part(plan)} if plan.partly or plan.rest else {}),
    }


def _in_part(plan: Plan) -> dict[str, list[str]]:
    """The paths that a plan takes back of calls of which it does not take back everything."""
    parts = {**plan.partly, **plan.rest}
    return {str(number): list(paths) for number, paths in sorted(parts.items())}


def _summary(plan: Plan, left_open: Sequence[Call]) -> str:
    """The output of the call: how many paths it changed, merged and kept."""
    still = f"; still open: {first_few([c.requested for c in left_open], 8)}" if left_open else ""
    return (
        f"{plan.verb} of {plan.target}: {len(plan.changes)} changed "
        f"({len(plan.merged)} merged), {len(plan.already)} already so, {len(plan.kept)} kept{still}"
    )
