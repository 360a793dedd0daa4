"""One directory under audit, as Python code sees it."""

import functools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from loom_audit.api.ground.status import Status, status
from loom_audit.api.ground.timelines import checked, timeline_of, undo_of
from loom_audit.errors import AuditError, InvalidArguments, TooLarge
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.free_space import space_shortage
from loom_audit.history.ground.questions import Questions
from loom_audit.history.ground.writer import Writer, new_id
from loom_audit.model.events import (
    LEASE_SECONDS,
    CheckpointMarked,
    Event,
    Rules,
    ScopeAccepted,
    SessionStarted,
    TreeHead,
)
from loom_audit.model.plans.request import Choice, PlanRequest
from loom_audit.model.records import Call, Checkpoint
from loom_audit.model.scope import IGNORE_FILE, Scope, check_rules
from loom_audit.model.text.display import visible
from loom_audit.ports import BlobStore, EventLog, OnProgress
from loom_audit.wiring.adapters import Adapters, WorkspaceEntry
from loom_audit.wiring.heads import LastVerified

if TYPE_CHECKING:
    from loom_audit.api.foreign import ForeignSession
    from loom_audit.api.registry import ToolRegistry
    from loom_audit.api.session import Session
    from loom_audit.history.check.verification import Verification
    from loom_audit.history.record.recovery import RecoveredCall
    from loom_audit.history.undo.own_calls import OwnCalls
    from loom_audit.history.undo.undo import Undo, UndoResult
    from loom_audit.model.plans.planning import Plan
    from loom_audit.tools.approvals.asking_gate import AskCallback
    from loom_audit.tools.calls.gate import ApprovalGate
    from loom_audit.tools.calls.settings import ToolSettings

MAX_NAME = 256
"""Bytes of a checkpoint's name."""


