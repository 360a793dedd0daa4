"""A recorded file that cannot be read any more, or that became another kind of inode."""

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.errors import Conflict
from loom_audit.model.events import FilesChanged
from tests.history.scope.conftest import Run
from tests.oracles.trees import everything
from tests.processes.ordinary_user import ordinary_session


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session of an ordinary user, whoever started the tests."""
    with ordinary_session({"data": "data\n", "b": "b\n"}, monkeypatch) as session:
        yield session


def test_a_file_that_may_not_be_read_any_more_and_is_the_same_has_another_mode(
    ordinary: Session,
) -> None:
    workspace, root = ordinary.workspace, Path(ordinary.workspace.root)
    with ordinary.recording("close"):
        (root / "data").chmod(0)
    [call] = workspace.timeline.calls()
    assert (call.coverage.level, call.paths) == ("full", ("data",))
    assert workspace.timeline.tree()["data"].mode == 0
    workspace.carry_out(workspace.plan_undo())
    assert (root / "data").read_text() == "data\n"
    assert stat.S_IMODE((root / "data").stat().st_mode) == 0o644


def test_a_plan_is_blocked_where_what_is_there_cannot_be_read(ordinary: Session) -> None:
    workspace, root = ordinary.workspace, Path(ordinary.workspace.root)
    point = workspace.log.head()
    with ordinary.recording("write"):
        (root / "data").write_text("changed\n")
        (root / "b").write_text("changed\n")
    (root / "data").write_text("by somebody else, and closed\n")
    (root / "data").chmod(0)
    for make in (workspace.plan_undo, lambda **more: workspace.plan_rollback(point, **more)):
        plan = make()
        assert [note.path for note in plan.blocked] == ["data"]
        with pytest.raises(Conflict, match="cannot be read"):
            workspace.carry_out(plan)
        assert not make(choices={"data": "current"}).blocked
    (root / "data").chmod(0o644)
    assert (root / "data").read_text() == "by somebody else, and closed\n"


def kinds(root: Path) -> dict[str, int]:
    return {path: stat.S_IFMT(mode) for path, (mode, _) in everything(root).items()}


@pytest.mark.parametrize("path", ["src", "a.txt"])
def test_a_file_or_folder_that_became_a_fifo_is_deleted_and_the_fifo_is_moved_aside(
    workspace: AuditedWorkspace, root: Path, run: Run, path: str
) -> None:
    before = everything(root)
    point = workspace.log.head()
    run(f"rm -r {path}; mkfifo {path}")
    [call] = workspace.timeline.calls()
    assert path in call.paths
    assert call.coverage.reasons == (f"not a file: fifo: {path}",)
    assert path not in workspace.timeline.tree()
    inode = (root / path).lstat().st_ino
    for plan in (workspace.plan_undo(), workspace.plan_rollback(point)):
        assert not plan.blocked
        assert f"{path}.fifo" in {note.path for note in plan.kept}
    workspace.carry_out(workspace.plan_undo())
    now = everything(root)
    assert stat.S_ISFIFO(now[f"{path}.fifo"][0])
    assert (root / f"{path}.fifo").lstat().st_ino == inode
    assert {name: entry for name, entry in now.items() if name != f"{path}.fifo"} == before
    run("true")
    assert workspace.status().drift == ()


def test_a_socket_is_moved_aside_to_a_name_that_is_free(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    (root / "a.txt.socket").write_text("taken\n")
    with session.recording("listen"):
        (root / "a.txt").unlink()
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(root / "a.txt"))
    workspace.carry_out(workspace.plan_undo())
    assert stat.S_ISSOCK((root / "a.txt.socket-2").lstat().st_mode)
    assert (root / "a.txt").read_text().startswith("one")
    assert (root / "a.txt.socket").read_text() == "taken\n"


def test_what_a_partial_call_without_changes_did_not_capture_is_in_the_plan(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    point = workspace.log.head()
    run("rm -rf src/__pycache__; mkdir src/.git")
    run("rmdir src/.git")
    number = run("mkfifo pipe")
    plan = workspace.plan_rollback(point)
    assert any(note.calls == (number,) and "fifo" in note.reason for note in plan.irreversible)


@pytest.mark.parametrize(
    ("command", "reasons"),
    [
        ("rm pipe", ["not on record: pipe"]),
        ("rm pipe; mkfifo pipe", ["not a file: fifo: pipe"]),
        ("rm pipe; echo text > pipe", ["not on record: pipe"]),
        ("rm -r deep", ["not on record: deep/pipe"]),
        ("mv pipe other", ["not a file: fifo: other", "not on record: pipe"]),
        ("mv deep lib", ["not a file: fifo: lib/pipe", "not on record: deep/pipe"]),
        ("mv deep node_modules", []),
        ("echo changed > a.txt", []),
        ("chmod 600 pipe; touch deep/pipe", []),
    ],
)
def test_a_fifo_that_a_command_deletes_or_replaces_is_told(
    workspace: AuditedWorkspace, root: Path, run: Run, command: str, reasons: list[str]
) -> None:
    (root / "deep").mkdir()
    run("mkfifo pipe deep/pipe")
    made = {"not a file: fifo: pipe", "not a file: fifo: deep/pipe"}
    assert set(workspace.timeline.calls()[0].coverage.reasons) == made
    run("true")
    assert workspace.timeline.calls()[0].coverage.level == "full"
    run(command)
    told = workspace.timeline.calls()[0].coverage
    assert (told.level, sorted(told.reasons)) == ("partial" if reasons else "full", reasons)
    run("true")
    assert workspace.timeline.calls()[0].coverage.level == "full"


@pytest.mark.parametrize(
    "command",
    ["rm pipe; echo text > pipe", "mv -f a.txt pipe", "rm pipe; ln a.txt pipe; echo x >> pipe"],
)
def test_what_a_command_puts_in_place_of_a_fifo_is_its_own_change(
    workspace: AuditedWorkspace, root: Path, run: Run, command: str
) -> None:
    os.mkfifo(root / "pipe")
    run("true")
    run("true")
    point, text = workspace.log.head(), (root / "a.txt").read_text()
    run(command)
    assert "pipe" in workspace.timeline.calls()[0].paths
    assert not [f for e in workspace.timeline.events() if (f := e.fact) and origin(f) == "outside"]
    for rolled_back in (False, True):
        plan = workspace.plan_rollback(point) if rolled_back else workspace.plan_undo()
        workspace.carry_out(plan)
        assert not (root / "pipe").exists() and (root / "a.txt").read_text() == text
        workspace.carry_out(workspace.plan_undo() if rolled_back else workspace.plan_redo())
        assert (root / "pipe").is_file()


def origin(fact: object) -> str:
    return fact.origin if isinstance(fact, FilesChanged) else ""


def test_what_a_plan_cannot_take_back_names_a_fifo_that_was_deleted(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    os.mkfifo(root / "pipe")
    run("true")
    point = workspace.log.head()
    run("rm pipe; echo changed > a.txt")
    for plan in (workspace.plan_undo(), workspace.plan_rollback(point)):
        assert any("not on record: pipe" in note.reason for note in plan.irreversible)
    workspace.carry_out(workspace.plan_undo())
    assert not (root / "pipe").exists()


@pytest.mark.parametrize(
    ("mode", "then"), [(0o4755, 0o755), (0o2755, 0o755), (0o2745, 0o2745), (0o6711, 0o711)]
)
def test_set_user_id_falls_when_the_content_changes(
    root: Path, call: Callable[..., object], run: Run, mode: int, then: int
) -> None:
    run(f"chmod {mode:o} a.txt")
    call("write_file", path="a.txt", content="new\n")
    assert stat.S_IMODE((root / "a.txt").stat().st_mode) == then
