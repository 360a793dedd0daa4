"""`db rebuild` derives again what was lost or changed beside the log."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

from tests.forked import Forked


def test_projections_that_were_changed_are_made_anew_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root = tmp_path / "home", tmp_path / "ws"
    root.mkdir()
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(home))

    def run(*words: str, code: int = 0) -> str:
        process = Forked(words, cwd=root, env=os.environ)
        out, errors = process.printed()
        assert process.returncode == code, errors
        return out.decode()

    run("init")
    run("run", "--", "sh", "-c", "echo made > file")
    before = run("log", "--json")
    with sqlite3.connect(home / "audit.db") as raw:
        raw.execute("UPDATE call SET tool = 'nothing'")
    raw.close()
    assert run("log", "--json") != before
    run("verify", code=1)
    assert json.loads(run("db", "rebuild", "--json"))["events"] > 0
    assert run("log", "--json") == before
    assert "tampered" not in run("verify")
