import os
import signal
import sys
from pathlib import Path

import pytest

from loom_audit.errors import ExecutionFailed, InvalidArguments
from loom_audit.ports import Command, Completed
from loom_audit.sandbox import BACKENDS, open_runner, probe
from loom_audit.sandbox.plain import PlainRunner
from tests.sandbox.backends import working


def test_an_unknown_sandbox_is_never_another_one() -> None:
    with pytest.raises(InvalidArguments) as caught:
        open_runner("bubblewrapp")
    assert caught.value.details["known"] == sorted(BACKENDS)


def test_every_backend_runs_true_here() -> None:
    for name in BACKENDS:
        runner = open_runner(name)
        assert runner.name == name
    for name in BACKENDS:
        probe(working(name))


def test_a_backend_that_cannot_run_true_is_refused() -> None:
    class Broken:
        name = "broken"

        def run(self, root: str, command: Command, **_: object) -> Completed:
            return Completed(1, b"", b"no user namespaces", 0, 0, False, 0)

    with pytest.raises(ExecutionFailed) as caught:
        probe(Broken())
    assert caught.value.details["stderr"] == "no user namespaces"


def test_without_a_tree_to_walk_the_process_group_dies(tmp_path: Path) -> None:
    """What is left off Linux: a child in the group dies, and nothing is named."""
    runner = PlainRunner(whole_tree=False)
    text = "sleep 600 & echo $!; exit 4"
    done = runner.run(str(tmp_path), Command(("sh", "-c", text), timeout=120))
    assert (done.exit_code, done.survivors) == (4, ())
    assert not Path(f"/proc/{int(done.stdout)}/cwd").exists()


def test_without_a_tree_to_walk_a_timeout_kills_the_group(tmp_path: Path) -> None:
    runner = PlainRunner(whole_tree=False)
    done = runner.run(str(tmp_path), Command(("sh", "-c", "echo x; sleep 600 | cat"), timeout=0.3))
    assert (done.timed_out, done.exit_code, done.stdout) == (True, 128 + signal.SIGKILL, b"x\n")


def test_the_library_path_of_the_command_does_not_reach_the_supervisor(tmp_path: Path) -> None:
    """Else a command's LD_PRELOAD or LD_LIBRARY_PATH could stop the interpreter from starting."""
    environment = {**os.environ, "PYTHONHOME": "/nowhere", "LD_PRELOAD": "/nowhere/x.so"}
    done = PlainRunner().run(
        str(tmp_path), Command(("sh", "-c", "echo $PYTHONHOME"), environment=environment)
    )
    assert done.stdout == b"/nowhere\n"


def test_a_module_in_the_workspace_does_not_shadow_the_supervisors(tmp_path: Path) -> None:
    for name in ("select.py", "time.py", "supervisor.py", "errno.py"):
        (tmp_path / name).write_text("raise SystemExit('shadowed')")
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        done = PlainRunner().run(str(tmp_path), Command((sys.executable, "-ISc", "print(1)")))
    finally:
        os.chdir(before)
    assert done.stdout == b"1\n"
