"""Moved folders with something in them that nobody may read, as an ordinary user."""

from contextlib import suppress
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.errors import NotFound
from tests.given.cases import some
from tests.processes.ordinary_user import run
from tests.processes.ordinary_user import session as session

FILES = {".git/HEAD": "ref\n", ".git/sub/x": "one\n", "a.txt": "a\n", "src/f": "f\n"}


def names(workspace: AuditedWorkspace) -> list[str]:
    """The names of all files, in whatever folders."""
    return sorted(path.name for path in Path(workspace.root).rglob("*") if path.is_file())


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", some(["000", "400", "200"], 1))
@pytest.mark.parametrize(
    "commands",
    [
        ["chmod {} .git/HEAD", "mv .git a"],
        ["mv .git a", "chmod {} a/HEAD"],
        ["mv .git a", "mv a b", "chmod {} b/HEAD"],
        ["chmod {} .git/HEAD", "mv .git a", "mv a b", "mv b c"],
        ["mv src .tox; chmod {} .tox/f"],
    ],
)
def test_undos_and_redos_over_a_file_that_cannot_be_read_lose_nothing_and_are_on_record(
    session: Session, commands: list[str], mode: str
) -> None:
    workspace = run(session, "true")
    before = names(workspace)
    run(session, *(command.format(mode) for command in commands))
    for make in [*[workspace.plan_undo] * len(commands), *[workspace.plan_redo] * len(commands)]:
        with suppress(NotFound):
            plan = make()
            if not (plan.blocked or plan.is_empty):
                workspace.carry_out(plan)
        assert names(workspace) == before
        assert workspace.status().drift == ()
    assert workspace.verify().ok


def test_a_redo_over_a_file_that_was_closed_where_nothing_is_recorded_is_on_record(
    session: Session,
) -> None:
    workspace = run(session, "true", "mv .git a")
    workspace.carry_out(workspace.plan_undo())
    (Path(workspace.root) / ".git" / "HEAD").chmod(0)
    redo = workspace.carry_out(workspace.plan_redo()).call
    assert redo.status == "ok" and redo.coverage.level == "partial"
    assert {*redo.paths} == {".git", "a", "a/sub", "a/sub/x"}
    run(session, "true")
    assert workspace.timeline.calls()[0].changed == 0
    assert workspace.status().drift == () and workspace.verify().ok
