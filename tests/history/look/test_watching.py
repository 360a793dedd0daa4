"""From a session's second command on only what the kernel tells of is looked at."""

import errno
import hashlib
import os
import random
import stat
import time
import zlib
from collections.abc import Container, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, open_store
from loom_audit.disk.looking import inotify
from loom_audit.errors import AuditUnavailable
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.capture import scan
from loom_audit.history.record import looks, watching
from loom_audit.history.record.drift import record_drift
from loom_audit.model.events import CoverageLowered, FilesChanged
from loom_audit.model.files import FileState
from loom_audit.model.records import Call
from loom_audit.model.scope import Scope
from loom_audit.sandbox import confining_runner
from tests.given.ticks import wait_a_tick
from tests.given.upheaval import Upheaval, act_alone, made_folders
from tests.oracles.in_scope import Fact, everything_in_scope
from tests.oracles.trees import tree_of

SPAWN = get_context("spawn")


@pytest.fixture
def watched(workspace: AuditedWorkspace) -> Iterator[Session]:
    """A session in which two commands have run."""
    with workspace.session("tester") as session:
        for _ in range(2):
            run(session)
        assert whole(session) == ""
        yield session


def run(session: Session, *argv: str) -> None:
    session.run(argv or ("true",))


def whole(session: Session) -> str:
    """Why the last look was of everything."""
    watch = session.workspace.attachment.process.last_seen.watch
    return "nothing is watched" if watch is None else watch.why_whole


def calls(workspace: AuditedWorkspace) -> list[Call]:
    """Oldest first."""
    return [*reversed(workspace.timeline.calls())]


def changed_by(workspace: AuditedWorkspace, call: Call) -> set[str]:
    return {change.path for change in workspace.timeline.changes_of(call)}


def found_outside(workspace: AuditedWorkspace) -> list[FilesChanged]:
    facts = (event.fact for event in workspace.timeline.events())
    return [f for f in facts if isinstance(f, FilesChanged) and f.origin == "outside"]


def test_a_session_watches_from_its_second_command_on(workspace: AuditedWorkspace) -> None:
    with workspace.session("tester") as session:
        run(session)
        assert whole(session) == "nothing is watched"
        assert session.looked_at_everything == "a session's first command is looked at so"
        run(session)
        assert whole(session) == session.looked_at_everything == ""
    assert whole(session) == "nothing is watched"


def test_what_each_command_changed_is_recorded_as_its_own(watched: Session, root: Path) -> None:
    steps = (
        "echo 1 > new.txt",
        "mkdir -p deep/er && echo 2 > deep/er/f",
        "mv deep moved",
        "chmod 600 a.txt",
        "ln a.txt b.txt",
        "echo more >> b.txt",
        "rm -r moved",
    )
    workspace = watched.workspace
    for step in steps:
        (root / "outside.txt").write_text(step)
        run(watched, "sh", "-c", step)
        assert whole(watched) == ""
    assert recorded(workspace) == tree_of(root)
    found = calls(workspace)[2:]
    assert [changed_by(workspace, call) for call in found] == [
        {"new.txt"},
        {"deep", "deep/er", "deep/er/f"},
        {"deep", "deep/er", "deep/er/f", "moved", "moved/er", "moved/er/f"},
        {"a.txt"},
        {"a.txt", "b.txt"},
        {"a.txt", "b.txt"},
        {"moved", "moved/er", "moved/er/f"},
    ]
    assert all(call.coverage.level == "full" for call in found)


def recorded(workspace: AuditedWorkspace) -> dict[bytes, tuple[str, int, bytes]]:
    found = {}
    for path, state in workspace.timeline.tree().items():
        content = workspace.timeline.content(state) if state.blob else b""
        mode = 0 if state.kind == "symlink" else state.mode
        found[os.fsencode(path)] = (str(state.kind), mode, content)
    return found


@pytest.fixture
def linked_outside(root: Path, tmp_path: Path) -> Path:
    """Another name of a.txt, which is not in the workspace."""
    return tmp_path / "outside.txt"


