"""A workspace whose folder was moved: who says so, and its log goes on at the new place."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, open_store
from loom_audit.api.agents.connect import (
    carry_out,
    connecting,
    disconnecting,
    settings_file,
    was_connected,
)
from loom_audit.api.upkeep.moving import BY_HANDLE, BY_LISTING, move_workspace
from loom_audit.errors import Conflict, Corrupt, InvalidPath, NoWorkspace
from loom_audit.model.events import WorkspaceAttached
from loom_audit.ports import EventFilter
from tests.oracles.trees import tree_of


@pytest.fixture
def recorded(workspace: AuditedWorkspace) -> AuditedWorkspace:
    """A workspace with a checkpoint and a call after it."""
    workspace.checkpoint("start")
    with workspace.session("agent") as session:
        session.run(["sh", "-c", "echo new > a.txt; mkdir made; echo x > made/x"])
    return workspace


@pytest.fixture
def new(root: Path) -> Path:
    return root.with_name("elsewhere")


@pytest.fixture
def again(recorded: AuditedWorkspace) -> Iterator[AuditStore]:
    """The store as another process opens it."""
    with open_store() as store:
        yield store


def attached(workspace: AuditedWorkspace) -> list[WorkspaceAttached]:
    kinds = EventFilter(kinds=(WorkspaceAttached.kind,))
    facts = [event.fact for event in workspace.log.read(kinds)]
    return [fact for fact in facts if isinstance(fact, WorkspaceAttached)]


def test_the_log_of_a_moved_folder_goes_on_there(
    recorded: AuditedWorkspace, again: AuditStore, root: Path, new: Path
) -> None:
    before, start = tree_of(root), recorded.timeline.tree(recorded.timeline.point("@start"))
    root.rename(new)
    moved = move_workspace(again, root, new)
    assert (moved.id, moved.root) == (recorded.id, str(new))
    assert moved.status().drift == () and moved.verify().ok
    fact = attached(moved)[-1]
    assert (fact.root, fact.moved_from, fact.proof) == (str(new), str(root), BY_HANDLE)
    assert again.workspace(new / "made").id == moved.id
    with pytest.raises(NoWorkspace):
        again.workspace(root)
    with moved.session("agent") as session:
        assert session.run(["sh", "-c", "echo y > y"]).files_changed == ("y",)
    moved.carry_out(moved.plan_undo())
    assert tree_of(new) == before
    moved.carry_out(moved.plan_rollback("@start"))
    assert moved.timeline.tree() == start and moved.verify().ok
    moved.rebuild()
    assert again.workspace(new).root == str(new) and moved.differences() == []


def test_a_moved_folder_is_said_to_be_one_and_begins_no_log_of_its_own(
    again: AuditStore, root: Path, new: Path
) -> None:
    root.rename(new)
    for path in (new, new / "src", new / "src" / "main.py"):
        with pytest.raises(NoWorkspace, match="moved") as caught:
            again.workspace(path)
        assert str(root) in caught.value.message and "workspaces move" in caught.value.hint
    with pytest.raises(Conflict, match="moved"):
        again.attach(new)
    assert len(again.workspaces()) == 1


def test_it_can_be_moved_again_and_back(again: AuditStore, root: Path, new: Path) -> None:
    third = new.with_name("third")
    for source, target in ((root, new), (new, third), (third, root)):
        source.rename(target)
        assert move_workspace(again, source, target).status().drift == ()
    assert again.workspace(root).verify().ok
    other = again.attach(_made(new))
    assert other.id != again.workspace(root).id


def _made(folder: Path) -> Path:
    folder.mkdir()
    (folder / "f").write_text("another\n")
    return folder


def test_with_both_in_place_none_is_moved(again: AuditStore, root: Path, new: Path) -> None:
    shutil.copytree(root, new, symlinks=True)
    for same in (False, True):
        with pytest.raises(Conflict, match="both"):
            move_workspace(again, root, new, same=same)
    root.rename(root.with_name("third"))
    root.mkdir()
    with pytest.raises(Conflict, match="both"):
        move_workspace(again, root, root.with_name("third"))


def copied(root: Path, new: Path) -> None:
    shutil.copytree(root, new, symlinks=True)
    shutil.rmtree(root)


def test_a_copy_is_taken_only_when_all_is_equal_and_the_person_says_so(
    again: AuditStore, root: Path, new: Path
) -> None:
    copied(root, new)
    head = again.workspace(root).log.head()
    with pytest.raises(Conflict, match="equal") as caught:
        move_workspace(again, root, new)
    assert "--same" in caught.value.hint
    moved = move_workspace(again, root, new, same=True)
    assert attached(moved)[-1].proof == BY_LISTING
    assert moved.log.head() == head + 1
    assert moved.status().drift == () and moved.verify().ok


def changed(new: Path) -> None:
    (new / "a.txt").write_text("other\n")


def with_the_mode_changed(new: Path) -> None:
    (new / "a.txt").chmod(0o600)


def with_one_more(new: Path) -> None:
    (new / "more").write_text("more\n")


def with_one_less(new: Path) -> None:
    (new / "a.txt").unlink()


@pytest.mark.parametrize("change", [changed, with_the_mode_changed, with_one_more, with_one_less])
def test_a_copy_that_differs_is_refused_whatever_is_said(
    again: AuditStore, root: Path, new: Path, change: Callable[[Path], None]
) -> None:
    copied(root, new)
    change(new)
    head = again.workspace(root).log.head()
    with pytest.raises(Conflict, match="differs") as caught:
        move_workspace(again, root, new, same=True)
    assert caught.value.details["paths"]
    assert again.workspace(root).log.head() == head


def test_what_was_changed_on_the_way_is_drift_of_a_folder_that_is_the_same(
    again: AuditStore, root: Path, new: Path
) -> None:
    root.rename(new)
    changed(new)
    moved = move_workspace(again, root, new)
    assert [one.path for one in moved.status().drift] == ["a.txt"]


def test_places_that_cannot_be_workspaces_are_refused(
    again: AuditStore, root: Path, new: Path, home: Path
) -> None:
    other = again.attach(_made(new.with_name("other")))
    root.rename(new)
    with pytest.raises(Conflict, match="workspace of its own"):
        move_workspace(again, root, other.root)
    with pytest.raises((InvalidPath, Conflict)):
        move_workspace(again, root, home)
    inside = _made(Path(other.root) / "inside")
    with pytest.raises((InvalidPath, Conflict)):
        move_workspace(again, root, inside)
    with pytest.raises(NoWorkspace):
        move_workspace(again, new.with_name("unknown"), new)
    assert move_workspace(again, root, new).status().drift == ()


def test_a_session_that_runs_there_keeps_it_from_being_moved(
    recorded: AuditedWorkspace, again: AuditStore, root: Path, new: Path
) -> None:
    with recorded.session("agent") as session:
        root.rename(new)
        with pytest.raises(Conflict, match=session.id):
            move_workspace(again, root, new)
    assert move_workspace(again, root, new).status().drift == ()


def test_a_table_that_names_the_old_place_is_not_believed(
    again: AuditStore, root: Path, new: Path
) -> None:
    root.rename(new)
    moved = move_workspace(again, root, new)
    with again.adapters.database.connections.writing() as connection:
        connection.execute("UPDATE workspace SET root = ?", (str(root).encode(),))
    root.mkdir()
    with open_store() as store, pytest.raises(Corrupt):
        store.workspace(root)
    assert moved.id


def test_another_workspace_of_the_store_verifies_beside_a_moved_one(
    again: AuditStore, root: Path, new: Path
) -> None:
    other = again.attach(_made(new.with_name("other")))
    root.rename(new)
    move_workspace(again, root, new)
    assert other.verify().ok


def test_when_a_client_was_connected_there_goes_along(
    again: AuditStore, root: Path, new: Path, home: Path
) -> None:
    file = settings_file("claude-code", str(root))
    words = ["python", "/hooks/hook_client.py"]
    times = [datetime.now(UTC)]
    for _ in range(2):
        carry_out(connecting("claude-code", file, words), home / "hooks", connect=True)
        times.append(datetime.now(UTC))
        carry_out(disconnecting("claude-code", file, home / "hooks"), home / "hooks", connect=False)
        times.append(datetime.now(UTC))
    carry_out(connecting("claude-code", file, words), home / "hooks", connect=True)
    times.append(datetime.now(UTC))

    def known(where: Path) -> list[bool | None]:
        return [
            was_connected(home / "hooks", "claude-code", str(where), times[1], one) for one in times
        ]

    assert known(root) == [False, True, False, True, False, True]
    root.rename(new)
    move_workspace(again, root, new)
    assert known(new) == [False, True, False, True, False, True]
    assert known(root) == [None] * 6


def link_to_new(root: Path, new: Path) -> None:
    root.symlink_to(new)


def link_elsewhere(root: Path, new: Path) -> None:
    root.symlink_to(_made(new.with_name("another")))


def link_to_nothing(root: Path, new: Path) -> None:
    root.symlink_to(new.with_name("nothing"))


@pytest.mark.parametrize("leave", [link_to_new, link_elsewhere, link_to_nothing])
def test_a_link_that_was_left_in_its_place_is_not_the_folder(
    again: AuditStore, root: Path, new: Path, leave: Callable[[Path, Path], None]
) -> None:
    root.rename(new)
    leave(root, new)
    with pytest.raises(NoWorkspace, match="moved"):
        again.workspace(new)
    moved = move_workspace(again, root, new)
    assert (moved.root, attached(moved)[-1].proof) == (str(new), BY_HANDLE)
    assert moved.status().drift == () and moved.verify().ok


def test_a_link_to_where_the_folder_is_leaves_it_in_place_beside_a_copy(
    again: AuditStore, root: Path, new: Path
) -> None:
    third = root.rename(root.with_name("third"))
    root.symlink_to(third)
    shutil.copytree(third, new, symlinks=True)
    with pytest.raises(Conflict, match=f"both {third}"):
        move_workspace(again, root, new, same=True)
    assert move_workspace(again, root, third).root == str(third)


def test_a_folder_in_the_old_one_or_with_the_store_in_it_is_refused(
    again: AuditStore, root: Path, new: Path, home: Path
) -> None:
    root.rename(new)
    root.mkdir()
    inside = new.rename(root / "inside")
    head = again.workspace(root).log.head()
    with pytest.raises((InvalidPath, Conflict), match="inside the workspace"):
        move_workspace(again, root, inside)
    with pytest.raises((InvalidPath, Conflict), match="the store"):
        move_workspace(again, root, home.parent)
    assert again.workspace(root).log.head() == head
    assert (inside / "a.txt").exists()
