"""The process that has started a background command is killed at each step of that command's life.

Nothing is lost or made up: the command dies with it, its call has one finish, its start one end,
and what it wrote is on record with it as candidate.
"""

import os
import signal
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import AuditedWorkspace, open_store
from loom_audit.model.backgrounds import BackgroundFinished, BackgroundStarted
from loom_audit.model.events import CallRequested, FilesChanged
from loom_audit.ports import EventFilter
from loom_audit.sandbox.background import BubblewrapBackground
from loom_audit.sql.store.event_log import SqlEventLog
from tests.crash.programs.faults import check_finishes, check_fold, check_log, wait_for
from tests.oracles.trees import tree_of
from tests.places.made_store import lay_store
from tests.sandbox.backends import working

STEPS, PARTS = 100, 6
"""More steps than there are; they are shared out to so many tests."""
PLACES = {"append": SqlEventLog, "begin": BubblewrapBackground, "stop": BubblewrapBackground}


@pytest.fixture(autouse=True)
def confined() -> None:
    working("bubblewrap")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lay_store(tmp_path / "home")
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    (tmp_path / "root/out").mkdir(parents=True)
    (tmp_path / "root/kept").write_text("kept")
    with open_store() as store:
        store.attach(tmp_path / "root")
    return tmp_path / "root"


def die_at(nth: int, places: Sequence[str]) -> None:
    """Be killed before or after a step, at this number of all moments."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    def mortal(call: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*given: Any, **more: Any) -> Any:
            step()
            found = call(*given, **more)
            step()
            return found

        return stepping

    for name in places:
        setattr(PLACES[name], name, mortal(getattr(PLACES[name], name)))


async def live(workspace: AuditedWorkspace, mark: str) -> None:
    """A command that goes on, one beside it, one that ends by itself, and one that is stopped."""
    with workspace.session("tester") as session:
        order = {"command": f"echo x > out/x; echo on; sleep {mark}", "writes": ["out"]}
        await session.call("bash", {**order, "background": True})
        await session.call("bash_output", {"id": "bg1", "wait": 30})
        await session.call("bash", {"command": "echo y > out/y", "in": "bg1"})
        await session.call("bash", {"command": f"sleep {mark}", "background": True})
        await session.call("bash_stop", {"id": "bg2"})


def killed_at(nth: int, root: Path, mark: str, places: Sequence[str] = tuple(PLACES)) -> bool:
    """Whether the process was killed at that step, or there are fewer."""
    pid = os.fork()
    if not pid:
        try:
            with open_store() as store:
                workspace = store.workspace(root)
                die_at(nth, places)
                anyio.run(live, workspace, mark)
        except BaseException:  # noqa: BLE001 - it must not go on as the test
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def runs(mark: str) -> bool:
    """Whether a command with this argument runs."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False


def check(root: Path) -> None:
    with open_store() as store:
        workspace = store.workspace(root)
        workspace.recover()
        with workspace.session("later") as session:
            anyio.run(session.call, "bash", {"command": "true"})
        check_finishes(workspace)
        check_log(workspace, [])
        check_fold(workspace, tree_of(root))
        events = [*workspace.log.read(EventFilter())]
    started = [e.fact.call_id for e in events if isinstance(e.fact, BackgroundStarted)]
    ended = [e.fact.call_id for e in events if isinstance(e.fact, BackgroundFinished)]
    assert sorted(started) == sorted(ended)
    commands = {
        e.seq
        for e in events
        if isinstance(e.fact, CallRequested)
        and e.fact.tool == "bash"
        and "out/" in str(e.fact.arguments)
    }
    for event in events:
        if isinstance(event.fact, FilesChanged) and event.fact.origin in ("outside", "command"):
            for change in event.fact.changes:
                if change.path.startswith("out/") and change.after:  # the test itself deletes
                    assert commands & {*event.fact.causes} or event.fact.call_id, change.path


@pytest.mark.few(1)
@pytest.mark.parametrize("place", ["begin", "stop"])
def test_a_kill_when_it_was_started_or_stopped_loses_and_makes_up_nothing(
    root: Path, place: str
) -> None:
    """Each is on record a moment later."""
    mark = f"5{os.getpid()}"
    assert killed_at(2, root, mark, (place,))
    wait_for("its commands to die", lambda: not runs(mark))
    check(root)


@pytest.mark.deep
@pytest.mark.parametrize("part", range(PARTS))
def test_a_kill_at_any_step_loses_and_makes_up_nothing(root: Path, part: int) -> None:
    mark = f"7{os.getpid()}{part}"
    for nth in range(1 + part, STEPS, PARTS):
        for name in ("x", "y"):
            (root / "out" / name).unlink(missing_ok=True)
        was_killed = killed_at(nth, root, f"{mark}{nth:02}")
        wait_for("its commands to die", lambda nth=nth: not runs(f"{mark}{nth:02}"))
        check(root)
        if not was_killed:
            return
    pytest.fail("there are more steps")
