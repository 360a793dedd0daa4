"""Commands that go on between calls: what they reach, what they may write, and how they end."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.errors import PermissionDenied, StorageFailed
from loom_audit.history.ground.process_state import KeptBackground
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record import backgrounds
from loom_audit.model.backgrounds import BackgroundFinished, BackgroundStarted
from loom_audit.model.events import FilesChanged
from loom_audit.ports import Command, EventFilter
from loom_audit.sandbox import ConfiningRunner
from loom_audit.sandbox.bubblewrap import BubblewrapRunner
from loom_audit.sandbox.plain import PlainRunner
from loom_audit.tools.approvals.asking_gate import AskingGate
from loom_audit.tools.approvals.policy import read_policy
from loom_audit.tools.calls.gate import DenyAll
from loom_audit.tools.calls.settings import ToolSettings
from tests.sandbox.backends import working
from tests.tools.conftest import Bench

ECHO = 'while read line; do eval "$line"; echo said $?; done < $SCRATCH_DIR/orders'
"""A shell that does what is written into a pipe, and sleeps until then."""


@pytest.fixture(autouse=True)
def confined() -> None:
    working("bubblewrap")


def start(bench: Bench, command: str, **more: Any) -> str:
    result = bench.call("bash", {"command": command, "background": True, **more})
    assert result.success, result.output
    assert result.data["background"] and result.data["sandbox"] == "bubblewrap"
    return str(result.data["background"])


def printed(bench: Bench, id: str, wanted: str) -> str:
    """What it printed, until that is in it."""
    text = ""
    while wanted not in text:
        result = bench.call("bash_output", {"id": id, "wait": 30})
        assert result.success, result.output
        text += result.data["output"]
        assert wanted in text or result.data["running"], text
    return text


def ended(bench: Bench, id: str) -> dict[str, Any]:
    """What bash_output says when it has ended, with all that it printed."""
    known = bench.session.writer.attachment.process.backgrounds[bench.session.id].known
    known[id].command.wait(1 << 40, 60)
    data = bench.call("bash_output", {"id": id, "offset": 0}).data
    assert data is not None and not data["running"]
    return dict(data)


def until_written(path: Path) -> None:
    end = time.monotonic() + 30
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < end
        time.sleep(0.002)


class Told:
    """A background command that does what it is told, and sleeps in between."""

    def __init__(self, bench: Bench, **more: Any) -> None:
        self.bench = bench
        scratch = bench.session.writer.scratch
        assert scratch is not None
        self.pipe = Path(scratch.root) / "orders"
        os.mkfifo(self.pipe)
        self.id = start(bench, ECHO, **more)
        self.orders = self.pipe.open("w")

    def do(self, command: str) -> str:
        self.orders.write(command + "\n")
        self.orders.flush()
        return printed(self.bench, self.id, "said ")


@pytest.fixture
def told(bench: Bench) -> Iterator[Any]:
    made: list[Told] = []

    def make(**more: Any) -> Told:
        made.append(Told(bench, **more))
        return made[-1]

    yield make
    for one in made:
        one.orders.close()


def changes(bench: Bench, path: str) -> list[tuple[str, tuple[str, ...]]]:
    """Of whom each change of a path is said to be: the origin, and the ids of all candidates."""
    found: list[tuple[str, tuple[str, ...]]] = []
    call_at = bench.workspace.attachment.stored.tables.call_at
    for event in bench.events("files.changed"):
        fact = event.fact
        assert isinstance(fact, FilesChanged)
        if fact.origin != "baseline" and path in {change.path for change in fact.changes}:
            causes = tuple(call_at(int(seq)).call_id for seq in fact.causes if seq)
            found.append((fact.origin, causes or ((fact.call_id,) if fact.call_id else ())))
    return found


def ends(bench: Bench) -> list[BackgroundFinished]:
    return [
        e.fact
        for e in bench.events("background.finished")
        if isinstance(e.fact, BackgroundFinished)
    ]


# --- what it reaches ----------------------------------------------------------------------


def test_a_server_is_asked_from_beside_it_and_stopped(bench: Bench) -> None:
    id = start(bench, "/usr/bin/python3 -u -m http.server 8000")
    assert id == "bg1"
    printed(bench, id, "Serving HTTP")
    beside_nobody = bench.call("bash", {"command": "curl -sS localhost:8000/notes.txt"})
    assert beside_nobody.output.endswith(
        '[bg1 runs in a sandbox of its own: with in="bg1" a command reaches its localhost]'
    )
    asked = bench.call("bash", {"command": "curl -s localhost:8000/notes.txt", "in": id})
    assert asked.success and asked.data["stdout"] == "first\r\nsecond\r\nthird"
    assert "GET /notes.txt" in printed(bench, id, "200")
    stopped = bench.call("bash_stop", {"id": id})
    assert stopped.success and stopped.data["running"] is False
    assert [(one.name, one.how) for one in ends(bench)] == [("bg1", "stopped")]
    bench.assert_every_call_has_one_finish()


def test_it_is_on_record_as_started_before_its_call_ends(bench: Bench) -> None:
    start(bench, "sleep 600", writes=["src"])
    [event] = bench.events("background.started")
    assert isinstance(event.fact, BackgroundStarted)
    assert [one.path for one in event.fact.writes] == ["src"] and event.fact.writes[0].identity
    finish = bench.last()
    assert finish.call_id == event.fact.call_id and finish.status == "ok"
    assert (finish.coverage.level, finish.coverage.reasons) == ("partial", ("left running: bg1",))


def test_a_command_beside_it_shares_its_places_and_nothing_outlives_one(bench: Bench) -> None:
    id = start(bench, "echo here > /tmp/mark; echo made; sleep 600")
    printed(bench, id, "made")
    beside = {"in": id}
    assert bench.call("bash", {"command": "cat /tmp/mark", **beside}).data["stdout"] == "here\n"
    assert (
        bench.call("bash", {"command": "pgrep -x sleep | wc -l", **beside}).data["stdout"] == "1\n"
    )
    left = bench.call("bash", {"command": "setsid sleep 500 >/dev/null 2>&1 & true", **beside})
    assert "sleep" in left.data["survivors"][0]
    assert bench.call("bash", {"command": "cat", **beside}).success, "its input is empty"
    late = bench.call("bash", {"command": "echo begun; sleep 60", "timeout": 1, **beside})
    assert late.error.code == "TIMEOUT" and late.data["stdout"] == "begun\n"
    assert (
        bench.call("bash", {"command": "pgrep -x sleep | wc -l", **beside}).data["stdout"] == "1\n"
    )


def test_the_workspace_is_read_only_but_for_its_folders(bench: Bench) -> None:
    (bench.root / "out").mkdir()
    id = start(
        bench,
        "echo a > out/mine; echo b > src/main.py; rm notes.txt; mkdir made; mv out src/;"
        " chmod 700 src; echo all tried",
        writes=["out"],
    )
    printed(bench, id, "all tried")
    ended(bench, id)
    assert bench.call("bash", {"command": "true"}).success
    assert changes(bench, "out/mine") == [("outside", (bench.requested()[0].call_id,))]
    assert bench.tree()["src/main.py"] == b"import os\n\nprint('one')\nprint('two')\n"
    assert {"notes.txt", "out/mine"} <= {*bench.tree()} and "made" not in bench.tree()
    bench.assert_log_agrees_with_disk()


def test_a_command_beside_it_writes_what_it_may_and_owns_that(bench: Bench) -> None:
    (bench.root / "out").mkdir()
    id = start(bench, "sleep 600", writes=["out"])
    done = bench.call("bash", {"command": "echo a > out/a; echo b > b", "in": id, "cwd": "."})
    assert not done.success and "Read-only" in done.data["stderr"]
    assert done.files_changed == ["out/a"]


def test_what_changes_meanwhile_where_a_command_beside_it_cannot_write_is_not_its(
    bench: Bench,
) -> None:
    (bench.root / "out").mkdir()
    id = start(bench, "sleep 600", writes=["out"])

    def person() -> None:
        until_written(bench.root / "out/a")
        (bench.root / "notes.txt").write_text("a person's")
        (bench.root / "done").write_text("a person's")

    writing = threading.Thread(target=person)
    writing.start()
    wait = "echo a > out/a; until [ -e done ]; do sleep 0.01; done"
    done = bench.call("bash", {"command": wait, "in": id})
    writing.join()
    assert done.files_changed == ["out/a"]
    assert changes(bench, "notes.txt") == [("outside", ())]
    assert changes(bench, "out/a")[0][0] == "command"


def test_it_reaches_nobody_on_the_loopback_of_the_machine(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as dashboard:
        port = dashboard.getsockname()[1]
        id = start(bench, f"curl -sS http://127.0.0.1:{port}/ 2>&1; echo tried")
        assert "Failed to connect" in printed(bench, id, "tried") or "refused" in printed(
            bench, id, ""
        )
        dashboard.settimeout(0)
        with pytest.raises(BlockingIOError):
            dashboard.accept()


# --- whose its changes are ----------------------------------------------------------------


def test_what_it_changes_between_calls_has_it_as_candidate_there_alone(
    bench: Bench, told: Any
) -> None:
    (bench.root / "out").mkdir()
    one = told(writes=["out"])
    first = bench.requested()[-1].call_id
    one.do("echo served > out/log")
    (bench.root / "notes.txt").write_text("a person's")
    bench.call("bash", {"command": "true"})
    assert changes(bench, "out/log") == [("outside", (first,))]
    assert changes(bench, "notes.txt") == [("outside", ())]
    assert bench.last().coverage.level == "full"


def test_what_it_changes_as_it_begins_has_it_as_candidate_though_it_sleeps_since(
    bench: Bench,
) -> None:
    (bench.root / "out").mkdir()
    start(bench, "echo at once > out/x; exec sleep 600", writes=["out"])
    until_written(bench.root / "out/x")
    first = bench.requested()[0].call_id
    for _ in range(2):
        bench.call("bash", {"command": "true"})
    assert changes(bench, "out/x") == [("outside", (first,))]


def test_one_that_has_ended_before_its_call_is_started_all_the_same(bench: Bench) -> None:
    (bench.root / "out").mkdir()
    for n in range(4):
        id = start(bench, f"echo {n} > out/{n}; exit {n}", writes=["out"])
        assert ended(bench, id)["exit_code"] == n
    assert [(end.name, end.exit_code) for end in ends(bench)] == [
        (f"bg{n + 1}", n) for n in range(4)
    ]
    bench.call("bash", {"command": "true"})
    ids = [fact.call_id for fact in bench.requested() if fact.tool == "bash"]
    for n in range(4):
        assert changes(bench, f"out/{n}") == [("outside", (ids[n],))]


def test_what_it_changes_during_another_command_is_shared_with_that(
    bench: Bench, told: Any
) -> None:
    (bench.root / "out").mkdir()
    one = told(writes=["out"])
    first = bench.requested()[-1].call_id
    command = "echo 'echo served > out/log' > $SCRATCH_DIR/orders; echo x > own"
    wait = "; until [ -s out/log ]; do :; done"
    bench.call("bash", {"command": command + wait}, call_id="second")
    one.do("true")
    assert changes(bench, "out/log") == [("command", ("second", first))]
    assert changes(bench, "own") == [("command", ("second",))]
    [second] = [fact for fact in bench.finished() if fact.call_id == "second"]
    assert "shared with other commands" in second.coverage.reasons


def test_one_that_may_write_nothing_is_a_candidate_nowhere(bench: Bench, told: Any) -> None:
    one = told()
    one.do("echo x > notes.txt")
    (bench.root / "notes.txt").write_text("a person's")
    bench.call("bash", {"command": "true"})
    assert changes(bench, "notes.txt") == [("outside", ())]


def test_where_its_folder_was_moved_it_may_have_written_anywhere(bench: Bench, told: Any) -> None:
    """Trap: what is mounted on a folder in another namespace moves with the folder."""
    (bench.root / "out").mkdir()
    one = told(writes=["out"])
    first = bench.requested()[-1].call_id
    bench.call("bash", {"command": "mv out elsewhere"})
    one.do("echo agent > elsewhere/log")
    (bench.root / "notes.txt").write_text("maybe a person's")
    bench.call("bash", {"command": "true"})
    assert changes(bench, "elsewhere/log") == [("outside", (first,))]
    assert changes(bench, "notes.txt") == [("outside", (first,))], "nobody can tell"


@pytest.mark.parametrize("said", ["", "closed"])
def test_where_it_is_not_known_which_folder_is_there_it_may_have_written_anywhere(
    bench: Bench, told: Any, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """On a filesystem that tells no identity, or where a folder above forbids to look."""
    (bench.root / "out").mkdir()
    identity = DiskWorkspace.identity

    def unknown(self: DiskWorkspace, path: str) -> str:
        if said and path == "out":
            raise PermissionDenied("out cannot be read")
        return identity(self, path) if said else ""

    with monkeypatch.context() as patched:
        if not said:
            patched.setattr(DiskWorkspace, "identity", unknown)
        one = told(writes=["out"])
        first = bench.requested()[-1].call_id
        patched.setattr(DiskWorkspace, "identity", unknown)
        (bench.root / "out").rename(bench.root / "elsewhere")
        assert bench.call("bash", {"command": "true"}).success
        one.do("echo agent > elsewhere/log")
        assert bench.call("bash", {"command": "true"}).success
    assert changes(bench, "elsewhere/log") == [("outside", (first,))]


def test_a_file_that_was_moved_out_of_its_folder_it_may_have_written_there(
    bench: Bench, told: Any
) -> None:
    """Trap: what it has open moves with the file, and so does a log that is put away."""
    (bench.root / "out").mkdir()
    one = told(writes=["out"])
    first = bench.requested()[-1].call_id
    one.do("exec 9>> out/log; echo begun >&9")
    bench.call("bash", {"command": "mv out/log src/log"})
    bench.call("bash", {"command": "mkdir kept && mv src/log kept"})
    one.do("echo agent >&9")
    (bench.root / "notes.txt").write_text("a person's")
    bench.call("bash", {"command": "true"})
    assert (bench.root / "kept/log").read_text() == "begun\nagent\n"
    assert changes(bench, "kept/log")[-1] == ("outside", (first,))
    assert changes(bench, "notes.txt") == [("outside", ())]


def test_by_another_name_of_a_file_it_may_have_written_elsewhere(bench: Bench, told: Any) -> None:
    (bench.root / "out").mkdir()
    one = told(writes=["out"])
    first = bench.requested()[-1].call_id
    bench.call("bash", {"command": "ln src/main.py out/main.py"})
    one.do("echo agent > out/main.py")
    bench.call("bash", {"command": "true"})
    assert changes(bench, "src/main.py")[-1] == ("outside", (first,))


def test_undoing_its_call_takes_back_what_it_made_and_lists_what_was_there(
    bench: Bench, told: Any
) -> None:
    (bench.root / "out").mkdir()
    (bench.root / "out/old").write_text("before")
    one = told(writes=["out"])
    first = bench.last()
    number = next(e.seq for e in bench.events("call.finished") if e.fact == first)
    one.do("echo made > out/new; echo after > out/old")
    bench.call("bash_stop", {"id": one.id})
    plan = bench.workspace.plan_revert([number])
    assert [change.path for change in plan.changes] == ["out/new"]
    assert "out/old" in {note.path for note in plan.kept}
    bench.workspace.carry_out(plan)
    assert not (bench.root / "out/new").exists()
    assert (bench.root / "out/old").read_text() == "after\n"
    assert bench.workspace.verify().findings == ()


# --- how it ends --------------------------------------------------------------------------


def test_one_that_ends_by_itself_says_so_and_nothing_runs_beside_it_any_more(
    bench: Bench,
) -> None:
    id = start(bench, "echo last words; exit 3")
    assert ended(bench, id) | {"offset": 0} == {
        "id": id,
        "running": False,
        "exit_code": 3,
        "output": "last words\n",
        "offset": 0,
        "next_offset": 11,
        "left_out": 0,
    }
    [end] = ends(bench)
    assert (end.how, end.exit_code, end.printed, end.output) == ("exited", 3, 11, "last words\n")
    [call] = [one for one in bench.workspace.timeline.calls() if one.call_id == end.call_id]
    assert call.seq is not None
    assert end in [event.fact for event in bench.workspace.timeline.call(call.seq).events]
    refused = bench.call("bash", {"command": "true", "in": id})
    assert refused.error.code == "EXECUTION_ERROR" and "has ended" in refused.output
    assert bench.call("bash_stop", {"id": id}).data["exit_code"] == 3
    assert len(ends(bench)) == 1


def test_what_it_left_behind_by_setsid_ends_with_it(bench: Bench) -> None:
    mark = f"4{os.getpid()}"
    id = start(bench, f"setsid sh -c 'setsid sleep {mark} & sleep {mark}' & echo on; sleep {mark}")
    printed(bench, id, "on")
    bench.call("bash_stop", {"id": id})
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in lines if line.split(b"\0")[:2] == [b"sleep", mark.encode()]]


def test_one_that_does_not_end_when_asked_is_killed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.sandbox.background.STOP_SECONDS", 0.05)
    id = start(bench, "trap '' TERM; echo on; while :; do sleep 1; done")
    printed(bench, id, "on")
    stopped = bench.call("bash_stop", {"id": id})
    assert stopped.data["exit_code"] == 137 and "was stopped" in stopped.output


def test_a_command_beside_it_that_kills_all_it_sees_ends_it(bench: Bench) -> None:
    id = start(bench, "sleep 600")
    killed = bench.call("bash", {"command": "kill -9 -1; sleep 60", "in": id})
    assert not killed.success
    assert ended(bench, id)["exit_code"] == 137
    bench.assert_every_call_has_one_finish()


def test_the_end_of_the_session_ends_it_with_what_it_changed_on_record(bench: Bench) -> None:
    workspace = bench.workspace
    (bench.root / "out").mkdir()
    with workspace.session("another") as session:

        async def run() -> str:
            order = {"command": "echo x > out/x; echo on; sleep 600", "writes": ["out"]}
            started = await session.call("bash", {**order, "background": True})
            id = str(started.data["background"])
            await session.call("bash_output", {"id": id, "wait": 30})
            return id

        id = anyio.run(run)
        call = workspace.timeline.calls()[-1]
    [end] = ends(bench)
    assert (end.name, end.how, end.output) == (id, "closed", "on\n")
    [change] = workspace.attachment.stored.tables.changes(paths=["out/x"])
    assert change.causes == (call.requested,)
    assert workspace.status().drift == ()
    assert workspace.verify().findings == ()


def test_an_end_that_is_just_being_recorded_when_the_session_ends_is_recorded_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording, go_on = threading.Event(), threading.Event()
    append = backgrounds._append_end

    def slow(writer: Writer, one: KeptBackground) -> None:
        if threading.current_thread().name == "loom-audit background":
            recording.set()
            assert go_on.wait(60)
        append(writer, one)

    monkeypatch.setattr(backgrounds, "_append_end", slow)
    with bench.workspace.session("another") as session:
        # one that ended before the call did would be recorded in the thread of the call
        order = {"command": "until [ -e go ]; do sleep 0.01; done", "background": True}
        assert anyio.run(lambda: session.call("bash", order)).success
        (bench.root / "go").touch()
        assert recording.wait(60)
        # what ends the session has to wait for it
        threading.Timer(0.2, go_on.set).start()
    for thread in threading.enumerate():
        if thread.name == "loom-audit background":
            thread.join()
    assert [(one.name, one.how) for one in ends(bench)] == [("bg1", "exited")]
    kinds = [e.fact.kind for e in bench.workspace.log.read(EventFilter(session=session.id))]
    over = [kind for kind in kinds if kind in ("background.finished", "session.ended")]
    assert over == ["background.finished", "session.ended"]


def test_output_without_end_is_bounded_and_its_end_is_kept(bench: Bench) -> None:
    id = start(bench, "head -c 3000000 /dev/zero | tr '\\0' x; echo the end; sleep 600")
    printed(bench, id, "the end")
    all_kept = bench.call("bash_output", {"id": id, "offset": 0})
    assert all_kept.data["output"].endswith("the end\n")
    assert all_kept.data["next_offset"] == 3_000_008
    assert all_kept.data["left_out"] == 3_000_008 - len(all_kept.data["output"])
    assert "the last 1 MiB is kept" in all_kept.full_output
    known = bench.session.writer.attachment.process.backgrounds[bench.session.id].known[id]
    assert len(known.command.output(0)[0]) == 1 << 20
    page = bench.call("bash_output", {"id": id, "offset": 3_000_000})
    assert page.data["output"] == "the end\n"


# --- what is refused ----------------------------------------------------------------------


def test_where_its_start_is_cancelled_nothing_goes_on(bench: Bench) -> None:
    async def cancelled() -> None:
        order = {"command": "sleep 600", "background": True}
        for seconds in (0, 0.02, 0.06, 0.1, 0.2):
            with anyio.move_on_after(seconds) as scope:
                await bench.acall("bash", order)
            known = bench.session.writer.attachment.process.backgrounds[bench.session.id].known
            runs = [one for one in known.values() if not one.command.is_over]
            assert not runs or not scope.cancelled_caught
            for one in runs:
                assert (await bench.acall("bash_stop", {"id": one.name})).success

    anyio.run(cancelled)
    bench.assert_every_call_has_one_finish()
    assert len(ends(bench)) == len(bench.events("background.started"))


def test_a_link_above_its_folder_that_comes_after_the_check_leads_it_nowhere(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.root / "a/out").mkdir(parents=True)
    (tmp_path / "elsewhere/out").mkdir(parents=True)
    start_now = BubblewrapRunner.start

    def swapped(self: Any, root: str, command: Command, inodes: Any) -> Any:
        (bench.root / "a").rename(bench.root / "b")
        (bench.root / "a").symlink_to(tmp_path / "elsewhere")
        return start_now(self, root, command, inodes)

    monkeypatch.setattr(BubblewrapRunner, "start", swapped)
    order = {"command": "echo x > a/out/x; sleep 600", "background": True, "writes": ["a/out"]}
    refused = bench.call("bash", order)
    assert refused.error.code == "EXECUTION_ERROR" and bench.events("background.started") == []
    assert not [*(tmp_path / "elsewhere/out").iterdir()]


def test_where_nothing_can_be_kept_of_it_it_is_stopped_and_what_it_did_is_its_calls(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.root / "out").mkdir()
    looks = bench.session.writer.attachment.on_disk.looks
    keep = type(looks).keep

    def full(self: Any, name: str, value: Any) -> None:
        if name == "survivors":
            until_written(bench.root / "out/x")
            raise StorageFailed("no space left")
        keep(self, name, value)

    monkeypatch.setattr(type(looks), "keep", full)
    order = {"command": "echo x > out/x; exec sleep 600", "background": True, "writes": ["out"]}
    refused = bench.call("bash", order)
    assert refused.error.code == "AUDIT_UNAVAILABLE" and refused.files_changed == ["out/x"]
    assert changes(bench, "out/x") == [("command", (bench.last().call_id,))]
    kept = bench.session.writer.attachment.process.backgrounds[bench.session.id]
    assert kept.known == {} and bench.events("background.started") == []
    bench.assert_log_agrees_with_disk()


def test_nine_at_once_are_refused_and_one_that_ended_makes_room(bench: Bench) -> None:
    ids = [start(bench, "sleep 600") for _ in range(8)]
    assert ids == [f"bg{n}" for n in range(1, 9)]
    refused = bench.call("bash", {"command": "sleep 600", "background": True})
    assert refused.error.code == "CONFLICT" and "bg1, bg2" in refused.output
    bench.call("bash_stop", {"id": "bg3"})
    assert start(bench, "sleep 600") == "bg9"


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("folder", "code"),
    [
        ("..", "INVALID_PATH"),
        (".", "INVALID_PATH"),
        ("/etc", "INVALID_PATH"),
        ("link", "INVALID_PATH"),
        ("link/deeper", "INVALID_PATH"),
        ("inner", "INVALID_PATH"),
        (".git", "INVALID_PATH"),
        (".git/hooks", "INVALID_PATH"),
        ("src/.GIT", "INVALID_PATH"),
        ("node_modules", "INVALID_PATH"),
        ("node_modules/x", "INVALID_PATH"),
        ("notes.txt", "NOT_A_DIRECTORY"),
        ("missing", "FILE_NOT_FOUND"),
    ],
)
def test_what_it_cannot_be_given_to_write(
    bench: Bench, tmp_path: Path, folder: str, code: str
) -> None:
    for name in (".git/hooks", "node_modules/x", "src/.GIT"):
        (bench.root / name).mkdir(parents=True)
    (tmp_path / "elsewhere/deeper").mkdir(parents=True)
    (bench.root / "link").symlink_to(tmp_path / "elsewhere")
    (bench.root / "inner").symlink_to("src")
    refused = bench.call("bash", {"command": "true", "background": True, "writes": [folder]})
    assert refused.error.code == code and refused.error.hint
    assert bench.events("background.started") == []
    bench.assert_every_call_has_one_finish()


@pytest.mark.parametrize(
    "more",
    [
        {"background": True, "in": "bg1"},
        {"background": True, "timeout": 5},
        {"writes": ["src"]},
        {"in": "bg1", "writes": ["src"]},
        {"background": True, "writes": ["src"] * 17},
    ],
)
def test_arguments_that_say_nothing_together(bench: Bench, more: dict[str, Any]) -> None:
    refused = bench.call("bash", {"command": "true", **more})
    assert refused.error.code == "INVALID_ARGUMENTS"


def test_an_id_that_is_not_known_names_those_that_are(bench: Bench) -> None:
    for tool, more in (
        ("bash", {"command": "true", "in": "bg7"}),
        ("bash_output", {"id": "bg7"}),
        ("bash_stop", {"id": "bg7"}),
    ):
        assert "It has started none" in bench.call(tool, more).output
    start(bench, "sleep 600")
    refused = bench.call("bash_output", {"id": "bg7"})
    assert refused.error.code == "NOT_FOUND" and "It has bg1 (runs)" in refused.output


def test_where_one_call_is_the_session_it_is_refused(bench: Bench) -> None:
    order = {"command": "touch made", "background": True}
    with bench.workspace.session("one", background=False) as session:
        refused = anyio.run(session.call, "bash", order)
    assert refused.error is not None and refused.error.code == "CONFLICT"
    assert "ends with it" in refused.output and not (bench.root / "made").exists()


def test_without_confinement_it_is_refused(bench: Bench) -> None:
    order = {"command": "touch made", "background": True}
    nowhere = ConfiningRunner(PlainRunner, list)
    refused = bench.call("bash", order, runner=nowhere)
    assert refused.error.code == "EXECUTION_ERROR" and "bubblewrap" in refused.output
    refused = bench.call("bash", order, settings=ToolSettings(confinement="off"))
    assert refused.error.code == "EXECUTION_ERROR" and "tools.toml" in refused.output
    assert not (bench.root / "made").exists() and bench.events("background.started") == []


@pytest.mark.few(1)
@pytest.mark.parametrize("effect", ["network", "write", "execute"])
def test_a_gate_that_denies_one_of_its_effects_denies_it_and_what_joins_it(
    bench: Bench, effect: str
) -> None:
    id = start(bench, "sleep 600")
    gates = (
        DenyAll(effect),
        AskingGate(read_policy({"rule": [{"effect": effect, "action": "deny"}]})),
        AskingGate(read_policy({"rule": [{"effect": effect, "action": "ask"}]}), wait=False),
    )
    for gate in gates:
        for more in ({"in": id}, {"background": True}):
            refused = bench.call("bash", {"command": "true", **more}, gate=gate)
            assert refused.error.code == "APPROVAL_DENIED"


def test_a_rule_that_allows_what_executes_alone_does_not_allow_it(bench: Bench) -> None:
    id = start(bench, "sleep 600", writes=["src"])
    rules = [{"effect": "execute", "action": "allow"}, {"tool": "*", "action": "deny"}]
    gate = AskingGate(read_policy({"rule": rules}))
    assert bench.call("bash", {"command": "true"}, gate=gate).success
    assert bench.call("bash", {"command": "true", "in": id}, gate=gate).error
    folder = [{"path": "src", "action": "deny"}]
    gate = AskingGate(read_policy({"rule": folder}))
    assert bench.call("bash", {"command": "true"}, gate=gate).success
    for more in ({"in": id}, {"background": True, "writes": ["./src"]}):
        assert bench.call("bash", {"command": "true", **more}, gate=gate).error


def test_the_blocklist_holds_for_it(bench: Bench) -> None:
    for more in ({"background": True}, {"in": "bg1"}):
        refused = bench.call("bash", {"command": "rm -rf /", **more})
        assert refused.error.code == "BLOCKED_COMMAND"
