"""A workspace that is watched while much happens in it: nothing lost, nothing twice."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, open_store
from loom_audit.model.events import FilesChanged
from tests.crash.programs.faults import ROOT, check_fold
from tests.oracles.changes import check_each_change_once
from tests.oracles.trees import tree_of
from tests.processes.clients import client as client
from tests.processes.watching import watching

pytestmark = [pytest.mark.deep, pytest.mark.timeout(600)]
WRITERS = 20


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[AuditedWorkspace]:
    """After the test: the log folds to what is on disk, each change once, and verifies."""
    root = tmp_path / "root"
    root.mkdir()
    with open_store() as store:
        found = store.attach(root)
        yield found
        assert found.status().drift == ()
        check_each_change_once([*found.log.read()])
        check_fold(found, tree_of(root))
        assert found.verify().findings == ()


def environment() -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@contextmanager
def scribbling(root: Path, names: list[str], count: int) -> Iterator[None]:
    """A process for each name, which writes below the folder of that name; waited for."""
    program = ROOT / "tests" / "crash" / "programs" / "scribbler.py"
    started = [
        subprocess.Popen(
            [sys.executable, "-I", "-S", str(program), str(root / name), str(n), str(count)]
        )
        for n, name in enumerate(names)
    ]
    try:
        yield
    finally:
        codes = [process.wait() for process in started]
    assert codes == [0] * len(names)


def until(wanted: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not wanted():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def end(process: "subprocess.Popen[str]") -> str:
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return errors


def test_twenty_processes_write_at_once(workspace: AuditedWorkspace) -> None:
    root = Path(workspace.root)
    with watching(root, environment(), "--quiet") as watcher:
        with scribbling(root, [f"w{n}" for n in range(WRITERS)], 200):
            pass
        until(lambda: not workspace.status().drift)
        assert "Traceback" not in end(watcher)
    facts = [event.fact for event in workspace.log.read()]
    assert sum(isinstance(f, FilesChanged) and f.origin == "outside" for f in facts) > 1


def test_git_checks_out_another_branch_of_five_thousand_files(workspace: AuditedWorkspace) -> None:
    root = Path(workspace.root)
    beside = root.parent / "git"  # whose inside is not on record
    git = ["git", f"--git-dir={beside}", f"--work-tree={root}", "-c", "gc.auto=0"]
    git += ["-c", "user.name=a", "-c", "user.email=a@b"]

    def run(*words: str) -> None:
        subprocess.run([*git, *words], cwd=root, check=True, capture_output=True)

    run("init", "-q", "-b", "one")
    for version in ("one", "two"):
        if version == "two":
            run("checkout", "-q", "-b", "two")
        for n in range(5_000):
            file = root / f"d{n // 50}" / f"f{n}.txt"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"{version} {n}\n")
        run("add", "-A")
        run("commit", "-q", "-m", version)
    with watching(root, environment(), "--quiet") as watcher:
        before = workspace.log.head()
        run("checkout", "-q", "one")
        until(lambda: not workspace.status().drift)
        end(watcher)
    found = [
        change
        for event in workspace.log.read()
        if event.seq > before and isinstance(event.fact, FilesChanged)
        for change in event.fact.changes
        if change.after and change.after.kind == "file"
    ]
    assert {change.path for change in found} >= {f"d{n // 50}/f{n}.txt" for n in range(5_000)}


def test_a_watcher_that_is_killed_again_and_again(workspace: AuditedWorkspace) -> None:
    root = Path(workspace.root)
    with scribbling(root, [f"w{n}" for n in range(4)], 1_500):
        for _ in range(8):
            with watching(root, environment(), "--quiet"):
                time.sleep(0.7)  # it is killed at some moment
    with watching(root, environment(), "--quiet") as watcher:
        until(lambda: not workspace.status().drift)
        end(watcher)


def test_an_agent_works_beside_people(
    workspace: AuditedWorkspace, client: "subprocess.Popen[bytes]"
) -> None:
    root = Path(workspace.root)
    agent = workspace.start_foreign_session("agent", id="s", pid=client.pid)
    with watching(root, environment(), "--quiet") as watcher:
        with scribbling(root, [f"person{n}" for n in range(3)], 600):
            for n in range(60):
                agent.begin_call(f"c{n}", "Bash", {"command": "make"})
                folder = root / "agent" / f"d{n % 7}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"f{n % 3}").write_text(f"by call {n}\n")
                agent.end_call(f"c{n}")
                time.sleep(0.02 * (n % 20))  # between two calls
        until(lambda: not workspace.status().drift)
        end(watcher)
    for event in workspace.log.read():
        fact = event.fact
        if isinstance(fact, FilesChanged) and fact.origin == "outside":
            theirs = [one.path for one in fact.changes if one.path.startswith("agent")]
            assert not theirs, f"event {event.seq} tells as from outside what the agent did"


def test_a_log_that_never_rests_is_taken_once_a_minute(workspace: AuditedWorkspace) -> None:
    root = Path(workspace.root)
    (root / "log").touch()
    with watching(root, environment(), "--quiet") as watcher:
        began = time.monotonic()
        with (root / "log").open("a") as log:
            while time.monotonic() < began + 100:
                log.write("one more line\n")
                log.flush()
                time.sleep(0.05)
        taken = len(workspace.timeline.history("log", limit=1000))
        (root / "a.txt").write_text("beside it\n")
        until(lambda: workspace.timeline.history("a.txt"))
        end(watcher)
    assert 10 <= taken <= 14
