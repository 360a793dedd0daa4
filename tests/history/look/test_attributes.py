"""Access control lists, attributes and holes: what a write keeps and what an undo brings back."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult
from loom_audit.model.files import FileState
from tests.oracles.attributes import (
    ACL,
    DEFAULT,
    acl_bytes,
    acl_entries,
    needs_acl,
    needs_user_attributes,
    user_attributes,
)
from tests.places.on_disk import tmp_path_factory as tmp_path_factory

Call = Callable[..., ToolResult]
PRIVATE = {"owner": 6, "somebody": 6, "group": 0, "mask": 6, "other": 0}
"""A file of mode 0600 that a named user may write too: the kernel shows it as 0660."""


@pytest.fixture
def listed(root: Path) -> Path:
    """A file with an access control list, before the workspace is attached."""
    needs_acl(root)
    path = root / "a.txt"
    path.chmod(0o600)
    os.setxattr(path, ACL, acl_bytes(**PRIVATE))
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    return path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def recorded(workspace: AuditedWorkspace, path: str) -> FileState:
    state = workspace.attachment.stored.tables.state(path)
    assert state is not None
    return state


def no_drift(workspace: AuditedWorkspace) -> None:
    assert workspace.status().drift == ()
    assert workspace.verify().findings == ()


def test_an_edit_keeps_the_access_control_list(
    listed: Path, workspace: AuditedWorkspace, call: Call
) -> None:
    entries = acl_entries(listed)
    call("edit_file", path="a.txt", old_str="two", new_str="2")
    assert (acl_entries(listed), mode_of(listed)) == (entries, 0o660)
    state = recorded(workspace, "a.txt")
    assert (state.mode, state.acl) == (0o600, True)
    assert workspace.timeline.calls()[0].coverage.level == "full"
    workspace.carry_out(workspace.plan_undo())
    assert listed.read_bytes() == b"one\ntwo\nthree\n"
    assert (acl_entries(listed), mode_of(listed)) == (entries, 0o660)
    no_drift(workspace)


def test_a_deleted_file_comes_back_without_its_list_and_nobody_may_more_than_before(
    listed: Path, workspace: AuditedWorkspace, call: Call
) -> None:
    call("delete_file", path="a.txt")
    plan = workspace.plan_undo()
    assert [(note.path, note.reason) for note in plan.inexact] == [
        ("a.txt", "its access control list is not brought back")
    ]
    workspace.carry_out(plan)
    assert (acl_entries(listed), mode_of(listed)) == (None, 0o600)
    no_drift(workspace)
    workspace.carry_out(workspace.plan_redo())
    assert not listed.exists()


def test_a_mask_that_is_narrower_than_the_group_counts(root: Path, listed: Path) -> None:
    from loom_audit import open_store

    os.setxattr(listed, ACL, acl_bytes(6, 6, 6, 4, 0))
    with open_store() as store:
        assert recorded(store.attach(root), "a.txt").mode == 0o640


@pytest.mark.usefixtures("home")
def test_a_list_that_a_command_gave_goes_with_it(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    needs_acl(root)
    (root / "a.txt").chmod(0o640)
    inode = (root / "a.txt").stat().st_ino
    with session.recording("setfacl"):
        os.setxattr(root / "a.txt", ACL, acl_bytes(6, 6, 4, 6, 0))
    state = recorded(workspace, "a.txt")
    assert (state.mode, state.acl) == (0o640, True)
    workspace.carry_out(workspace.plan_undo())
    assert (acl_entries(root / "a.txt"), mode_of(root / "a.txt")) == (None, 0o640)
    assert (root / "a.txt").stat().st_ino == inode, "only the list was taken away"
    no_drift(workspace)
    plan = workspace.plan_redo()
    assert [note.path for note in plan.inexact] == ["a.txt"]
    assert not plan.changes


def test_a_mode_is_taken_back_in_place_and_the_named_user_stays(
    listed: Path, workspace: AuditedWorkspace, session: Session
) -> None:
    with session.recording("chmod"):
        os.setxattr(listed, ACL, acl_bytes(7, 6, 5, 7, 5))
    assert recorded(workspace, "a.txt").mode == 0o755
    workspace.carry_out(workspace.plan_undo())
    entries = acl_entries(listed)
    assert entries is not None
    assert (entries["user"], entries["named"], entries["group"], entries["other"]) == (6, 6, 0, 0)
    assert recorded(workspace, "a.txt").mode == 0o600
    no_drift(workspace)


def test_a_moved_file_takes_its_attributes_along(
    listed: Path, workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    needs_user_attributes(root)
    os.setxattr(listed, "user.origin", b"https://example.org")
    entries = acl_entries(listed)
    call("move_file", **{"from": "a.txt", "to": "src/b.txt"})
    moved = root / "src" / "b.txt"
    assert acl_entries(moved) == entries
    assert user_attributes(moved) == {"user.origin": b"https://example.org"}
    workspace.carry_out(workspace.plan_undo())
    assert acl_entries(listed) == entries
    assert user_attributes(listed) == {"user.origin": b"https://example.org"}
    no_drift(workspace)


def test_attributes_of_users_stay_and_capabilities_go(
    root: Path, workspace: AuditedWorkspace, call: Call
) -> None:
    needs_user_attributes(root)
    path = root / "a.txt"
    os.setxattr(path, "user.note", b"kept")
    capability = bytes.fromhex("0100000200040000000000000000000000000000")  # cap_net_bind_service
    if os.geteuid() == 0:
        os.setxattr(path, "security.capability", capability)
    call("write_file", path="a.txt", content="new\n")
    assert user_attributes(path) == {"user.note": b"kept"}
    assert "security.capability" not in os.listxattr(path)
    workspace.carry_out(workspace.plan_undo())
    assert user_attributes(path) == {"user.note": b"kept"}
    no_drift(workspace)


def test_a_new_file_gets_the_list_that_its_folder_gives(
    root: Path, workspace: AuditedWorkspace, call: Call
) -> None:
    needs_acl(root)
    os.setxattr(root / "src", DEFAULT, acl_bytes(7, 7, 5, 7, 0))
    (root / "src" / "by-hand.txt").touch(0o644)
    (root / "src" / "made").mkdir(0o755)
    call("write_file", path="src/new.txt", content="new\n")
    call("write_file", path="src/deep/down/new.txt", content="new\n")
    for name in ("new.txt", "deep/down/new.txt"):
        assert acl_entries(root / "src" / name) == acl_entries(root / "src" / "by-hand.txt")
    assert acl_entries(root / "src" / "deep") == acl_entries(root / "src" / "made")
    assert acl_entries(root / "src" / "deep", DEFAULT) == acl_entries(root / "src", DEFAULT)
    calls = workspace.timeline.calls()
    assert [call.coverage.level for call in calls[:2]] == ["full", "full"]
    drift = {change.path for change in workspace.status().drift}
    assert drift == {"src/by-hand.txt", "src/made"}


def test_a_file_that_is_restored_has_no_list_that_it_had_not(
    root: Path, workspace: AuditedWorkspace, call: Call
) -> None:
    needs_acl(root)
    call("delete_file", path="src/main.py")
    os.setxattr(root / "src", DEFAULT, acl_bytes(7, 7, 7, 7, 7))
    workspace.carry_out(workspace.plan_undo())
    assert (acl_entries(root / "src/main.py"), mode_of(root / "src/main.py")) == (None, 0o644)
    no_drift(workspace)


def test_a_folder_with_a_list_comes_back_with_the_rights_of_its_own_group(
    root: Path, workspace: AuditedWorkspace, call: Call
) -> None:
    needs_acl(root)
    os.setxattr(root / "src", ACL, acl_bytes(7, 7, 0, 7, 0))
    assert mode_of(root / "src") == 0o770
    call("delete_file", path="src", recursive=True)
    workspace.carry_out(workspace.plan_undo())
    assert mode_of(root / "src") == 0o700
    no_drift(workspace)


def test_a_sparse_file_stays_sparse(root: Path, workspace: AuditedWorkspace, call: Call) -> None:
    path = root / "disk.img"
    with path.open("wb") as file:
        file.write(b"boot sector\n")
        file.seek(8 << 20)
        file.write(b"tail\n")
        file.truncate(16 << 20)
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("this filesystem has no holes")
    content = path.read_bytes()
    call("edit_file", path="disk.img", old_str="boot", new_str="BOOT")
    assert path.read_bytes() == content.replace(b"boot", b"BOOT")
    assert path.stat().st_blocks * 512 < 1 << 20
    call("delete_file", path="disk.img")
    for expected in (content.replace(b"boot", b"BOOT"), content):
        workspace.carry_out(workspace.plan_undo())
        assert path.read_bytes() == expected
        assert path.stat().st_blocks * 512 < 1 << 20
    no_drift(workspace)
