"""A store with some of everything, and all that reads from it, as functions to be compared."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loom_audit.api import AuditedWorkspace, open_store
from loom_audit.model.planning import Plan
from loom_audit.ports import CallFilter

Reader = Callable[[AuditedWorkspace], Any]


@dataclass(frozen=True)
class Made:
    """A closed store in its own data folder, and what is asked about it by name."""

    home: Path
    id: str
    readers: Mapping[str, Reader]
    lists: Mapping[str, Reader]

    def open(self, home: Path) -> Any:
        """The store of a copy of the data folder."""
        return open_store(str(home / "audit.db"))


def make(folder: Path) -> Made:
    """Two sessions, a person's edits, undos, reverts, a checkpoint, a foreign call."""
    work, home = folder / "work", folder / "home"
    (work / "src").mkdir(parents=True)
    for n in range(4):
        (work / "src" / f"{n}.py").write_text(f"def f{n}():\n    return {n}\n")
    os.environ["LOOM_AUDIT_HOME"] = str(home)
    with closing(open_store(actor="person:tester")) as store:
        found = store.attach(work)
        numbers, sessions = _record(found, work)
        return Made(home, found.id, _readers(numbers, sessions), _lists(sessions))


def _record(found: AuditedWorkspace, work: Path) -> tuple[list[int], list[str]]:
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
    foreign.end()
    numbers = [c.seq for c in found.timeline.calls(CallFilter(newest_first=False)) if c.seq]
    found.carry_out(found.plan_revert([numbers[2]]))
    with found.session("third") as three:
        call(three, "write_file", path="last.txt", content="last\n")
    sessions = [session.id for session in found.timeline.sessions()]
    return [c.seq for c in found.timeline.calls(CallFilter(newest_first=False)) if c.seq], sessions


def _plan(plan: Plan) -> Any:
    return (
        plan.target,
        plan.changes,
        plan.reverts,
        plan.moves,
        plan.kept,
        plan.blocked,
        plan.irreversible,
        plan.calls,
    )


def _readers(numbers: list[int], sessions: list[str]) -> Mapping[str, Reader]:
    first, second, last = numbers[0], numbers[6], numbers[-1]
    middle = numbers[len(numbers) // 2]

    def cat(path: str, point: str | int) -> Reader:
        def read(w: AuditedWorkspace) -> Any:
            state = w.timeline.state(path, w.timeline.point(point))
            return state, None if state is None or not state.blob else w.timeline.content(state)

        return read

    def replay(w: AuditedWorkspace) -> Any:
        target = Path(tempfile.mkdtemp(prefix="replayed-"))
        try:
            w.replay(middle, target)
            return {
                str(path.relative_to(target)): path.read_bytes() if path.is_file() else None
                for path in sorted(target.rglob("*"))
            }
        finally:
            shutil.rmtree(target)

    readers: dict[str, Reader] = {
        "undo": lambda w: _plan(w.plan_undo()),
        "undo of a session": lambda w: _plan(w.plan_undo(session=sessions[-1])),
        "redo": lambda w: _plan(w.plan_redo()),
        "revert one": lambda w: _plan(w.plan_revert([first])),
        "revert two": lambda w: _plan(w.plan_revert([second, last])),
        "revert a session": lambda w: _plan(w.plan_revert([f"session:{sessions[-1]}"])),
        "rollback to a number": lambda w: _plan(w.plan_rollback(middle)),
        "rollback some calls": lambda w: _plan(w.plan_rollback("head~2")),
        "rollback to a checkpoint": lambda w: _plan(w.plan_rollback("@v1")),
        "rollback of all": lambda w: _plan(w.plan_rollback(f"session:{sessions[-1]}")),
        "cat at the head": cat("src/0.py", "head"),
        "cat at a number": cat("src/1.py", middle),
        "cat what is deleted": cat("new.txt", "@v1"),
        "cat some calls back": cat("src/0.py", "head~4"),
        "tree": lambda w: w.timeline.tree(),
        "tree at a number": lambda w: w.timeline.tree(middle),
        "diff": lambda w: w.timeline.diff(first, last),
        "diff back": lambda w: w.timeline.diff(w.log.head(), middle),
        "diff from a checkpoint": lambda w: w.timeline.diff(w.timeline.point("@v1"), last),
        "replay": replay,
    }
    for place, number in enumerate(numbers):
        readers[f"show {place}"] = _show(number)
    return readers


def _show(number: int) -> Reader:
    return lambda w: w.timeline.call(number)


def _lists(sessions: list[str]) -> Mapping[str, Reader]:
    return {
        "log": lambda w: w.timeline.calls(),
        "log --events": lambda w: list(w.timeline.events()),
        "log --search": lambda w: w.timeline.calls(CallFilter(words="src")),
        "sessions": lambda w: w.timeline.sessions(),
        "a session's calls": lambda w: w.timeline.calls(CallFilter(session=sessions[0])),
        "history": lambda w: w.timeline.history("src", below=True),
        "checkpoints": lambda w: w.timeline.checkpoints(),
        "status": lambda w: (w.status().drift, w.status().open_calls),
    }
