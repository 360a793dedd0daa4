"""What the index of one process knows while others change and record the workspace."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditStore, Session, ToolResult, open_store
from loom_audit.errors import StorageFailed
from loom_audit.history.record.call import OpenCall
from loom_audit.ports import Stamps

Call = Callable[..., ToolResult]


def tree(session: Session) -> set[str]:
    return set(session.workspace.timeline.tree())


def run_command(session: Session, command: str, call_id: str | None = None) -> ToolResult:
    return anyio.run(lambda: session.call("shell_execute", {"command": command}, call_id=call_id))


@pytest.mark.parametrize("index", ["kept", "deleted"])
def test_a_file_gone_before_a_session_that_began_with_a_write_is_missed(
    store: AuditStore, root: Path, home: Path, index: str
) -> None:
    id = store.attach(root).id
    (root / "src" / "main.py").unlink()
    if index == "deleted":
        (home / "index" / f"{id}.db").unlink()
    with open_store() as again, again.workspace(root).session("tester") as session:
        for tool, arguments in (
            ("write_file", {"path": "a.txt", "content": "new"}),
            ("shell_execute", {"command": "true"}),
        ):
            assert anyio.run(session.call, tool, arguments).success
        assert sorted(session.workspace.timeline.tree()) == ["a.txt", "src"]


def test_what_another_session_made_and_a_person_deleted_is_gone_for_whoever_wrote_meanwhile(
    root: Path, session: Session, call: Call
) -> None:
    call("shell_execute", command="true")
    with open_store() as store, store.workspace(root).session("other") as other:
        for path in ("new", "folder/new"):
            opened = OpenCall(other.writer, "write", {}, "write", call_id=path)
            opened.edit(path, b"new", final=True)
            opened.finish("ok", {})
    call("write_file", path="own", content="own")
    (root / "new").unlink()
    (root / "folder" / "new").unlink()
    (root / "folder").rmdir()
    assert call("shell_execute", command="true").files_changed == []
    assert tree(session) == {"a.txt", "src", "src/main.py", "own"}


def test_a_session_that_only_writes_loads_no_stamps_and_the_next_look_misses_nothing(
    root: Path, session: Session, store: AuditStore, call: Call
) -> None:
    with open_store() as again, again.workspace(root).session("writer") as writer:
        for n in range(3):
            written = anyio.run(writer.call, "write_file", {"path": f"{n}", "content": "new"})
            assert written.success
        assert writer.writer.attachment.process.last_seen.head == -1
        (root / "1").unlink()
        (root / "a.txt").write_text("by hand")
        assert anyio.run(writer.call, "shell_execute", {"command": "true"}).files_changed == []
        assert writer.writer.attachment.process.last_seen.head > 0
    assert tree(session) == {"0", "2", "a.txt", "src", "src/main.py"}
    by_hand = session.workspace.timeline.tree()["a.txt"]
    assert by_hand.size == len("by hand")


def test_a_mode_that_another_session_changed_and_a_person_changed_back_is_on_record(
    root: Path, session: Session, call: Call
) -> None:
    call("shell_execute", command="true")
    with open_store() as store, store.workspace(root).session("other") as other:
        opened = OpenCall(other.writer, "write", {}, "execute", call_id="1")
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
    """As after `kill -9` between the commit and the index, which is not part of the commit."""

    def fails(*_: object, **__: object) -> None:
        raise StorageFailed("No space left on device")

    call("shell_execute", command="true")
    with open_store() as store, store.workspace(root).session("other") as other:
        opened = OpenCall(other.writer, "write", {}, "write", call_id="1")
        with monkeypatch.context() as patched:
            patched.setattr(type(other.workspace.attachment.on_disk.index), "update", fails)
            opened.edit("new", b"new", final=True)
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


@pytest.mark.parametrize("reads", [0, 40])
def test_an_older_copy_of_the_store_is_not_believed_to_have_seen_later_changes(
    home: Path, root: Path, tmp_path: Path, reads: int
) -> None:
    with open_store() as store, store.attach(root).session("first") as session:
        run_command(session, "true")
    shutil.copytree(home, tmp_path / "copy")
    with open_store() as store, store.workspace(root).session("second") as session:
        run_command(session, "echo 2 > src/main.py")
        run_command(session, "true")
    for file in home.glob("audit.db*"):
        file.unlink()
    for file in (tmp_path / "copy").glob("audit.db*"):
        shutil.copy(file, home)
    with open_store() as store:
        workspace = store.workspace(root)
        for file in workspace.adapters.settings.heads.glob("*.heads"):
            file.unlink()  # as whoever puts back an older copy is told to
        with workspace.session("third") as session:
            for _ in range(reads):
                anyio.run(session.call, "read_file", {"path": "a.txt"})
            if not reads:
                anyio.run(session.call, "write_file", {"path": "a.txt", "content": "3"})
        assert [change.path for change in workspace.status().drift] == ["src/main.py"]
