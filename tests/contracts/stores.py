"""A log with its contents and projections, over SQLite and in memory, for the contract tests."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from loom_audit.disk.machine.locks import DiskLock
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.coverage import Origin
from loom_audit.model.events import (
    CallFinished,
    CallRequested,
    Draft,
    Fact,
    FilesChanged,
    SessionStarted,
)
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.ports import BlobStore, EventLog, Projections
from loom_audit.sql.ground.driver import connect
from loom_audit.sql.store.database import Database, open_database
from tests.doubles import MemoryBlobStore, MemoryEventLog, MemoryProjections

KINDS = ("sqlite", "memory")
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class SetClock:
    """A clock that stands still until it is set."""

    at: datetime = START

    def now(self) -> datetime:
        return self.at

    def pass_time(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class Opened:
    """One log of one implementation."""

    log: EventLog
    blobs: BlobStore
    projections: Projections
    clock: SetClock
    database: Database | None = None
    calls: int = field(default=0)

    def file(self, content: bytes, mode: int = 0o644) -> FileState:
        return FileState("file", self.blobs.put(content), mode, len(content))

    def change(
        self,
        *changes: FileChange,
        origin: Origin = "tool",
        call_id: str | None = None,
        session: str = "s",
        causes: tuple[int | str, ...] = (),
        actor: str = "",
    ) -> int:
        """Record the changes, by default as done by whoever makes such; the seq of the event."""
        fact = FilesChanged(changes, origin, call_id, causes=causes)
        actor = actor or (OUTSIDE if (session, origin) == ("", "outside") else "agent:a")
        return self.log.append([draft(fact, session, actor)])[0].seq

    def call(
        self,
        *changes: FileChange,
        tool: str = "write_file",
        status: Any = "ok",
        session: str = "s",
        reverts: tuple[int, ...] = (),
        arguments: Any = None,
        result: Any = None,
        actor: str = "agent:a",
    ) -> int:
        """Record a whole call; its number."""
        self.calls += 1
        id = f"call-{self.calls}"
        args = arguments if arguments is not None else {"path": f"p{self.calls}"}
        facts: list[Fact] = [CallRequested(id, tool, args, "write")]
        if changes:
            facts.append(FilesChanged(changes, "tool", id, reverts=reverts))
        facts.append(CallFinished(id, tool, "write", status, result, reverts=reverts, duration=7))
        return self.log.append([draft(fact, session, actor) for fact in facts])[-1].seq


def draft(fact: Fact, session: str = "s", actor: str = "agent:a", id: str | None = None) -> Draft:
    return Draft(fact, session, actor, id)


def started(session: str = "s", agent: str = "a") -> Draft:
    return draft(SessionStarted(agent, f"about {session}"), session)


def logs_of(database: Database) -> list[str]:
    """The ids of all logs, oldest first."""
    raw = connect(database.connections.path, "ro")
    try:
        return [id for (id,) in raw.execute("SELECT id FROM log ORDER BY number")]
    finally:
        raw.close()


def open_sqlite(folder: Path, clock: SetClock | None = None, id: str | None = None) -> Opened:
    """The store in this folder and its first log, made where there is none."""
    clock = clock or SetClock()
    database = open_database(
        f"sqlite:///{folder}/store/audit.db", lock=DiskLock(folder / "locks"), clock=clock
    )
    log = id or next(iter(logs_of(database)), None) or database.create_log()
    return Opened(
        database.event_log(log), database.blobs, database.projections(log), clock, database
    )


def open_memory() -> Opened:
    clock, blobs = SetClock(), MemoryBlobStore()
    log = MemoryEventLog("0" * 32, blobs, clock)
    return Opened(log, blobs, MemoryProjections(log), clock)


def open_kind(kind: str, folder: Path) -> Opened:
    return open_sqlite(folder) if kind == "sqlite" else open_memory()


def symlink(target: bytes, opened: Opened) -> FileState:
    return FileState("symlink", opened.blobs.put(target), 0o777, len(target))


DIRECTORY = FileState("directory", None, 0o755, 0)
UNKNOWN = FileState("file", BlobId("ab" * 32), 0o600, 12345)
"""A file that is on record by its hash only."""
