"""A workspace on an overlay whose layers lie on several filesystems, as in a container."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, ToolResult, open_store
from tests.oracles.trees import tree_of


def mount(kind: str, options: str, where: Path) -> None:
    command = ["mount", "-t", kind, "-o", options, kind, str(where)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs the right to mount {kind}: {done.stderr.strip()}")


def unmount(where: Path) -> None:
    subprocess.run(["umount", "-l", str(where)], capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Two lower layers and an upper one, each a filesystem of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount an overlay")
    root = tmp_path / "workspace"
    layers = [tmp_path / name for name in ("low", "middle", "up")]
    with ExitStack() as mounted:
        for folder in (*layers, root):
            folder.mkdir()
        for folder in layers:
            mount("tmpfs", "size=4m", folder)
            mounted.callback(unmount, folder)
        low, middle, up = layers
        (low / "src").mkdir()
        (low / "src" / "lowest").write_text("of the lowest layer\n")
        (low / "linked").write_text("two names\n")
        os.link(low / "linked", low / "other-name")
        (low / "link").symlink_to("src/lowest")
        (middle / "src").mkdir()
        (middle / "src" / "middle").write_text("of the middle one\n")
        for name in ("files", "work"):
            (up / name).mkdir()
        (up / "files" / "upper").write_text("of the upper one\n")
        given = f"lowerdir={middle}:{low},upperdir={up}/files,workdir={up}/work"
        mount("overlay", given, root)
        mounted.callback(unmount, root)
        yield root


@pytest.fixture
def workspace(store: AuditStore, root: Path) -> AuditedWorkspace:
    return store.attach(root)


def test_the_layers_lie_on_several_filesystems(root: Path) -> None:
    """What this is about: files of one folder tree say that they are on others."""
    devices = {os.lstat(root / path).st_dev for path in ("src/lowest", "src/middle", "upper")}
    assert len(devices) > 1 and os.lstat(root).st_dev not in devices & {0}


def test_all_its_files_are_recorded(workspace: AuditedWorkspace, root: Path) -> None:
    tree = workspace.timeline.tree()
    assert set(tree) == {os.fsdecode(path) for path in tree_of(root)}
    assert workspace.status().untracked == () and workspace.status().drift == ()
    assert workspace.verify().ok


def test_what_tools_and_commands_change_there_is_recorded_and_taken_back(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    before = tree_of(root)
    workspace.checkpoint("start")
    call("edit_file", path="src/lowest", old_str="lowest", new_str="LOWEST")
    call("write_file", path="src/middle", content="written\n")
    call("write_file", path="src/new", content="new\n")
    call("move_file", **{"from": "upper", "to": "moved"})
    call("delete_file", path="other-name")
    call("shell_execute", command="echo more >> src/lowest; chmod 600 linked; rm link; mv src s2")
    for one in workspace.timeline.calls():
        assert one.status == "ok", one
        assert one.coverage.level == "full", one.coverage
    assert workspace.status().drift == ()
    workspace.carry_out(workspace.plan_rollback("@start"))
    assert tree_of(root) == before
    assert workspace.status().drift == () and workspace.verify().ok


def test_what_is_mounted_inside_it_is_still_no_part_of_it(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult], tmp_path: Path
) -> None:
    (root / "in").mkdir()
    mount("tmpfs", "size=1m", root / "in")
    single = tmp_path / "single"
    single.write_text("bound\n")
    subprocess.run(["mount", "--bind", str(single), str(root / "upper")], check=True)
    try:
        (root / "in" / "theirs").write_text("on the mount\n")
        call("shell_execute", command="true")
        assert "in/theirs" not in workspace.timeline.tree()
        found = {one.path: one.reason for one in workspace.status().untracked}
        kept = workspace.timeline.tree().get("upper")
        assert kept is None or kept.size == len("of the upper one\n"), "never the bound content"
        assert found.get("upper", "mount") == "mount"
    finally:
        unmount(root / "in")
        unmount(root / "upper")


def test_its_record_is_read_after_it_was_mounted_anew(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult]
) -> None:
    """Device numbers of an overlay are another mount's after that."""
    call("write_file", path="src/lowest", content="written\n")
    with open_store() as again:
        other = again.workspace(workspace.id)
        assert other.status().drift == ()
