"""Hooks that could not be handed over: noted, and what their sessions did is asked later."""

import json
import os
import posix
import resource
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, AuditStore, hook_client, open_store
from loom_audit.api.agents import failed_hooks
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.agents.launcher import SOCKET, write_launcher
from loom_audit.api.upkeep.doctor import check_all
from loom_audit.config import read_settings
from loom_audit.daemon import HookServer
from loom_audit.disk.machine.spool import RESERVED, Spool
from loom_audit.model.conversation import PromptSubmitted
from loom_audit.model.events import HookFailed
from tests.places.small_disks import fill_up, mounting
from tests.processes.forked import Forked
from tests.processes.hooked import HookedClaude
from tests.test_daemon import client_of, pre_tool_use, run_hook
from tests.test_daemon import store as store


@pytest.fixture
def home(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder whose warm process cannot be started."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setattr("loom_audit.api.agents.clients._MOMENT", -failed_hooks._LONGEST_AGO)
    (data_folder / "hooks" / "daemon").write_bytes(b"/bin/false\0")
    return data_folder


@pytest.fixture
def root(repository: Path) -> Path:
    return repository


@pytest.fixture
def workspace(store: AuditStore, root: Path) -> AuditedWorkspace:
    return store.attach(root)


@pytest.fixture
def transcripts(tmp_path: Path) -> Path:
    folder = tmp_path / "claude" / "projects" / "p"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def claude(home: Path, root: Path, transcripts: Path) -> HookedClaude:
    return client_of(home, root, transcripts)


@pytest.fixture
def spool(home: Path) -> Path:
    return home / "hooks" / "spool"


def failures(workspace: AuditedWorkspace) -> list[HookFailed]:
    facts = [event.fact for event in workspace.log.read()]
    return [fact for fact in facts if isinstance(fact, HookFailed)]


def take_up(store: AuditStore) -> None:
    hooks = Hooks(store)
    hooks.take_up()
    hooks.close()


def test_a_session_none_of_whose_hooks_came_through_is_on_record_afterwards(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, root: Path, spool: Path
) -> None:
    claude.hook("SessionStart", source="startup")
    claude.hook("UserPromptSubmit", prompt="do it", prompt_id="p1")
    claude.write("user", {"type": "text", "text": "do it"}, promptId="p1")
    claude.bash("c1", "touch b", (root / "b").touch)
    claude.bash("c2", "touch c", (root / "c").touch)
    claude.hook("SessionEnd", reason="exit")
    assert spool.stat().st_mode & 0o777 == 0o600
    [waiting] = failed_hooks.waiting(store.adapters.settings)
    assert (waiting.client, waiting.session, waiting.count) == ("claude-code", "s1", 7)
    assert workspace.log.head() == workspace.status().head, "who looks records nothing"
    take_up(store)
    calls = {call.call_id: call for call in workspace.timeline.calls()}
    assert [calls[id].status for id in ("c1", "c2")] == ["ok", "ok"]
    assert all(call.coverage.reasons == ("no hook",) for call in calls.values())
    assert workspace.timeline.session("s1").ended is not None
    facts = [event.fact for event in workspace.log.read()]
    assert [fact.text for fact in facts if isinstance(fact, PromptSubmitted)] == ["do it"]
    assert failures(workspace) == [HookFailed("claude-code", "s1", 7)]
    assert not failed_hooks.waiting(store.adapters.settings)
    head = workspace.log.head()
    take_up(store)
    assert workspace.log.head() == head and workspace.verify().findings == ()


def test_a_workspace_without_the_session_gets_from_a_line_only_that_a_hook_failed(
    home: Path, workspace: AuditedWorkspace, store: AuditStore, root: Path, tmp_path: Path
) -> None:
    """The transcript lies elsewhere, so nothing that it says is believed."""
    claude = client_of(home, root, tmp_path)
    claude.bash("c1", "touch b", (root / "b").touch)
    take_up(store)
    assert failures(workspace) == [HookFailed("claude-code", "s1", 2)]
    assert [*workspace.timeline.calls()] == [] and [*workspace.timeline.sessions()] == []


@pytest.mark.parametrize("lie", ["link", "other session", "other folder", "fifo", "not there"])
def test_a_line_that_lies_about_its_transcript_gives_only_that_a_hook_failed(
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    store: AuditStore,
    root: Path,
    transcripts: Path,
    tmp_path: Path,
    lie: str,
) -> None:
    elsewhere = tmp_path / "lying.jsonl"
    writing = HookedClaude(lambda _: b"", root, elsewhere)
    claude.bash("c1", "touch b", (root / "b").touch)
    true = claude.transcript
    if lie == "other session":
        writing.session = "s2"
    if lie == "other folder":
        writing.root = tmp_path
    writing.bash("forged", "rm -rf /")
    true.unlink()
    if lie == "link":
        true.symlink_to(elsewhere)
    elif lie in ("other session", "other folder"):
        true.write_bytes(elsewhere.read_bytes())
    elif lie == "fifo":
        os.mkfifo(true)
    take_up(store)
    assert [fact.count for fact in failures(workspace)] == [2]
    assert [*workspace.timeline.calls()] == []


def test_a_line_that_lies_takes_the_place_of_no_other(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, root: Path, spool: Path
) -> None:
    claude.bash("c1", "true")
    now = datetime.now(UTC).timestamp()
    with spool.open("a") as lines:
        lines.write(f"loom-failed 1 {now:.3f}\tclaude-code\tStop\ts1\t\t/etc\t/etc/passwd\n")
    take_up(store)
    assert {call.call_id for call in workspace.timeline.calls()} == {"c1"}


HOSTILE = (
    b"",
    b"\n\n\n",
    b"\xff" * 70_000,
    b"x" * 5000 + b"\n",
    b"loom-failed 1 1e400\tclaude-code\n",
    b"loom-failed 1 nan\tclaude-code\tStop\ts1\t\t/\t/\n",
    b"loom-failed 1 0\tclaude-code\tStop\ts1\t\t/\t/etc/passwd\n",
    b"loom-failed 1 %.3f\tnobody\tStop\ts1\t\t/\t/etc/passwd\n",
    b"loom-failed 1 %.3f\tclaude-code\tStop\t../../x\x1b[2J\t\t/\t/etc/passwd\n",
    b"loom-failed 1 %.3f\tclaude-code\tStop\ts9\t\t/etc\t/etc/passwd\n",
    b"loom-failed 1 %.3f\tclaude-code\tStop\ts9\t\t/etc\t/etc/\0passwd\n",
    b"loom-failed 1 %.3f\tclaude-code\tStop\ts9\t\t\xff\xfe\t\xff\xfe\n",
    b"loom-failed 1 %.3f\tclaude-code\tStop\ts9\ttorn",
    b"loom-failed 1 %.3f" + b"\tx" * 50 + b"\n",
)


@pytest.mark.few(4)
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_what_no_hook_wrote_into_the_spool_changes_nothing(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, spool: Path, number: int
) -> None:
    now = datetime.now(UTC).timestamp()
    hostile = HOSTILE[number]
    head = workspace.log.head()
    spool.write_bytes(hostile % now if b"%" in hostile else hostile)
    claude.bash("c1", "true")
    take_up(store)
    assert {fact.session for fact in failures(workspace)} <= {"s1"}
    assert {call.call_id for call in workspace.timeline.calls()} <= {"c1"}
    assert workspace.log.head() > head
    assert not failed_hooks.waiting(store.adapters.settings)


@pytest.mark.parametrize("kind", ["fifo", "symlink", "hard link", "folder", "socket"])
def test_what_stands_in_place_of_the_spool_is_not_written_and_hangs_nobody(
    home: Path,
    root: Path,
    workspace: AuditedWorkspace,
    store: AuditStore,
    spool: Path,
    tmp_path: Path,
    kind: str,
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine\n")
    if kind == "fifo":
        os.mkfifo(spool)
    elif kind == "symlink":
        spool.symlink_to(precious)
    elif kind == "hard link":
        spool.hardlink_to(precious)
    elif kind == "folder":
        spool.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(spool))
    done = run_hook(home, pre_tool_use(root), "claude-code", cwd=root)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    head = workspace.log.head()
    take_up(store)
    assert workspace.log.head() == head and precious.read_bytes() == b"mine\n"


def test_a_line_is_at_most_a_page_and_one_write(home: Path, root: Path, spool: Path) -> None:
    given = json.loads(pre_tool_use(root)) | {"transcript_path": "/" + "t" * 9000}
    run_hook(home, json.dumps(given).encode(), "claude-code", cwd=root)
    [line] = spool.read_bytes().split(b"\n")[1:-1]
    told = [b"claude-code", b"PreToolUse", b"s1", b"c1", os.fsencode(root)]
    assert len(line) < 4096 and line.split(b"\t")[1:] == told


def test_hooks_that_fail_while_the_spool_is_taken_are_all_on_record(
    home: Path, root: Path, workspace: AuditedWorkspace, store: AuditStore
) -> None:
    """Each is written into the file that has the name when it was written."""
    taking = Spool(home / "hooks")
    lines: list[bytes] = []
    stop = threading.Event()

    def take() -> None:
        while not stop.is_set():
            with taking.taken() as (taken, _):
                lines.extend(taken)

    def fail(n: int) -> None:
        data = pre_tool_use(root, f"s{n}")
        for _ in range(10):
            run_hook(home, data, "claude-code", cwd=root)

    taker = threading.Thread(target=take)
    taker.start()
    failing = [threading.Thread(target=fail, args=(n,)) for n in range(4)]
    for one in failing:
        one.start()
    for one in failing:
        one.join()
    stop.set()
    taker.join()
    with taking.taken() as (taken, _):
        lines.extend(taken)
    found = {(one.session, one.count) for one in failed_hooks.by_session(lines, datetime.now(UTC))}
    assert found == {(f"s{n}", 10) for n in range(4)}


@pytest.mark.parametrize("moment", ["before the write", "after the write"])
def test_a_hook_whose_file_is_taken_and_removed_meanwhile_writes_into_the_next(
    home: Path, root: Path, spool: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    taking, taken = Spool(home / "hooks"), list[bytes]()
    name = "fstat" if moment == "before the write" else "close"
    call = getattr(posix, name)

    def and_take(descriptor: int) -> object:
        monkeypatch.setattr(posix, name, call)
        with taking.taken() as (lines, _):
            taken.extend(lines)
        spool.unlink(missing_ok=True)
        return call(descriptor)

    spool.unlink(missing_ok=True)
    monkeypatch.setattr(posix, name, and_take)
    hook_client.note(os.fsencode(home), b"claude-code", pre_tool_use(root))
    found = {*taken, *taking.waiting()}
    assert len(found) == 1 and b"claude-code" in found.pop()


def test_the_file_for_failed_hooks_has_one_name_at_any_time(home: Path, spool: Path) -> None:
    """A hook writes no file that has two, which may be a person's."""
    most, seen, stop = 0, 0, threading.Event()
    taking = Spool(home / "hooks")

    def take() -> None:
        while not stop.is_set():
            spool.unlink(missing_ok=True)
            taking.reserve()

    taker = threading.Thread(target=take)
    taker.start()
    while seen < 2_000:
        with suppress(FileNotFoundError):
            most, seen = max(most, spool.stat().st_nlink), seen + 1
    stop.set()
    taker.join()
    assert most == 1


def test_what_was_taken_and_not_put_on_record_stays_for_the_next_process(
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    store: AuditStore,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claude.bash("c1", "true")

    def fail(*_: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr("loom_audit.api.agents.clients.record_failed", fail)
        take_up(store)
    claude.bash("c2", "true")
    [waiting] = failed_hooks.waiting(store.adapters.settings)
    assert waiting.count == 4
    take_up(store)
    assert [fact.count for fact in failures(workspace)] == [4]
    assert {call.call_id for call in workspace.timeline.calls()} == {"c1", "c2"}


def test_space_is_reserved_behind_the_end_and_none_is_written_over(home: Path) -> None:
    spool = Spool(home / "hooks")
    spool.reserve()
    file = home / "hooks" / "spool"
    assert file.stat().st_size == 0
    if file.stat().st_blocks * 512 < RESERVED:
        pytest.skip("the filesystem of the data folder cannot reserve space behind a file's end")
    file.write_bytes(b"a line\n")
    spool.reserve()
    assert file.read_bytes() == b"a line\n"
    assert [one.name for one in (home / "hooks").glob("spool*")] == ["spool"]


def test_a_hook_notes_that_it_failed_where_the_virtual_environment_is_gone(
    home: Path, root: Path, workspace: AuditedWorkspace, store: AuditStore, claude: HookedClaude
) -> None:
    (home / "hooks" / "daemon").write_bytes(b"/gone/bin/python\0-m\0loom_audit\0daemon\0")
    claude.bash("c1", "true")
    take_up(store)
    assert {call.call_id for call in workspace.timeline.calls()} == {"c1"}


def test_a_hook_with_no_room_for_files_still_answers(home: Path, root: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    argv = [sys.executable, "-I", "-S", str(home / "hooks" / "hook_client.py"), "claude-code"]
    done = subprocess.run(
        argv,
        input=pre_tool_use(root),
        cwd=root,
        capture_output=True,
        check=False,
        preexec_fn=limit,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == (b"", b"")


def test_log_status_and_doctor_show_what_waits_and_record_nothing(
    claude: HookedClaude, workspace: AuditedWorkspace, home: Path, root: Path
) -> None:
    claude.bash("c1", "true")
    head = workspace.log.head()

    def said(*words: str) -> str:
        out, errs = Forked(words, cwd=root, env=os.environ).printed()
        return (out + errs).decode()

    for command in ("log", "status", "doctor"):
        assert "2 hooks of claude-code failed" in said(command), command
    shown = [json.loads(line) for line in said("status", "--json").splitlines()]
    assert [one["count"] for one in shown[0]["failed_hooks"]] == [2]
    assert workspace.log.head() == head and len(waiting_lines(home)) == 2


def waiting_lines(home: Path) -> list[bytes]:
    return [*Spool(home / "hooks").waiting()]


def test_doctor_does_not_blame_the_trust_of_codex_for_hooks_that_fail(
    home: Path, workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(home / "codex"))
    hooks = root / ".codex" / "hooks.json"
    hooks.parent.mkdir()
    hooks.write_text(json.dumps({"hooks": "x/hooks/hook_client.py codex"}))
    settings = workspace.adapters.settings

    def hint() -> str:
        [check] = [one for one in check_all(settings) if one.name == "client codex"]
        return check.hint

    assert "trust" in hint()
    run_hook(home, pre_tool_use(root), "codex", cwd=root)
    assert "trust" not in hint() and "daemon" in hint()


def test_tables_that_do_not_agree_with_the_log_let_hooks_note_and_strict_deny(
    store: AuditStore, workspace: AuditedWorkspace, home: Path, root: Path, spool: Path
) -> None:
    """Nothing is recorded on tables that were altered, and that is said, first of all."""
    assert workspace.verify().findings == ()
    with closing(sqlite3.connect(home / "audit.db")) as raw:
        raw.execute("UPDATE workspace SET ignore = 'forged'")
        raw.commit()
    with open_store() as other, HookServer(other, home / "hooks", SOCKET, lambda _: None):
        done = run_hook(home, pre_tool_use(root), "claude-code", "--strict", cwd=root)
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert waiting_lines(home) and spool.exists(), "it waits until recording goes on"


def test_what_failed_while_the_workspace_was_away_is_not_lost(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, root: Path, tmp_path: Path
) -> None:
    claude.bash("c1", "true")
    root.rename(tmp_path / "away")
    with open_store() as another:
        take_up(another)
    (tmp_path / "away").rename(root)
    take_up(store)
    assert {call.call_id for call in workspace.timeline.calls()} == {"c1"}


@pytest.mark.few(0)
def test_a_hook_is_noted_on_a_full_disk_in_the_space_that_was_reserved(
    tmp_path: Path, root: Path, workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mounting(tmp_path) as mount:
        home = mount("small", 8) / "home"
        (home / "hooks").mkdir(parents=True)
        monkeypatch.setenv("LOOM_AUDIT_HOME", str(home))
        write_launcher(read_settings())
        Spool(home / "hooks").reserve()
        fill_up(home.parent)
        with pytest.raises(OSError, match="No space"):
            (home / "more").write_bytes(b"more")
        for _ in range(20):
            run_hook(home, pre_tool_use(root), "claude-code", cwd=root)
        assert len(waiting_lines(home)) == 20
        assert workspace.root == str(root)


TABLES = {
    "no tree": "DELETE FROM tree_entry",
    "another mode": "UPDATE tree_entry SET mode = mode - 4",
    "another scope": "UPDATE workspace SET ignore = 'forged'",
    "a log cut off": "DELETE FROM event WHERE seq > (SELECT max(seq) - 2 FROM event)",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("how", TABLES)
@pytest.mark.parametrize("known", [True, False], ids=["known session", "new session"])
def test_while_nothing_can_be_recorded_hooks_note_it_and_strict_denies(
    store: AuditStore,
    workspace: AuditedWorkspace,
    claude: HookedClaude,
    home: Path,
    root: Path,
    how: str,
    known: bool,
) -> None:
    """Tables that do not agree with the log, or an end of it that is gone; and it is said first."""
    with HookServer(store, home / "hooks", SOCKET, lambda _: None):
        claude.bash("c0" if known else "d0", "true", (root / "b").touch)
        claude.hook("SessionEnd" if not known else "Stop", reason="exit")
    workspace.adapters.keep_head(workspace.head())
    forge(home, TABLES[how])
    session = "s1" if known else "s2"
    errors: list[str] = []
    with open_store() as other:
        head = other.workspace(root).log.head()
        with HookServer(other, home / "hooks", SOCKET, errors.append):
            given = json.loads(pre_tool_use(root, session))
            given |= {"transcript_path": str(claude.transcript)}
            data = json.dumps(given).encode()
            strict = run_hook(home, data, "claude-code", "--strict", cwd=root)
            plain = run_hook(home, data, "claude-code", cwd=root)
        assert (plain.returncode, plain.stdout, plain.stderr) == (0, b"", b"")
        assert b'"permissionDecision"' in strict.stdout and b'"deny"' in strict.stdout, errors
        assert len(waiting_lines(home)) == 2, errors
        assert other.workspace(root).log.head() == head
    for command, said in (("status", "NOTHING IS RECORDED"), ("doctor", "nothing is recorded")):
        out, errs = Forked([command], cwd=root, env=os.environ).printed()
        told = (errs + out).decode().splitlines()
        assert said in told[0], told


def forge(home: Path, sql: str) -> None:
    with closing(sqlite3.connect(home / "audit.db")) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        names = raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in names:
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute(sql)
        raw.commit()
