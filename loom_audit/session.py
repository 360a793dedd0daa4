"""The Python face: open a store, attach a directory, record sessions, look and take back."""

import atexit
import functools
import getpass
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeVar
from uuid import uuid4

from loom_audit.errors import Conflict
from loom_audit.history.attachment import UNDO_TOOLS, Attachment, session_lock
from loom_audit.history.baseline import take_baseline
from loom_audit.history.capture import scan
from loom_audit.history.planner import Planner
from loom_audit.history.recorder import OpenCall, Recorder
from loom_audit.history.recovery import Recovered, interrupted, recover
from loom_audit.history.replay import replay
from loom_audit.history.timeline import Timeline
from loom_audit.history.undo import Undo, UndoResult
from loom_audit.model.events import (
    Call,
    Checkpoint,
    CheckpointMarked,
    ScopeAccepted,
    SessionEnded,
    SessionStarted,
    TreeHead,
    Untracked,
)
from loom_audit.model.files import FileChange
from loom_audit.model.planning import Choice, Plan, Request
from loom_audit.model.scope import IGNORE_FILE
from loom_audit.ports import BlobStore, EventLog, Report
from loom_audit.store import Store, WorkspaceEntry
from loom_audit.store import open_store as open_parts
from loom_audit.tools.approval import AllowAll, ApprovalGate
from loom_audit.tools.builtin import builtin_registry
from loom_audit.tools.call import call_tool
from loom_audit.tools.registry import ToolRegistry
from loom_audit.tools.tool import ToolResult
from loom_audit.tools.values import as_far_as_possible

__all__ = [
    "AuditStore",
    "AuditedWorkspace",
    "Connections",
    "Session",
    "Status",
    "builtin_registry",
    "open_store",
]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Status:
    """Disk against log: `drift` leads from the log's tree to what is on disk."""

    head: int
    drift: tuple[FileChange, ...]
    untracked: tuple[Untracked, ...]
    open_calls: tuple[Call, ...]
    interrupted: tuple[Call, ...]


def open_store(url: str | None = None) -> "AuditStore":
    """Open the store of this URL, by default LOOM_AUDIT_STORE or the user's own.

    Made when it is not there; AUDIT_UNAVAILABLE when it is from a newer version or locked.
    """
    return AuditStore(open_parts(url))


