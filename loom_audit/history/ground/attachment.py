"""A workspace together with its log: the ports that all of `history` works with."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import get_args

from msgspec import Struct, field

from loom_audit.errors import AuditUnavailable, InvalidArguments, PermissionDenied
from loom_audit.history.ground.process_state import ProcessState
from loom_audit.history.ground.roots import accepted_scope
from loom_audit.history.ground.session_state import SessionState, hold_of, session_state
from loom_audit.model.calls import takes_back
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
    Git,
    GitBuilder,
    GitRestorer,
    HeldSessions,
    Lock,
    Looks,
    MirroredGit,
    ObjectMirror,
    Processes,
    Projections,
    Reading,
    Runner,
    Stamp,
    Workspace,
)

FUNCTION = "function"
"""The source of the events of a recorded Python function that changes files by itself."""

OBSERVED = "watch"
"""The source of what changed from outside and was recorded as it happened."""

CONNECT = "connect"
"""The source of what `loom-audit connect` wrote into a client's settings."""

TOOL = "tool"
"""The source of the events of an undo that a model called as a tool."""

CLIENT, CLIENT_UNSEEN = "client", "client, not looked at"
"""The source of what a client reports about its call; and the source of the request of such a call
when nobody looked at the workspace before the call."""

STALE = Stamp(0, 0, 0, 0, 0)
"""A stamp that equals no real one, so that the next look reads the path again."""
UNTRACKED = Stamp(0, 0, 0, 0, 1)
"""As STALE, for a path on record as untracked: the next look tells whether it is seen again."""

ABSENT = Stamp(0, 0, 0, 0, 2)
"""Stands for the stamp of a path at which nothing is."""


