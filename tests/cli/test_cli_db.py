"""`db`: where the store is, its revision, projections made anew."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.shells import Shell
from tests.processes.forked import Forked


def test_db_tells_where_the_store_is_and_that_it_is_up_to_date(audited: Shell) -> None:
    assert audited("db", "path").text == f"{audited.database}\n"
    (found,) = audited.records("db", "current")
    assert found["up_to_date"] is True
    (done,) = audited.records("db", "upgrade")
    assert (done["before"], done["backups"]) == (found["revision"], [])


def test_a_store_from_a_newer_version_is_refused_with_what_to_do(audited: Shell) -> None:
    with closing(sqlite3.connect(audited.database)) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
        raw.commit()
    refused = audited("log", code=3)
    assert "Upgrade loom-audit" in refused.errors
    (found,) = audited.records("db", "current", code=1)
    assert found["revision"] == "9999"


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
    rebuilt = json.loads(run("db", "rebuild", "--json"))
    assert rebuilt["events"] > 0
    assert "the projection call differs" in rebuilt["differed"][0]["message"]
    assert run("log", "--json") == before
    assert "tampered" not in run("verify")


def test_the_caches_are_listed_and_emptied(audited: Shell) -> None:
    audited("run", "--", "sh", "-c", "echo made > file")
    (index, code, maps) = audited.records("db", "caches")
    assert (index["name"], code["bytes"], maps["most_bytes"]) == ("change index", 0, 33554432)
    assert index["bytes"] > 0
    assert "lost: reading every file once" in audited("db", "caches").text
    assert audited.records("db", "caches", "--empty")[0]["bytes"] == 0
    assert audited("status").code == 0
