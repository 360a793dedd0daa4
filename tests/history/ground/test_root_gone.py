"""The workspace's own folder gone while a command ran: deleted, moved, unmounted or another."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, open_store
from loom_audit.errors import NoWorkspace
from loom_audit.model.events import FilesChanged
from loom_audit.model.records import Call
from tests.oracles.trees import tree_of


def run(session: Session, *words: str) -> Call:
    """A command in the workspace, which may fail; the call on record."""
    with suppress(NoWorkspace):  # it is on record
        session.run(words)
    return session.workspace.timeline.calls()[0]


@pytest.fixture(autouse=True)
def uncovered(tmp_path: Path) -> Iterator[None]:
    """Nothing is mounted below when a test has ended, however it ended."""
    yield
    for name in ("workspace", "volume"):
        unmount = ["umount", "-l", str(tmp_path / name)]
        while subprocess.run(unmount, capture_output=True).returncode == 0:
            pass


def deletions(workspace: AuditedWorkspace) -> set[str]:
    return {
        change.path
        for event in workspace.log.read()
        if isinstance(event.fact, FilesChanged)
        for change in event.fact.changes
        if change.after is None
    }


def test_a_deleted_workspace_is_on_record_with_all_that_was_in_it_and_comes_back(
    workspace: AuditedWorkspace, root: Path
) -> None:
    before, tree = tree_of(root), set(workspace.timeline.tree())
    with workspace.session("agent") as session:
        call = run(session, "sh", "-c", f"rm -r {root}")
        assert call.status == "ok" and set(call.paths) == tree
        assert call.coverage.level == "partial", "its own mode is not on record"
        assert "deleted" in call.coverage.reasons[0]
    assert workspace.timeline.tree() == {} and not root.exists()
    with open_store() as store:
        again = store.workspace(workspace.id)
        plan = again.plan_undo()
        assert not root.exists(), "a plan changes nothing"
        again.carry_out(plan)
        assert tree_of(root) == before
        assert again.status().drift == () and again.verify().ok
        again.carry_out(again.plan_redo())
        assert not any(root.iterdir())


def test_it_comes_back_also_in_the_process_in_which_it_went(
    workspace: AuditedWorkspace, root: Path
) -> None:
    before = tree_of(root)
    workspace.checkpoint("start")
    with workspace.session("agent") as session:
        run(session, "rm", "-r", str(root))
    workspace.carry_out(workspace.plan_rollback("@start"))
    assert tree_of(root) == before and workspace.status().drift == ()
    with workspace.session("agent") as session:
        assert session.run(["sh", "-c", "echo x > new"]).files_changed == ("new",)


def test_nothing_is_written_where_it_was_until_it_is_back(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:
        run(session, "rm", "-r", str(root))
        arguments = {"path": "a", "content": "x"}
        written = anyio.run(lambda: session.call("write_file", arguments))
        assert written.error is not None and written.error.code == "NO_WORKSPACE"
        assert "undo" in written.error.hint
    assert not root.exists()


def test_what_a_command_made_in_its_place_is_that_commands(
    workspace: AuditedWorkspace, root: Path
) -> None:
    before = tree_of(root)
    made = f"rm -r {root}; mkdir {root}; echo new > {root}/a.txt; echo x > {root}/x"
    with workspace.session("agent") as session:
        call = run(session, "sh", "-c", made)
        assert {"a.txt", "x", "src", "src/main.py"} == set(call.paths)
        assert session.run(["sh", "-c", f"cd {root}; echo y > y"]).files_changed == ("y",)
    assert workspace.status().drift == ()
    workspace.carry_out(workspace.plan_undo())
    workspace.carry_out(workspace.plan_undo())
    assert tree_of(root) == before


def moved(root: Path) -> None:
    root.rename(root.with_name("moved"))


def moved_and_made_anew(root: Path) -> None:
    root.rename(root.with_name("moved"))
    root.mkdir()
    (root / "other").write_text("of another\n")


def covered(root: Path) -> None:
    """Something is mounted over it."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(root)], capture_output=True)
    if done.returncode:
        pytest.skip(f"needs the right to mount: {done.stderr!r}")