class AuditStore:
    """A store of many workspaces. A context manager; safe to use from several threads."""

    def __init__(self, parts: Store) -> None:
        self.parts = parts

    @property
    def url(self) -> str:
        return self.parts.settings.url

    def attach(
        self,
        path: str | Path,
        *,
        report: Report | None = None,
        ignore: str | None = None,
        max_file_bytes: int | None = None,
    ) -> "AuditedWorkspace":
        """Put a directory under audit and take its baseline; idempotent, resumable.

        `ignore` is the text of the scope's rules, by default what `.loomignore` says now.
        INVALID_PATH and CONFLICT for directories that cannot be workspaces.
        """
        at = self.parts.attach(path, ignore=ignore, max_file_bytes=max_file_bytes)
        take_baseline(at, report)
        return self.workspace(at.log.id)

    def workspaces(self) -> Sequence[WorkspaceEntry]:
        """Every attached directory, oldest first."""
        return self.parts.workspaces()

    def workspace(self, id_or_path: str | Path) -> "AuditedWorkspace":
        """An attached workspace by id, or the one that holds the path. NO_WORKSPACE."""
        return AuditedWorkspace(self.parts, self.parts.find(id_or_path))

    def close(self) -> None:
        self.parts.close()

    def __enter__(self) -> "AuditStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AuditedWorkspace:
    """One directory under audit: its timeline, and everything that takes back."""

    def __init__(self, parts: Store, entry: WorkspaceEntry) -> None:
        self._parts = parts
        self.id = entry.id
        self.root = entry.root
        self.log: EventLog = parts.log(entry.id)
        self.blobs: BlobStore = parts.blobs
        self.timeline = Timeline(self.log, parts.projections(entry.id), self.blobs)

    @functools.cached_property
    def at(self) -> Attachment:
        """The directory with its log. INVALID_PATH when the directory is gone."""
        return self._parts.attachment(self.id)

    @functools.cached_property
    def _undo(self) -> Undo:
        return Undo(self.at, Planner(self.at, self.timeline))

    # --- recording ------------------------------------------------------------------------

    def session(
        self,
        agent: str,
        *,
        actor: str | None = None,
        title: str = "",
        registry: ToolRegistry | None = None,
        gate: ApprovalGate | None = None,
    ) -> "Session":
        """A session of this agent, to be used as a context manager."""
        return Session(self, agent, actor or f"agent:{agent}", title, registry, gate)

    def checkpoint(self, name: str, point: str | int = "head", note: str = "") -> Checkpoint:
        """Give a point a name; a name used before moves there."""
        fact = CheckpointMarked(name, self.timeline.point(point), note)
        event = Recorder(self.at, session="", actor=person()).note(fact)[0]
        return Checkpoint(name, fact.point, event.seq, event.at, note)

    def accept_scope(self) -> str:
        """Take the text `.loomignore` has now as the scope, and return it."""
        with self.at.exclusive():
            text = ""
            if self.at.workspace.stamp(IGNORE_FILE) is not None:
                text = self.at.workspace.read(IGNORE_FILE).decode("utf-8", "replace")
            Recorder(self.at, session="", actor=person()).note(ScopeAccepted(text))
            self.at.index.clear()
        del self.at
        self.__dict__.pop("_undo", None)
        return text

    # --- looking --------------------------------------------------------------------------

    def status(self) -> Status:
        """How disk differs from the log, leaving no trace."""
        with self.at.exclusive():
            found = scan(self.at, lambda _: None, keep=False)
        return Status(
            self.log.head(),
            tuple(found.changes),
            tuple(found.untracked),
            tuple(self.timeline.open_calls()),
            tuple(interrupted(self.at)),
        )

    def head(self) -> TreeHead:
        """The Merkle root over all events, to be kept elsewhere."""
        return self.log.tree_head()

    def replay(self, point: str | int, to: str | Path, *, report: Report | None = None) -> int:
        """Write the tree of a point into an absent or empty directory; how many paths."""
        target = self._parts.empty_workspace(to)
        return replay(self.timeline.tree(self.timeline.point(point)), self.blobs, target, report)

    # --- taking back ----------------------------------------------------------------------

    def plan_undo(
        self, *, session: str | None = None, choices: Mapping[str, Choice] | None = None
    ) -> Plan:
        return self._plan(Request("undo", session=session, choices=choices or {}))

    def plan_redo(
        self, *, session: str | None = None, choices: Mapping[str, Choice] | None = None
    ) -> Plan:
        return self._plan(Request("redo", session=session, choices=choices or {}))

    def plan_revert(
        self, targets: Sequence[int | str], *, choices: Mapping[str, Choice] | None = None
    ) -> Plan:
        return self._plan(Request("revert", tuple(targets), choices=choices or {}))

    def plan_rollback(
        self,
        point: str | int,
        *,
        paths: Sequence[str] = (),
        choices: Mapping[str, Choice] | None = None,
        outside: bool = False,
    ) -> Plan:
        """A plan to bring the workspace (or the paths) to a point.

        What came from outside after it stays, unless `outside` or a choice says otherwise.
        """
        inside = tuple(self.at.workspace.relative(path) for path in paths)
        return self._plan(
            Request("rollback", (point,), paths=inside, choices=choices or {}, outside=outside)
        )

    def _plan(self, request: Request) -> Plan:
        return self._undo.planner.plan(request)

    def carry_out(self, plan: Plan, *, actor: str | None = None) -> UndoResult:
        """Do what a plan says, on record. CONFLICT when it is blocked or no longer holds.

        An undo and a redo go on record in the session whose call they take back; a revert and
        a rollback in a session of the person's own.
        """
        by = actor or person()
        recover(self.at)
        with ExitStack() as stack:
            if plan.verb in ("undo", "redo") and plan.reverts:
                session = self.timeline.call(plan.reverts[0]).call.session
                recorder = Recorder(self.at, session=session, actor=by)
            else:
                own = Session(self, by, by, f"{plan.verb} {plan.target}", None, None)
                recorder = stack.enter_context(own).recorder
            return self._undo.carry_out(plan, recorder, call_id=uuid4().hex)

    def recover(self, mode: Literal["auto", "continue", "abandon"] = "auto") -> Sequence[Recovered]:
        """Close calls whose process is gone; continue or abandon an interrupted rollback."""
        return self._undo.recover(mode, actor=person())


