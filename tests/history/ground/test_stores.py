"""A store and the workspaces in it: what it takes, whom it is for, what it refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditError, AuditStore, ToolResult
from loom_audit.errors import NoWorkspace
from loom_audit.model.events import TreeHead

Call = Callable[..., ToolResult]


def test_the_store_grows_with_the_edits_and_not_with_the_workspace(
    store: AuditStore, workspace: AuditedWorkspace, root: Path, call: Call, home: Path
) -> None:
    (root / "large.txt").write_text("".join(f"line {n}\n" for n in range(40_000)))
    call("shell_execute", command="true")

    def stored() -> int:
        # The log of write-ahead is a fixed cost; what counts is content at rest.
        return sum(f.stat().st_size for f in home.rglob("*") if "blobs" in f.parts) + sum(
            f.stat().st_size for f in home.glob("audit.db")
        )

    call("edit_file", path="large.txt", old_str="line 7\n", new_str="LINE 7\n")
    before = stored()
    for n in range(100, 150):
        call("edit_file", path="large.txt", old_str=f"line {n}\n", new_str=f"LINE {n}\n")
    assert stored() - before < 50 * 16 * 1024


def test_a_checkpoint_costs_nothing_in_a_big_workspace(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    for n in range(300):
        (root / f"f{n}").write_bytes(b"x" * 100)
    call("shell_execute", command="true")
    events = workspace.log.head()
    call("write_file", path="f1", content="y")
    # Request, intention, change, finish, whatever number of files there are.
    assert workspace.log.head() - events == 4


def test_stores_are_for_their_owner_only(
    workspace: AuditedWorkspace, call: Call, home: Path
) -> None:
    call("write_file", path="secret", content="token")
    assert home.stat().st_mode & 0o077 == 0
    for file in home.rglob("*"):
        assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.parametrize("folder", ["/", str(Path.home())])
def test_the_root_and_the_home_directory_are_refused(store: AuditStore, folder: str) -> None:
    with pytest.raises(AuditError):
        store.attach(folder)
    assert store.workspaces() == [] or not store.workspaces()


def test_a_folder_named_like_the_start_of_an_id_is_a_folder(
    store: AuditStore, workspace: AuditedWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / workspace.id[:2]).mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoWorkspace):
        store.workspace(workspace.id[:2])
    assert store.workspace(workspace.id[:3]).id == workspace.id


def test_a_log_that_a_kill_left_without_events_is_taken_for_the_next_workspace(
    store: AuditStore, workspace: AuditedWorkspace, tmp_path: Path
) -> None:
    left = store.adapters.database.create_log()
    assert [one.code for one in workspace.verify().findings] == ["log.empty"]
    (tmp_path / "next").mkdir()
    assert store.attach(tmp_path / "next").id == left
    assert workspace.verify().findings == ()
    (tmp_path / "one more").mkdir()
    assert store.attach(tmp_path / "one more").id != left


def test_a_log_that_heads_were_kept_of_is_not_taken_for_another_workspace(
    store: AuditStore, workspace: AuditedWorkspace, tmp_path: Path
) -> None:
    emptied = store.adapters.database.create_log()
    store.adapters.keep_head(TreeHead(emptied, 3, bytes(32)))
    (tmp_path / "next").mkdir()
    assert store.attach(tmp_path / "next").id != emptied
    codes = {one.code for one in workspace.verify().findings}
    assert codes == {"log", "log.empty"}
