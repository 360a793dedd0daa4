"""Plans for paths in folders into which nobody may look, as an ordinary user."""

from pathlib import Path

import pytest

from loom_audit import Session
from loom_audit.errors import AuditError
from tests.processes.ordinary_user import run
from tests.processes.ordinary_user import session as session

FILES = {"d/x": "one\n", "d/y": "two\n"}
UNREADABLE = "it cannot be read, so what is there is not known"


@pytest.mark.parametrize("mode", ["000", "444"])
def test_what_comes_back_into_a_folder_that_stays_closed_is_blocked(
    session: Session, mode: str
) -> None:
    workspace = run(session, "rm d/y", f"chmod {mode} d")
    later, call = workspace.timeline.calls()
    plan = workspace.plan_revert([call.seq or 0])
    assert [(note.path, note.reason) for note in plan.blocked] == [("d/y", UNREADABLE)]
    assert later.changed


@pytest.mark.parametrize("mode", ["000", "444"])
def test_what_comes_back_into_a_folder_that_the_plan_opens_is_made(
    session: Session, mode: str
) -> None:
    start = session.workspace.log.head()
    workspace = run(session, "rm d/y; mkdir d/e", "rmdir d/e", f"chmod {mode} d")
    plan = workspace.plan_rollback(start)
    assert not plan.blocked
    workspace.carry_out(plan)
    root = Path(workspace.root)
    assert {path.name: path.read_text() for path in (root / "d").iterdir()} == {
        "x": "one\n",
        "y": "two\n",
    }
    assert not workspace.status().drift


def test_what_nobody_saw_in_a_folder_that_the_plan_opens_stays(session: Session) -> None:
    start = session.workspace.log.head()
    workspace = run(session, "rm d/y", "echo unseen > d/y; chmod 000 d")
    root = Path(workspace.root)
    plan = workspace.plan_rollback(start)
    assert not plan.blocked
    with pytest.raises(AuditError, match="d/y was changed by somebody else"):
        workspace.carry_out(plan)
    assert (root / "d/y").read_text() == "unseen\n"
    assert not workspace.status().drift


def test_a_fifo_that_nobody_saw_in_a_folder_that_the_plan_opens_stays(session: Session) -> None:
    start = session.workspace.log.head()
    workspace = run(session, "rm d/y", "mkfifo d/y; chmod 000 d")
    with pytest.raises(AuditError):
        workspace.carry_out(workspace.plan_rollback(start))
    root = Path(workspace.root)
    assert not workspace.status().drift
    (root / "d").chmod(0o755)
    assert (root / "d/y").is_fifo()


@pytest.mark.parametrize("verb", ["revert", "rollback"])
def test_a_new_folder_that_cannot_be_looked_into_is_not_deleted(
    session: Session, verb: str
) -> None:
    start = session.workspace.log.head()
    workspace = run(session, "mkdir n; echo in > n/in; chmod 000 n")
    [call] = workspace.timeline.calls()
    plan = {
        "revert": lambda: workspace.plan_revert([call.seq or 0]),
        "rollback": lambda: workspace.plan_rollback(start),
    }[verb]()
    assert not plan.changes
    assert (Path(workspace.root) / "n").is_dir()


@pytest.mark.parametrize("mode", ["300", "200", "000"])
def test_a_new_folder_that_was_closed_later_is_not_deleted_unseen(
    session: Session, mode: str
) -> None:
    workspace = run(session, "mkdir n", f"chmod {mode} n", "echo")
    calls = [call.seq or 0 for call in workspace.timeline.calls()]
    plan = workspace.plan_revert(calls)
    assert [(note.path, note.reason) for note in plan.blocked] == [("n", UNREADABLE)]


def test_a_moved_folder_that_cannot_be_looked_into_is_not_moved_back(session: Session) -> None:
    workspace = run(session, "mkdir e", "mv e node_modules; chmod 000 node_modules")
    [note] = workspace.plan_undo().blocked
    assert note.reason.endswith("not all of it can be read; it is not renamed back")


@pytest.mark.parametrize("mode", ["444", "300", "200"])
def test_a_folder_that_cannot_be_listed_is_not_deleted_unseen(session: Session, mode: str) -> None:
    start = session.workspace.log.head()
    workspace = run(session, "mkdir n", f"echo in > n/in; chmod {mode} n")
    plan = workspace.plan_rollback(start)
    assert [note.path for note in plan.blocked] == ["n"]
