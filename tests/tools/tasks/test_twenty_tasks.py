"""Twenty tasks done to their end by what the answers say, in click and in a project with CRLF.

Ten others, in a third project, are done in test_ten_tasks.py.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.shells import Shell
from tests.sandbox.backends import working
from tests.tools.conftest import Bench
from tests.tools.tasks import click_source, shop
from tests.tools.tasks.model import Model
from tests.tools.tasks.over_mcp import over_mcp
from tests.tools.tasks.over_python import over_python
from tests.tools.tasks.project import Project, Task, lay_environment, work

MOST = 10 * 1024
MARK = "taken back by the agent"


@pytest.fixture(autouse=True)
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ann, whose packages come from a folder, and whose machine has a sandbox."""
    working("bubblewrap")
    home = tmp_path / "ann"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Ann\n\temail = ann@example.org\n")
    for name in [name for name in os.environ if name.startswith(("PIP_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "project/vendor"))


def finish(bench: Bench, project: Project, tasks: Sequence[Task]) -> None:
    """All tasks in one session, of which the log tells everything and can take it back."""
    before = project.files()
    workspace = bench.store.attach(project.root)
    with workspace.session("scripted") as session:
        model = Model(over_python(session))
        work(model, project, tasks)
        calls = workspace.own_calls(session.writer).calls(before=None, limit=1_000)
    assert len([call for call in calls if call.undone_by]) == 1
    assert max(len(answer.encode()) for answer in model.answers) <= MOST
    assert not workspace.status().drift and workspace.verify().findings == ()
    workspace.carry_out(workspace.plan_rollback(f"session:{session.id}"))
    assert project.files() == before


@pytest.mark.deep
def test_ten_tasks_in_click(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = lay_environment(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{python.parent}:{os.environ['PATH']}")
    finish(bench, click_source.lay_click(tmp_path / "project", python), click_source.TASKS)


@pytest.mark.deep
def test_ten_tasks_in_a_project_with_crlf_and_an_environment(bench: Bench, tmp_path: Path) -> None:
    finish(bench, shop.lay_shop(tmp_path / "project"), shop.TASKS)


@pytest.mark.few(0)
def test_some_of_them_over_mcp(tmp_path: Path) -> None:
    project = shop.lay_shop(tmp_path / "project")
    (project.root / "artwork").mkdir()
    (project.root / "artwork/banner.png").write_bytes(click_source.picture(1300, 1000))
    shell = Shell(project.root, tmp_path / "data")
    shell("init")
    with over_mcp(shell) as ask:
        work(Model(ask), project, [*shop.OVER_MCP[:3], click_source.PICTURE, *shop.OVER_MCP[3:]])
    assert MARK in shell("log").text
    [session] = shell.records("session")
    assert (session["agent"], session["status"]) == ("tester", "completed")