class Session:
    """One agent run. While it is open its process holds an OS lock that says so."""

    def __init__(
        self,
        workspace: AuditedWorkspace,
        agent: str,
        actor: str,
        title: str,
        registry: ToolRegistry | None,
        gate: ApprovalGate | None,
    ) -> None:
        self.id = uuid4().hex
        self.agent = agent
        self.title = title
        self.workspace = workspace
        self._registry = registry
        self.gate: ApprovalGate = gate or AllowAll()
        self.recorder = Recorder(workspace.at, session=self.id, actor=actor)
        self._closing = ExitStack()

    @functools.cached_property
    def registry(self) -> ToolRegistry:
        """The tools that can be called, by default every bundled one."""
        return self._registry or builtin_registry()

    def __enter__(self) -> "Session":
        at = self.workspace.at
        for one in recover(at):
            if one.waiting:
                raise Conflict(
                    f"an interrupted {one.call.tool} waits for a decision",
                    hint="Run `loom-audit recover --continue` or `loom-audit recover --abandon`.",
                )
        self._closing.callback(at.lock.keep(session_lock(self.id)))
        try:
            self.recorder.note(SessionStarted(self.agent, self.title))
        except BaseException:
            self._closing.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        with self._closing:
            self.recorder.note(SessionEnded("failed" if error else "completed"))
            self.workspace._parts.keep_head(self.workspace.head())

    async def call(self, tool: str, arguments: Any, *, call_id: str | None = None) -> ToolResult:
        """Call a tool. Every failure is a result, and on record."""
        return await call_tool(
            self.registry,
            self.gate,
            self.recorder,
            tool,
            arguments,
            call_id=call_id,
            runner=self.workspace.at.runner,
        )

    @contextmanager
    def recording(self, name: str, arguments: Any = None) -> Iterator[OpenCall]:
        """Record the block as one call, with every file change made during it."""
        call = self.recorder.begin(
            name, as_far_as_possible(arguments or {}), "execute", call_id=uuid4().hex
        )
        try:
            with call.captured(final=True):
                yield call
        except BaseException as error:
            message = f"{type(error).__name__}: {error}"
            failure = {"code": "EXECUTION_ERROR", "message": message}
            call.finish("error", {"success": False, "error": failure})
            raise
        call.finish("ok", {"success": True, "files_changed": list(call.files_changed)})

    def tool(self, function: Callable[P, R]) -> Callable[P, R]:
        """Record every call of a Python function, with its arguments and file changes."""
        signature = inspect.signature(function)

        def arguments_of(*args: Any, **kwargs: Any) -> dict[str, Any]:
            return dict(signature.bind(*args, **kwargs).arguments)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def recorded_async(*args: Any, **kwargs: Any) -> Any:
                with self.recording(function.__name__, arguments_of(*args, **kwargs)):
                    return await function(*args, **kwargs)

            return recorded_async  # type: ignore[return-value]

        @functools.wraps(function)
        def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.recording(function.__name__, arguments_of(*args, **kwargs)):
                return function(*args, **kwargs)

        return recorded


class Connections:
    """Recorders of the default store for registries that were given none.

    One session per workspace and process, ended when the process ends.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self._store: AuditStore | None = None
        self._sessions: dict[str, Session] = {}
        self._opening = threading.Lock()
        atexit.register(self.close)

    @contextmanager
    def __call__(self, path: Path) -> Iterator[Recorder]:
        """The recorder of the workspace at the path, which is attached when it is not yet."""
        key = str(path.absolute())
        with self._opening:
            if key not in self._sessions:
                if self._store is None:
                    self._store = self._open.enter_context(open_store())
                session = self._store.attach(path).session("registry")
                self._sessions[key] = self._open.enter_context(session)
        yield self._sessions[key].recorder

    def close(self) -> None:
        self._open.close()


def person() -> str:
    """The actor name of whoever runs this process."""
    try:
        return f"person:{getpass.getuser()}"
    except (KeyError, OSError):
        return "person:unknown"


def waiting_undos(workspace: AuditedWorkspace) -> list[Call]:
    """Interrupted undos, reverts and rollbacks that wait for `recover`."""
    return [call for call in interrupted(workspace.at) if call.tool in UNDO_TOOLS]
