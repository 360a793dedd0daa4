"""What changes from outside while somebody watches goes on record as it happens."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from watchdog.observers.inotify_c import InotifyConstants, InotifyEvent, Mask, WatchDescriptor

from loom_audit import AuditedWorkspace, AuditStore, Conflict, NoWorkspace, open_store
from loom_audit.api.ground.watched import watched_text
from loom_audit.api.upkeep import watching
from loom_audit.disk.looking import inotify
from loom_audit.disk.looking.observer import DiskObserver
from loom_audit.history.look.doers import UNKNOWN
from loom_audit.history.record.drift import record_drift
from loom_audit.history.record.observed.noticed import record_noticed
from loom_audit.model.actors import OUTSIDE
from tests.given.watched import Watched, changes
from tests.given.watched import watched as watched
from tests.oracles.changes import check_each_change_once
from tests.processes.clients import client as client
from tests.processes.ordinary_user import ordinary_session


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"one\n")
    (root / "src" / "main.py").write_bytes(b"print()\n")
    (root / "src" / "deep" / "x").write_bytes(b"x\n")
    return root


def test_an_edit_is_on_record_as_from_outside_with_its_time(watched: Watched) -> None:
    (watched.root / "a.txt").write_bytes(b"two\n")
    at = datetime.fromtimestamp((watched.root / "a.txt").stat().st_ctime, UTC)
    watched.until(watched.paths)
    [event] = watched.events()
    assert event.actor == OUTSIDE and event.session == "" and event.source == "watch"
    assert event.occurred_at is not None
    assert abs(event.occurred_at - at) < timedelta(milliseconds=1)
    assert watched.paths() == ["a.txt"]


def test_each_of_several_saves_is_kept(watched: Watched) -> None:
    for n in range(3):
        (watched.root / "a.txt").write_bytes(b"%d\n" % n)
        watched.until(lambda: len(watched.paths()) == n + 1)  # noqa: B023
    history = watched.workspace.timeline.history("a.txt")
    content = watched.workspace.timeline.content
    kept = [content(one.change.after) for one in history[:3] if one.change.after]
    assert kept == [b"2\n", b"1\n", b"0\n"]


def test_new_folders_are_recorded_with_all_that_is_in_them(watched: Watched) -> None:
    made = watched.root / "new" / "er" / "est"
    made.mkdir(parents=True)
    (made / "f").write_bytes(b"f")
    watched.until(lambda: "new/er/est/f" in watched.paths())
    (made / "g").write_bytes(b"g")
    watched.until(lambda: "new/er/est/g" in watched.paths())
    shutil.rmtree(watched.root / "new")
    watched.until(lambda: watched.last("new/er/est/g").changes[-1].after is None)


def test_what_is_new_is_not_taken_for_what_came_from_elsewhere(watched: Watched) -> None:
    made = [f"{folder}/new{n}" for n in range(4) for folder in ("src", "src/deep")]
    for name in made:
        (watched.root / name).write_bytes(b"new")
        watched.watcher.step(0.15)
    watched.until(lambda: {*made} <= {*watched.paths()})
    assert [fact.arrived for fact in watched.facts()] == [()] * len(watched.facts())


def test_a_folder_that_is_moved_is_on_record_as_moved(watched: Watched) -> None:
    (watched.root / "src").rename(watched.root / "lib")
    watched.until(lambda: "lib/deep/x" in watched.paths())
    moves = {(one.source, one.target) for fact in watched.facts() for one in fact.moves}
    assert {("src/main.py", "lib/main.py"), ("src/deep/x", "lib/deep/x")} <= moves
    (watched.root / "lib" / "deep" / "x").write_bytes(b"y\n")
    watched.until(lambda: watched.paths().count("lib/deep/x") == 2)


def test_what_is_left_out_is_not_recorded(watched: Watched) -> None:
    made = watched.root / "node_modules" / "left-pad"
    made.mkdir(parents=True)
    (made / "index.js").write_bytes(b"")
    watched.rest()
    for n in range(3):
        (made / "index.js").write_bytes(b"%d" % n)
    watched.rest()
    assert set(watched.paths()) - {p for p in watched.paths() if "mark-" in p} == {"node_modules"}


def test_folders_that_are_renamed_again_and_again_are_watched_on(watched: Watched) -> None:
    for n in range(60):
        (watched.root / "src" / "deep" / "a").mkdir(parents=True, exist_ok=True)
        (watched.root / "src" / "deep").rename(watched.root / "src" / f"b{n % 3}")
        (watched.root / "src" / "deep").mkdir()
        shutil.rmtree(watched.root / "src" / f"b{(n + 1) % 3}", ignore_errors=True)
    watched.rest()
    for folder in sorted(path for path in watched.root.rglob("*") if path.is_dir()):
        (folder / "here").write_bytes(b"here")
        name = str((folder / "here").relative_to(watched.root))
        watched.until(lambda: name in watched.paths())  # noqa: B023


def test_what_it_knows_is_forgotten_when_nothing_happens_and_read_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_IDLE", 0.0)
    (watched.root / "a.txt").write_bytes(b"two\n")
    watched.until(watched.paths)
    before = watched.watcher.attachment
    watched.until(lambda: watched.watcher.attachment is not before)
    assert watched.watcher.observer.doubt == ""
    (watched.root / "src" / "main.py").write_bytes(b"print(2)\n")
    (watched.root / "a.txt").unlink()
    watched.until(lambda: len(watched.paths()) == 3)
    assert len(watched.notes) == 1, "nothing is to be said of that"


def test_folders_that_come_into_scope_are_watched_from_then_on(watched: Watched) -> None:
    made = watched.root / "out" / "deep"
    for rules, recorded in (("out/", False), ("", True)):
        (watched.root / ".loomignore").write_text(rules)
        watched.workspace.accept_scope()
        watched.rest()
        made.mkdir(parents=True, exist_ok=True)
        (made / "f").write_text(rules or "in scope")
        watched.rest()
        assert ("out/deep/f" in watched.paths()) is recorded
    (made / "f").write_text("again")
    watched.until(lambda: watched.paths().count("out/deep/f") == 2)


# --- calls beside it --------------------------------------------------------------------------


def test_what_an_open_call_does_is_recorded_by_its_own_look(
    watched: Watched, client: "subprocess.Popen[bytes]"
) -> None:
    foreign = watched.workspace.start_foreign_session("agent", id="s", pid=client.pid)
    foreign.begin_call("c1", "Bash", {"command": "make"})
    (watched.root / "made").write_bytes(b"by the call")
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        watched.watcher.step(0.1)
    assert watched.paths() == []
    foreign.end_call("c1")
    watched.rest()
    [change] = watched.workspace.timeline.history("made")
    assert (change.call_id, change.origin) == ("c1", "command")
    assert watched.facts() == []


def test_what_came_before_a_call_is_recorded_once_by_whoever_looks_first(
    watched: Watched, client: "subprocess.Popen[bytes]"
) -> None:
    foreign = watched.workspace.start_foreign_session("agent", id="s", pid=client.pid)
    (watched.root / "a.txt").write_bytes(b"by a person")
    foreign.begin_call("c1", "Bash", {"command": "make"})
    (watched.root / "b.txt").write_bytes(b"by the call")
    foreign.end_call("c1")
    watched.rest()
    [by_call] = watched.workspace.timeline.history("b.txt")
    assert by_call.call_id == "c1"
    [by_person, _] = watched.workspace.timeline.history("a.txt")
    assert by_person.origin == "outside" and by_person.causes == ()


def test_between_the_calls_of_a_client_its_newest_call_is_a_candidate(
    watched: Watched, client: "subprocess.Popen[bytes]"
) -> None:
    foreign = watched.workspace.start_foreign_session("agent", id="s", pid=client.pid)
    foreign.begin_call("c1", "Bash", {"command": "make"})
    foreign.end_call("c1")
    (watched.root / "a.txt").write_bytes(b"by whom?")
    watched.until(watched.paths)
    [fact] = watched.facts()
    requested = watched.workspace.timeline.calls()[0].requested
    assert fact.causes == (requested, UNKNOWN) and fact.call_id is None
    foreign.end()
    (watched.root / "a.txt").write_bytes(b"by a person")
    watched.until(lambda: len(watched.paths()) == 2)
    assert watched.facts()[-1].causes == ()


@pytest.mark.parametrize(
    ("tool", "told", "paths"),
    [("Write", {"file_path": "new.txt"}, ["new.txt"]), ("Bash", {"command": "> new.txt"}, None)],
)
def test_an_edit_of_a_person_between_the_calls_of_a_client_stays_when_these_are_taken_back(
    watched: Watched,
    client: "subprocess.Popen[bytes]",
    tool: str,
    told: dict[str, str],
    paths: list[str] | None,
) -> None:
    """Also of a file that the newest call has made."""
    foreign = watched.workspace.start_foreign_session("agent", id="s", pid=client.pid)
    foreign.begin_call("c1", tool, told, paths=paths)
    (watched.root / "new.txt").write_bytes(b"by the call\n")
    foreign.end_call("c1")
    (watched.root / "new.txt").write_bytes(b"by a person\n")
    watched.until(lambda: "new.txt" in watched.paths())
    [call] = watched.workspace.timeline.calls()
    assert call.seq is not None and call.changed == 1
    revert, rollback = watched.workspace.plan_revert, watched.workspace.plan_rollback
    for plan in (revert([call.seq]), rollback("session:s")):
        assert not plan.changes
        assert "new.txt" in {note.path for note in (*plan.kept, *plan.blocked)}


def test_what_a_client_says_that_goes_on_is_a_candidate_of_its_own(
    watched: Watched, client: "subprocess.Popen[bytes]"
) -> None:
    foreign = watched.workspace.start_foreign_session("agent", id="s", pid=client.pid)
    foreign.begin_call("c1", "Bash", {"command": "sleep 1; echo soon > soon.txt"})
    foreign.end_call("c1", "running")
    (watched.root / "soon.txt").write_bytes(b"soon\n")
    watched.until(lambda: "soon.txt" in watched.paths())
    [call] = watched.workspace.timeline.calls()
    assert call.seq is not None and watched.last("soon.txt").causes == (call.requested,)
    [change] = watched.workspace.plan_revert([call.seq]).changes
    assert change.path == "soon.txt" and change.after is None


def test_what_a_call_left_running_is_a_candidate_until_it_has_ended_for_long(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched.workspace.session("tester") as session:
        session.run(
            ["sh", "-c", "(until [ -e stop ]; do sleep 0.05; done; touch late) &"], keep=True
        )
    call = watched.workspace.timeline.calls()[0]
    (watched.root / "stop").touch()
    watched.until(lambda: "late" in watched.paths())
    assert watched.last("late").causes == (call.requested,)
    monkeypatch.setattr(watching, "_IDLE", 0.0)
    watched.rest()
    before = watched.watcher.attachment
    watched.until(lambda: watched.watcher.attachment is not before)
    (watched.root / "a.txt").write_bytes(b"by a person")
    watched.until(lambda: "a.txt" in watched.paths())
    assert watched.last("a.txt").causes == ()


def test_a_call_whose_process_is_gone_keeps_nothing_waiting(
    watched: Watched, client: "subprocess.Popen[bytes]"
) -> None:
    foreign = watched.workspace.start_foreign_session("agent", id="s", pid=client.pid)
    foreign.begin_call("c1", "Bash", {"command": "make"})
    client.kill()
    client.wait()
    (watched.root / "a.txt").write_bytes(b"later")
    watched.rest()
    assert watched.workspace.timeline.open_calls() == []
    [change, _] = watched.workspace.timeline.history("a.txt")
    assert change.origin == "outside"


def test_what_a_tool_of_ours_writes_is_not_told_as_from_outside(watched: Watched) -> None:
    with watched.workspace.session("tester") as session:
        arguments = {"path": "a.txt", "content": "by the tool"}
        assert anyio.run(lambda: session.call("write_file", arguments)).success
    watched.rest()
    [change, _] = watched.workspace.timeline.history("a.txt")
    assert change.origin == "tool" and watched.facts() == []


# --- editors ----------------------------------------------------------------------------------


def saved_by_vim(file: Path, content: bytes) -> None:
    """As vim does it, with its swap file and the test of whether it may write the folder."""
    swap = file.with_name(f".{file.name}.swp")
    swap.write_bytes(b"b0VIM")
    (file.parent / "4913").write_bytes(b"")
    (file.parent / "4913").unlink()
    backup = file.with_name(f"{file.name}~")
    file.rename(backup)
    file.write_bytes(content)
    backup.unlink()
    swap.unlink()


def saved_by_gedit(file: Path, content: bytes) -> None:
    made = file.parent / ".goutputstream-AB12C3"
    made.write_bytes(content)
    made.rename(file)


def saved_by_emacs(file: Path, content: bytes) -> None:
    lock = file.parent / f".#{file.name}"
    lock.symlink_to("person@host.1:2")
    file.write_bytes(content)
    lock.unlink()


@pytest.mark.parametrize("save", [saved_by_vim, saved_by_gedit, saved_by_emacs])
def test_a_save_by_an_editor_is_one_change_of_the_file(
    watched: Watched, save: Callable[[Path, bytes], None]
) -> None:
    save(watched.root / "src" / "main.py", b"print('saved')\n")
    watched.until(watched.paths)
    watched.rest()
    [fact] = watched.facts()
    [change] = fact.changes
    assert change.path == "src/main.py" and change.before and change.after


def test_an_editors_file_that_is_there_meanwhile_waits_for_the_look_of_a_call(
    watched: Watched,
) -> None:
    swap = watched.root / ".a.txt.swp"
    swap.write_bytes(b"b0VIM")
    (watched.root / "a.txt").write_bytes(b"two\n")
    watched.rest()
    assert "a.txt" in watched.paths() and swap.name not in watched.paths()
    with watched.workspace.session("tester") as session:
        session.run(["true"])
    assert watched.workspace.timeline.history(swap.name)


def test_what_is_still_written_is_spared_and_nothing_of_it_is_stored(
    workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "log").write_bytes(b"1\n")
    watched = Watched(workspace)
    with watched.watcher:
        watched.until(lambda: watched.notes)
        (root / "log").write_bytes(b"1\n2\n")
        (root / "a.txt").write_bytes(b"two\n")
        attachment, watch = watched.watcher.attachment, watched.watcher.observer.watch
        with attachment.exclusive():
            done = record_noticed(attachment, watch, ["a.txt"], lambda path: path == "log")
        assert done is not None
        assert [c.path for event in done.events for c in changes(event)] == ["a.txt"]
        watched.until(lambda: "log" in watched.paths())
    check_each_change_once([*workspace.log.read()])


# --- who watches, and where -------------------------------------------------------------------


def test_a_second_watcher_is_refused_with_the_process_of_the_first(
    watched: Watched, store: AuditStore
) -> None:
    second = Watched(store.workspace(watched.root))
    with pytest.raises(Conflict, match=f"process {os.getpid()} watches"):
        second.watcher.__enter__()


def test_what_changed_before_it_began_is_recorded_then(
    workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "a.txt").write_bytes(b"before")
    watched = Watched(workspace)
    with watched.watcher:
        watched.until(watched.paths)
    assert watched.paths() == ["a.txt"]


def test_what_was_noticed_is_recorded_when_it_ends(workspace: AuditedWorkspace, root: Path) -> None:
    watched = Watched(workspace)
    with watched.watcher:
        watched.until(lambda: watched.notes)
        (root / "a.txt").write_bytes(b"just now")
        with suppress(TimeoutError):
            watched.watcher.step(1.0)
    assert watched.paths() == ["a.txt"]


def test_where_not_all_is_told_nothing_is_watched_and_it_is_said(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify, "filesystem_type", lambda _: 0x6969)  # NFS
    with pytest.raises(Conflict, match=r"cannot be watched.*0x6969"):
        Watched(workspace).watcher.__enter__()


def test_more_folders_than_half_of_what_is_free_are_not_watched(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify, "free_watches", lambda: 5)
    with pytest.raises(Conflict, match=r"more than 2 folders, half"):
        Watched(workspace).watcher.__enter__()


def test_after_an_overflow_everything_is_looked_at_and_watched_on(watched: Watched) -> None:
    observer = watched.watcher.observer
    assert isinstance(observer, DiskObserver) and observer._folders is not None
    lost = InotifyEvent(WatchDescriptor(-1), Mask(InotifyConstants.IN_Q_OVERFLOW), 0, b"")
    (watched.root / "a.txt").write_bytes(b"two\n")
    observer._folders.handle_event(lost)
    watched.until(watched.paths)
    assert any("more happened than the kernel keeps" in note for note in watched.notes)
    (watched.root / "src" / "deep" / "x").write_bytes(b"watched on")
    watched.until(lambda: "src/deep/x" in watched.paths())


def test_it_ends_once_the_workspace_was_deleted_which_is_on_record(
    workspace: AuditedWorkspace, root: Path
) -> None:
    watched = Watched(workspace)
    with watched.watcher:
        watched.until(lambda: watched.notes)
        shutil.rmtree(root)
        with pytest.raises(NoWorkspace, match="was deleted"):
            watched.until(lambda: False)
    assert workspace.timeline.tree() == {}


def test_a_look_of_another_process_leaves_nothing_to_record(watched: Watched) -> None:
    (watched.root / "a.txt").write_bytes(b"two\n")
    with open_store() as other:
        attachment = other.workspace(watched.root).attachment
        with attachment.exclusive():
            record_drift(attachment)
    watched.rest()
    assert len(watched.facts()) == 1 and "a.txt" not in watched.paths()


def test_whether_somebody_watches_cannot_be_seen_where_the_locks_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ordinary_session({"a.txt": "a"}, monkeypatch) as session:
        workspace = session.workspace
        assert workspace.status().watched is False
        lock = workspace.adapters.settings.home / "locks" / f"watch-{workspace.id}.lock"
        lock.touch(0)
        assert workspace.status().watched is None
        assert "cannot be seen" in watched_text(watched=None)
