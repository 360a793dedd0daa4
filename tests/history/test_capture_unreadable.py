"""Files and folders that nobody may read for a while, as an ordinary user."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from tests.ordinary_user import ordinary_session


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session of an ordinary user, whoever started the tests."""
    files = dict.fromkeys(("a.txt", "d/e/f", "d/g"), "one")
    with ordinary_session(files, monkeypatch) as session:
        yield session


def newest(workspace: AuditedWorkspace) -> tuple[str, set[str]]:
    (call, *_) = workspace.timeline.calls()
    return call.coverage.level, set(call.paths)


def test_what_changed_while_it_could_not_be_read_is_not_surely_the_opening_calls(
    session: Session,
) -> None:
    workspace, root = session.workspace, Path(session.workspace.root)
    with session.recording("close"):
        (root / "a.txt").chmod(0)
        (root / "d").chmod(0)
    assert newest(workspace) == ("partial", {"a.txt"})  # the same file, of another mode
    with session.recording("change what is closed"):
        for path in (root / "a.txt", root / "d"):
            path.chmod(0o700)
        (root / "a.txt").write_text("two")
        (root / "d" / "e" / "f").unlink()
        for path in (root / "a.txt", root / "d"):
            path.chmod(0)
    with session.recording("open"):
        (root / "a.txt").chmod(0o644)
        (root / "d").chmod(0o755)
    assert newest(workspace) == ("partial", {"a.txt"})
    (call, *_) = workspace.timeline.calls()
    assert set(call.coverage.reasons) == {"untracked until now: a.txt", "not on record: d/e/f"}
    with session.recording("change"):
        (root / "a.txt").write_text("three")
    assert newest(workspace) == ("full", {"a.txt"})


def test_what_comes_back_as_it_was_is_not_a_change_and_coverage_is_full(session: Session) -> None:
    root = Path(session.workspace.root)
    (root / "d").chmod(0)
    with session.recording("nothing"):
        pass
    with session.recording("open"):
        (root / "d").chmod(0o755)
    assert newest(session.workspace) == ("full", set())


def test_a_small_folder_that_forbids_writing_comes_back_whole(session: Session) -> None:
    workspace, root = session.workspace, Path(session.workspace.root)
    (root / "d").chmod(0o500)
    with session.recording("delete"):
        (root / "d").chmod(0o700)
        shutil.rmtree(root / "d")
    workspace.carry_out(workspace.plan_undo())
    assert (root / "d").stat().st_mode & 0o777 == 0o500
    assert (root / "d" / "g").read_text() == (root / "d" / "e" / "f").read_text() == "one"
    assert workspace.status().drift == ()


def test_a_small_folder_that_forbids_writing_is_taken_away_whole(session: Session) -> None:
    workspace, root = session.workspace, Path(session.workspace.root)
    with session.recording("make"):
        (root / "new").mkdir()
        (root / "new" / "file").write_text("x")
        (root / "new").chmod(0o500)
    workspace.carry_out(workspace.plan_undo())
    assert not (root / "new").exists()
    assert workspace.status().drift == ()
