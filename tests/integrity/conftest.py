"""A store with a log of every kind of event, made through the real adapters."""

import random
import shutil
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loom_audit.disk.machine.locks import DiskLock
from loom_audit.history.check.verification import Verification, verify
from loom_audit.model.coverage import Coverage, Status
from loom_audit.model.events import (
    BaselineFinished,
    CallDecided,
    CallFinished,
    CallReported,
    CallRequested,
    ChangeIntended,
    CheckpointMarked,
    Draft,
    Event,
    Fact,
    FilesChanged,
    PathsUntracked,
    ScopeAccepted,
    SessionEnded,
    SessionStarted,
    TreeHead,
    TreeRelisted,
    Untracked,
    WorkspaceAttached,
)
from loom_audit.model.files import BlobId, FileChange, FileState, Kind, Move
from loom_audit.sql.evidence.evidence import open_evidence
from loom_audit.sql.store.database import Database, open_database
from tests.places.made_store import lay_ballast

LIMIT = 9_000_000
"""Files over this are recorded by hash in the test log."""


@dataclass
class Recorded:
    """A closed store with one log, and the heads that were taken while it grew."""

    path: Path
    log: str
    heads: list[TreeHead]

    def open(self) -> Database:
        return open_database(f"sqlite:///{self.path}", lock=DiskLock(self.path.parent / "locks"))

    def verify(self, heads: Iterable[TreeHead] | None = None, **options: Any) -> Verification:
        with closing(self.open()) as database, closing(open_evidence(database, self.log)) as found:
            return verify(found, heads=self.heads if heads is None else heads, **options)

    def copy(self, folder: Path) -> "Recorded":
        ignore = shutil.ignore_patterns("*.ballast", "locks")
        shutil.copytree(self.path.parent, folder, ignore=ignore)
        lay_ballast(folder / self.path.name)
        return Recorded(folder / self.path.name, self.log, list(self.heads))


class Writer:
    """Appends to a log what a recorder would."""

    def __init__(self, database: Database, log: str) -> None:
        self.blobs = database.blobs
        self.log = database.event_log(log)
        self.tree: dict[str, FileState] = {}
        self.calls = 0
        self.random = random.Random(7)

    def state(
        self, content: bytes, before: FileState | None = None, kind: Kind = "file"
    ) -> FileState:
        blob = self.blobs.put(content, similar_to=before.blob if before else None)
        return FileState(kind, blob, 0o644 if kind == "file" else 0o777, len(content))

    def append(self, *facts: Fact, session: str = "", actor: str = "outside") -> Sequence[Event]:
        return self.log.append([Draft(fact, session, actor) for fact in facts])

    def changed(self, path: str, after: FileState | None) -> FileChange:
        change = FileChange(path, self.tree.get(path), after)
        if after is None:
            del self.tree[path]
        else:
            self.tree[path] = after
        return change

    def write(self, session: str, path: str, content: bytes, *, old: bytes | None = None) -> None:
        self.calls += 1
        call = f"{self.calls:032x}"
        change = self.changed(path, self.state(content, self.tree.get(path)))
        arguments = {"path": path, "content": content.decode("utf-8", "surrogateescape")}
        *_, intended = self.append(
            CallRequested(call, "write_file", arguments, "write"),
            CallDecided(call, "write_file", "allowed", "policy", "it may"),
            ChangeIntended(call, (change,)),
            session=session,
            actor="agent:a",
        )
        intention = intended.seq if self.calls % 2 else None
        self.append(
            FilesChanged((change,), "tool", call, intention=intention),
            CallFinished(call, "write_file", "write", "ok", {"success": True}, duration=5),
            session=session,
            actor="agent:a",
        )

    def read(self, session: str, path: str, *, status: Status = "ok") -> None:
        self.calls += 1
        call = f"{self.calls:032x}"
        result = {"success": status == "ok", "output": "x" * (self.calls * 37 % 9000)}
        self.append(
            CallRequested(call, "read_file", {"path": path}, "read"),
            CallFinished(call, "read_file", "read", status, result, Coverage("partial", ("odd",))),
            session=session,
            actor="agent:a",
        )


def record(path: Path, events: int) -> Recorded:
    """A log of at least so many events, its sessions' heads, and one event after the last."""
    heads = []
    lock = DiskLock(path.parent / "locks")
    with closing(open_database(f"sqlite:///{path}", lock=lock)) as database:
        log = database.create_log()
        writer = Writer(database, log)
        writer.append(WorkspaceAttached("/srv/caf\udce9", "*.tmp\n", LIMIT))
        content = random.Random(1).randbytes
        first = [
            writer.changed("src", FileState("directory", None, 0o755, 0)),
            writer.changed("src/caf\udce9", writer.state(b"non-utf-8 name")),
            writer.changed("link", writer.state(b"src/a.py", kind="symlink")),
            writer.changed("large.bin", writer.state(content(400_000))),
            writer.changed("huge.bin", FileState("file", BlobId("ab" * 32), 0o644, LIMIT + 1)),
            *(
                writer.changed(f"src/m{n}.py", writer.state(b"x = %d\n" % n * 50))
                for n in range(40)
            ),
        ]
        writer.append(FilesChanged(tuple(first), "baseline"), BaselineFinished(44, 500_000))
        writer.append(ScopeAccepted("*.o\n"), PathsUntracked((Untracked("gone", "unreadable"),)))
        n = 0
        while database.event_log(log).head() < events:
            n += 1
            session = f"session-{n}"
            writer.append(SessionStarted("tester", "t"), session=session, actor="agent:a")
            for step in range(6):
                path_ = f"src/m{writer.random.randrange(40)}.py"
                text = b"".join(b"line %d of %d\n" % (i, n) for i in range(20 * step + n % 40))
                writer.write(session, path_, text + b"def f%d(): pass\n" % step)
                writer.read(session, path_, status="ok" if step else "error")
            writer.append(SessionEnded(), session=session, actor="agent:a")
            heads.append(database.event_log(log).tree_head())
        moved = writer.tree["src/m1.py"]
        writer.append(
            FilesChanged(
                (writer.changed("src/m1.py", None), writer.changed("src/moved.py", moved)),
                "outside",
                moves=(Move("src/m1.py", "src/moved.py"),),
            )
        )
        whole = tuple(FileChange(path, None, state) for path, state in sorted(writer.tree.items()))
        writer.append(
            TreeRelisted(whole[:20], 1, False),
            TreeRelisted(whole[20:], 2, True, (Untracked("gone", "unreadable"),)),
        )
        finished = [event for event in writer.log.read() if isinstance(event.fact, CallFinished)]
        *_, last = finished
        assert isinstance(last.fact, CallFinished)
        told = CallReported(last.fact.call_id, "read_file", "ok", None, last.seq, "unknown")
        writer.append(told, session=last.session)
        writer.append(CheckpointMarked("done", 100, "a note"))
        heads.append(database.event_log(log).tree_head())
    return Recorded(path, log, heads)


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The log that tests copy before they harm it."""
    return record(tmp_path_factory.mktemp("master") / "audit.db", 700)


@pytest.fixture
def store(master: Recorded, tmp_path: Path) -> Recorded:
    return master.copy(tmp_path / "store")
