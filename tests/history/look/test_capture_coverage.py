"""What of a command's effects is not captured is said in its coverage."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, ToolResult
from loom_audit.errors import AuditUnavailable
from tests.oracles.trees import tree_of

Call = Callable[..., ToolResult]


def undo(workspace: AuditedWorkspace) -> None:
    workspace.carry_out(workspace.plan_undo())


def test_folders_that_vanish_by_the_thousand_during_the_look_are_gone(
    workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [root / "many" / f"{n:05}" for n in range(2000)]
    for folder in folders:
        folder.mkdir(parents=True)
    list_folder = os.scandir
    parent = (root / "many").stat()

    @contextmanager
    def then_deleted(folder: int) -> Iterator[list[os.DirEntry[str]]]:
        with list_folder(folder) as entries:
            found = [*entries]
        if os.path.samestat(os.stat(folder), parent) and (root / "made").exists():
            while folders:
                folders.pop().rmdir()
        yield found

    with workspace.session("tester") as session:
        monkeypatch.setattr(os, "scandir", then_deleted)
        with session.recording("make"):
            (root / "made").touch()
    assert not folders
    (call,) = workspace.timeline.calls()
    assert (call.status, call.coverage.level) == ("ok", "full")
    assert set(workspace.timeline.tree()) == {"a.txt", "src", "src/main.py", "made", "many"}


@pytest.mark.parametrize(
    ("error", "status"), [(RuntimeError("a bug"), "error"), (KeyboardInterrupt(), "cancelled")]
)
def test_coverage_is_not_full_when_the_look_afterwards_fails_however_it_fails(
    session: Session,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    status: str,
) -> None:
    def fails(*_: object) -> None:
        raise error

    with pytest.raises(type(error)), session.recording("make"):
        (root / "made").touch()
        monkeypatch.setattr(
            type(session.workspace.attachment.on_disk.workspace), "differences", fails
        )
    (call,) = session.workspace.timeline.calls()
    assert (call.status, call.coverage.level) == (status, "none")
    assert call.coverage.reasons[0].startswith("not seen: ")


def test_a_command_that_changes_the_mode_of_the_workspace_itself_is_not_captured_whole(
    root: Path, workspace: AuditedWorkspace, call: Callable[..., ToolResult]
) -> None:
    call("shell_execute", command="chmod 710 . && echo x > new")
    (done,) = workspace.timeline.calls()
    assert done.coverage.level == "partial"
    assert "own mode" in done.coverage.reasons[0]
    assert set(done.paths) == {"new"}
    call("shell_execute", command="true")
    assert workspace.timeline.calls()[0].coverage.level == "full"


def test_a_mode_that_a_person_gave_the_workspace_before_is_not_a_commands_doing(
    root: Path, workspace: AuditedWorkspace, call: Callable[..., ToolResult]
) -> None:
    call("shell_execute", command="true")
    root.chmod(0o710)
    call("shell_execute", command="true")
    assert {done.coverage.level for done in workspace.timeline.calls()} == {"full"}


def test_shell_edits_are_covered_and_undone(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    before = tree_of(root)
    call("shell_execute", command="sed -i s/one/ONE/ a.txt; rm -r src; echo x > made")
    assert tree_of(root) != before
    undo(workspace)
    assert tree_of(root) == before


def test_what_was_not_captured_is_said(store: AuditStore, tmp_path: Path) -> None:
    root = tmp_path / "small"
    root.mkdir()
    workspace = store.attach(root, max_file_bytes=1000)
    with workspace.session("tester") as session:
        command = "head -c 5000 /dev/zero > big.bin"
        anyio.run(lambda: session.call("shell_execute", {"command": command}))
    newest = workspace.timeline.calls()[0]
    assert newest.coverage.level == "partial"
    assert any("big.bin" in reason for reason in newest.coverage.reasons)


def test_a_failed_capture_stops_the_call_instead_of_leaving_a_stale_tree(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    before = tree_of(root)

    def unavailable(*_: object, **__: object) -> object:
        raise AuditUnavailable("the log cannot be written")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(workspace.attachment.stored.log), "append", unavailable)
        call("write_file", path="a.txt", content="lost", fails="AUDIT_UNAVAILABLE")
        call("shell_execute", command="rm -r src", fails="AUDIT_UNAVAILABLE")
    assert tree_of(root) == before
