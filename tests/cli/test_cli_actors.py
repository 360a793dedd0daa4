"""Who acts, what moves, and what a choice is about: things a person must not be misled on."""

from pathlib import Path

import pytest

from loom_audit import open_store
from loom_audit.cli import main


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "ws"
    root.mkdir()
    (root / "f").write_bytes(b"1\n")
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(root)
    assert loom("init") == 0
    return root


def loom(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main([*words])
    return int(end.value.code or 0)


def test_a_run_of_a_named_agent_is_that_agents(root: Path) -> None:
    assert loom("call", "write_file", '{"path": "g", "content": "x"}', "--agent", "bot") == 0
    with open_store() as store:
        (call,) = store.workspace(root).timeline.calls()
    assert call.actor == "agent:bot"


def test_a_checkpoint_that_moves_says_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert loom("checkpoint", "good") == 0
    assert "moved" not in "".join(capsys.readouterr())
    assert loom("checkpoint", "good") == 0
    assert "has moved" in "".join(capsys.readouterr())


def test_a_choice_about_a_path_that_is_not_in_the_plan_is_refused(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert loom("call", "write_file", '{"path": "f", "content": "2"}') == 0
    assert loom("undo", "--choose", "nosuch=old", "--yes") == 4
    assert "nosuch" in capsys.readouterr().err
    assert (root / "f").read_bytes() == b"2"


def test_a_rollback_that_would_change_nothing_is_not_recorded(root: Path) -> None:
    (root / "f").unlink()
    with open_store() as store:
        before = store.workspace(root).log.head()
    assert loom("rollback", "head", "--yes") == 0
    with open_store() as store:
        assert store.workspace(root).log.head() == before
    assert loom("rollback", "head", "--outside", "--yes") == 0
    assert (root / "f").read_bytes() == b"1\n"
