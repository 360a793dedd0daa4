"""What a call leaves running may have made what is found later, when it ran meanwhile."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, ForeignSession, Session, tool
from loom_audit.api.registry import ToolRegistry
from loom_audit.history.look import survivors

TICK = 0.02
"""Seconds, more than a tick of any kernel's clock of files."""


class Server:
    """A process that appends to the file it is told, and sleeps until then."""

    def __init__(self, root: Path, path: str = "log") -> None:
        self.path = path
        code = (
            "import sys\n"
            "print('begun', flush=True)\n"
            "for line in sys.stdin:\n"
            "    open(line.rstrip(), 'a').write('served')\n"
            "    print('done', flush=True)\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout and self.process.stdout.readline() == "begun\n"
        self._until_it_sleeps()

    def write(self, path: str = "") -> None:
        assert self.process.stdin and self.process.stdout
        time.sleep(TICK)  # what is made within a tick of a look may have been there before it
        self.process.stdin.write(f"{path or self.path}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"
        self._until_it_sleeps()

    def _until_it_sleeps(self) -> None:
        stat = Path(f"/proc/{self.process.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.001)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def owners(workspace: AuditedWorkspace, path: str) -> tuple[str | None, tuple[str, ...]]:
    """The call that the last change of a path is said to be of, and those it is shared by."""
    [*_, last] = workspace.attachment.stored.tables.changes(paths=[path])
    calls = workspace.attachment.stored.tables
    return last.call_id, tuple(calls.call_at(seq).call_id for seq in last.causes)


def test_what_outlives_a_call_and_writes_during_another_shares_the_change(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:
        with session.recording("a", call_id="a") as first:
            one = Server(root, "log")
        with session.recording("b", call_id="b") as second:
            one.write()
            (root / "mine").touch()
        one.close()
    assert owners(workspace, "log") == ("b", ("b", "a"))
    assert first.coverage.level == "partial"
    assert f"left running: {one.process.pid} python" in first.coverage.reasons[0]
    assert second.coverage.level == "partial" and second.finish_event
    assert "shared with other commands" in second.coverage.reasons
    plan = workspace.plan_revert([second.finish_event.seq])
    assert first.finish_event
    [note] = [note for note in plan.kept if note.path == "log"]
    assert note.calls == (first.finish_event.seq,), "with whom it is shared"
    assert plan.is_empty and (root / "log").read_text() == "served"
    chosen = workspace.plan_revert([second.finish_event.seq], choices={"log": "old"})
    assert chosen.kept == () or all(note.path != "log" for note in chosen.kept)
    workspace.carry_out(chosen)
    assert not (root / "log").exists()


def test_what_outlives_a_call_and_does_not_run_has_no_part_in_what_another_changes(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:
        with session.recording("a"):
            one = Server(root, "log")
        with session.recording("b", call_id="b") as second:
            (root / "mine").touch()
        one.close()
    assert owners(workspace, "mine") == ("b", ())
    assert second.coverage.level == "full"


def test_what_runs_between_two_calls_has_its_change_recorded_before_the_second(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:
        with session.recording("a", call_id="a") as first:
            one = Server(root, "log")
        one.write()
        with session.recording("b", call_id="b") as second:
            (root / "mine").touch()
        one.close()
    # from outside, as a person may have made it; and perhaps of what a left running
    assert owners(workspace, "log") == (None, ("a",))
    assert owners(workspace, "mine") == ("b", ()) and second.coverage.level == "full"
    assert first.finish_event
    call = workspace.timeline.call(first.finish_event.seq).call
    assert workspace.timeline.changes_of(call) == () and call.changed == 0
    taken = first.finish_event.seq
    kept = workspace.plan_revert([taken])
    assert "log" not in {change.path for change in kept.changes}
    [note] = [note for note in kept.kept if note.path == "log"]
    assert note.calls == (taken,) and "from outside" in note.reason
    chosen = workspace.plan_revert([taken], choices={"log": "old"})
    assert "log" in {change.path for change in chosen.changes}
    back = workspace.plan_rollback(taken)
    [note] = [note for note in back.kept if note.path == "log"]
    assert taken in note.calls


def test_what_ended_between_two_looks_ran_between_them(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:
        with session.recording("a", call_id="a"):
            one = Server(root, "log")
        with session.recording("b", call_id="b"):
            one.write()
            one.close()
        with session.recording("c", call_id="c") as third:
            (root / "mine").touch()
    assert owners(workspace, "log") == ("b", ("b", "a"))
    assert owners(workspace, "mine") == ("c", ()) and third.coverage.level == "full"


def test_readings_are_compared_also_where_the_machine_is_busy(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their time is over at the first one, and nothing has been compared."""
    monkeypatch.setattr(survivors, "_READING_SECONDS", 0)
    account = survivors.Running(workspace.attachment)
    running = workspace.attachment.on_disk.processes.running()
    left, agreed = account.tasks_left_running(running, (), beside=())
    assert agreed and not left


@pytest.fixture
def busy() -> Iterator[None]:
    """Another program that starts and ends hundreds of processes a second."""
    loop = "while :; do /bin/true; done"
    argv = ["setsid", "sh", "-c", f"({loop}) > /dev/null 2>&1 & echo $!"]
    done = subprocess.run(argv, cwd="/", capture_output=True, check=True, text=True)
    yield
    os.kill(int(done.stdout), signal.SIGKILL)


@pytest.mark.usefixtures("busy")
def test_what_a_call_left_running_is_settled_beside_a_program_that_starts_others_all_the_time(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:
        for n in range(12):
            with session.recording("block") as block:
                subprocess.run(["sh", "-c", f"echo {n} > a.txt"], cwd=root, check=True)
            assert (block.coverage.level, block.coverage.reasons) == ("full", ())
        with session.recording("block") as block:
            one = Server(root, "log")
        one.close()
        assert [reason.split(":")[0] for reason in block.coverage.reasons] == ["left running"]


@pytest.mark.usefixtures("busy")
def test_a_daemon_whose_parents_have_ended_is_found_beside_a_busy_program(
    workspace: AuditedWorkspace, root: Path
) -> None:
    code = (
        "import os, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "open('pid', 'w').write(str(os.getpid()))\n"
        "time.sleep(1000)\n"
    )
    with workspace.session("agent") as session, session.recording("block") as block:
        subprocess.run([sys.executable, "-Sc", code], cwd=root, check=True)
    try:
        [reason] = block.coverage.reasons
        assert reason.startswith("left running: ")
    finally:
        while not (root / "pid").exists() or not (root / "pid").read_text():
            time.sleep(0.01)
        os.kill(int((root / "pid").read_text()), signal.SIGKILL)


def test_a_child_that_ended_and_that_nobody_waits_for_leaves_nothing_open(
    workspace: AuditedWorkspace,
) -> None:
    with workspace.session("agent") as session:
        with session.recording("block") as block:
            ended = subprocess.Popen(["true"])
            os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert block.coverage.level == "full"
        ended.wait()


def test_what_a_survivor_starts_is_a_survivor_too(workspace: AuditedWorkspace, root: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "sys.stdin.readline()\n"
        "child = subprocess.Popen(['sh', '-c', 'read x; echo $x > log; echo done'])\n"
        "sys.stdin.close()\nprint('began', flush=True)\nchild.wait()\n"
    )
    pipe = subprocess.PIPE
    with workspace.session("agent") as session:
        with session.recording("a", call_id="a"):
            argv = [sys.executable, "-uc", code]
            parent = subprocess.Popen(argv, cwd=root, stdin=pipe, stdout=pipe, bufsize=0)
        assert parent.stdin and parent.stdout
        parent.stdin.write(b"go\n")
        assert parent.stdout.readline() == b"began\n"
        with session.recording("b"):
            pass
        with session.recording("c", call_id="c"):
            parent.stdin.write(b"x\n")
            assert parent.stdout.readline() == b"done\n"
        parent.kill()
        parent.communicate()
    assert set(owners(workspace, "log")[1]) == {"a", "c"}


@pytest.mark.parametrize("how", ["&", "setsid"])
def test_what_a_shell_puts_in_the_background_is_a_survivor_though_its_parent_has_ended(
    workspace: AuditedWorkspace, root: Path, how: str
) -> None:
    os.mkfifo(root / "go")
    os.mkfifo(root / "told")
    script = "echo $$ > pid; read x < go; echo $x > log; echo > told"
    started = {"&": f"({script}) &", "setsid": f"setsid sh -c '{script}' &"}[how]
    with workspace.session("agent") as session:
        with session.recording("a", call_id="a"):
            subprocess.run(["sh", "-c", started], cwd=root, check=True)
            while not (root / "pid").exists():
                time.sleep(0.01)
        with session.recording("b", call_id="b"):
            (root / "go").write_text("x\n")
            (root / "told").read_text()
    assert set(owners(workspace, "log")[1]) == {"a", "b"}


def test_a_shell_that_ends_at_once_hides_no_survivor(
    workspace: AuditedWorkspace, root: Path
) -> None:
    for n in range(10):
        go, told = root.parent / f"go{n}", root.parent / f"told{n}"
        os.mkfifo(go)
        os.mkfifo(told)
        script = f"read x < {go}; echo $x > log{n}; echo > {told}"
        with workspace.session(f"agent{n}") as session:
            with session.recording("a", call_id=f"a{n}"):
                subprocess.run(["sh", "-c", f"setsid sh -c '{script}' &"], cwd=root, check=True)
            with session.recording("b", call_id=f"b{n}"):
                go.write_text("x\n")
                told.read_text()
        first = workspace.timeline.projections.call(session.id, f"a{n}")
        found = set(owners(workspace, f"log{n}")[1])
        assert found == {f"a{n}", f"b{n}"} or "not settled" in str(first.coverage.reasons)


def test_what_a_background_job_starts_is_its_calls_and_not_left_running_by_the_one_beside_it(
    workspace: AuditedWorkspace, root: Path
) -> None:
    job = "import subprocess, sys\nprint('up', flush=True)\nfor l in sys.stdin:\n"
    job += "    subprocess.Popen(['sleep', '60']); print('done', flush=True)\n"
    client = (
        "import subprocess, sys\n"
        "p = subprocess.PIPE\n"
        f"job = subprocess.Popen([sys.executable, '-c', {job!r}], stdin=p, stdout=p, text=True)\n"
        "for line in sys.stdin:\n"
        "    if line != 'begin\\n': job.stdin.write(line); job.stdin.flush()\n"
        "    job.stdout.readline(); print('done', flush=True)\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", "input()\n" + client],
        cwd=root,
        stdin=pipe,
        stdout=pipe,
        text=True,
        start_new_session=True,
    ) as one:
        assert one.stdin and one.stdout
        foreign = workspace.start_foreign_session("client", id="f", pid=one.pid)
        foreign.begin_call("a", "Bash", {"command": "job &"})
        for line in ("go\n", "begin\n"):
            one.stdin.write(line)
        one.stdin.flush()
        assert one.stdout.readline() == "done\n"
        foreign.end_call("a", "running")
        foreign.begin_call("b", "Bash", {"command": "true"})
        one.stdin.write("child\n")
        one.stdin.flush()
        assert one.stdout.readline() == "done\n"
        foreign.end_call("b")
        beside = workspace.timeline.projections.call("f", "b")
        os.killpg(one.pid, signal.SIGKILL)
    assert not any("left running" in reason for reason in beside.coverage.reasons)


def test_a_tool_that_says_what_it_changes_shares_it_with_no_survivor(
    workspace: AuditedWorkspace, root: Path
) -> None:
    async def writes(session: Session, one: Server) -> None:
        one.write()
        result = await session.call("write_file", {"path": "a", "content": "x"}, call_id="w")
        assert result.success
        one.write()

    with workspace.session("agent") as session:
        with session.recording("a"):
            one = Server(root, "log")
        anyio.run(writes, session, one)
        with session.recording("b"):
            one.write()
        one.close()
    assert owners(workspace, "a") == ("w", ())
    [written] = [call for call in workspace.timeline.calls() if call.tool == "write_file"]
    assert written.coverage.level == "full"


def test_what_a_survivor_changed_is_found_by_the_tool_that_writes_there(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:
        with session.recording("a", call_id="a"):
            one = Server(root, "log")
        one.write()
        result = anyio.run(session.call, "write_file", {"path": "log", "content": "x"})
        assert result.success
        one.close()
    found, written = [
        c
        for c in workspace.attachment.stored.tables.changes(paths=["log"])
        if c.origin != "command"
    ]
    assert (found.origin, len(found.causes)) == ("outside", 1)
    assert (written.origin, written.causes) == ("tool", ())


def test_a_function_that_went_on_past_its_limit_shares_what_is_found_while_it_runs(
    workspace: AuditedWorkspace, root: Path
) -> None:
    go_on, wrote, stop = threading.Event(), threading.Event(), threading.Event()

    @tool(timeout_seconds=0.3)
    def waits() -> None:
        """Waits for the test, then writes."""
        go_on.wait(60)
        (root / "late").touch()
        wrote.set()
        stop.wait(60)

    registry = ToolRegistry()
    registry.register(waits)
    with workspace.session("agent", registry=registry) as session:

        async def calls() -> None:
            assert (await session.call("waits", {}, call_id="f")).error.code == "TIMEOUT"

        anyio.run(calls)
        with session.recording("b", call_id="b"):
            (root / "mine").touch()
        with session.recording("c", call_id="c"):
            go_on.set()
            wrote.wait(60)
        stop.set()
    assert owners(workspace, "mine") == ("b", ())
    assert set(owners(workspace, "late")[1]) == {"c", "f"}
    [first] = [call for call in workspace.timeline.calls() if call.call_id == "f"]
    assert first.status == "running" and "left running" in first.coverage.reasons[0]


# --- what other programs leave running -------------------------------------------------------


def client(workspace: AuditedWorkspace) -> ForeignSession:
    return workspace.start_foreign_session("client", id="f", pid=os.getpid())


def test_what_a_client_leaves_running_is_found_below_its_process(
    workspace: AuditedWorkspace, root: Path
) -> None:
    foreign = client(workspace)
    foreign.begin_call("a", "Bash")
    one = Server(root, "log")
    foreign.end_call("a", "running")
    foreign.begin_call("b", "Bash")
    (root / "mine").touch()
    foreign.end_call("b")
    foreign.begin_call("c", "Bash")
    one.write()
    foreign.end_call("c")
    one.close()
    assert owners(workspace, "mine") == ("b", ())
    assert set(owners(workspace, "log")[1]) == {"a", "c"}


def test_a_call_that_its_client_says_goes_on_is_a_candidate_until_it_reports_the_end(
    workspace: AuditedWorkspace, root: Path
) -> None:
    foreign = client(workspace)
    foreign.begin_call("a", "Bash")
    foreign.end_call("a", "running")
    for number, name in enumerate(["b", "c", "d"]):
        foreign.begin_call(name, "Bash")
        (root / name).touch()
        if number == 1:
            foreign.end_call("a", "ok", "it is done")
        foreign.end_call(name)
    assert [set(owners(workspace, name)[1]) for name in "bcd"] == [{"a", "b"}, {"a", "c"}, set()]


def test_what_runs_for_another_open_call_is_not_left_running_by_the_one_that_ends(
    workspace: AuditedWorkspace, root: Path
) -> None:
    foreign = client(workspace)
    foreign.begin_call("a", "Bash")
    foreign.begin_call("b", "Bash")
    one = Server(root, "log")
    ended = foreign.end_call("a")
    one.write()
    foreign.end_call("b")
    assert owners(workspace, "log") == ("b", ())
    with workspace.session("agent") as session, session.recording("c", call_id="c"):
        one.write()
    one.close()
    assert owners(workspace, "log") == ("c", ("c", "b"))
    assert workspace.timeline.call(ended.seq).call.coverage.level == "full"


# --- commands --------------------------------------------------------------------------------


def test_a_command_that_is_to_keep_what_it_leaves_running_keeps_it(
    workspace: AuditedWorkspace, root: Path
) -> None:
    os.mkfifo(root / "go")
    os.mkfifo(root / "told")
    script = "(exec 2>&- >&-; read x < go; echo $x > log; echo > told) & echo $! > pid"
    with workspace.session("agent") as session:
        ran = session.run(["sh", "-c", script], keep=True)
        pid = int((root / "pid").read_text())
        assert ran.result.kept == (str(pid),) and ran.result.survivors == ()
        assert ran.coverage.reasons == (f"left running: {pid} sh",)
        with session.recording("b", call_id="b"):
            (root / "go").write_text("x\n")
            (root / "told").read_text()
    assert len(owners(workspace, "log")[1]) == 2
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_a_command_that_goes_on_beside_a_block_is_not_left_running_by_it(
    workspace: AuditedWorkspace, root: Path
) -> None:
    os.mkfifo(root / "go")
    os.mkfifo(root / "began")
    with workspace.session("agent") as session:
        argv = ["sh", "-c", "echo > began; read x < go"]
        command = threading.Thread(target=session.run, args=[argv])
        with session.recording("b") as block:
            command.start()
            (root / "began").read_text()
        (root / "go").write_text("x\n")
        command.join()
    assert not any("left running" in reason for reason in block.coverage.reasons)


def test_what_runs_for_another_open_block_is_not_left_running_by_the_one_that_ends(
    workspace: AuditedWorkspace, root: Path
) -> None:
    began, go_on = threading.Event(), threading.Event()
    with workspace.session("agent") as session:

        def block() -> None:
            with session.recording("a", call_id="a"):
                one = Server(root, "log")
                began.set()
                go_on.wait(60)
                one.write()
                one.close()

        thread = threading.Thread(target=block)
        with session.recording("b") as second:
            thread.start()
            began.wait(60)
        go_on.set()
        thread.join()
    assert second.coverage.reasons == ()
    assert owners(workspace, "log") == ("a", ())


def test_what_a_block_starts_while_a_command_runs_is_left_running_by_the_block(
    workspace: AuditedWorkspace, root: Path
) -> None:
    os.mkfifo(root / "go")
    os.mkfifo(root / "began")
    with workspace.session("agent") as session:
        argv = ["sh", "-c", "echo > began; read x < go"]
        command = threading.Thread(target=session.run, args=[argv])
        command.start()
        (root / "began").read_text()
        with session.recording("a", call_id="a"):
            one = Server(root, "log")
        (root / "go").write_text("x\n")
        command.join()
        with session.recording("b", call_id="b"):
            one.write()
        one.close()
    assert owners(workspace, "log") == ("b", ("b", "a"))


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_who_wrote_is_always_among_the_candidates_and_who_slept_is_not(
    workspace: AuditedWorkspace, root: Path, seed: int
) -> None:
    draw = random.Random(seed)
    servers: dict[str, Server] = {}
    wrote: dict[str, tuple[str, set[str]]] = {}  # by path: the block, and who ran in that window
    paths = (f"file {n}" for n in range(1000))

    def work(window: str, own: str | None) -> None:
        ran, made = {own} if own else set(), []
        for name in draw.sample([*servers], draw.randint(0, len(servers))):
            made.append(next(paths))
            servers[name].write(made[-1])
            ran.add(name)
        if own:
            made.append(next(paths))
            (root / made[-1]).touch()
        for path in made:
            wrote[path] = window, {name for name in ran if name}

    with workspace.session("agent") as session:
        for n in range(12):
            work("between", None)
            with session.recording("block", call_id=f"c{n}"):
                work("during", f"c{n}")
                if draw.random() < 0.4:
                    servers[f"c{n}"] = Server(root)
                elif servers and draw.random() < 0.3:
                    ended = draw.choice([*servers])
                    servers.pop(ended).close()
                    for _, who in wrote.values():
                        if f"c{n}" in who:
                            who.add(ended)
        with session.recording("block", call_id="last"):
            pass
    for one in servers.values():
        one.close()
    for path, (window, ran) in wrote.items():
        call_id, candidates = owners(workspace, path)
        assert {*candidates, *([call_id] if call_id else [])} == ran, (path, window)
        assert (call_id is None) == (window == "between")