def link_in_its_place(root: Path) -> None:
    shutil.move(root, root.with_name("moved"))
    root.symlink_to(root.with_name("moved"))


@pytest.mark.parametrize("go", [moved, moved_and_made_anew, covered, link_in_its_place])
def test_one_that_is_elsewhere_loses_nothing_on_record(
    workspace: AuditedWorkspace, root: Path, go: Callable[[Path], None]
) -> None:
    tree = workspace.timeline.tree()
    with workspace.session("agent") as session:
        with pytest.raises(NoWorkspace), session.recording("leave"):
            go(root)
        call = workspace.timeline.calls()[0]
        assert call.coverage.level == "none" and "not seen" in call.coverage.reasons[0]
    assert workspace.timeline.tree() == tree and deletions(workspace) == set()
    subprocess.run(["umount", "-l", str(root)], capture_output=True)


def test_a_workspace_that_was_emptied_and_then_moved_is_not_taken_for_deleted(
    workspace: AuditedWorkspace, root: Path, store: AuditStore
) -> None:
    """Nobody saw that it was deleted."""
    root.rename(root.with_name("moved"))
    with open_store() as other, pytest.raises(NoWorkspace):
        other.workspace(workspace.id).status()


# --- between two processes ----------------------------------------------------------------


def linked_elsewhere(root: Path) -> None:
    root.rename(root.with_name("moved"))
    other = root.with_name("other")
    other.mkdir()
    (other / "theirs").write_text("of another\n")
    root.symlink_to(other)


@pytest.mark.parametrize("go", [covered, linked_elsewhere])
def test_what_is_in_its_place_when_a_process_begins_is_not_taken_for_it(
    workspace: AuditedWorkspace, root: Path, go: Callable[[Path], None]
) -> None:
    tree = workspace.timeline.tree()
    go(root)
    there = tree_of(root)
    with open_store() as store:
        again = store.workspace(workspace.id)
        with pytest.raises(NoWorkspace):
            again.status()
        with again.session("agent") as session, pytest.raises(NoWorkspace):
            session.run(["sh", "-c", "echo x > x"])
        with pytest.raises(NoWorkspace):
            again.plan_rollback(again.log.head())
        assert again.timeline.tree() == tree and deletions(again) == set()
    assert tree_of(root) == there, "nothing was written there"


def test_a_covered_workspace_goes_on_when_it_is_uncovered(
    workspace: AuditedWorkspace, root: Path
) -> None:
    covered(root)
    with open_store() as store, pytest.raises(NoWorkspace, match="hidden"):
        store.workspace(workspace.id).status()
    subprocess.run(["umount", "-l", str(root)], check=True)
    with open_store() as store:
        assert store.workspace(root).status().drift == ()


def test_a_workspace_that_is_a_mount_loses_nothing_when_it_is_unmounted(
    store: AuditStore, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    covered(volume)
    (volume / "a").write_text("a\n")
    workspace = store.attach(volume)
    tree = workspace.timeline.tree()
    subprocess.run(["umount", "-l", str(volume)], check=True)
    with open_store() as other:
        again = other.workspace(volume)
        with pytest.raises(NoWorkspace, match="hidden"):
            again.status()
        assert again.timeline.tree() == tree
    covered(volume)
    (volume / "a").write_text("a\n")
    with open_store() as other:  # mounted again, as after a reboot: another mount
        assert other.workspace(volume).status().drift == ()


def test_a_workspace_that_is_mounted_onto_itself_is_the_same(
    workspace: AuditedWorkspace, root: Path
) -> None:
    """As in a container, where the folder has the same path and is a mount."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    command = ["mount", "--bind", str(root), str(root)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    with open_store() as store:
        again = store.workspace(root)
        assert again.status().drift == ()
        with again.session("agent") as session:
            assert session.run(["sh", "-c", "echo x > x"]).files_changed == ("x",)
