"""One call, from its request to its one finish.

Only imported transcripts finish calls elsewhere (`told/importing.py`).
"""

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
from loom_audit.history.record.call_record import LATE, NOT_SEEN_BEFORE, CallRecord
from loom_audit.history.record.changes import check_planned, make_changes
from loom_audit.history.record.edits import Transform, plan_delete, plan_edit, plan_move
from loom_audit.history.record.interrupted import (
    Comparison,
    add_outcome,
    close_opened,
    compare_with_disk,
    half_moves,
    writer_of,
)
from loom_audit.history.record.looks import (
    keep_going_on,
    look_after_block,
    look_before_block,
    record_found_changes,
)
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
from loom_audit.model.records import Call
from loom_audit.ports import Command, CommandResult, Moments, OnProgress, Runner


class OpenCall:
    """One call from its request to its one finish, to be used as a context manager.

    Nothing is stored until it has an effect or ends. The block may `finish` it; one that is
    left without that is finished then: `ok` with `result`, or by what was raised.

    Every method that changes something is one whole step under the workspace lock. With
    `final` the caller says that this is the last effect: the lock is then kept until `finish`,
    which stores what changed together with the finish in one commit.
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
        self._workspace_lock: ExitStack | None = None
        self._reverts: tuple[int, ...] = ()

    @classmethod
    def asked(cls, writer: Writer, request: CallRequested) -> "OpenCall":
        """A call that another program asks for; what its command names is read here."""
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
        """A call that is on record as requested and not finished; `began` is for its duration."""
        id, tool, effect = call.call_id, call.tool, call.effect
        resumed = cls(writer, tool, None, effect, call_id=id, requested=True)
        resumed.sandbox = call.sandbox
        resumed._began = began
        return resumed

    @property
    def coverage(self) -> Coverage:
        """How completely its effects were captured until now."""
        return self.record.coverage

    @property
    def files_changed(self) -> Sequence[str]:
        """The paths it changed until now, in the order of the changes."""
        return self.record.files_changed

    # --- facts ----------------------------------------------------------------------------

    def add_decision(
        self, decision: str, *, by: str, reason: str = "", arguments: Any = None
    ) -> None:
        """Put a gate's answer on record, with the next commit."""
        answer: Literal["allowed", "denied"] = "allowed" if decision == "allowed" else "denied"
        self.record.add(CallDecided(self.call_id, self.tool, answer, by, reason, arguments))

    def ask(self, question: ApprovalRequested, *, requested: int = 0) -> ApprovalRequest:
        """Put a question about this call on record, durably, after its request.

        `requested` is the seq of the request when that is on record already.
        """
        events = self.record.commit(question)
        asked = events[-1]
        begun = requested or events[0].seq
        return ApprovalRequest(
            asked.seq, begun, asked.at, asked.session, asked.actor, self.effect, question
        )

    def announce(self) -> None:
        """Put the request on record now, before an effect that is not captured."""
        if self.record.has_facts:
            self.record.commit()

    # --- file changes ---------------------------------------------------------------------

    def write(
        self,
        path: str,
        content: bytes,
        *,
        mode: int | None = None,
        parents: bool = True,
        final: bool = False,
    ) -> FileChange:
        """Put the content at the path; a symlink to a path inside the workspace is followed."""
        return self.edit(path, content, mode=mode, parents=parents, final=final)

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

        An error that `new` raises passes through, with nothing changed. Conflict when somebody
        else writes the file in between; their version stays.
        """
        with self._step(final) as preconditions:
            *above, change = plan_edit(preconditions, path, new, mode=mode, create=parents)
            changes = [*above, change] if change.before != change.after else []
            make_changes(self.record, preconditions, changes)
            return change

    def delete(self, path: str, *, recursive: bool = False, final: bool = False) -> tuple[str, ...]:
        """Delete a file, a symlink (never what it points to) or, `recursive`, a directory."""
        with self._step(final) as preconditions:
            changes = plan_delete(preconditions, path, recursive=recursive)
            make_changes(self.record, preconditions, changes)
            return tuple(sorted(change.path for change in changes if change.after is None))

    def move(
        self, source: str, target: str, *, overwrite: bool = False, final: bool = False
    ) -> tuple[FileChange, ...]:
        """Rename a file, symlink or directory; the target's parents are created."""
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
        report: OnProgress | None = None,
    ) -> None:
        """Carry out planned changes. Conflict, with nothing changed, when disk differs."""
        self._reverts = reverts
        with self._step(final) as preconditions:
            preconditions.report = report
            check_planned(preconditions, changes)
            make_changes(self.record, preconditions, changes, moves, reverts, origin="undo")
            self.record.commit_and_index()  # what was displaced goes while the call is open

    def check_writable(self) -> None:
        """PermissionDenied for a tool of effect read."""
        if self.effect == "read":
            raise PermissionDenied(
                f"{self.tool} is registered with effect read and tried to write",
                hint="Register the tool with effect write.",
            )

    @contextmanager
    def _step(self, final: bool) -> Iterator[Preconditions]:
        self.check_writable()
        with self._exclusive(final):
            yield Preconditions(self._attachment)  # the index follows commits only

    @contextmanager
    def _exclusive(self, final: bool) -> Iterator[None]:
        """Hold the workspace lock for the block, and after it until `finish` when final."""
        self._check_unfinished()
        with ExitStack() as stack:
            stack.enter_context(exclusive(self._attachment))
            yield
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
        """Run a command and record which files it changed; `started` is called just before it."""
        with ExitStack() as capture:

            def start() -> None:
                capture.enter_context(self.capture(final=final, watched=True))
                started()

            root = self._attachment.on_disk.workspace.root
            completed = runner.run(root, command, Moments(start, cancelled))
            self.sandbox = completed.sandbox
            self._left_running.update(completed.kept)
            if completed.survivors:
                named = ", ".join(completed.survivors[:5])
                self.record.lower_coverage(f"killed at the end: {named}")
        return completed

    @contextmanager
    def capture(self, *, final: bool = False, watched: bool = False) -> Iterator[None]:
        """Record the changes that happen in the block as this call's.

        Changes found before the block are attributed to others. Changes found after it are
        shared with the commands that ran at the same time, and coverage says so. What the block
        leaves running may share what is found later, unless a runner `watched` over it.
        """
        self.check_writable()
        with exclusive(self._attachment):
            before = look_before_block(self.record, watched=watched)
        try:
            yield
        finally:
            try:
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
        """Put the outcome on record, durably, and release the workspace lock. Once per call.

        It is `inferred` where nobody told or saw it.
        """
        self._check_unfinished()
        self._keep_left_running()
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
                self._ended = isinstance(
                    error, (AuditUnavailable, Conflict)
                )  # trying again cannot help
                if not self.record.has_facts:
                    self._attachment.process.unfinished[self.record.key] = time_ns()
                raise
            self._ended = True
            self._attachment.process.unfinished.pop(self.record.key, None)
            self.finish_event = events[-1]
            if self.record.entries:
                self.record.update_index(events)
        return self.finish_event

    def _check_unfinished(self) -> None:
        if self._ended:
            raise Conflict(f"call {self.call_id} is finished already")

    def _keep_left_running(self) -> None:
        if self._left_running:
            self.announce()
            with exclusive(self._attachment) if self._workspace_lock is None else ExitStack():
                tasks = self._attachment.on_disk.processes.activity(self._left_running)
                keep_going_on(self.record, LeftRunning(tasks))

    def leave_running(self, thread: int) -> None:
        """Say that a thread, by the system's number of it, goes on when the call has ended."""
        self._left_running.add(self._attachment.on_disk.processes.thread(thread))

    def _duration(self) -> int:
        if self._began is None:
            return 0
        passed = (self.writer.occurred_at or self._attachment.stored.clock.now()) - self._began
        return max(0, round(passed.total_seconds() * 1_000_000))

    def __enter__(self) -> "OpenCall":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._ended:
            return
        if error is None:
            self.finish("ok", {**self.result, "files_changed": [*self.files_changed]})
        else:
            failure = error if isinstance(error, AuditError) else self._failure(error)
            body = {"success": False, "files_changed": [*self.files_changed]}
            self.finish(status_of(error), {**body, "error": failure.to_dict()})

    def _failure(self, error: BaseException) -> ExecutionFailed:
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, Exception):
            return ExecutionFailed(text)
        return ExecutionFailed(f"{self.tool} was cancelled", details={"exception": text})


