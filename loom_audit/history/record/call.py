"""Begins and finishes calls; only those of transcripts end elsewhere (`told/importing.py`)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from time import time_ns
from types import TracebackType
from typing import Any, Literal

from loom_audit.errors import (
    AuditError,
    AuditUnavailable,
    Conflict,
    ExecutionFailed,
    PermissionDenied,
)
from loom_audit.history.ground.attachment import CLIENT_UNSEEN, Attachment
from loom_audit.history.ground.questions import ApprovalRequest
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import changes_by_itself, request_event
from loom_audit.history.look.doers import Told
from loom_audit.history.look.named import named_paths
from loom_audit.history.look.survivors import LeftRunning, Running
from loom_audit.history.record.call_record import LOOKED_AT_LATE, NOT_SEEN_BEFORE, CallRecord
from loom_audit.history.record.changes import check_planned, make_changes
from loom_audit.history.record.edits import Transform, plan_delete, plan_edit, plan_move
from loom_audit.history.record.git.restoring import restoring_git
from loom_audit.history.record.interrupted import (
    Comparison,
    add_outcome,
    close_opened,
    compare_with_disk,
    half_moves,
    writer_of,
)
from loom_audit.history.record.looks import (
    look_after_block,
    look_after_interrupted,
    look_before_block,
    note_left_running,
)
from loom_audit.history.record.out_of_scope import changed_reasons
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.history.record.temporaries import remove_temporaries
from loom_audit.model.coverage import Coverage, Effect, Status, status_of
from loom_audit.model.events import (
    ApprovalRequested,
    CallDecided,
    CallFinished,
    CallRequested,
    Event,
)
from loom_audit.model.files import FileChange, Move
from loom_audit.model.plans.git_things import GitThing
from loom_audit.model.records import Call
from loom_audit.ports import Command, CommandResult, Moments, OnProgress, Runner


class OpenCall:
    """A call that has no finish on record yet, to be used as a context manager.

    Nothing is stored until the call has an effect or ends. Where the block has not finished the
    call, it is finished at the end: `ok` with `result`, or with the exception that left the block.

    Every method that changes something is one step under the workspace lock. With `final` the
    caller says that no other step follows: the lock is then kept until `finish`, which stores the
    changes and the finish in one commit, so that such a call takes two durable commits, not three.
    A finish by another thread waits for the step that is under way: it would not have its changes.
    """

    def __init__(
        self,
        writer: Writer,
        tool: str,
        arguments: Any,
        effect: Effect,
        *,
        call_id: str,
        cwd: str = "",
        paths: tuple[str, ...] | None = None,
        within: int | None = None,
        requested: bool = False,
    ) -> None:
        names = None
        if effect == "execute" and not requested:
            names = named_paths(writer.attachment, arguments, cwd)
        request = CallRequested(call_id, tool, arguments, effect, cwd, paths, within, names)
        self.writer = writer
        self.call_id = call_id
        self.tool = tool
        self.effect = effect
        self.sandbox = ""
        self.result: dict[str, Any] = {"success": True}
        self.finish_event: Event | None = None
        self._left_running: set[str] = set()
        self.record = CallRecord(writer, call_id, *([] if requested else [request]))
        self._attachment = writer.attachment
        self._began = None if requested else writer.attachment.stored.clock.now()
        self._ended = False
        self._under_way = self._attachment.stored.lock.among_threads()
        self._workspace_lock: ExitStack | None = None
        self._reverts: tuple[int, ...] = ()

    @classmethod
    def from_request(cls, writer: Writer, request: CallRequested) -> "OpenCall":
        """The call that another program requests; which paths its command names is read here."""
        return cls(
            writer,
            request.tool,
            request.arguments,
            request.effect,
            call_id=request.call_id,
            cwd=request.cwd,
            paths=request.paths,
            within=request.within,
        )

    @classmethod
    def resumed(cls, writer: Writer, call: Call, *, began: datetime | None = None) -> "OpenCall":
        """A call that is on record as requested and not finished; its duration is since `began`."""
        resumed = cls(writer, call.tool, None, call.effect, call_id=call.call_id, requested=True)
        resumed.sandbox = call.sandbox
        resumed._began = began
        return resumed

    @property
    def coverage(self) -> Coverage:
        """How completely the effects of the call were captured until now."""
        return self.record.coverage

    @property
    def files_changed(self) -> Sequence[str]:
        """The paths that the call changed until now, in the order of the changes."""
        return self.record.files_changed

    # --- facts ----------------------------------------------------------------------------

    def add_decision(
        self, decision: str, *, by: str, reason: str = "", arguments: Any = None
    ) -> None:
        """Add a gate's answer for the next commit; any `decision` but "allowed" is a denial.

        `arguments` are those that the gate put in the place of the requested ones, if it did.
        """
        answer: Literal["allowed", "denied"] = "allowed" if decision == "allowed" else "denied"
        self.record.add(CallDecided(self.call_id, self.tool, answer, by, reason, arguments))

    def ask(self, question: ApprovalRequested, *, requested: int = 0) -> ApprovalRequest:
        """Put a question about this call on record, durably, after the request of the call.

        `requested` is the seq of the request where that is on record already, else 0.
        """
        events = self.record.commit(question)
        asked = events[-1]
        begun = requested or events[0].seq
        return ApprovalRequest(
            asked.seq, begun, asked.at, asked.session, asked.actor, self.effect, question
        )

    def announce(self) -> None:
        """Put the request on record now, durably, before an effect that is not captured."""
        if self.record.has_facts:
            self.record.commit()

    # --- file changes ---------------------------------------------------------------------

    def edit(
        self,
        path: str,
        new: Transform | bytes,
        *,
        mode: int | None = None,
        parents: bool = True,
        final: bool = False,
    ) -> FileChange:
        """Replace the content by `new`, or by what `new` returns for the old one (None: absent).

        An error that `new` raises passes through, with nothing changed. IsADirectory, FileNotFound,
        NotADirectory, InvalidPath; PermissionDenied for a call of effect read; TooLarge where the
        old or the new content is over the limit for recorded content. Conflict when somebody else
        writes the file in between: that version stays in place.
        """
        with self._step(final) as preconditions:
            *above, change = plan_edit(preconditions, path, new, mode=mode, create=parents)
            changes = [*above, change] if change.before != change.after else []
            make_changes(self.record, preconditions, changes)
            return change

    def delete(self, path: str, *, recursive: bool = False, final: bool = False) -> tuple[str, ...]:
        """Delete a file, a symlink (never its target) or, with `recursive`, a directory.

        Returns the deleted paths, sorted. FileNotFound; NotEmpty without `recursive`; Conflict
        where something in a directory is not recorded and so could not be brought back.
        """
        with self._step(final) as preconditions:
            changes = plan_delete(preconditions, path, recursive=recursive)
            make_changes(self.record, preconditions, changes)
            return tuple(sorted(change.path for change in changes if change.after is None))

    def move(
        self, source: str, target: str, *, overwrite: bool = False, final: bool = False
    ) -> tuple[FileChange, ...]:
        """Rename a file, symlink or directory; the folders above the target are made.

        FileNotFound, InvalidPath; Conflict where the target exists, unless it is a file and
        `overwrite` is set, and where something in a directory is not recorded.
        """
        with self._step(final) as preconditions:
            changes, moves = plan_move(preconditions, source, target, overwrite=overwrite)
            make_changes(self.record, preconditions, changes, moves=moves)
            return tuple(changes)

    def apply(
        self,
        changes: Sequence[FileChange],
        *,
        moves: tuple[Move, ...] = (),
        reverts: tuple[int, ...] = (),
        final: bool = False,
        progress: OnProgress | None = None,
        git: Sequence[GitThing] = (),
    ) -> None:
        """Carry out the changes of a plan, with `reverts`, the seqs of the events it takes back.

        Before them things of `git` go back: ExecutionFailed where git cannot do it.

        Conflict, with nothing changed, when a path is not in the state from which its change
        starts. `progress` is told now and then how many paths are done, when there are many.
        """
        self._reverts = reverts
        with self._step(final) as preconditions:
            preconditions.progress = progress
            check_planned(preconditions, changes)
            note = f"loom-audit: {self.tool}, call {self.call_id}"
            with restoring_git(self.record, git, note) as first:
                make_changes(
                    self.record, preconditions, changes, moves, reverts, origin="undo", first=first
                )
            # also when final, so that displaced files are deleted before the finish: a crash in
            # between leaves a call that is open, and recovery deletes the rest
            self.record.commit_and_index()

    def check_writable(self) -> None:
        """PermissionDenied for a call of effect read."""
        if self.effect == "read":
            raise PermissionDenied(
                f"{self.tool} is registered with effect read and tried to write",
                hint="Register the tool with effect write.",
            )

    @contextmanager
    def _step(self, final: bool) -> Iterator[Preconditions]:
        """Check that the call may write, and hold the lock for one step; yields what it reads."""
        self.check_writable()
        with self._exclusive(final):
            # new for each step: others may have changed since what an earlier step read
            yield Preconditions(self._attachment)

    @contextmanager
    def _exclusive(self, final: bool) -> Iterator[None]:
        """Hold the workspace lock for the block and, when `final`, after it until `finish`."""
        with self._under_way, ExitStack() as stack:
            self._check_unfinished()
            stack.enter_context(exclusive(self._attachment))
            yield
            # before the lock is released: whoever took it next would find the changes on disk
            # only, and take them for somebody else's
            if self.record.has_changes and not final:
                self.record.commit_and_index()
            elif final:
                self._workspace_lock = stack.pop_all()

    # --- commands -------------------------------------------------------------------------

    def run(
        self,
        runner: Runner,
        command: Command,
        *,
        cancelled: Callable[[], bool] | None = None,
        started: Callable[[], object] = lambda: None,
        final: bool = False,
    ) -> CommandResult:
        """Run a command in the workspace's directory, and record which files it changed.

        `started` is called just before the command starts. `cancelled` is asked again and again
        while the command runs; once it says true, all processes of the command are killed.
        """
        with ExitStack() as capture:

            def start() -> None:
                # called while the runner's helpers start; the command's own time counts from then
                capture.enter_context(self.capture(final=final, watched=True))
                started()

            root = self._attachment.on_disk.workspace.root
            completed = runner.run(root, command, Moments(start, cancelled))
            self.sandbox = completed.sandbox
            # set inside the block: the look at its end has to know what goes on
            self._left_running.update(completed.kept)
            if completed.survivors:
                named = ", ".join(completed.survivors[:5])
                self.record.lower_coverage(f"killed at the end: {named}")
        return completed

    @contextmanager
    def capture(self, *, final: bool = False, watched: bool = False) -> Iterator[None]:
        """Record the changes that happen in the block as changes of this call.

        What the look before the block finds is of others. What the look after it finds is shared
        with the commands that ran at the same time, and coverage says so. For what processes that
        the block leaves running change later, the call stays a candidate; they are looked for here
        unless the block is `watched`, that is, run by a runner that names them.
        """
        self.check_writable()
        with exclusive(self._attachment):
            before = look_before_block(self.record, watched=watched)
        # the lock is free while the block runs: other calls go on meanwhile
        try:
            yield
        finally:
            try:
                # Ctrl-C waits for the look: without it the next look would find what the block
                # changed, and give it to another call
                with self._attachment.stored.lock.uninterrupted(), self._exclusive(final):
                    look_after_block(self.record, before, self._left_running)
                    self._left_running.clear()
            except BaseException as error:
                Running(self._attachment).forget_block(self.record.key)
                why = error.message if isinstance(error, AuditError) else type(error).__name__
                self.record.lower_coverage(f"not seen: {why}", level="none")
                raise

    # --- the end --------------------------------------------------------------------------

    def finish(self, status: Status, result: Any, *, inferred: bool = False) -> Event:
        """Put the finish on record, durably, and release the workspace lock. AuditUnavailable.

        It is `inferred` where nobody reported or saw how the call ended. Conflict for a second one.
        """
        with self._under_way:
            self._check_unfinished()
            # before the finish, which says by its coverage what goes on
            self._note_left_running()
            return self._commit_finish(status, result, inferred=inferred)

    def _commit_finish(self, status: Status, result: Any, *, inferred: bool) -> Event:
        fact = CallFinished(
            self.call_id,
            self.tool,
            self.effect,
            status,
            result,
            self.coverage,
            self.sandbox,
            self._duration(),
            self._reverts,
            inferred,
        )
        with self._attachment.stored.lock.uninterrupted(), self._workspace_lock or ExitStack():
            try:
                events = self.record.commit(fact)
            except AuditError as error:
                # these two do not go away by trying again; after another error the end of the
                # `with` block finishes the call with that error
                self._ended = isinstance(error, (AuditUnavailable, Conflict))
                if not self.record.has_facts:
                    # the request is on record, so the call stays open there: whoever takes the
                    # lock next in this process closes it, before a look finds what it changed
                    self._attachment.process.unfinished[self.record.key] = time_ns()
                raise
            self._ended = True
            self._attachment.process.unfinished.pop(self.record.key, None)
            self.finish_event = events[-1]
            if self.record.entries:
                self.record.update_index(events)
        return self.finish_event

    def _check_unfinished(self) -> None:
        """Conflict for a call that is finished, since a call has exactly one finish."""
        if self._ended:
            raise Conflict(f"call {self.call_id} is finished already")

    def _note_left_running(self) -> None:
        """Keep this call as a candidate for what its threads and processes change later."""
        if self._left_running:
            # a candidate is known by the seq of its request
            self.announce()
            with exclusive(self._attachment) if self._workspace_lock is None else ExitStack():
                tasks = self._attachment.on_disk.processes.activity(self._left_running)
                note_left_running(self.record, LeftRunning(tasks))

    def leave_running(self, thread: int) -> None:
        """Say that a thread, by its native id, goes on after the call, which stays a candidate."""
        self._left_running.add(self._attachment.on_disk.processes.thread(thread))

    def _duration(self) -> int:
        """Microseconds since the call began; 0 where that is not known."""
        if self._began is None:
            return 0
        passed = (self.writer.occurred_at or self._attachment.stored.clock.now()) - self._began
        return max(0, round(passed.total_seconds() * 1_000_000))

    def __enter__(self) -> "OpenCall":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        with self._under_way:
            if self._ended:
                return
            if error is None:
                self.finish("ok", {**self.result, "files_changed": [*self.files_changed]})
            else:
                failure = error if isinstance(error, AuditError) else self._failure(error)
                body = {"success": False, "files_changed": [*self.files_changed]}
                self.finish(status_of(error), {**body, "error": failure.to_dict()})

    def _failure(self, error: BaseException) -> ExecutionFailed:
        """What the result says of an exception that is none of our errors."""
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, Exception):
            return ExecutionFailed(text)
        return ExecutionFailed(f"{self.tool} was cancelled", details={"exception": text})


@contextmanager
def exclusive(attachment: Attachment) -> Iterator[None]:
    """Hold the workspace lock for the block, in which no call of this process is unfinished.

    Calls whose finish could not be recorded are closed first. Otherwise the next look would find
    what they changed and attribute it to another call.
    """
    with attachment.exclusive():
        _close_unfinished(attachment)
        yield


def close_unfinished(attachment: Attachment) -> None:
    """Close the calls of this process whose finish could not be recorded. AuditUnavailable."""
    if attachment.process.unfinished:
        with attachment.exclusive():
            _close_unfinished(attachment)


def _close_unfinished(attachment: Attachment) -> None:
    """Close the calls of this process whose finish could not be recorded; the lock is held."""
    if not attachment.process.unfinished:
        return
    for call in attachment.stored.tables.open_calls():
        ended = attachment.process.unfinished.get((call.session, call.call_id))
        if ended is not None:
            # when the call ended is known, so that what changed since then is not its own
            if changes_by_itself(attachment.stored, call):
                look_after_interrupted(attachment, [call], {call.requested: Told(over=ended)})
            close_interrupted(attachment, call, "the log could not be written when this call ended")
            remove_temporaries(attachment, [call])
    attachment.process.unfinished.clear()


def close_interrupted(
    attachment: Attachment,
    call: Call,
    why: str,
    *,
    ran: bool = True,
    status: Status = "interrupted",
    unseen: str = "",
) -> Comparison:
    """Finish an open call whose end nobody reports, with what is on disk now; the lock is held.

    `why` is the message of the error in the call's result. `ran` is false for a call that was
    still waiting for an answer. `unseen` is the reason why the workspace could not be looked at,
    "" where it was. Returns what came of the changes that the call intended.
    """
    if close_opened(attachment, call):
        # deleting them opens their folders once more, so it comes before the finish: should the
        # process die meanwhile, the call is still open, and whoever looks next closes its folders
        remove_temporaries(attachment, [call])
    comparison = compare_with_disk(attachment, call)
    with OpenCall.resumed(writer_of(attachment, call), call) as closing:
        if ran and changes_by_itself(attachment.stored, call):
            closing.record.lower_coverage("interrupted", LOOKED_AT_LATE)
            if not unseen and request_event(attachment.stored, call)[0].source == CLIENT_UNSEEN:
                unseen = NOT_SEEN_BEFORE
            if unseen:
                closing.record.lower_coverage(unseen, level="none")
            else:
                closing.record.lower_coverage(*changed_reasons(attachment, call))
        closing.record.lower_coverage(
            *(f"outcome unknown: {path}" for path in comparison.unknown[:10])
        )
        add_outcome(closing.record, call, comparison)
        data = {"recovered": [[path, outcome] for path, outcome in comparison.outcomes.items()]}
        if halves := half_moves(attachment, call):
            data["half_moved"] = [[move.source, move.target] for move in halves]
        error = {"code": "EXECUTION_ERROR", "message": why}
        closing.finish(status, {"success": False, "error": error, "data": data}, inferred=True)
    return comparison
