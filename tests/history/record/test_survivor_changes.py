"""What was found between two calls while something ran that one of them had left running."""

import os
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ForeignSession
from tests.history.record.test_survivors import Server, owners


@pytest.fixture
def foreign(workspace: AuditedWorkspace) -> ForeignSession:
    return workspace.start_foreign_session("client", id="f", pid=os.getpid())


def run_beside(
    foreign: ForeignSession, root: Path, command: str, *, writes: str = "", call_id: str = "a"
) -> Server:
    """A command in the background, ended by the next call, which finds what it has written."""
    foreign.begin_call(call_id, "Bash", {"command": command})
    one = Server(root)
    foreign.end_call(call_id, "running")
    if writes:
        one.write(writes)
    return one


def find(foreign: ForeignSession, call_id: str = "b") -> None:
    foreign.begin_call(call_id, "Bash", {"command": "true"})
    foreign.end_call(call_id)


def rolled_back(workspace: AuditedWorkspace) -> None:
    workspace.carry_out(workspace.plan_rollback("session:f"))


def test_a_file_that_a_command_names_and_makes_in_the_background_goes_with_its_session(
    foreign: ForeignSession, workspace: AuditedWorkspace, root: Path
) -> None:
    one = run_beside(foreign, root, "sleep 1; echo soon > soon.txt", writes="soon.txt")
    find(foreign)
    one.close()
    assert owners(workspace, "soon.txt") == (None, ("a",))
    plan = workspace.plan_rollback("session:f")
    assert [change.path for change in plan.changes] == ["soon.txt"] and plan.kept == ()
    workspace.carry_out(plan)
    assert not (root / "soon.txt").exists()
    workspace.carry_out(workspace.plan_undo())
    assert (root / "soon.txt").read_text() == "served"


def test_it_goes_with_its_call_too(
    foreign: ForeignSession, workspace: AuditedWorkspace, root: Path
) -> None:
    one = run_beside(foreign, root, "echo > soon.txt &", writes="soon.txt")
    find(foreign)
    one.close()
    call = next(call for call in workspace.timeline.calls() if call.call_id == "a")
    assert call.seq is not None
    workspace.carry_out(workspace.plan_revert([call.seq]))
    assert not (root / "soon.txt").exists()


def test_it_goes_where_nobody_has_looked_since(
    foreign: ForeignSession, workspace: AuditedWorkspace, root: Path
) -> None:
    one = run_beside(foreign, root, "echo > soon.txt &", writes="soon.txt")
    (root / "a.txt").write_text("a person's")
    one.close()
    rolled_back(workspace)
    assert not (root / "soon.txt").exists()
    assert (root / "a.txt").read_text() == "a person's"


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("npm run dev", "made.txt"),
        ("tail -f precious.txt", "precious.txt"),
        ("npm run dev a.txt", "a.txt"),
        ("jest --watch src", "src/new.py"),
        ("serve .", "made.txt"),
    ],
    ids=[
        "not named",
        "only read",
        "there before",
        "in a folder that was there before",
        "the workspace itself",
    ],
)
def test_what_may_as_well_be_a_persons_stays_and_is_listed_with_the_call(
    foreign: ForeignSession, workspace: AuditedWorkspace, root: Path, command: str, path: str
) -> None:
    one = run_beside(foreign, root, command, writes=path)
    kept = (root / path).read_bytes()
    find(foreign)
    one.close()
    plan = workspace.plan_rollback("session:f")
    [note] = [note for note in plan.kept if note.path == path]
    assert note.calls and "what the call left running" in note.reason
    if not plan.is_empty:
        workspace.carry_out(plan)
    assert (root / path).read_bytes() == kept


def test_what_is_in_a_folder_that_a_command_names_and_makes_goes_with_its_session(
    foreign: ForeignSession, workspace: AuditedWorkspace, root: Path
) -> None:
    one = run_beside(foreign, root, "cc -o out/deep/it.o src/main.c; cp -r src logs")
    (root / "out/deep").mkdir(parents=True)
    (root / "logs").mkdir()
    one.write("out/deep/it.o")
    one.write("logs/any name")
    find(foreign)
    one.close()
    rolled_back(workspace)
    assert not (root / "out").exists() and not (root / "logs").exists()


def test_what_a_command_names_and_deletes_in_the_background_comes_back(
    foreign: ForeignSession, workspace: AuditedWorkspace, root: Path
) -> None:
    before = (root / "src/main.py").read_bytes()
    one = run_beside(foreign, root, "sleep 1; rm -r src", writes="seen")
    (root / "src/main.py").unlink()
    (root / "src").rmdir()
    find(foreign)
    one.close()
    rolled_back(workspace)
    assert (root / "src/main.py").read_bytes() == before
    assert (root / "seen").exists(), "that it does not name"


def test_what_a_person_writes_into_it_later_is_kept(
    foreign: ForeignSession, workspace: AuditedWorkspace, root: Path
) -> None:
    one = run_beside(foreign, root, "echo > soon.txt", writes="soon.txt")
    find(foreign, "b")
    one.close()
    find(foreign, "c")
    (root / "soon.txt").write_text("a person's own")
    plan = workspace.plan_rollback("session:f")
    assert [note.path for note in (*plan.kept, *plan.blocked)] == ["soon.txt"]
    assert not plan.changes


def test_a_relative_name_is_of_the_directory_that_the_command_ran_in(
    foreign: ForeignSession, workspace: AuditedWorkspace, root: Path
) -> None:
    foreign.begin_call("a", "Bash", {"command": "echo > soon.txt &"}, cwd=str(root / "src"))
    one = Server(root)
    foreign.end_call("a", "running")
    one.write("soon.txt")
    one.write("src/soon.txt")
    find(foreign)
    one.close()
    rolled_back(workspace)
    assert (root / "soon.txt").exists() and not (root / "src/soon.txt").exists()
