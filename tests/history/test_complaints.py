"""What users of other checkpoint systems lost, one test a complaint.

The first fifteen are the worst complaints found in the field; the ten after them are defects of
a change log that writes one JSON file and copies snapshots back.
"""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditError, AuditStore, Session, ToolResult
from loom_audit.errors import AuditUnavailable
from tests.trees import tree_of

Call = Callable[..., ToolResult]


def rollback(workspace: AuditedWorkspace, point: int | str, **options: object) -> None:
    workspace.carry_out(workspace.plan_rollback(point, **options))  # type: ignore[arg-type]


def undo(workspace: AuditedWorkspace) -> None:
    workspace.carry_out(workspace.plan_undo())


# --- fifteen complaints -----------------------------------------------------------------------


def test_a_restore_deletes_nothing_it_never_captured(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    point = workspace.log.head()
    call("write_file", path="new.txt", content="by the agent")
    (root / "untracked.txt").write_bytes(b"mine")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "x.js").write_bytes(b"heavy")
    rollback(workspace, point)
    assert (root / "untracked.txt").read_bytes() == b"mine"
    assert (root / "node_modules" / "x.js").read_bytes() == b"heavy"
    assert not (root / "new.txt").exists()


def test_undo_in_one_session_leaves_other_sessions_and_my_own_edits_alone(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("one") as one, workspace.session("two") as two:
        anyio.run(lambda: one.call("write_file", {"path": "one.txt", "content": "1"}))
        anyio.run(lambda: two.call("write_file", {"path": "two.txt", "content": "2"}))
        (root / "a.txt").write_bytes(b"my own edit\n")
        workspace.carry_out(workspace.plan_undo(session=one.id))
    assert not (root / "one.txt").exists()
    assert (root / "two.txt").read_bytes() == b"2"
    assert (root / "a.txt").read_bytes() == b"my own edit\n"


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


def test_an_undo_can_be_undone(workspace: AuditedWorkspace, root: Path, call: Call) -> None:
    call("write_file", path="a.txt", content="changed")
    after = tree_of(root)
    undo(workspace)
    workspace.carry_out(workspace.plan_redo())
    assert tree_of(root) == after


def test_a_failed_capture_stops_the_call_instead_of_leaving_a_stale_tree(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    before = tree_of(root)

    def unavailable(*_: object, **__: object) -> object:
        raise AuditUnavailable("the log cannot be written")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(workspace.attachment.log), "append", unavailable)
        call("write_file", path="a.txt", content="lost", fails="AUDIT_UNAVAILABLE")
        call("shell_execute", command="rm -r src", fails="AUDIT_UNAVAILABLE")
    assert tree_of(root) == before


def test_an_undo_that_says_success_has_changed_the_files(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="a.txt", content="changed")
    done = workspace.carry_out(workspace.plan_undo())
    assert done.changed == ("a.txt",)
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert workspace.status().drift == ()


def test_the_users_git_repository_is_never_touched(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    git_before = tree_of(root / ".git")
    point = workspace.log.head()
    call("write_file", path="a.txt", content="changed")
    call("shell_execute", command="rm -r src")
    call("write_file", path=".git/config", content="evil", fails="INVALID_PATH")
    rollback(workspace, point)
    assert tree_of(root / ".git") == git_before


def test_nested_repositories_and_no_repository_are_recorded_alike(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    (root / "nested").mkdir()
    subprocess.run(["git", "init", "-q", str(root / "nested")], check=True)
    (root / "nested" / "code.py").write_bytes(b"1\n")
    call("shell_execute", command="true")
    call("shell_execute", command="echo 2 > nested/code.py")
    undo(workspace)
    assert (root / "nested" / "code.py").read_bytes() == b"1\n"


def test_one_change_is_taken_back_and_later_ones_are_kept_after_a_look_at_the_plan(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    text = "".join(f"line {n}\n" for n in range(20))
    call("write_file", path="t", content=text)
    call("edit_file", path="t", old_str="line 3\n", new_str="bad\n")
    bad = workspace.log.head()
    call("edit_file", path="t", old_str="line 15\n", new_str="good\n")
    plan = workspace.plan_revert([bad])
    assert [change.path for change in plan.changes] == ["t"]
    workspace.carry_out(plan)
    assert (root / "t").read_text() == text.replace("line 15\n", "good\n")


def test_stores_are_for_their_owner_only(
    workspace: AuditedWorkspace, call: Call, home: Path
) -> None:
    call("write_file", path="secret", content="token")
    assert home.stat().st_mode & 0o077 == 0
    for file in home.rglob("*"):
        assert file.stat().st_mode & 0o077 == 0, file


def test_undo_works_without_a_screen(
    workspace: AuditedWorkspace, root: Path, call: Call, home: Path
) -> None:
    import sys

    call("write_file", path="a.txt", content="changed")
    command = [sys.executable, "-m", "loom_audit", "undo"]
    subprocess.run(command, cwd=root, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("folder", ["/", str(Path.home())])
def test_the_root_and_the_home_directory_are_refused(store: AuditStore, folder: str) -> None:
    with pytest.raises(AuditError):
        store.attach(folder)
    assert store.workspaces() == [] or not store.workspaces()


def test_modes_links_and_times_survive_a_rollback(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    script, private = root / "run.sh", root / "key"
    script.write_bytes(b"#!/bin/sh\n")
    script.chmod(0o755)
    private.write_bytes(b"k")
    private.chmod(0o600)
    (root / "link").symlink_to("a.txt")
    old = time.time() - 10_000
    os.utime(root / "src" / "main.py", (old, old))
    call("shell_execute", command="true")
    point, before = workspace.log.head(), tree_of(root)
    stamp = (root / "src" / "main.py").stat().st_mtime_ns
    call("shell_execute", command="chmod 644 run.sh key; ln -sf b link; echo x > run.sh")
    rollback(workspace, point)
    assert tree_of(root) == before
    assert (root / "src" / "main.py").stat().st_mtime_ns == stamp


def test_failed_and_unknown_calls_are_on_record(workspace: AuditedWorkspace, call: Call) -> None:
    call("shell_execute", command="exit 3", fails="EXECUTION_ERROR")
    call("no_such_tool", fails="UNKNOWN_TOOL")
    call("write_file", path="../x", content="", fails="INVALID_PATH")
    assert [c.status for c in workspace.timeline.calls()[:3]] == ["error"] * 3


# --- ten defects of a JSON change log ---------------------------------------------------------


def test_a_created_and_then_modified_file_is_compared_with_nothing(
    workspace: AuditedWorkspace, call: Call
) -> None:
    point = workspace.log.head()
    call("write_file", path="n", content="1")
    call("write_file", path="n", content="2")
    (change,) = workspace.timeline.diff(point, workspace.log.head())
    assert change.before is None


def test_reverting_one_session_keeps_another_sessions_later_edit_of_the_same_file(
    workspace: AuditedWorkspace, root: Path
) -> None:
    text = "".join(f"{n}\n" for n in range(20))
    (root / "t").write_text(text)
    with workspace.session("a") as a:
        edit = {"path": "t", "old_str": "\n3\n", "new_str": "\nthree\n"}
        anyio.run(lambda: a.call("edit_file", edit))
    with workspace.session("b") as b:
        other = {"path": "t", "old_str": "\n15\n", "new_str": "\nfifteen\n"}
        anyio.run(lambda: b.call("edit_file", other))
    workspace.carry_out(workspace.plan_revert([f"session:{a.id}"]))
    assert (root / "t").read_text() == text.replace("\n15\n", "\nfifteen\n")


def test_two_recorders_of_one_workspace_lose_nothing(
    home: Path, workspace: AuditedWorkspace, root: Path
) -> None:
    async def both(one: Session, two: Session) -> None:
        async with anyio.create_task_group() as group:
            for n in range(20):
                arguments = {"path": f"f{n}", "content": str(n)}
                group.start_soon(one.call if n % 2 else two.call, "write_file", arguments)

    with workspace.session("one") as one, workspace.session("two") as two:
        anyio.run(both, one, two)
    recorded = {call.paths[0] for call in workspace.timeline.calls() if call.paths}
    assert recorded == {f"f{n}" for n in range(20)}


def test_a_move_onto_a_file_brings_the_overwritten_file_back(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    before = tree_of(root)
    call("move_file", **{"from": "src/main.py", "to": "a.txt", "overwrite": True})
    undo(workspace)
    assert tree_of(root) == before


def test_undoing_a_creation_does_not_delete_the_users_later_edit(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="n", content="agent\n")
    (root / "n").write_bytes(b"agent\nand my own line\n")
    plan = workspace.plan_undo()
    if not plan.blocked:
        workspace.carry_out(plan)
    assert b"my own line" in (root / "n").read_bytes()


def test_a_torn_write_costs_no_history(workspace: AuditedWorkspace, home: Path, call: Call) -> None:
    call("write_file", path="n", content="1")
    head = workspace.log.head()
    with (home / "audit.db-wal").open("ab") as wal:
        wal.write(b"torn" * 100)
    from loom_audit import open_store

    with open_store() as again:
        assert again.workspace(workspace.id).log.head() == head


def test_missing_content_is_not_counted_as_reverted(store: AuditStore, tmp_path: Path) -> None:
    root = tmp_path / "small"
    root.mkdir()
    (root / "big").write_bytes(b"x" * 5000)
    workspace = store.attach(root, max_file_bytes=1000)
    with workspace.session("tester") as session:
        anyio.run(lambda: session.call("shell_execute", {"command": "echo y > big"}))
    plan = workspace.plan_undo()
    assert [note.path for note in plan.irreversible if note.path] == ["big"]
    assert plan.changes == ()


def test_a_deleted_symlink_comes_back_as_a_symlink(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    (root / "link").symlink_to("a.txt")
    call("shell_execute", command="true")
    call("delete_file", path="link")
    assert (root / "a.txt").exists()
    undo(workspace)
    assert (root / "link").is_symlink()
    assert os.readlink(root / "link") == "a.txt"


def test_folders_that_a_call_created_go_with_it(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    before = tree_of(root)
    call("write_file", path="x/y/z.txt", content="deep")
    undo(workspace)
    assert tree_of(root) == before


def test_a_second_revert_of_the_same_call_does_not_clobber_later_work(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("write_file", path="a.txt", content="agent\n")
    number = workspace.log.head()
    workspace.carry_out(workspace.plan_revert([number]))
    (root / "a.txt").write_bytes(b"my work\n")
    plan = workspace.plan_revert([number])
    if not plan.blocked:
        workspace.carry_out(plan)
    assert (root / "a.txt").read_bytes() == b"my work\n"
