"""Files and folders that nobody may read for a while, as an ordinary user."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.history.record.watching import why_everything
from tests.processes.ordinary_user import ordinary_session


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
    assert newest(workspace) == ("partial", {"a.txt", "d"})  # the same, of other modes
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
    assert newest(workspace) == ("partial", {"a.txt", "d"})
    opened, changed, _ = workspace.timeline.calls()
    assert set(opened.coverage.reasons) == {"not on record: d/e/f"}
    assert changed.paths == ("a.txt",), "it is as it was seen when that call had changed it"
    workspace.carry_out(workspace.plan_revert([changed.seq or 0]))
    assert (root / "a.txt").read_text() == "one"
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
    assert newest(session.workspace) == ("full", {"d"}), "its mode is a change like a file's"


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


def test_a_closed_folder_is_opened_by_taking_its_mode_back(session: Session) -> None:
    workspace, root = session.workspace, Path(session.workspace.root)
    with session.recording("close"):
        (root / "d").chmod(0)
    tree = workspace.timeline.tree()
    assert tree["d"].mode == 0 and "d/g" not in tree and "d/e/f" not in tree
    workspace.carry_out(workspace.plan_undo())
    assert (root / "d").stat().st_mode & 0o777 == 0o755
    with session.recording("look"):
        pass
    assert newest(workspace) == ("full", set())
    assert {"d", "d/e", "d/e/f", "d/g"} <= workspace.timeline.tree().keys()
    assert workspace.status().drift == ()


def test_what_was_written_before_it_was_closed_is_that_calls_once_it_is_seen(
    session: Session,
) -> None:
    workspace, root = session.workspace, Path(session.workspace.root)
    with session.recording("write and close"):
        (root / "a.txt").write_text("CHANGED")
        (root / "a.txt").chmod(0)
    number = workspace.timeline.calls()[0].seq or 0
    head = workspace.timeline.point("head")
    assert "a.txt" not in workspace.timeline.tree(head)
    assert workspace.timeline.unseen(head) == {"a.txt": "unreadable"}
    with session.recording("open"):
        (root / "a.txt").chmod(0o644)
    assert newest(workspace) == ("full", {"a.txt"})  # the permission bits
    [plan] = [workspace.plan_revert([number])]
    assert [(one.path, one.after and one.after.size) for one in plan.changes] == [("a.txt", 3)]
    workspace.carry_out(plan)
    assert (root / "a.txt").read_text() == "one"
    assert workspace.timeline.unseen(workspace.timeline.point("head")) == {}


def test_what_was_written_while_it_was_closed_is_from_outside_with_the_call_as_candidate(
    session: Session,
) -> None:
    workspace, root = session.workspace, Path(session.workspace.root)
    with session.recording("write and close"):
        (root / "a.txt").write_text("CHANGED")
        (root / "a.txt").chmod(0)
    one = workspace.timeline.calls()[0]
    (root / "a.txt").chmod(0o600)
    (root / "a.txt").write_text("PERSON")
    with session.recording("look"):
        pass
    assert newest(workspace) == ("full", set())
    [found] = [c for c in workspace.timeline.history("a.txt") if c.origin == "outside"]
    assert found.causes == (one.requested,) and found.change.before is None
    plan = workspace.plan_revert([one.seq or 0])
    assert not plan.changes
    assert (root / "a.txt").read_text() == "PERSON"


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", [0, 0o300, 0o400, 0o644])
@pytest.mark.parametrize("folder", ["d", "d/e", "d/e/deep"])
def test_a_watched_folder_that_is_closed_takes_all_below_out_of_the_tree_whoever_closes_it(
    session: Session, folder: str, mode: int
) -> None:
    workspace, root = session.workspace, Path(session.workspace.root)
    (root / "d" / "e" / "deep" / "er").mkdir(parents=True)
    (root / "d" / "e" / "deep" / "er" / "file").write_text("one")
    for _ in range(3):
        look(session)
    whole = workspace.timeline.tree()
    below = {path for path in whole if path.startswith(folder + "/")}
    for _ in range(2):
        for step in (mode, 0o755):
            with session.recording("chmod"):
                (root / folder).chmod(step)
            look(session)
            assert below.isdisjoint(workspace.timeline.tree()) == (step == mode)
        workspace.carry_out(workspace.plan_undo())
        assert (root / folder).stat().st_mode & 0o777 == mode
        look(session)
        look(session)
        assert why_everything(workspace.attachment.process) == ""
        assert workspace.timeline.tree().keys() == whole.keys() - below
        workspace.carry_out(workspace.plan_redo())
        look(session)
        assert workspace.timeline.tree() == whole


def look(session: Session) -> None:
    with session.recording("look"):
        pass


@pytest.mark.parametrize("mode", [0, 0o300, 0o644])
def test_a_watched_folder_that_an_undo_closes_hides_what_closed_and_changed_in_it(
    session: Session, mode: int
) -> None:
    """What is in it was closed before, and is opened and changed while nobody looks."""
    workspace, root = session.workspace, Path(session.workspace.root)
    for step in (mode, 0o755):
        look(session)
        with session.recording("chmod"):
            (root / "d").chmod(step)
    with session.recording("close what is in it"):
        (root / "d" / "e").chmod(0o644)
    workspace.carry_out(workspace.plan_revert([workspace.timeline.calls()[1].seq or 0]))
    look(session)
    assert workspace.timeline.tree().keys() == {"a.txt", "d"}
    (root / "d").chmod(0o755)
    (root / "d" / "e").chmod(0o755)
    (root / "d" / "e" / "f").unlink()
    (root / "d" / "e" / "new").write_text("new")
    look(session)
    assert why_everything(workspace.attachment.process) == ""
    assert workspace.timeline.tree().keys() == {"a.txt", "d", "d/e", "d/e/new", "d/g"}


def test_a_rollback_names_every_path_that_was_lost_while_nobody_could_read_it(
    session: Session,
) -> None:
    workspace, root = session.workspace, Path(session.workspace.root)
    names = {f"many/{n}.txt" for n in range(25)}
    with session.recording("make"):
        (root / "many").mkdir()
        for name in names:
            (root / name).write_text("one")
    (made, *_) = workspace.timeline.calls()
    with session.recording("write and close"):
        for name in names:
            (root / name).write_text("two")
            (root / name).chmod(0)
    with session.recording("delete"):
        for name in names:
            (root / name).unlink()
    plan = workspace.plan_rollback(made.seq or 0)
    back = {change.path for change in plan.changes}
    named = {note.path for note in plan.irreversible}
    assert back | named >= names