class StoredLog(Struct, frozen=True):
    """The log of a workspace, its tables and its contents, as the store has them.

    The store's database owns them, and the processes of all attachments append to them. Any thread
    may read them; what changes trees is appended under the workspace lock only. Nothing that was
    read becomes invalid: events never change, and the tables are updated with each event, in its
    transaction.
    `tables` give lists, which only suggest where to look, and serve caches. `reading` gives trees,
    changes and single calls. For code that records, `reading` is the tables too, since the log
    refuses what does not apply to its own tree; for code that plans or checks it is the log itself,
    of which each event is verified.
    `holds` are the sessions that are held, as hooks read them; `free_bytes` gives how much is free
    on the store's disk; `clock` gives the times of events.
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
    """The workspace, its change index and its processes: all that a look reads.

    The store's adapters own them, and several attachments may share the files of the index. Any
    thread may read them; the workspace and the index are changed under the workspace lock. The
    `index`, what was kept of `looks` and the search index `code` are caches of this machine. An
    index of another log is made anew, and so is one that is ahead of its log.
    `runner` runs the tools' commands and is None where tools cannot run any; `code` is None where
    they cannot search. `processes` are those of the machine that the workspace is on. `git` is the
    repository at the top of the workspace, and gives nested ones; None where nobody looks at any.
    `mirror` holds copies of their objects, in which `mirrored_git` is asked; `git_restorer` brings
    a repository back, and `git_builder` builds one anew that is gone.
    """

    workspace: Workspace
    index: ChangeIndex
    looks: Looks
    processes: Processes
    runner: Runner | None = None
    code: CodeIndex | None = None
    git: Git | None = None
    mirror: ObjectMirror | None = None
    mirrored_git: MirroredGit | None = None
    git_restorer: GitRestorer | None = None
    git_builder: GitBuilder | None = None


class Attachment(Struct, frozen=True):
    """One workspace with its log. Each field's class says who owns it and what makes it invalid.

    Locks are taken in the order undo, workspace, store, so that no two holders wait for each other.
    """

    stored: StoredLog
    on_disk: OnDisk
    process: ProcessState = field(default_factory=ProcessState)

    @property
    def scope(self) -> Scope:
        """The scope that was the accepted one when this process last took the workspace lock.

        Scopes are accepted under that lock. So an event records what was in the scope that was
        accepted last before it. Corrupt where the tables name another scope than the log.
        """
        if self.process.last_seen.scope is None:
            self.process.last_seen.scope = accepted_scope(self.stored.log, self.stored.tables, None)
        return self.process.last_seen.scope

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the workspace lock: nobody else writes the workspace or records a change of it.

        Conflict when the lock is not free within 60 seconds, AuditUnavailable where locks cannot
        be made, Corrupt where the tables name another scope than the log.
        """
        with self.stored.lock.hold(f"workspace-{self.stored.log.id}", timeout=60.0):
            accepted = accepted_scope(
                self.stored.log, self.stored.tables, self.process.last_seen.scope
            )
            if accepted != self.process.last_seen.scope:
                # the stamps that are loaded are of paths in the scope before
                self.process.last_seen.scope = accepted
                self.process.last_seen.head = -1
            yield

    @contextmanager
    def exclusive_if_possible(self) -> Iterator[None]:
        """As `exclusive`, for a block that only reads: it runs without the lock where locks cannot
        be made.

        A person who may read the store and not write it cannot take the lock. Conflict, Corrupt.
        """
        with ExitStack() as stack:
            with suppress(AuditUnavailable):
                stack.enter_context(self.exclusive())
            yield

    def is_alive(self, call: Call) -> bool:
        """Whether the process that opened this call still runs, and so can end it."""
        if self.waits_for_decision(call):
            return self.is_undo_running
        return self.is_session_alive(call.session)

    def waits_for_decision(self, call: Call) -> bool:
        """Whether a call whose process has ended stays open until a person decides: an undo.

        One that a model called as a tool does not: it lives with its session, and recovery closes
        it as any call.
        """
        if not is_undo(call):
            return False
        return all(
            event.source != TOOL for event in self.stored.log.read(EventFilter.only(call.requested))
        )

    @property
    def is_undo_running(self) -> bool:
        """Whether a process is carrying out an undo, redo, revert or rollback in this workspace."""
        return self.stored.lock.is_held(self.undo_lock)

    @property
    def is_watched(self) -> bool | None:
        """Whether a process puts on record what is changed from outside, as it happens.

        None for a person who may read the store and not its locks.
        """
        try:
            return self.stored.lock.is_held(self.watch_lock)
        except PermissionDenied:
            return None

    def is_session_alive(self, session: str) -> bool:
        """Whether a session's process is running.

        A process of ours holds the session's lock. A client's process has a lease on record; where
        that process cannot be seen from here, the lease lasts for its seconds since the session's
        last event.
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
        """The hold on a session: its own, else that of a session that contains it; None without."""
        return hold_of(self.stored.log, session, self.process.sessions)

    def session_state(self, session: str) -> SessionState:
        """What the log says of a session now, read on from where this process last read."""
        known = self.process.sessions
        known[session] = session_state(self.stored.log, session, known.get(session, SessionState()))
        return known[session]

    def _is_overdue(self, session: str, lease: Lease) -> bool:
        for event in self.stored.log.read(EventFilter(session=session, newest_first=True, limit=1)):
            return (self.stored.clock.now() - event.at).total_seconds() > lease.seconds
        return True

    @property
    def undo_lock(self) -> str:
        """The name of the OS lock that an undo holds while it is carried out."""
        return f"undo-{self.stored.log.id}"

    @property
    def watch_lock(self) -> str:
        """The name of the OS lock that is held by whoever watches the workspace."""
        return f"watch-{self.stored.log.id}"


def is_undo(call: Call) -> bool:
    """Whether a call is our undo, redo, revert or rollback, not an agent's tool of that name."""
    return takes_back(call.tool, call.effect)


def check_effect(effect: Effect) -> None:
    """Refuse what is not an effect, with InvalidArguments."""
    if effect not in (known := get_args(Effect)):
        raise InvalidArguments(
            f"{effect!r:.100} is not an effect", hint=f"There are: {', '.join(known)}."
        )


def check_tool_name(name: str, effect: Effect) -> None:
    """Refuse a tool that would be taken for our undo, redo, revert or rollback: InvalidArguments.

    What is not an effect is refused in the same way.
    """
    check_effect(effect)
    if takes_back(name, effect):
        raise InvalidArguments(
            f"the name {name} is kept for what takes back", hint="Name the tool otherwise."
        )


def session_lock(session: str) -> str:
    """The name of the OS lock that a session's process holds for its whole life."""
    return f"session-{session}"
