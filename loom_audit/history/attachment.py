"""A directory tied to its log: the ports that everything in `history` works with."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from loom_audit.errors import AuditUnavailable
from loom_audit.history.questions import is_waiting
from loom_audit.model.events import Call
from loom_audit.model.scope import Scope
from loom_audit.ports import (
    BlobStore,
    ChangeIndex,
    Clock,
    CodeIndex,
    EventLog,
    Lock,
    Projections,
    Runner,
    Stamp,
    Stamps,
    Workspace,
)

UNDO_TOOLS = frozenset({"undo", "redo", "revert", "rollback"})
STALE = Stamp(0, 0, 0, 0, 0)
"""A stamp no path has: what is known of it must be looked at again."""
UNTRACKED = Stamp(0, 0, 0, 0, 1)
"""As STALE, for a path that is on record as untracked: found gone later, it is deleted."""


@dataclass(slots=True)
class LastSeen:
    """What this process last saw of the workspace, kept between scans.

    `head` is the seq up to which `stamps` reflect the log's tree; -1 before the first load.
    `scope` is the one that holds, None before the first look.
    """

    stamps: Stamps = field(default_factory=Stamps)
    head: int = -1
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class Attachment:
    """One workspace with its log.

    Locks are taken in this order: undo, workspace, store. `free_bytes` tells the free bytes where
    the store lives; `runner` is what tools run commands with, None where there are none;
    `code` is what they search in.
    """

    log: EventLog
    blobs: BlobStore
    projections: Projections
    workspace: Workspace
    index: ChangeIndex
    lock: Lock
    clock: Clock
    free_bytes: Callable[[], int]
    last_seen: LastSeen = field(default_factory=LastSeen)
    runner: Runner | None = None
    code: CodeIndex | None = None

    @property
    def scope(self) -> Scope:
        """The scope that holds: what was accepted when the workspace lock was last taken.

        Scopes are accepted under that lock, so what an event records was in the scope accepted
        last before it.
        """
        if self.last_seen.scope is None:
            self.last_seen.scope = self.projections.scope()
        return self.last_seen.scope

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the workspace lock: nobody else writes the workspace or records a change of it."""
        with self.lock.hold(f"workspace-{self.log.id}", timeout=60.0):
            accepted = self.projections.scope()
            if accepted != self.last_seen.scope:
                self.last_seen.scope = accepted
                self.last_seen.head = -1
            yield

    @contextmanager
    def exclusive_if_possible(self) -> Iterator[None]:
        """As `exclusive`, to look only: without the lock where none can be taken.

        Whoever may not lock the store may not write it, yet may see how things stand.
        """
        with ExitStack() as stack:
            with suppress(AuditUnavailable):
                stack.enter_context(self.exclusive())
            yield

    def is_alive(self, call: Call) -> bool:
        """Whether the process that opened this call still lives."""
        if is_undo(call):
            return self.lock.is_held(self.undo_lock)
        return self.lock.is_held(session_lock(call.session))

    @property
    def undo_lock(self) -> str:
        return f"undo-{self.log.id}"

    def running_commands(self, *, excluding: tuple[str, str] | None = None) -> list[Call]:
        """Open calls of effect execute whose process lives, but for one by session and id.

        One that waits for an answer does nothing, so that nothing is its doing.
        """
        return [
            call
            for call in self.projections.open_calls()
            if call.effect == "execute"
            and (call.session, call.call_id) != excluding
            and self.is_alive(call)
            and not is_waiting(self.log, call)
        ]


def is_undo(call: Call) -> bool:
    """Whether a call is one of ours that takes back or brings back, whatever agents' are named."""
    return call.tool in UNDO_TOOLS and call.effect == "write"


def session_lock(session: str) -> str:
    """The name of the OS lock that a session's process holds for its whole life."""
    return f"session-{session}"
