"""One write, read or sync that fails, and what is on record and on disk after it."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, ToolResult, open_store
from loom_audit.disk.access.root_directory import OpenFolders
from loom_audit.disk.looking.index import DiskChangeIndex
from loom_audit.disk.machine.heads import append_head, head_line, read_heads
from loom_audit.errors import StorageFailed
from loom_audit.model.events import TreeHead


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "a.txt").write_text("first\n")
    (root / "folder" / "b.txt").write_text("below\n")
    return root


@pytest.fixture
def store(home: Path) -> Iterator[AuditStore]:
    with open_store() as store:
        yield store


@pytest.fixture
def workspace(store: AuditStore, root: Path) -> AuditedWorkspace:
    return store.attach(root)


def call(session: Session, tool: str, **arguments: Any) -> ToolResult:
    return anyio.run(lambda: session.call(tool, arguments))


def test_an_index_that_cannot_be_written_does_not_fail_a_call(
    workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise StorageFailed(os.strerror(errno.ENOSPC))

    with workspace.session("tester") as session:
        monkeypatch.setattr(DiskChangeIndex, "update", full)
        first = call(session, "write_file", path="a.txt", content="second\n")
        second = call(session, "shell_execute", command="echo third > c.txt; rm folder/b.txt")
        monkeypatch.undo()
        assert first.success and first.files_changed == ["a.txt"]
        assert second.success and second.files_changed == ["c.txt", "folder/b.txt"]
    assert workspace.status().drift == ()
    assert [call.status for call in workspace.timeline.calls()] == ["ok", "ok"]


def test_a_file_that_became_a_fifo_is_gone_and_the_fifo_is_told_once(
    workspace: AuditedWorkspace, root: Path
) -> None:
    start = workspace.log.head()
    with workspace.session("tester") as session:
        (root / "a.txt").unlink()
        os.mkfifo(root / "a.txt")
        call(session, "shell_execute", command="true")
        assert "a.txt" not in workspace.timeline.tree()
        again = call(session, "shell_execute", command="true")
        assert not again.files_changed
        untracked = [e for e in workspace.log.read() if e.kind == "paths.untracked"]
        assert len(untracked) == 1, "news is told once"
        gone = call(session, "shell_execute", command="rm a.txt")
        assert gone.files_changed == []
    assert "a.txt" not in workspace.timeline.tree()
    workspace.carry_out(workspace.plan_rollback(start, outside=True))
    assert (root / "a.txt").read_text() == "first\n"


def test_what_the_baseline_cannot_read_is_said_and_recorded_when_it_can(
    store: AuditStore, root: Path
) -> None:
    os.mkfifo(root / "pipe")
    workspace = store.attach(root)
    told = [event for event in workspace.log.read() if event.kind == "paths.untracked"]
    assert [[path.path for path in event.fact.paths] for event in told] == [["pipe"]]
    with workspace.session("tester") as session:
        call(session, "shell_execute", command="true")
        told = [event for event in workspace.log.read() if event.kind == "paths.untracked"]
        assert len(told) == 1, "news is told once"
        (root / "pipe").unlink()
        (root / "pipe").write_text("a file now\n")
        call(session, "shell_execute", command="mkfifo other")
    listed = workspace.timeline.calls()[0]
    assert listed.coverage.reasons == ("not a file: fifo: other",)
    assert "pipe" in workspace.timeline.tree()


@pytest.mark.parametrize("lost", range(1, 70, 4))
def test_a_head_that_was_cut_short_does_not_count_and_spoils_no_other(
    tmp_path: Path, lost: int
) -> None:
    first, second, third = (TreeHead("log", n, bytes([n]) * 32) for n in (1, 2, 3))
    append_head(tmp_path, first)
    file = tmp_path / "log.heads"
    file.write_text(file.read_text() + (head_line(second) + "\n")[:-lost])
    append_head(tmp_path, third)
    heads = list(read_heads(tmp_path, "log"))
    assert heads == ([first, second, third] if lost == 1 else [first, third])


def test_a_change_whose_folder_cannot_be_synced_is_taken_back(
    workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with workspace.session("tester") as session:
        for arguments in ({"path": "a.txt"}, {"path": "new.txt"}):
            with monkeypatch.context() as broken:
                broken.setattr(OpenFolders, "sync", fails)
                result = call(session, "write_file", content="second\n", **arguments)
            assert result.error is not None and result.error.code == "IO"
            assert result.files_changed == []
        with monkeypatch.context() as broken:
            broken.setattr(OpenFolders, "sync", fails)
            assert not call(session, "delete_file", path="folder/b.txt").success
    assert sorted(path.name for path in root.rglob("*")) == ["a.txt", "b.txt", "folder"]
    assert (root / "a.txt").read_text() == "first\n"
    assert workspace.status().drift == ()


def test_a_workspace_that_cannot_be_read_for_a_moment_is_not_taken_for_empty(
    workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def too_many(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if path == "." and flags & os.O_DIRECTORY:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(path, flags, *rest, **options)

    before = workspace.timeline.tree()
    with workspace.session("tester") as session:
        with monkeypatch.context() as broken:
            broken.setattr(os, "open", too_many)
            result = call(session, "shell_execute", command="true")
        assert result.error is not None and result.error.code == "IO"
        assert workspace.timeline.tree() == before
        assert call(session, "shell_execute", command="true").success
    assert workspace.timeline.tree() == before
    assert not [e for e in workspace.log.read() if e.actor == "outside" and e.seq > 3]
