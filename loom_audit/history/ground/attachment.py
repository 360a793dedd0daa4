"""A workspace together with its log: the ports that all of `history` works with."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import get_args

from msgspec import Struct, field

from loom_audit.errors import AuditUnavailable, InvalidArguments
from loom_audit.history.ground.process_state import ProcessState
from loom_audit.history.ground.roots import accepted_scope
from loom_audit.history.ground.session_state import SessionState, hold_of, session_state
from loom_audit.model.coverage import Effect
from loom_audit.model.events import Lease
from loom_audit.model.records import Call, SessionHold
from loom_audit.model.scope import Scope
from loom_audit.ports import (
    BlobStore,
    ChangeIndex,
    Clock,
    CodeIndex,
    EventFilter,
    EventLog,
    HeldSessions,
    Lock,
    Looks,
    Processes,
    Projections,
    Reading,
    Runner,
    Stamp,
    Workspace,
)

UNDO_TOOLS = frozenset({"undo", "redo", "revert", "rollback"})
FUNCTION = "function"
"""The source of what a recorded Python function does that changes files by itself."""

CLIENT, CLIENT_UNSEEN = "client", "client, not looked at"
"""The sources of what is reported about a foreign call, and of the request of one that was begun
without a look at the workspace."""

STALE = Stamp(0, 0, 0, 0, 0)
"""A stamp that never equals a real one, so that the path is read again."""
UNTRACKED = Stamp(0, 0, 0, 0, 1)
"""As STALE, for a path on record as untracked; when it is absent later it counts as deleted."""

ABSENT = Stamp(0, 0, 0, 0, 2)
"""Stands for what is not there where something was told of it."""


class StoredLog(Struct, frozen=True):
    """The log of a workspace and its tables, with the contents, as the store has them.

    The store's database owns them, and the processes of all attachments append. It is read on any
    thread; what changes trees is appended under the workspace lock only. Nothing of it becomes
    invalid: an event stays as it is, and the tables follow in its transaction.
    `tables` are asked for lists, which only suggest, and by what is a cache itself. Trees, changes
    and single calls are taken from `reading`: the same tables for what records, since the log
    takes only what applies to its own tree, and the log itself, each event verified, for what plans
    or checks.
    `lock`, `free_bytes`, those of its disk, and the sessions that are `held`, for hooks, are the
    store's too; `clock` gives the times in the log.
    """

    log: EventLog
    blobs: BlobStore
    tables: Projections
    reading: Reading
    lock: Lock
    clock: Clock
    free_bytes: Callable[[], int]
    holds: HeldSessions


class OnDisk(Struct, frozen=True):
    """The workspace and its index, with what runs commands there: all that a look reads.

    The store's adapters own it, and several attachments may share the files of the index. It may
    be read on any thread; the workspace and the index are changed under the workspace lock. The
    index, what was kept of `looks` and the search index `code` are caches, of this machine: an
    index of another log, or one that is ahead of it, is made anew.
    `runner` runs the tools' commands; None where tools cannot run commands, and `code` None where
    they cannot search. `processes` are those of the machine that the workspace is on.
    """

    workspace: Workspace
    index: ChangeIndex
    looks: Looks
    processes: Processes
    runner: Runner | None = None
    code: CodeIndex | None = None


class Attachment(Struct, frozen=True):
    """One workspace with its log; see the parts for who owns them and what makes them invalid.

    Locks are taken in this order: undo, workspace, store.
    """

    stored: StoredLog
    on_disk: OnDisk
    process: ProcessState = field(default_factory=ProcessState)

    @property
    def scope(self) -> Scope:
        """The accepted scope as of when the workspace lock was last taken.

        Scopes are accepted under that lock, so every event records what was in the scope
        accepted last before it.
        """
        if self.process.last_seen.scope is None:
            self.process.last_seen.scope = accepted_scope(self.stored.log, self.stored.tables, None)
        return self.process.last_seen.scope

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the workspace lock: nobody else writes the workspace or records a change of it."""
        with self.stored.lock.hold(f"workspace-{self.stored.log.id}", timeout=60.0):
            accepted = accepted_scope(
                self.stored.log, self.stored.tables, self.process.last_seen.scope
            )
            if accepted != self.process.last_seen.scope:
                self.process.last_seen.scope = accepted
                self.process.last_seen.head = -1
            yield

    @contextmanager
    def exclusive_if_possible(self) -> Iterator[None]:
        """As `exclusive`, for reading only: goes on without the lock where it cannot be taken.

        Someone who may read the store and not write it cannot take the lock.
        """
        with ExitStack() as stack:
            with suppress(AuditUnavailable):
                stack.enter_context(self.exclusive())
            yield

    def is_alive(self, call: Call) -> bool:
        """Whether whoever opened this call is still there to end it."""
        if is_undo(call):
            return self.is_undo_running
        return self.is_session_alive(call.session)

    @property
    def is_undo_running(self) -> bool:
        return self.stored.lock.is_held(self.undo_lock)

    def is_session_alive(self, session: str) -> bool:
        """Whether a session's process is running: it holds a lock, or has a lease on record.

        Where a leased process cannot be seen, the deadline counts.
        """
        if self.stored.lock.is_held(session_lock(session)):
            return True
        lease = self.lease(session)
        if lease is None:
            return False
        seen = self.on_disk.processes.is_alive(lease)
        return not self._is_overdue(session, lease) if seen is None else seen

    def lease(self, session: str) -> Lease | None:
        """The lease that a foreign session was given last; None for a session of ours."""
        return self.session_state(session).lease

    def hold(self, session: str) -> SessionHold | None:
        """By what a session is held, itself or with one that contains it; None when it is not."""
        return hold_of(self.session_state, session)

    def session_state(self, session: str) -> SessionState:
        """What the log says of a session now."""
        known = self.process.sessions
        known[session] = session_state(self.stored.log, session, known.get(session, SessionState()))
        return known[session]

    def _is_overdue(self, session: str, lease: Lease) -> bool:
        for event in self.stored.log.read(EventFilter(session=session, newest_first=True, limit=1)):
            return (self.stored.clock.now() - event.at).total_seconds() > lease.seconds
        return True

    @property
    def undo_lock(self) -> str:
        return f"undo-{self.stored.log.id}"


def is_undo(call: Call) -> bool:
    """Whether a call is our undo, redo, revert or rollback, not an agent's tool of that name."""
    return call.tool in UNDO_TOOLS and call.effect == "write"


def check_effect(effect: Effect) -> None:
    """InvalidArguments for what is not an effect."""
    if effect not in (known := get_args(Effect)):
        raise InvalidArguments(
            f"{effect!r:.100} is not an effect", hint=f"There are: {', '.join(known)}."
        )


def check_tool_name(name: str, effect: Effect) -> None:
    """InvalidArguments for a tool that would be taken for our undo, redo, revert or rollback.

    Also for what is not an effect.
    """
    check_effect(effect)
    if name in UNDO_TOOLS and effect == "write":
        raise InvalidArguments(
            f"the name {name} is kept for what takes back", hint="Name the tool otherwise."
        )


def session_lock(session: str) -> str:
    """The name of the OS lock that a session's process holds for its whole life."""
    return f"session-{session}"