class AuditedWorkspace:
    """One directory under audit: its timeline, and everything that takes back.

    What is done outside of sessions is on record as of `actor`, unless a call names another.
    """

    def __init__(self, adapters: Adapters, entry: WorkspaceEntry, actor: str) -> None:
        self.adapters = adapters
        self.actor = actor
        self.id = entry.id
        self.root = entry.root
        self.log: EventLog = adapters.log(entry.id)
        self.blobs: BlobStore = adapters.blobs
        self.timeline = timeline_of(adapters, entry.id, entry.root)

    @functools.cached_property
    def attachment(self) -> Attachment:
        """The directory tied to its log, with the ports that belong to it."""
        return self.adapters.attachment(self.id)

    @functools.cached_property
    def _checked(self) -> Attachment:
        """The same, of which trees and changes are read from the log itself."""
        return checked(self.attachment, self.timeline)

    @functools.cached_property
    def _undo(self) -> "Undo":
        return undo_of(self.attachment, self.timeline)

    @property
    def tool_settings(self) -> "ToolSettings":
        """The settings of `tools.toml`. InvalidArguments where the file is not valid."""
        from loom_audit.api.ground.gates import default_settings

        return default_settings(self.adapters.settings, self.root)

    def own_calls(self, writer: Writer) -> "OwnCalls":
        """What the session of a writer did, for the tools that its agent calls."""
        from loom_audit.history.undo.own_calls import OwnCalls

        return OwnCalls(self._undo, writer)

    @functools.cached_property
    def questions(self) -> Questions:
        """The calls that wait for an answer, which `actor` gives unless another is named."""
        return Questions(self.attachment, self.actor)

    def lacks_room(self) -> str:
        """A sentence that says that the store's disk is nearly full; mostly empty."""
        return space_shortage(self.attachment.stored)

    # --- recording ------------------------------------------------------------------------

    def session(
        self,
        agent: str,
        *,
        actor: str | None = None,
        title: str = "",
        registry: "ToolRegistry | None" = None,
        gate: "ApprovalGate | None" = None,
        cwd: str = "",
        environment: Mapping[str, str] | None = None,
        parent: str | None = None,
        background: bool = True,
    ) -> "Session":
        """A session of this agent, to be used as a context manager, within the session `parent`.

        Without a `gate` the one of `approvals.toml` decides about its calls, where that file is.
        Shell commands and code run in `cwd`, a directory of the workspace, unless they name
        another; commands get `environment` besides ours. Unless `background` is false, commands may
        go on between its calls, until it ends. InvalidArguments for an agent without a name.
        """
        from loom_audit.api.session import Session

        chosen = gate or self.default_gate()
        if not agent.strip():
            raise InvalidArguments("the agent has no name", hint="Name who acts in this session.")
        return Session(
            self,
            agent,
            actor or f"agent:{agent}",
            title,
            registry,
            chosen,
            cwd=cwd,
            environment=environment,
            parent=parent,
            background=background,
        )

    def start_foreign_session(
        self,
        agent: str,
        *,
        id: str | None = None,
        actor: str | None = None,
        title: str = "",
        parent: str | None = None,
        pid: int | None = None,
        seconds: int = LEASE_SECONDS,
        cwd: str = "",
        version: str = "",
        rules: Rules = (),
    ) -> "ForeignSession":
        """A session of another program, which reports its calls; or one that goes on, by its id.

        `pid` is the client's process, with which its open calls end. Where that cannot be seen,
        or is not known, the session counts as ended when nothing was reported for `seconds`, at
        most 31 days. NotFound when the process does not run; Conflict for the id of a session of
        ours, or of one that is open while another process that reports it runs;
        InvalidArguments.
        """
        from loom_audit.api.foreign import ForeignSession, lease_of, start_session
        from loom_audit.api.ground.held import follow

        lease = lease_of(self.attachment, pid, seconds)
        started = SessionStarted(agent, title, parent, cwd, version, rules, lease)
        found = ForeignSession(id or new_id(), actor or f"agent:{agent}", self.attachment)
        start_session(found, started)
        follow(self.adapters, self.attachment, found.id)
        return found

    def foreign_session(self, id: str) -> "ForeignSession":
        """A session of another program, by its whole id. NotFound."""
        from loom_audit.api.foreign import ForeignSession

        return ForeignSession(id, self.timeline.session(id).actor, self.attachment)

    def end_session(self, id: str, *, actor: str | None = None) -> Event:
        """End a session that nobody else will end, by its whole id: its end on record.

        Calls still open are closed as `unknown`, with what changed. NotFound; Conflict while a
        process of ours is recording it.
        """
        from loom_audit.api.foreign import ForeignSession

        self.timeline.session(id)
        return ForeignSession(id, actor or self.actor, self.attachment).end()

    def default_gate(self, *, ask: "AskCallback | None" = None) -> "ApprovalGate":
        """The gate of `approvals.toml`, which also asks by `ask`.

        Without that file the gate allows all.
        """
        from loom_audit.api.ground.gates import default_gate

        return default_gate(self.adapters.settings, root=self.root, ask=ask)

    def checkpoint(
        self, name: str, point: str | int = "head", note: str = "", *, actor: str | None = None
    ) -> Checkpoint:
        """Give a point a name; a name used before moves there. InvalidArguments for a bad name."""
        if visible(name) != name or not 0 < len(name.encode()) <= MAX_NAME:
            raise InvalidArguments(
                f"not a name for a checkpoint: {visible(name[:50]) or 'an empty text'}",
                hint=f"A name is 1 to {MAX_NAME} bytes of visible text.",
            )
        fact = CheckpointMarked(name, self.timeline.exact_point(point), note)
        event = Writer(self.attachment, session="", actor=actor or self.actor).record(fact)[0]
        return Checkpoint(name, fact.point, event.seq, event.at, note)

    def accept_scope(self, *, actor: str | None = None) -> str:
        """Take the text `.loomignore` has now as the scope, and return it. INVALID_ARGUMENTS;
        CONFLICT while an interrupted undo waits to be continued or abandoned.
        """
        from loom_audit.history.record.listings.baseline import accept_scope
        from loom_audit.history.record.recovery import recover_all

        text = ""
        if self.attachment.on_disk.workspace.stamp(IGNORE_FILE) is not None:
            text = self.attachment.on_disk.workspace.read(IGNORE_FILE).decode("utf-8", "replace")
        check_rules(text)
        recover_all(self.attachment)
        accept_scope(self.attachment, ScopeAccepted(text), actor=actor or self.actor)
        return text

    # --- looking --------------------------------------------------------------------------

    @property
    def scope(self) -> Scope:
        """Which paths are recorded: the scope that was accepted last."""
        return self.attachment.scope

    def is_alive(self, call: Call) -> bool:
        """Whether the process that opened this call still lives."""
        return self.attachment.is_alive(call)

    def status(self, *, rehash: bool = False) -> Status:
        """How disk differs from the log; nothing is recorded or changed.

        With `rehash` every file is read, and the change index is not asked.
        """
        return status(self.attachment, self.timeline, rehash)

    def leftovers(self) -> Sequence[str]:
        """Temporary files of ours that a crash left in the workspace; they may be deleted."""
        return self.attachment.on_disk.workspace.leftovers()

    def head(self) -> TreeHead:
        """The Merkle root over all events, to be kept elsewhere. Corrupt where the end is gone."""
        self.timeline.proven.head()
        return self.log.tree_head()

    def verify(
        self,
        *,
        quick: bool = False,
        sample: int | None = None,
        against: TreeHead | Sequence[TreeHead] = (),
        report: OnProgress | None = None,
    ) -> "Verification":
        """Check the log against itself and against heads kept elsewhere; every finding.

        All of it also reads every file anew, past the change index, and when it was is kept.

        The heads are those kept outside the store at each session's end, and those given.
        """
        from loom_audit.api.ground.verification import verify

        heads = [against] if isinstance(against, TreeHead) else against
        return verify(self.adapters, self.id, lambda: self._checked, heads, quick, sample, report)

    def last_verified(self) -> LastVerified | None:
        """When all was verified last, how many events there were, and with which exit code."""
        return self.adapters.last_verified(self.id)

    def differences(self) -> Sequence[tuple[int | None, str]]:
        """Where the tables are not what the log makes: the event, if it is known, and what."""
        with closing(self.adapters.evidence(self.id)) as evidence:
            return list(evidence.differences())

    def rebuild(self) -> int:
        """Make everything that is derived from the log anew; how many events it has."""
        return self.adapters.rebuild(self.id)

    def replay(self, point: str | int, to: str | Path, *, report: OnProgress | None = None) -> int:
        """Write the tree of a point into an absent or empty directory; how many paths.

        Conflict when that is not empty, or lies in a workspace or the store; NotFound for a point
        before the first listing was whole.
        """
        from loom_audit.history.read.replay import replay

        seq = self.timeline.point(point)
        self.timeline.check_listed(seq)
        tree = self.timeline.tree(seq)
        with suppress(TooLarge):  # which is said for all such paths below
            self.timeline.check_kept(tree)
        return replay(tree, self.blobs, self.adapters.empty_workspace(to), report)

    # --- taking back ----------------------------------------------------------------------

    def plan(self, request: PlanRequest) -> "Plan":
        """What taking back as requested would do; nothing is changed.

        NotFound, InvalidArguments; Conflict for a call that is open.
        """
        inside = tuple(self.attachment.on_disk.workspace.relative(path) for path in request.paths)
        return self._undo.planner.plan(replace(request, paths=inside))

    def plan_undo(
        self,
        *,
        session: str | None = None,
        choices: Mapping[str, Choice] | None = None,
        git: bool = True,
        **flags: bool,
    ) -> "Plan":
        """A plan to take back the newest call of all, or of a session. Errors as `plan`."""
        asked = PlanRequest("undo", (), session, (), choices or {}, no_git=not git, **flags)
        return self.plan(asked)

    def plan_redo(
        self,
        *,
        session: str | None = None,
        choices: Mapping[str, Choice] | None = None,
        git: bool = True,
        **flags: bool,
    ) -> "Plan":
        """A plan to bring back what the newest undo took back. Errors as `plan`."""
        asked = PlanRequest("redo", (), session, (), choices or {}, no_git=not git, **flags)
        return self.plan(asked)

    def plan_revert(
        self,
        targets: Sequence[int | str],
        *,
        paths: Sequence[str] = (),
        choices: Mapping[str, Choice] | None = None,
        git: bool = False,
        **flags: bool,
    ) -> "Plan":
        """A plan to take back named calls and events, at paths or with `git`. Errors as `plan`."""
        asked = PlanRequest("revert", tuple(targets), None, tuple(paths), choices or {}, **flags)
        return self.plan(replace(asked, with_git=git))

    def plan_rollback(
        self,
        point: str | int,
        *,
        paths: Sequence[str] = (),
        choices: Mapping[str, Choice] | None = None,
        **flags: bool,
    ) -> "Plan":
        """A plan to bring the workspace (or the paths) to a point.

        `flags` are those of a `PlanRequest`. What came from outside after the point stays, unless
        `outside` or a choice says otherwise; so does what somebody else than a call may have done,
        but with `running` for calls that are open.
        """
        request = PlanRequest("rollback", (point,), None, tuple(paths), choices or {}, **flags)
        return self.plan(request)

    def carry_out(
        self,
        plan: "Plan",
        *,
        actor: str | None = None,
        label: str = "",
        held: bool = False,
        visit: str = "",
        report: OnProgress | None = None,
    ) -> "UndoResult":
        """Do what a plan says, on record. CONFLICT when it is blocked, changes
        nothing or no longer holds, or while calls are open or an undo is interrupted.

        An undo and a redo go on record in the session whose call they take back; a revert and a
        rollback in a session of the actor's own, several of a `visit` in the one of that id; what
        is refused begins none. `label` is a name beside the actor's, which goes
        into the call's arguments. With `held` calls of held sessions may be open, and stay so.
        `report` is told how far a plan of many changes is.
        """
        from loom_audit.history.record.recovery import recover

        recover(self.attachment)
        session = self._session_for(plan, actor or self.actor, visit)
        result = self._undo.carry_out(
            plan, session, call_id=new_id(), label=label, leave_open=held, progress=report
        )
        self.adapters.keep_head(self.head())
        return result

    def _session_for(self, plan: "Plan", actor: str, visit: str) -> AbstractContextManager[Writer]:
        """Where it goes on record that a plan is carried out."""
        from loom_audit.api.ground.session_record import SessionRecord

        if plan.verb in ("undo", "redo") and plan.calls:
            whose = self.timeline.call(plan.calls[0]).call.session
            return nullcontext(Writer(self.attachment, session=whose, actor=actor))
        title = "dashboard" if visit else f"{plan.verb} {plan.target}"
        return SessionRecord(self.adapters, self.attachment, actor, actor, title, id=visit)

    def why_cut_off(self) -> AuditError | None:
        """Why the log is not whole, where its end is gone; mostly None, and cheaper than all of
        `why_stopped`."""
        try:
            self.timeline.proven.check_end()
        except AuditError as error:
            return error
        return None

    def why_stopped(self) -> AuditError | None:
        """Why nothing can be recorded, where what is stored does not fit together; mostly None."""
        try:
            self.adapters.check_recording(self.id)
        except AuditError as error:
            return error
        return None

    def relist(self, *, actor: str | None = None, report: OnProgress | None = None) -> Event:
        """List all that is on disk on record, after an event that cannot have been.

        Trees begin anew from the event that is returned. Calls whose process is gone are closed
        after it, with what they changed not known. CONFLICT where nothing is to be listed anew.
        """
        from loom_audit.history.record.listings.relisting import lower_coverage, relist

        proven = self.timeline.proven
        event = relist(self.attachment, proven, actor=actor or self.actor, progress=report)
        closed = self.recover(actor=actor)
        lower_coverage(self.attachment.stored, [one.call.seq for one in closed if one.call.seq])
        self.adapters.keep_head(self.head())
        return event

    def recover(
        self,
        mode: Literal["auto", "continue", "abandon"] = "auto",
        *,
        actor: str | None = None,
    ) -> "Sequence[RecoveredCall]":
        """Close calls whose process is gone; continue or abandon an interrupted rollback.

        A head is kept of what it recorded. CORRUPT where the log is not what was recorded.
        """
        done = self._undo.recover(mode, actor=actor or self.actor)
        if done:
            self.adapters.keep_head(self.head())
        return done
