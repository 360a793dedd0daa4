"""What a call leaves running that comes and goes: followed, or coverage says that it is not."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.history.look import survivors
from loom_audit.model.records import Call

NOT_SETTLED = "what it left running was not settled"

HOPS = """
import os, sys, time
until = time.monotonic() + 0.3
while time.monotonic() < until:
    if os.fork():
        os._exit(0)
open(sys.argv[1], "w").write("late")
"""
"""No process of it is there for longer than a millisecond, until it writes."""

HOPPING = pytest.mark.deep
"""While it hops, tests that run beside it cannot know either whose the orphans are: it runs alone.

`.ci/run` runs it each time.
"""


def hop(root: Path, name: str) -> None:
    argv = ["setsid", sys.executable, "-I", "-S", "-c", HOPS, str(root / name)]
    subprocess.run(argv, cwd=root, check=True)


def written(root: Path, name: str) -> None:
    while not (root / name).exists():
        time.sleep(0.01)


def is_said(call: Call) -> bool:
    """Whether the call says that something of it may run still."""
    said = any(one == NOT_SETTLED or "left running" in one for one in call.coverage.reasons)
    return said and call.coverage.level == "partial"


@HOPPING
def test_what_a_clients_call_leaves_running_under_one_pid_after_another_is_said(
    workspace: AuditedWorkspace, root: Path
) -> None:
    foreign = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    for n in range(5):
        foreign.begin_call(f"c{n}", "Bash", {"command": "hop"})
        hop(root, f"late{n}")
        foreign.end_call(f"c{n}")
        written(root, f"late{n}")
    calls = [workspace.timeline.projections.call("f", f"c{n}") for n in range(5)]
    assert [is_said(call) for call in calls] == [True] * 5


@HOPPING
def test_what_a_block_leaves_running_under_one_pid_after_another_is_said(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:
        for n in range(5):
            with session.recording("hop", call_id=f"c{n}"):
                hop(root, f"late{n}")
            written(root, f"late{n}")
    calls = [workspace.timeline.projections.call(session.id, f"c{n}") for n in range(5)]
    assert [is_said(call) for call in calls] == [True] * 5


def test_a_shell_of_a_client_that_ends_at_once_hides_no_survivor(
    workspace: AuditedWorkspace, root: Path
) -> None:
    foreign = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    for n in range(10):
        go, told = root.parent / f"go{n}", root.parent / f"told{n}"
        os.mkfifo(go)
        os.mkfifo(told)
        script = f"read x < {go}; echo $x > log{n}; echo > {told}"
        foreign.begin_call(f"a{n}", "Bash", {"command": "serve &"})
        subprocess.run(["sh", "-c", f"setsid sh -c '{script}' &"], cwd=root, check=True)
        foreign.end_call(f"a{n}")
        foreign.begin_call(f"b{n}", "Bash", {"command": "true"})
        go.write_text("x\n")
        told.read_text()
        foreign.end_call(f"b{n}")
        first = workspace.timeline.projections.call("f", f"a{n}")
        assert is_said(first)
        [*_, last] = workspace.attachment.stored.tables.changes(paths=[f"log{n}"])
        found = {workspace.timeline.projections.call_at(seq).call_id for seq in last.causes}
        assert found == {f"a{n}", f"b{n}"} or NOT_SETTLED in first.coverage.reasons


@pytest.mark.parametrize("running", [0, 1])
def test_a_call_of_a_client_waits_for_three_readings_and_for_what_ends_in_a_moment(
    workspace: AuditedWorkspace, root: Path, running: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[float]()

    def wait(seconds: float) -> None:
        waited.append(seconds)
        for one in beside:
            one.communicate()

    monkeypatch.setattr(survivors, "sleep", wait)
    # other programs end at any moment too, and a busy machine takes its time
    monkeypatch.setattr(survivors, "_ENDING_SECONDS", 60)
    foreign = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    foreign.begin_call("c", "Bash", {"command": "true"})
    beside = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(running)]
    foreign.end_call("c")
    assert workspace.timeline.projections.call("f", "c").coverage.level == "full"
    assert len(waited) >= 2 and (max(waited) > survivors._BETWEEN_READINGS) == bool(running)
    for one in beside:
        one.wait()