def test_what_the_kernel_does_not_tell_is_found_at_the_session_s_end(
    workspace: AuditedWorkspace, root: Path, linked_outside: Path
) -> None:
    with workspace.session("tester") as session:
        for _ in range(2):
            run(session)
        linked_outside.hardlink_to(root / "a.txt")
        run(session, "sh", "-c", f"echo more >> {linked_outside}; echo x > src/seen.txt")
        run(session)
        assert whole(session) == ""
        assert changed_by(workspace, calls(workspace)[2]) == {"src/seen.txt"}
    assert recorded(workspace) == tree_of(root)
    [found] = found_outside(workspace)
    assert [change.path for change in found.changes] == ["a.txt"]
    first, *watched = calls(workspace)
    assert found.causes == tuple(call.requested for call in watched)
    assert first.coverage.level == "full"
    for call in watched:
        assert (call.coverage.level, call.coverage.reasons) == ("partial", ("found later: a.txt",))
    [event] = [e for e in workspace.timeline.events() if isinstance(e.fact, CoverageLowered)]
    assert event.session == "" and workspace.verify().ok


@pytest.mark.parametrize("touched", ["by a command", "by a person"])
def test_what_was_missed_is_not_said_to_be_of_the_call_after_which_it_is_found(
    watched: Session, root: Path, linked_outside: Path, touched: str
) -> None:
    """A file is written by a name that comes and goes between two looks, which is not told."""
    workspace, other = watched.workspace, linked_outside
    linked_outside.hardlink_to(root / "a.txt")
    run(watched)
    hidden = f"mv {other} src/new; echo more >> src/new; rm src/new; sleep 0.02"
    run(watched, "sh", "-c", hidden)
    wait_a_tick()
    if touched == "by a person":
        (root / "mine.txt").write_text("a person's")
    run(watched, "sh", "-c", "echo x > b.txt")
    run(watched, "sh", "-c", "echo y > a.txt")
    assert whole(watched) == ""
    *_, writer, finder, last = calls(workspace)
    assert (writer.paths, finder.paths, last.paths) == ((), ("b.txt",), ("a.txt",))
    [missed] = [fact for fact in found_outside(workspace) if fact.causes]
    assert [change.path for change in missed.changes] == ["a.txt"]
    assert missed.causes[-1] == writer.requested
    assert (writer.coverage.level, writer.coverage.reasons) == ("partial", ("found later: a.txt",))
    assert finder.coverage.level == last.coverage.level == "full"
    assert recorded(workspace) == tree_of(root) and workspace.verify().ok


