"""How far long work is: shown on a terminal, once it has taken a second."""

from io import StringIO
from pathlib import Path

import pytest

from loom_audit import open_store
from loom_audit.cli.shared import output
from loom_audit.cli.shared.output import Output, progress
from loom_audit.ports import Progress


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, patience: float) -> str:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "PATIENCE", patience)
    terminal = Terminal()
    with progress(Output(False, StringIO(), terminal, False, False)) as report:
        assert report is not None
        for done in (1, 700):
            report(Progress("write", done, 1000))
    return terminal.getvalue()


def test_progress_is_shown_once_the_work_has_taken_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "write" in shown(monkeypatch, 0) and "700 files of 1,000 files" in shown(monkeypatch, 0)


def test_what_is_done_at_once_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, 60) == ""


def test_a_rollback_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    root = tmp_path / "root"
    root.mkdir()
    with open_store() as store:
        workspace = store.attach(root)
        start = workspace.log.head()
        with workspace.session("tester") as session, session.recording("fill"):
            for n in range(200):
                (root / f"{n}.txt").write_text(f"{n}")
        told: list[Progress] = []
        workspace.carry_out(workspace.plan_rollback(start), report=told.append)
    assert {(one.stage, one.total) for one in told} == {("write", 200), ("replace", 200)}
    assert [one.done for one in told if one.stage == "replace"] == [0, 64, 128, 192]
