"""One tool invocation while it is open: its effects, and the facts that wait to be stored."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from loom_audit.errors import AuditError, Conflict, PermissionDenied
from loom_audit.history.capture import Found, attribute, scan
from loom_audit.history.change_index import untracked_entries, update_index
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
    Draft,
    Effect,
    Event,
    Fact,
    FilesChanged,
    Origin,
    PathsUntracked,
    Status,
)
from loom_audit.model.files import FileChange, FileState, Move, find_moves
from loom_audit.model.left_out import LeftOut, came_and_went
from loom_audit.ports import Command, Completed, IndexEntry, Runner

if TYPE_CHECKING:
    from loom_audit.history.recorder import Recorder


class OpenCall:
    """One tool invocation from its request to its one finish.

    Every method that changes something is one whole step under the workspace lock. With
    `final` the caller says that this is the last effect: the lock is then kept until `finish`,
    which stores what changed together with the finish in one commit. `approved` are the states
    an approval is bound to, by path: nothing else may then be changed.
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
        self._waiting: list[Fact] = [] if requested else [request]
        self._deferred: list[Draft] = []
        self._entries: dict[str, IndexEntry | None] = {}
        self._held = ExitStack()
        self._reverts: tuple[int, ...] = ()

    # --- facts ----------------------------------------------------------------------------

    def decided(self, decision: str, *, by: str, reason: str = "", arguments: Any = None) -> None:
        """Put a gate's answer on record, with the next commit."""
        answer: Literal["allowed", "denied"] = "allowed" if decision == "allowed" else "denied"
        self._waiting.append(CallDecided(self.call_id, self.tool, answer, by, reason, arguments))

    def ask(self, question: ApprovalRequested) -> Sequence[Event]:
        """Put a question about this call on record, durably, after its request."""
        return self._append([], last=[question])

    def announce(self) -> None:
        """Put the request on record now, before an effect that this call cannot see."""
        if self._waiting:
            self._append([])

    def _append(self, facts: Iterable[Draft], *, last: Sequence[Fact] = ()) -> Sequence[Event]:
        """Commit what waits, then these, then the last; the index follows."""
        waiting = [self.recorder.draft(fact) for fact in self._waiting]
        drafts = [*self._deferred, *waiting, *facts, *map(self.recorder.draft, last)]
        if not drafts:
            return []
        events = self._attachment.log.append(drafts)
        self._waiting.clear()
        self._deferred.clear()
        return events

    def _draft_foreign(self, changes: Iterable[FileChange]) -> Draft:
        return attribute(self._attachment, changes, but=self._key)

    def _settle(self, events: Sequence[Event]) -> None:
        update_index(self._attachment, self._entries, events)
        self._entries = {}

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
        """Put the content at the path, which is followed when it is a symlink inside."""
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
        """Replace the content by `new`, or what it makes of the old (None when absent).

        An error raised by it passes through and nothing has changed. Conflict when
        somebody else writes the file in between: their version stands.
        """
        with self._changing(final) as preconditions:
            *above, change = plan_edit(preconditions, path, new, mode=mode, create=parents)
            self._do(preconditions, [*above, change] if change.before != change.after else [])
            return change

    def delete(self, path: str, *, recursive: bool = False, final: bool = False) -> tuple[str, ...]:
        """Delete a file, a symlink (never what it points to) or, `recursive`, a directory."""
        with self._changing(final) as preconditions:
            changes = plan_delete(preconditions, path, recursive=recursive)
            self._do(preconditions, changes)
            return tuple(sorted(change.path for change in changes))

    def move(
        self, source: str, target: str, *, overwrite: bool = False, final: bool = False
    ) -> tuple[FileChange, ...]:
        """Rename a file, symlink or directory; the target's parents are created."""
        with self._changing(final) as preconditions:
            changes, moves = plan_move(preconditions, source, target, overwrite=overwrite)
            self._do(preconditions, changes, moves=moves)
            return tuple(changes)

    def apply(
        self,
        changes: Sequence[FileChange],
        *,
        moves: tuple[Move, ...] = (),
        reverts: tuple[int, ...] = (),
        final: bool = False,
    ) -> None:
        """Carry out planned changes. Conflict, and nothing changed, when disk is not as planned."""
        self._reverts = reverts
        with self._changing(final) as preconditions:
            preconditions.expect(len(changes))
            for change in changes:
                if preconditions.look(change.path) != change.before:
                    raise Conflict(
                        f"{change.path} changed since the plan was made",
                        hint="Make the plan again.",
                        details={"path": change.path},
                    )
            self._do(preconditions, changes, moves=moves, reverts=reverts, origin="undo")

    def may_write(self) -> None:
        """PermissionDenied for a tool of effect read."""
        if self.effect == "read":
            raise PermissionDenied(
                f"{self.tool} is registered with effect read and tried to write",
                hint="Register the tool with effect write.",
            )

    @contextmanager
    def _changing(self, final: bool) -> Iterator[Preconditions]:
        self.may_write()
        with self._exclusive(final):
            yield Preconditions(self._attachment)  # the index follows what is put on record only

    @contextmanager
    def _exclusive(self, final: bool) -> Iterator[None]:
        """Hold the workspace lock for the block, and after it until `finish` when final."""
        with ExitStack() as stack:
            stack.enter_context(self.recorder.exclusive())
            yield
            if self._deferred and not final:
                self._settle(self._append([]))
            elif final:
                self._held = stack.pop_all()

    def _do(
        self,
        preconditions: Preconditions,
        changes: Sequence[FileChange],
        *,
        moves: tuple[Move, ...] = (),
        reverts: tuple[int, ...] = (),
        origin: Origin = "tool",
    ) -> None:
        """Record drift and intention, change the disk, and keep what is there for the record."""
        if changes:
            self._check_approved(changes)
            check_recoverable(self._attachment, changes)
        self._entries.update(preconditions.entries)
        if preconditions.drift:
            self._deferred.append(self._draft_foreign(preconditions.drift))
        if not changes:
            return
        intended = ChangeIntended(self.call_id, tuple(changes), moves, reverts)
        self._settle(self._append([], last=[intended]))
        outcome = carry_out(preconditions, changes)
        self._entries.update(preconditions.entries)
        if outcome.foreign:
            self._deferred.append(self._draft_foreign(outcome.foreign))
        if outcome.changes:
            moves = moves or find_moves(outcome.changes)
            fact = FilesChanged(tuple(outcome.changes), origin, self.call_id, moves, reverts)
            self._deferred.append(self.recorder.draft(fact))
            self._changed(change.path for change in outcome.changes)
        if outcome.later:
            self._deferred.append(self._draft_foreign(outcome.later))
        if self.approved is not None:
            self.approved.update((change.path, change.after) for change in outcome.changes)
        self.coverage = self.coverage.without(*outcome.reasons)
        if outcome.error is not None:
            self._settle(self._append([]))
            outcome.discard_displaced()
            raise outcome.error

    def _check_approved(self, changes: Sequence[FileChange]) -> None:
        """Conflict when what would be changed is not what was shown to whoever approved it."""
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

    def _changed(self, paths: Iterable[str]) -> None:
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
    ) -> Completed:
        """Run a command and put on record exactly which files it changed."""
        with ExitStack() as capture:
            completed = runner.run(
                self._attachment.workspace.root,
                command,
                cancelled=cancelled,
                before=lambda: capture.enter_context(self.captured(final=final)),
            )
            self.sandbox = completed.sandbox
            if completed.survivors:
                named = ", ".join(completed.survivors[:5])
                self.coverage = self.coverage.without(f"killed at the end: {named}")
        return completed

    @contextmanager
    def captured(self, *, final: bool = False) -> Iterator[None]:
        """Record every change that happens in the block as this call's.

        What is found before it belongs to others. While other commands run, what is found
        after it is shared with them, and coverage says so.
        """
        self.may_write()
        with self.recorder.exclusive():
            found = scan(self._attachment, self._flush_foreign)
            if found.changes:
                self._deferred.append(self._draft_foreign(found.changes))
            self._note_untracked(found)
            self._entries.update(found.entries)
            self._settle(self._append([]))
            mode = self._attachment.workspace.stamp("")
            others = {call.call_id for call in self._attachment.running(but=self._key)}
        try:
            yield
        finally:
            try:
                with self._exclusive(final):
                    others |= {call.call_id for call in self._attachment.running(but=self._key)}
                    self._collect(tuple(sorted(others)), found.left_out)
                    if self._attachment.workspace.stamp("") != mode:
                        self.coverage = self.coverage.without("the workspace's own mode changed")
            except BaseException as error:
                why = error.message if isinstance(error, AuditError) else type(error).__name__
                self.coverage = self.coverage.without(f"not seen: {why}", level="none")
                raise

    def _collect(self, others: tuple[str, ...], before: LeftOut) -> None:
        """Scan, and keep what is found for the record as this call's (shared with `others`)."""
        causes = (self.call_id, *others) if others else ()

        def own(found: Found) -> Draft:
            changes = tuple(found.changes)
            self._changed(change.path for change in changes)
            moves = find_moves(changes)
            fact = FilesChanged(changes, "command", self.call_id, moves, causes=causes)
            return self.recorder.draft(fact)

        def flush(found: Found) -> None:
            self._entries.update(found.entries)
            self._settle(self._append([own(found)] if found.changes else []))

        found = scan(self._attachment, flush, late=True)
        if found.changes:
            self._deferred.append(own(found))
        self._entries.update(found.entries)
        self._note_untracked(found)
        gaps = came_and_went(before, found.left_out)
        self.coverage = self.coverage.without(*found.reasons, *gaps)
        self._add_earlier(causes)

    def _add_earlier(self, causes: tuple[str, ...]) -> None:
        """What others' scans already found of this command's doing."""
        shared = bool(causes) and bool(self._deferred)
        for recorded in self._attachment.projections.changes(call_ids=(self.call_id,)):
            if recorded.session != self.recorder.session and not recorded.causes:
                continue  # another session has a call of this id
            self._changed([recorded.change.path])
            shared = shared or bool(recorded.causes)
        if shared:
            self.coverage = self.coverage.without("shared with other commands")

    def _flush_foreign(self, found: Found) -> None:
        self._entries.update(found.entries)
        if found.changes:
            events = self._attachment.log.append([self._draft_foreign(found.changes)])
            update_index(self._attachment, self._entries, events)
            self._entries = {}

    def _note_untracked(self, found: Found) -> None:
        if found.untracked:
            self._deferred.append(Draft(PathsUntracked(tuple(found.untracked)), "", "outside"))
            self._entries.update(untracked_entries(self._attachment, found.untracked))

    # --- the end --------------------------------------------------------------------------

    def finish(self, status: Status, result: Any) -> Event:
        """Put the outcome on record, durably, and let go of the workspace. Once per call."""
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
        with self._held:
            try:
                events = self._append([], last=[fact])
            except AuditError:
                if not self._waiting:
                    self.recorder.given_up.add(self.call_id)
                raise
            self.finished = True
            if self._entries:
                self._settle(events)
        return events[-1]
