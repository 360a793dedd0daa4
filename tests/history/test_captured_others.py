"""What one process knows of the workspace while another records what it changes there."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from loom_audit import Session, ToolResult, open_store
from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.errors import StorageFailed
from loom_audit.model.files import FileChange
from loom_audit.ports import Displaced, Stamps

Call = Callable[..., ToolResult]


def tree(session: Session) -> set[str]:
    return set(session.workspace.timeline.tree())


def test_what_another_session_made_and_a_person_deleted_is_gone_for_whoever_wrote_meanwhile(
    root: Path, session: Session, call: Call
) -> None:
    call("shell_execute", command="true")
    with open_store() as store, store.workspace(root).session("other") as other:
        for path in ("new", "folder/new"):
            opened = other.recorder.begin("write", {}, "write", call_id=path)
            opened.write(path, b"new", final=True)
            opened.finish("ok", {})
    call("write_file", path="own", content="own")
    (root / "new").unlink()
    (root / "folder" / "new").unlink()
    (root / "folder").rmdir()
    assert call("shell_execute", command="true").files_changed == []
    assert tree(session) == {"a.txt", "src", "src/main.py", "own"}


def test_a_mode_that_another_session_changed_and_a_person_changed_back_is_on_record(
    root: Path, session: Session, call: Call
) -> None:
    call("shell_execute", command="true")
    with open_store() as store, store.workspace(root).session("other") as other:
        opened = other.recorder.begin("write", {}, "execute", call_id="1")
        with opened.capture(final=True):
            (root / "src").chmod(0o700)
        opened.finish("ok", {})
    call("write_file", path="own", content="own")
    (root / "src").chmod(0o755)
    call("shell_execute", command="true")
    assert session.workspace.timeline.tree()["src"].mode == 0o755


@pytest.mark.parametrize("reads", [False, True], ids=["", "and a read"])
def test_what_was_recorded_by_a_process_whose_index_failed_is_looked_at_by_the_next(
    root: Path, session: Session, call: Call, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    """As after `kill -9` between the commit and the index, which is no part of the commit."""

    def fails(*_: object, **__: object) -> None:
        raise StorageFailed("No space left on device")

    call("shell_execute", command="true")
    with open_store() as store, store.workspace(root).session("other") as other:
        opened = other.recorder.begin("write", {}, "write", call_id="1")
        with monkeypatch.context() as patched:
            patched.setattr(type(other.workspace.attachment.index), "update", fails)
            opened.write("new", b"new", final=True)
            opened.finish("ok", {})
    if reads:
        call("read_file", path="a.txt")
    call("write_file", path="own", content="own")
    (root / "new").unlink()
    call("shell_execute", command="true")
    assert "new" not in tree(session)


def test_a_file_deleted_after_the_index_was_is_missed_by_the_next_process(
    home: Path, root: Path, session: Session, call: Call
) -> None:
    call("shell_execute", command="true")
    (home / "index" / f"{session.workspace.id}.db").unlink()
    call("write_file", path="own", content="own")
    (root / "src" / "main.py").unlink()
    with open_store() as store, store.workspace(root).session("next") as other:
        with other.recording("look"):
            pass
        assert tree(other) == {"a.txt", "src", "own"}


def test_what_a_running_command_wrote_at_the_same_moment_as_a_tool_is_the_commands(
    root: Path, session: Session, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = session.workspace
    replace = DiskWorkspace.replace

    def overtaken(disk: DiskWorkspace, change: FileChange, content: BinaryIO | None) -> Displaced:
        (root / change.path).write_bytes(b"the command's\n")
        return replace(disk, change, content)

    with session.recording("command"):
        with monkeypatch.context() as patched:
            patched.setattr(DiskWorkspace, "replace", overtaken)
            call("write_file", path="a.txt", content="the tool's\n", fails="CONFLICT")
        assert (root / "a.txt").read_bytes() == b"the command's\n"
    assert [change.path for change in workspace.plan_undo().changes] == ["a.txt"]


def test_looking_does_not_take_longer_for_each_path_that_cannot_be_recorded(
    root: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(30):
        (root / f"file{n}").touch()
        os.mkfifo(root / f"fifo{n}")
    told = []
    all_known = Stamps.__iter__

    def counted(stamps: Stamps) -> Iterator[str]:
        for path in all_known(stamps):
            told.append(path)
            yield path

    monkeypatch.setattr(Stamps, "__iter__", counted)
    for _ in range(3):
        with session.recording("look"):
            pass
    assert len(told) < 1000


def test_what_somebody_made_at_the_same_moment_and_deleted_before_the_next_look_is_gone(
    root: Path, session: Session, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = DiskWorkspace.replace

    def overtaken(disk: DiskWorkspace, change: FileChange, content: BinaryIO | None) -> Displaced:
        (root / change.path).write_bytes(b"a person's\n")
        return replace(disk, change, content)

    with monkeypatch.context() as patched:
        patched.setattr(DiskWorkspace, "replace", overtaken)
        call("write_file", path="new", content="the tool's\n", fails="CONFLICT")
    assert "new" in tree(session)
    (root / "new").unlink()
    call("shell_execute", command="true")
    assert "new" not in tree(session)
