"""A store with some of everything, and all that is asked about it: Python, commands, pages.

Every reader is a function from an opened copy of the store to its `Answer`.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from loom_audit.api.face import AuditedWorkspace, AuditStore, open_store
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import CheckpointMarked, CoverageLowered, Draft
from loom_audit.ports import CallFilter
from tests.cli.shells import Shell


@dataclass(frozen=True)
class Answer:
    """What was said, and the code of the error of ours that it says, if it says one.

    `lines` are those of a text; where there is an error, what was shown beside it.
    """

    said: Any
    code: str = ""
    lines: tuple[str, ...] = ()


class Opened:
    """A copy of the store, by all the ways in; it is opened when one needs it."""

    def __init__(self, made: "Made", home: Path, dashboard: TestClient) -> None:
        self.shell = Shell(made.work, home)
        self._id = made.id
        self._dashboard = dashboard
        self._held = ExitStack()

    @property
    def workspace(self) -> AuditedWorkspace:
        """As one call after another of a program sees it. AuditError where it cannot be opened."""
        return self._store.workspace(self._id)

    @cached_property
    def _store(self) -> AuditStore:
        return self._held.enter_context(open_store(str(self.shell.database)))

    @property
    def client(self) -> TestClient:
        """The dashboard's, over this copy. AuditError where the store cannot be opened."""
        app: Any = self._dashboard.app
        app.state.store = self._store
        return self._dashboard

    def close(self) -> None:
        self._held.close()


Reader = Callable[[Opened], Answer]


@dataclass(frozen=True)
class Made:
    """A closed store in its own data folder, and what there is to ask about, oldest first.

    `time` is when the middle one of the calls began.
    """

    home: Path
    work: Path
    id: str
    numbers: tuple[int, ...]
    sessions: tuple[str, ...]
    time: str

    @property
    def middle(self) -> int:
        return self.numbers[len(self.numbers) // 2]


@dataclass(frozen=True)
class Readers:
    """By name: what is read from the log, and the lists, which verification finds wrong."""

    verified: Mapping[str, Reader]
    lists: Mapping[str, Reader]

    @cached_property
    def all(self) -> Mapping[str, Reader]:
        """Verification itself comes last, since it leaves word of when it was."""
        everything = {**self.verified, **self.lists}
        return dict(sorted(everything.items(), key=lambda one: "verify" in one[0]))

    def __or__(self, more: "Readers") -> "Readers":
        return Readers({**self.verified, **more.verified}, {**self.lists, **more.lists})


def make(folder: Path) -> Made:
    """Three sessions, a person's edits, undos, reverts, checkpoints, calls of another program."""
    work, home = folder / "work", folder / "home"
    (work / "src").mkdir(parents=True)
    for n in range(4):
        (work / "src" / f"{n}.py").write_text(f"def f{n}():\n    return {n}\n")
    os.environ["LOOM_AUDIT_HOME"] = str(home)
    with closing(open_store(actor="person:tester")) as store:
        found = store.attach(work)
        _record(found, work)
        calls = found.timeline.calls(CallFilter(newest_first=False))
        sessions = tuple(session.id for session in found.timeline.sessions())
        numbers = tuple(call.seq for call in calls if call.seq)
        time = calls[len(calls) // 2].at.isoformat()
        return Made(home, work, found.id, numbers, sessions, time)


def _record(found: AuditedWorkspace, work: Path) -> None:
    # enough events for a stored node of the Merkle tree
    marks = [CheckpointMarked("start", n, f"{n}") for n in range(200)]
    found.log.append([Draft(mark, "", "person:tester") for mark in marks])

    def call(session: Any, tool: str, **arguments: Any) -> None:
        assert asyncio.run(session.call(tool, arguments)).success

    with found.session("first", title="one") as one:
        call(one, "write_file", path="src/0.py", content="x = 1\n" * 40)
        call(one, "write_file", path="new.txt", content="new\n")
        call(one, "edit_file", path="src/1.py", old_str="return 1", new_str="return 10")
        call(one, "read_file", path="src/2.py")
        asyncio.run(one.call("edit_file", {"path": "absent", "old_str": "a", "new_str": "b"}))
        with one.recording("build"):
            (work / "out").mkdir()
            (work / "out" / "made.bin").write_bytes(bytes(range(256)) * 20)
    found.checkpoint("v1", note="after one")
    (work / "src" / "2.py").write_text("# by hand\n")
    with found.session("second") as two:
        call(two, "write_file", path="src/0.py", content="x = 1\n" * 39 + "y = 2\n")
        call(two, "delete_file", path="new.txt")
        asyncio.run(two.call("move_file", {"from": "src/3.py", "to": "src/moved.py"}))
    found.carry_out(found.plan_undo())
    found.carry_out(found.plan_redo())
    foreign = found.start_foreign_session("other", seconds=60)
    foreign.begin_call("c1", "Bash", {"command": "make"}, effect="execute")
    (work / "by-other.txt").write_text("theirs\n")
    foreign.end_call("c1", "ok", {"output": "done"})
    foreign.end_call("c1", "error", {"output": "not done after all"})
    for call_id in ("c2", "c3"):
        foreign.begin_call(call_id, "Bash", {"command": "make"}, effect="execute")
    (work / "by-either.txt").write_text("theirs\n")
    foreign.end_call("c2", "ok")
    foreign.end_call("c3", "ok")
    foreign.end()
    numbers = [c.seq for c in found.timeline.calls(CallFilter(newest_first=False)) if c.seq]
    lowered = CoverageLowered((numbers[0],), Coverage("partial", ("found later",)))
    found.log.append([Draft(lowered, "", "outside")])
    found.carry_out(found.plan_revert([numbers[2]]))
    with found.session("third") as three:
        call(three, "write_file", path="last.txt", content="last\n")
        call(three, "write_file", path="taken.txt", content="back\n")
    found.carry_out(found.plan_undo())
    (work / "src" / "1.py").write_text("# not looked at since\n")