def test_what_was_missed_just_before_a_look_is_not_said_to_be_of_the_next_call(
    watched: Session, root: Path, linked_outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is dated finer than by ticks where somebody asked for its time (Linux 6.13)."""
    linked_outside.hardlink_to(root / "a.txt")
    run(watched)

    def written_just_before(attachment: Attachment, **how: bool) -> Iterator[Batch]:
        wait_a_tick()
        os.rename(linked_outside, root / "src/new")
        with (root / "src/new").open("a") as file:
            file.write("more")
        (root / "src/new").unlink()
        return scan(attachment, after_the_fact=how["after_the_fact"])

    with watched.recording("writer"):
        monkeypatch.setattr(looks, "scan", written_just_before)
    monkeypatch.undo()
    time.sleep(0.05)  # a stamp that may be racy tells no time
    (root / "mine.txt").write_text("a person's")
    run(watched)
    *_, writer, finder = calls(watched.workspace)
    assert (writer.paths, finder.paths) == ((), ())
    [missed] = [fact for fact in found_outside(watched.workspace) if fact.causes]
    assert [change.path for change in missed.changes] == ["a.txt"]
    assert missed.causes[-1] == writer.requested
    assert finder.coverage.level == "full"


def test_what_a_person_changes_after_the_last_command_is_not_said_to_be_missed(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("tester") as session:
        for _ in range(3):
            run(session)
        wait_a_tick()
        (root / "a.txt").write_text("a person's")
    [found] = found_outside(workspace)
    assert [change.path for change in found.changes] == ["a.txt"] and not found.causes
    assert {call.coverage.level for call in calls(workspace)} == {"full"}


def test_what_changes_while_everything_is_looked_at_is_not_said_to_be_missed(
    workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record_drift_and_change(attachment: Attachment) -> None:
        record_drift(attachment)
        (root / "a.txt").write_text("just now")

    with workspace.session("tester") as session:
        for _ in range(3):
            run(session)
        monkeypatch.setattr(watching, "record_drift", record_drift_and_change)
    [found] = found_outside(workspace)
    assert [change.path for change in found.changes] == ["a.txt"] and not found.causes
    assert {call.coverage.level for call in calls(workspace)} == {"full"}


def test_what_could_not_be_recorded_is_looked_at_again(
    watched: Session, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call whose end cannot be recorded is closed by the next one, which finds what it did."""
    workspace = watched.workspace
    log = workspace.attachment.stored.log

    def refuse(self: object, drafts: object, **_: object) -> None:
        raise AuditUnavailable("the disk is full")

    with pytest.raises(AuditUnavailable), watched.recording("step"):
        (root / "new.txt").write_text("new")
        (root / "src/main.py").unlink()
        monkeypatch.setattr(type(log), "append", refuse)
    monkeypatch.undo()
    run(watched)
    assert whole(watched) == ""
    assert recorded(workspace) == tree_of(root)
    step = next(call for call in calls(workspace) if call.tool == "step")
    assert changed_by(workspace, step) == {"new.txt", "src/main.py"}


def test_more_than_the_kernel_keeps_is_the_command_s_all_the_same(
    watched: Session, root: Path
) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with watched.recording("step"):
        for n in range(most):
            os.utime(root / ("src", "a.txt")[n % 2], ns=(1, 1))
        (root / "new.txt").write_text("new")
    assert whole(watched) == "more happened than the kernel keeps"
    assert changed_by(watched.workspace, calls(watched.workspace)[-1]) == {"new.txt"}
    run(watched)
    assert whole(watched) == ""


def test_where_not_all_folders_can_be_watched_every_look_is_of_everything(
    workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(queue: int, folder: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(inotify, "add", add)
    with workspace.session("tester") as session:
        for n in range(4):
            run(session, "sh", "-c", f"echo {n} > {n}.txt")
            assert n < 1 or "max_user_watches" in whole(session)
    assert recorded(workspace) == tree_of(root)
    assert all(call.coverage.level == "full" for call in calls(workspace))


def test_a_workspace_that_is_gone_in_the_end_lowers_the_coverage_of_what_was_not_checked(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("tester") as session:
        for _ in range(3):
            run(session)
        root.rename(root.with_name("elsewhere"))
    first, *watched = calls(workspace)
    assert first.coverage.level == "full" and len(watched) == 2
    for call in watched:
        [reason] = call.coverage.reasons
        assert reason.startswith("not looked at in the end: the workspace has vanished")
    assert workspace.timeline.session(session.id).ended is not None


def test_what_a_confined_command_does_is_told_as_well(watched: Session, root: Path) -> None:
    step = ("sh", "-c", "mkdir made && echo x > made/f && mv made moved && rm a.txt")
    if all(one.flaw for one in confining_runner().backends()):
        pytest.skip("no sandbox works here")
    watched.run(step, confinement="required")
    assert whole(watched) == ""
    found = changed_by(watched.workspace, calls(watched.workspace)[-1])
    assert found == {"moved", "moved/f", "a.txt"}


def test_a_change_of_rules_is_looked_at_whole(watched: Session, root: Path) -> None:
    (root / ".loomignore").write_text("*.log\n")
    watched.workspace.accept_scope()
    run(watched, "sh", "-c", "echo x > a.log; echo y > b.txt")
    assert changed_by(watched.workspace, calls(watched.workspace)[-1]) == {"b.txt"}
    run(watched)
    assert whole(watched) == ""


def test_what_another_program_records_meanwhile_is_not_recorded_twice(
    watched: Session, root: Path, home: Path
) -> None:
    with open_store() as other:
        (root / "by hand.txt").write_text("x")
        with other.workspace(watched.workspace.id).session("other") as session:
            run(session, "sh", "-c", "echo y > other.txt")
    run(watched)
    assert whole(watched) == ""
    assert changed_by(watched.workspace, calls(watched.workspace)[-1]) == set()
    assert recorded(watched.workspace) == tree_of(root)


def at_random(workspace: AuditedWorkspace, outside: Path, seed: int, calls_made: int) -> int:
    """Commands of random operations, each checked; how many operations there were."""
    root, chosen = Path(workspace.root), random.Random(seed)
    upheaval = Upheaval(root, outside, chosen)
    done = 0
    with workspace.session("tester") as session:
        for n in range(calls_made):
            before = everything_in_scope(root, Scope())
            with session.recording("step"):
                done += sum(bool(upheaval.act()) for _ in range(chosen.choice((1, 2, 5, 20))))
            assert n < 2 or whole(session) == ""
            check_call(workspace, before, upheaval.unseen())
    assert shown_tree(workspace) == shown_disk(root)
    return done


def check_call(
    workspace: AuditedWorkspace, before: Mapping[str, Fact], unseen: Container[int]
) -> None:
    """The last call has just the changes that an independent walk finds.

    Of the inodes that are `unseen` it may lack them.
    """
    after = everything_in_scope(Path(workspace.root), Scope())
    changes = workspace.timeline.changes_of(calls(workspace)[-1])
    found = {c.path for c in changes if _content(c.before) != _content(c.after)}
    paths = before.keys() | after.keys()
    expected = {p for p in paths if _shown(before.get(p)) != _shown(after.get(p))}
    unsure = {path for path, one in after.items() if one.inode in unseen}
    assert found - unsure == expected - unsure


def shown_tree(workspace: AuditedWorkspace) -> dict[str, object]:
    return {path: _content(state) for path, state in workspace.timeline.tree().items()}


def shown_disk(root: Path) -> dict[str, object]:
    return {path: _shown(one) for path, one in everything_in_scope(root, Scope()).items()}


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(50))
def test_very_many_random_operations_are_recorded_right(
    store: AuditStore, tmp_path: Path, part: int, pytestconfig: pytest.Config
) -> None:
    seed = zlib.crc32(f"{pytestconfig.getoption('--seed', default='')} {part}".encode())
    done = 0
    while done < 1_000:
        root, outside = tmp_path / f"work{seed}", tmp_path / f"outside{seed}"
        made_folders(root, outside)
        done += at_random(store.attach(root), outside, seed, 60)
        seed += 1


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_what_twenty_processes_do_in_a_command_is_that_command_s(
    store: AuditStore, tmp_path: Path, part: int
) -> None:
    root, outside = tmp_path / "work", tmp_path / "outside"
    made_folders(root, outside)
    workspace = store.attach(root)
    all_of_them = Upheaval(root, outside, random.Random(part))
    with workspace.session("tester") as session, ProcessPoolExecutor(20, SPAWN) as pool:
        for n in range(8):
            before = everything_in_scope(root, Scope())
            seeds = range(1000 * part + 20 * n, 1000 * part + 20 * n + 20)
            with session.recording("step"):
                for by_name in pool.map(act_alone, [root] * 20, [outside] * 20, seeds):
                    all_of_them.by_name += by_name
            check_call(workspace, before, all_of_them.unseen())
    assert shown_tree(workspace) == shown_disk(root)


def _content(state: FileState | None) -> object:
    """What of a state the independent walk says, too."""
    if state is None or state.kind == "opaque":
        return state and "opaque"
    mode = 0 if state.kind == "symlink" else state.mode
    return state.kind, mode, state.blob


def _shown(one: Fact | None) -> object:
    if one is None or not one.mode:
        return one and "opaque"
    kind = {stat.S_IFREG: "file", stat.S_IFLNK: "symlink", stat.S_IFDIR: "directory"}[
        stat.S_IFMT(one.mode)
    ]
    mode = 0 if kind == "symlink" else stat.S_IMODE(one.mode)
    return kind, mode, None if kind == "directory" else hashlib.sha256(one.content).hexdigest()


@pytest.mark.parametrize("seed", range(2))
def test_random_operations_are_recorded_as_what_each_command_changed(
    workspace: AuditedWorkspace, tmp_path: Path, seed: int
) -> None:
    outside = tmp_path / "outside"
    made_folders(outside)
    assert at_random(workspace, outside, seed, 25) > 50