@contextmanager
def exclusive(attachment: Attachment) -> Iterator[None]:
    """Hold the workspace lock, once calls whose end could not be recorded are closed.

    Otherwise the next scan would find what they changed and attribute it to another call.
    """
    with attachment.exclusive():
        _close_unfinished(attachment)
        yield


def close_unfinished(attachment: Attachment) -> None:
    """Close calls of this process whose end could not be recorded, if there are any."""
    if attachment.process.unfinished:
        with attachment.exclusive():
            _close_unfinished(attachment)


def _close_unfinished(attachment: Attachment) -> None:
    if not attachment.process.unfinished:
        return
    for call in attachment.stored.tables.open_calls():
        ended = attachment.process.unfinished.get((call.session, call.call_id))
        if ended is not None:
            if changes_by_itself(attachment.stored, call):
                record_found_changes(attachment, [call], {call.requested: Told(over=ended)})
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

    One that was still waiting for an answer has not `ran`. `unseen` is why the workspace could
    not be looked at, when it could not.
    """
    if close_opened(attachment, call):
        remove_temporaries(attachment, [call])  # which opens them while the call is open
    found = compare_with_disk(attachment, call)
    with OpenCall.resumed(writer_of(attachment, call), call) as closing:
        if ran and changes_by_itself(attachment.stored, call):
            closing.record.lower_coverage("interrupted", LATE)
            if not unseen and request_event(attachment.stored, call)[0].source == CLIENT_UNSEEN:
                unseen = NOT_SEEN_BEFORE
            if unseen:
                closing.record.lower_coverage(unseen, level="none")
        closing.record.lower_coverage(*(f"outcome unknown: {path}" for path in found.unknown[:10]))
        add_outcome(closing.record, call, found)
        data = {"recovered": [[path, outcome] for path, outcome in found.outcomes.items()]}
        if halves := half_moves(attachment, call):
            data["half_moved"] = [[move.source, move.target] for move in halves]
        error = {"code": "EXECUTION_ERROR", "message": why}
        result = {"success": False, "error": error, "data": data}
        closing.finish(status, result, inferred=True)
    return found
