"""`kill -9` at every step of an undo that opens folders, as an ordinary user: they are closed."""

import os
import signal
import stat
import subprocess
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, builtin_registry, open_store
from loom_audit.disk.access import opening
from loom_audit.disk.writing import exchange
from loom_audit.history.record.drift import record_drift
from loom_audit.model.events import FilesChanged
from loom_audit.sql.store.event_log import SqlEventLog
from tests.processes.ordinary_user import ordinary_user

CLOSED = {"d": 0o555, "d/e": 0o500}
BEGIN = """
mkdir -p d/e venv; echo one > d/x; echo two > d/y; echo in > d/e/z; echo v > venv/v; chmod 555 venv
mkdir gone; echo g > gone/g; chmod 500 d/e; chmod 555 d gone
"""
CHANGE = """
chmod 755 d d/e gone; echo changed > d/x; rm d/y; echo new > d/e/n; rm -r gone; mkdir d/new
echo more > d/new/more; chmod 555 d/new; chmod 500 d/e; chmod 555 d
"""


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    builtin_registry()  # its modules are imported while we may read them
    with ordinary_user() as folder:
        monkeypatch.setenv("LOOM_AUDIT_HOME", str(folder / "home"))
        (folder / "w").mkdir()
        sh(folder / "w", BEGIN)
        with open_store() as store:
            workspace = store.attach(folder / "w")
            with workspace.session("agent") as session, session.recording("change"):
                sh(folder / "w", CHANGE)
        yield folder / "w"


def sh(root: Path, command: str) -> None:
    subprocess.run(["sh", "-p", "-e", "-c", command], cwd=root, check=True)


def modes(root: Path) -> dict[str, int]:
    found = {}
    for folder, folders, _ in os.walk(root):
        for path in (Path(folder, name) for name in folders):
            found[str(path.relative_to(root))] = stat.S_IMODE(path.lstat().st_mode)
    return found


def test_an_undo_opens_folders_and_closes_them_again(root: Path) -> None:
    after = modes(root)
    with open_store() as store:
        workspace = store.workspace(root)
        workspace.carry_out(workspace.plan_undo())
        before = modes(root)
        assert before == {**CLOSED, "gone": 0o555, "venv": 0o555}
        assert (root / "d/x").read_text() == "one\n"
        assert not workspace.status().drift
        workspace.carry_out(workspace.plan_redo())
        assert modes(root) == after
        workspace.carry_out(workspace.plan_undo())
        assert modes(root) == before
        assert not workspace.status().drift


def test_a_left_out_folder_is_moved_back_out_of_a_closed_one(root: Path) -> None:
    before = modes(root)
    with open_store() as store:
        workspace = store.workspace(root)
        with workspace.session("agent") as session, session.recording("move"):
            sh(root, "chmod 755 d venv; mv venv d/venv; chmod 555 d d/venv")
        workspace.carry_out(workspace.plan_undo())
        assert modes(root) == before
        assert (root / "venv/v").read_text() == "v\n"
        assert not workspace.status().drift


def test_a_kill_at_a_sampled_step_leaves_no_folder_open(root: Path) -> None:
    assert kills(root, every=12) > 1


@pytest.mark.few(0)
def test_a_signal_at_a_sampled_step_leaves_no_folder_open(root: Path) -> None:
    assert kills(root, every=11, number=signal.SIGINT) > 1


@pytest.mark.deep
def test_a_signal_at_any_step_leaves_no_folder_open(root: Path) -> None:
    assert kills(root, every=1, number=signal.SIGINT) > 25


@pytest.mark.deep
def test_a_kill_at_any_step_leaves_no_folder_open(root: Path) -> None:
    assert kills(root, every=1) > 25


def kills(root: Path, *, every: int, number: int = signal.SIGKILL) -> int:
    """How many kills (or other signals) a rollback was brought through."""
    after, seen = modes(root), 0
    with open_store() as store:
        workspace = store.workspace(root)
        [call] = workspace.timeline.calls()
        start, point = call.requested - 1, workspace.log.head()
        workspace.carry_out(workspace.plan_rollback(start, outside=True))
        before = modes(root)
        workspace.carry_out(workspace.plan_undo())
        assert modes(root) == after
    for nth in range(every, 200, every):
        if not is_killed(root, roll_back(start), nth, number):
            return seen
        try:
            seen += 1
            with open_store() as store:
                workspace = store.workspace(root)
                check_recovered(workspace, root, nth, before, after)
                again = workspace.plan_rollback(point, outside=True)
                if not again.is_empty:
                    workspace.carry_out(again)
                assert modes(root) == after
        except BaseException as error:
            error.add_note(f"killed at step {nth}")
            raise
    raise AssertionError("it does not end")


def check_recovered(
    workspace: AuditedWorkspace,
    root: Path,
    nth: int,
    before: dict[str, int],
    after: dict[str, int],
) -> None:
    """No folder stays open; none was opened or closed by anybody, as far as is on record."""
    head = workspace.log.head()
    assert not workspace.status().drift
    if nth % 3 == 0:  # somebody looks first
        with workspace.attachment.exclusive():
            record_drift(workspace.attachment)
    waiting = [one.call for one in workspace.recover() if one.waiting]
    if waiting:
        workspace.recover("continue" if nth % 2 else "abandon")
    found = modes(root)
    if waiting and nth % 2 and found != after:
        assert found == before
    for path, mode in found.items():
        assert mode in (before.get(path), after.get(path)), path
    assert workspace.leftovers() == []
    assert not workspace.status().drift
    facts = [event.fact for event in workspace.log.read() if event.seq > head]
    changed = [fact for fact in facts if isinstance(fact, FilesChanged)]
    assert all(fact.origin == "undo" for fact in changed), changed
    recorded = {p: s.mode for p, s in workspace.timeline.tree().items() if s.kind == "directory"}
    assert recorded == {path: mode for path, mode in found.items() if "venv" not in path}


def roll_back(start: int) -> Callable[[AuditedWorkspace], object]:
    return lambda workspace: workspace.carry_out(workspace.plan_rollback(start, outside=True))


def is_killed(
    root: Path, act: Callable[[AuditedWorkspace], object], nth: int, number: int = signal.SIGKILL
) -> bool:
    """Act in a process that is killed at this step of it; False where it has fewer."""
    pid = os.fork()
    if not pid:
        try:
            die_at(nth, number)
            with open_store() as store:
                act(store.workspace(root))
        except KeyboardInterrupt:
            os._exit(2)
        except BaseException:  # noqa: BLE001 - it must not go on as the test
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, 2, -signal.SIGKILL)
    return status != 0


def die_at(nth: int, number: int) -> None:
    """Be killed before the call of this number of those that change something."""
    count = 0

    def mortal(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            nonlocal count
            count += 1
            if count == nth:
                os.kill(os.getpid(), number)
            return call(*given)

        return counted

    for place, name in (
        (opening, "_set_mode"),
        (exchange, "_renamed_at_once"),
        (exchange.Location, "unlink"),
        (exchange.Location, "rmdir"),
        (exchange.Location, "mkdir"),
        (exchange.Location, "chmod"),
        (SqlEventLog, "append"),
    ):
        setattr(place, name, mortal(getattr(place, name)))
