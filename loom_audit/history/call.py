"""One tool invocation while it is open: its request, its effects and its one finish."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from loom_audit.errors import AuditError, Conflict, PermissionDenied
from loom_audit.history.call_record import CallRecord
from loom_audit.history.capture import ScanResult, scan
from loom_audit.history.edits import Transform, plan_delete, plan_edit, plan_move
from loom_audit.history.steps import Preconditions, carry_out, check_recoverable
from loom_audit.model.events import (
    FULL,
    ApprovalRequested,
    CallDecided,
    CallFinished,
    CallRequested,
    ChangeIntended,
    Coverage,
    Effect,
    Event,
    FilesChanged,
    Origin,
    Status,
)
from loom_audit.model.files import FileChange, FileState, Move, find_moves
from loom_audit.model.left_out import LeftOutFolders, left_out_changes
from loom_audit.ports import Command, CommandResult, Runner

if TYPE_CHECKING:
    from loom_audit.history.recorder import Recorder


class OpenCall:
    """One tool invocation from its request to its one finish.

    Every method that changes something is one whole step under the workspace lock. With
    `final` the caller says that this is the last effect: the lock is then kept until `finish`,
    which stores what changed together with the finish in one commit. `approved` are the states
    an approval is bound to, by path: other paths, or paths in other states, are not changed.
    """

    def __init__(
        self,
        recorder: "Recorder",
        tool: str,
        arguments: Any,
        effect: Effect,
        call_id: str,
        *,
        requested: bool = False,
    ) -> None:
        self.recorder = recorder
        self.call_id = call_id
        self.tool = tool
        self.effect = effect
        self.coverage: Coverage = FULL
        self.files_changed: list[str] = []
        self.sandbox = ""
        self.finished = False
        self.approved: dict[str, FileState | None] | None = None
        self._attachment = recorder.attachment
        self._key = (recorder.session, call_id)
        self._began: datetime = recorder.attachment.clock.now()
        request = CallRequested(call_id, tool, arguments, effect)
        self._record = CallRecord(recorder, call_id, None if requested else request)
        self._workspace_lock = ExitStack()
        self._reverts: tuple[int, ...] = ()

    # --- facts ----------------------------------------------------------------------------

    def add_decision(
        self, decision: str, *, by: str, reason: str = "", arguments: Any = None
    ) -> None:
        """Put a gate's answer on record, with the next commit."""
        answer: Literal["allowed", "denied"] = "allowed" if decision == "allowed" else "denied"
        self._record.add(CallDecided(self.call_id, self.tool, answer, by, reason, arguments))

    def ask(self, question: ApprovalRequested) -> Sequence[Event]:
        """Put a question about this call on record, durably, after its request."""
        return self._record.commit(question)

    def announce(self) -> None:
        """Put the request on record now, before an effect that is not captured."""
        if self._record.has_facts:
            self._record.commit()

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
            self._carry_out(
                preconditions, [*above, change] if change.before != change.after else []
            )
            return change

    def delete(self, path: str, *, recursive: bool = False, final: bool = False) -> tuple[str, ...]:
        """Delete a file, a symlink (never what it points to) or, `recursive`, a directory."""
        with self._step(final) as preconditions:
            changes = plan_delete(preconditions, path, recursive=recursive)
            self._carry_out(preconditions, changes)
            return tuple(sorted(change.path for change in changes))

    def move(
        self, source: str, target: str, *, overwrite: bool = False, final: bool = False
    ) -> tuple[FileChange, ...]:
        """Rename a file, symlink or directory; the target's parents are created."""
        with self._step(final) as preconditions:
            changes, moves = plan_move(preconditions, source, target, overwrite=overwrite)
            self._carry_out(preconditions, changes, moves=moves)
            return tuple(changes)

    def apply(
        self,
        changes: Sequence[FileChange],
        *,
        moves: tuple[Move, ...] = (),
        reverts: tuple[int, ...] = (),
        final: bool = False,
    ) -> None:
        """Carry out planned changes. Conflict, with nothing changed, when disk differs."""
        self._reverts = reverts
        with self._step(final) as preconditions:
            preconditions.expect_paths(len(changes))
            for change in changes:
                if preconditions.look(change.path) != change.before:
                    raise Conflict(
                        f"{change.path} changed since the plan was made",
                        hint="Make the plan again.",
                        details={"path": change.path},
                    )
            self._carry_out(preconditions, changes, moves=moves, reverts=reverts, origin="undo")

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
        with ExitStack() as stack:
            stack.enter_context(self.recorder.exclusive())
            yield
            if self._record.has_changes and not final:
                self._record.commit_and_index()
            elif final:
                self._workspace_lock = stack.pop_all()

    def _carry_out(
        self,
        preconditions: Preconditions,
        changes: Sequence[FileChange],
        *,
        moves: tuple[Move, ...] = (),
        reverts: tuple[int, ...] = (),
        origin: Origin = "tool",
    ) -> None:
        """Record drift and intention, change the disk, collect the outcome for the next commit."""
        if changes:
            self._check_approved(changes)
            check_recoverable(self._attachment, changes)
        self._record.entries.update(preconditions.entries)
        self._record.add_foreign(preconditions.drift)
        if not changes:
            return
        intended = ChangeIntended(self.call_id, tuple(changes), moves, reverts)
        self._record.commit_and_index(intended)
        outcome = carry_out(preconditions, changes)
        self._record.entries.update(preconditions.entries)
        self._record.add_foreign(outcome.foreign)
        if outcome.changes:
            moves = moves or find_moves(outcome.changes)
            fact = FilesChanged(tuple(outcome.changes), origin, self.call_id, moves, reverts)
            self._record.add_changes(fact)
            self._add_changed_paths(change.path for change in outcome.changes)
        self._record.add_foreign(outcome.later)
        if self.approved is not None:
            self.approved.update((change.path, change.after) for change in outcome.changes)
        self.coverage = self.coverage.lowered(*outcome.reasons)
        if outcome.error is not None:
            self._record.commit_and_index()
            outcome.discard_displaced()
            raise outcome.error

    def _check_approved(self, changes: Sequence[FileChange]) -> None:
        """Conflict when a path to be changed is not in the state that was approved."""
        if self.approved is None:
            return
        for change in changes:
            shown = change.path in self.approved
            if not shown or change.before != self.approved[change.path]:
                raise Conflict(
                    f"{change.path} is not as it was when this call was approved",
                    hint="Look at it and make the call again.",
                    details={"path": change.path},
                )

    def _add_changed_paths(self, paths: Iterable[str]) -> None:
        listed = set(self.files_changed)
        self.files_changed += [path for path in paths if path not in listed]

    # --- commands -------------------------------------------------------------------------

    def run(
        self,
        runner: Runner,
        command: Command,
        *,
        cancelled: Callable[[], bool] | None = None,
        final: bool = False,
    ) -> CommandResult:
        """Run a command and record which files it changed."""
        with ExitStack() as capture:
            completed = runner.run(
                self._attachment.workspace.root,
                command,
                cancelled=cancelled,
                before=lambda: capture.enter_context(self.capture(final=final)),
            )
            self.sandbox = completed.sandbox
            if completed.survivors:
                named = ", ".join(completed.survivors[:5])
                self.coverage = self.coverage.lowered(f"killed at the end: {named}")
        return completed

    @contextmanager
    def capture(self, *, final: bool = False) -> Iterator[None]:
        """Record the changes that happen in the block as this call's.

        Changes found before the block are attributed to others. Changes found after it are
        shared with the commands that ran at the same time, and coverage says so.
        """
        self.check_writable()
        with self.recorder.exclusive():
            found = scan(self._attachment, self._record.commit_foreign)
            self._record.add_foreign(found.changes)
            self._record.add_untracked(found)
            self._record.entries.update(found.entries)
            self._record.commit_and_index()
            mode = self._attachment.workspace.stamp("")
            others = self._other_commands()
        try:
            yield
        finally:
            try:
                with self._exclusive(final):
                    others |= self._other_commands()
                    self._record_command_changes(tuple(sorted(others)), found.left_out)
                    if self._attachment.workspace.stamp("") != mode:
                        self.coverage = self.coverage.lowered("the workspace's own mode changed")
            except BaseException as error:
                why = error.message if isinstance(error, AuditError) else type(error).__name__
                self.coverage = self.coverage.lowered(f"not seen: {why}", level="none")
                raise

    def _record_command_changes(self, others: tuple[str, ...], before: LeftOutFolders) -> None:
        """Scan, and collect what changed as this call's, shared with `others`."""
        causes = (self.call_id, *others) if others else ()

        def add(found: ScanResult) -> None:
            self._record.entries.update(found.entries)
            if changes := tuple(found.changes):
                self._add_changed_paths(change.path for change in changes)
                moves = find_moves(changes)
                fact = FilesChanged(changes, "command", self.call_id, moves, causes=causes)
                self._record.add_changes(fact)

        def flush(found: ScanResult) -> None:
            add(found)
            self._record.commit_and_index()

        found = scan(self._attachment, flush, after_the_fact=True)
        add(found)
        self._record.add_untracked(found)
        gaps = left_out_changes(before, found.left_out)
        self.coverage = self.coverage.lowered(*found.reasons, *gaps)
        self._add_changes_recorded_by_others(causes)

    def _add_changes_recorded_by_others(self, causes: tuple[str, ...]) -> None:
        """Count what the scans of other calls recorded as this command's changes."""
        shared = bool(causes) and self._record.has_changes
        for recorded in self._attachment.projections.changes(call_ids=(self.call_id,)):
            if recorded.session != self.recorder.session and not recorded.causes:
                continue  # another session has a call of this id
            self._add_changed_paths([recorded.change.path])
            shared = shared or bool(recorded.causes)
        if shared:
            self.coverage = self.coverage.lowered("shared with other commands")

    def _other_commands(self) -> set[str]:
        """The ids of the calls whose commands run now beside this one."""
        running = self._attachment.running_commands(excluding=self._key)
        return {call.call_id for call in running}

    # --- the end --------------------------------------------------------------------------

    def finish(self, status: Status, result: Any) -> Event:
        """Put the outcome on record, durably, and release the workspace lock. Once per call."""
        if self.finished:
            raise Conflict(f"call {self.call_id} is finished already")
        duration = self._attachment.clock.now() - self._began
        fact = CallFinished(
            self.call_id,
            self.tool,
            self.effect,
            status,
            result,
            self.coverage,
            self.sandbox,
            max(0, round(duration.total_seconds() * 1_000_000)),
            self._reverts,
        )
        with self._workspace_lock:
            try:
                events = self._record.commit(fact)
            except AuditError:
                if not self._record.has_facts:
                    self.recorder.unfinished.add(self.call_id)
                raise
            self.finished = True
            if self._record.entries:
                self._record.update_index(events)
        return events[-1]
