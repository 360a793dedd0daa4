"""Commands about the store itself: doctor, db, salvage, and stores that are not well."""

import hashlib
import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from loom_audit.cli.salvaging import salvage
from tests.cli.shells import Shell, walk


@pytest.fixture
def busy(audited: Shell) -> Shell:
    """A workspace with some history: edits, a binary file, a symlink, a deletion, a large file."""
    (audited.workspace / "link").symlink_to("a.txt")
    (audited.workspace / "data.bin").write_bytes(os.urandom(3000))
    (audited.workspace / "large.bin").write_bytes(os.urandom(700_000))
    audited.sh("chmod 750 src")
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    audited.call("edit_file", path="a.txt", old_str="three", new_str="3")
    audited.call("delete_file", path="src/app.py")
    return audited


def database(shell: Shell) -> Path:
    return shell.home / "audit.db"


def fold_in(file: Path) -> None:
    """Bring everything from the write-ahead log into the database file."""
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def salvaged(shell: Shell, to: Path, code: int = 0) -> tuple[dict[str, int], list[dict[str, str]]]:
    (done,) = shell.records("salvage", "--to", str(to), code=code)
    failures = [json.loads(line) for line in (to / "failed.jsonl").read_text().splitlines()]
    assert done["failures"] == len(failures)
    for folder in (to / "contents").iterdir():
        for file in folder.iterdir():
            assert hashlib.sha256(file.read_bytes()).hexdigest() == folder.name + file.name
    return done, failures


def rebuilt(to: Path) -> Path:
    (found,) = (to / "workspaces").iterdir()
    return found


def test_salvage_of_a_healthy_store_gets_everything_out(busy: Shell, tmp_path: Path) -> None:
    before = walk(busy.home)
    done, failures = salvaged(busy, tmp_path / "out")
    assert failures == []
    events = [json.loads(line) for line in (tmp_path / "out" / "events.jsonl").open()]
    recorded = busy.records("log", "--events", "--oldest-first", "-n", "0")
    assert [line["event"] for line in events] == recorded
    assert all(line["intact"] for line in events)
    assert done["events"] == len(recorded)
    expected = {k: (v[0], v[1] if v[0] == "file" else 0, v[2]) for k, v in busy.tree().items()}
    found = {
        k: (v[0], v[1] if v[0] == "file" else 0, v[2])
        for k, v in walk(rebuilt(tmp_path / "out")).items()
    }
    assert found == expected
    assert {k: v for k, v in walk(busy.home).items() if k == "audit.db"} == {
        k: v for k, v in before.items() if k == "audit.db"
    }


def test_salvage_gets_the_rest_out_whichever_page_is_damaged(busy: Shell, tmp_path: Path) -> None:
    file = database(busy)
    fold_in(file)
    whole = salvage(file, tmp_path / "whole")
    good, page = file.read_bytes(), 4096
    noticed = partly = 0
    for n in range(len(good) // page):
        place = tmp_path / f"page{n}"
        shutil.copytree(busy.home / "blobs", place / "blobs")
        damaged = place / "audit.db"
        damaged.write_bytes(good[: n * page] + os.urandom(page) + good[(n + 1) * page :])
        done = salvage(damaged, place / "out")
        lines = (
            [json.loads(line) for line in (place / "out" / "events.jsonl").open()]
            if (place / "out" / "events.jsonl").exists()
            else []
        )
        assert [line["seq"] for line in lines] == sorted({line["seq"] for line in lines})
        assert done.events <= whole.events
        noticed += done.failures > 0
        partly += done.failures > 0 and done.events + done.contents > 3
        lost = done.events < whole.events or done.contents < whole.contents
        assert done.failures > 0 or not lost, f"page {n}: something is missing and nothing says so"
    assert noticed > 3
    assert partly > 3


def test_salvage_says_what_is_wrong_with_an_altered_leaf(busy: Shell, tmp_path: Path) -> None:
    file = database(busy)
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("DROP TRIGGER event_no_update")
        raw.execute("UPDATE event SET leaf_hash = zeroblob(32) WHERE seq = 4")
        raw.commit()
    _, failures = salvaged(busy, tmp_path / "out", code=1)
    assert [(f["what"], f["seq"]) for f in failures] == [("event", 4)]
    lines = [json.loads(line) for line in (tmp_path / "out" / "events.jsonl").open()]
    assert [line["seq"] for line in lines if not line["intact"]] == [4]


def test_salvage_of_something_that_is_no_database_keeps_a_copy_and_says_so(
    busy: Shell, tmp_path: Path
) -> None:
    database(busy).write_bytes(b"this is no database" * 1000)
    done, failures = salvaged(busy, tmp_path / "out", code=1)
    assert done["events"] == 0
    assert done["contents"] >= 1, "large contents are files and need no database"
    assert [failure["what"] for failure in failures] == ["store"]
    assert (tmp_path / "out" / "copy" / "audit.db").read_bytes().startswith(b"this is no database")


def test_salvage_of_a_locked_store_works(busy: Shell, tmp_path: Path) -> None:
    with closing(sqlite3.connect(database(busy), isolation_level=None)) as raw:
        raw.execute("BEGIN EXCLUSIVE")
        _, failures = salvaged(busy, tmp_path / "out")
    assert failures == []


def test_salvage_refuses_a_folder_that_is_not_empty(busy: Shell) -> None:
    refused = busy("salvage", "--to", str(busy.workspace), code=5)
    assert "not an empty folder" in refused.errors


def test_doctor_finds_nothing_wrong_with_a_fresh_store(audited: Shell) -> None:
    checks = audited.records("doctor")
    assert [check for check in checks if check["verdict"] == "problem"] == []
    names = {check["name"] for check in checks}
    assert {"sqlite", "sandbox", "space", "store", "store journal", "store triggers"} <= names


@contextmanager
def mode(path: Path, bits: int) -> Iterator[None]:
    before = stat.S_IMODE(path.stat().st_mode)
    path.chmod(bits)
    yield
    path.chmod(before)


def problems(shell: Shell) -> set[str]:
    found = shell.records("doctor", code=None)
    return {check["name"] for check in found if check["verdict"] != "ok"}


def test_doctor_sees_a_store_that_others_can_read(audited: Shell) -> None:
    with mode(database(audited), 0o644):
        assert "store" in problems(audited)
        assert audited("doctor", code=1).text.count("chmod 600") >= 1
    with mode(audited.home, 0o755):
        assert "data folder" in problems(audited)


def test_doctor_sees_a_missing_trigger(audited: Shell) -> None:
    with closing(sqlite3.connect(database(audited))) as raw:
        raw.execute("DROP TRIGGER event_no_delete")
        raw.commit()
    assert "store triggers" in problems(audited)


def test_doctor_sees_rules_that_nobody_accepted_and_a_workspace_that_is_gone(
    audited: Shell,
) -> None:
    name = f"workspace {audited.workspace}"
    assert name not in problems(audited)
    (audited.workspace / ".loomignore").write_text("*.log\n")
    assert name in problems(audited)
    audited("scope", "accept")
    assert name not in problems(audited)
    (audited.workspace / "x.log").write_text("x")
    assert audited("status").text.count("x.log") == 0
    audited.workspace.rename(audited.workspace.with_name("moved"))
    (found,) = [
        check
        for check in audited.records("doctor", code=None, cwd=audited.home)
        if check["name"] == name
    ]
    assert (found["verdict"], found["text"]) == ("warning", "is gone")


def test_doctor_sees_a_clock_behind_the_log(audited: Shell) -> None:
    from datetime import UTC, datetime

    from loom_audit.cli.checks import check_all
    from loom_audit.config import read_settings

    settings = read_settings(environment={"LOOM_AUDIT_HOME": str(audited.home)})
    found = list(check_all(settings, datetime(2020, 1, 1, tzinfo=UTC)))
    assert [c for c in found if c.verdict == "problem" and "clock" in c.text]


def test_db_tells_where_the_store_is_and_that_it_is_up_to_date(audited: Shell) -> None:
    assert audited("db", "path").text == f"{database(audited)}\n"
    (found,) = audited.records("db", "current")
    assert found["up_to_date"] is True
    (done,) = audited.records("db", "upgrade")
    assert (done["before"], done["backups"]) == (found["revision"], [])


def test_looking_makes_no_store(shell: Shell) -> None:
    for arguments in (("status",), ("log",), ("workspaces",), ("db", "current"), ("verify",)):
        refused = shell(*arguments, code=4)
        assert "hint: " in refused.errors
    assert not shell.home.exists()


def test_a_store_from_a_newer_version_is_refused_with_what_to_do(audited: Shell) -> None:
    with closing(sqlite3.connect(database(audited))) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
        raw.commit()
    refused = audited("log", code=3)
    assert "Upgrade loom-audit" in refused.errors
    (found,) = audited.records("db", "current", code=1)
    assert found["revision"] == "9999"


def test_a_corrupted_store_is_an_error_with_a_hint_and_no_traceback(audited: Shell) -> None:
    database(audited).write_bytes(b"\0" * 8192)
    for arguments in (("log",), ("undo",), ("status",)):
        refused = audited(*arguments, code=None)
        assert refused.code in (3, 4, 6), refused
        assert "hint: " in refused.errors
    assert audited("verify", code=4)
    assert audited("run", "--", "touch", "made", code=125)
    assert not (audited.workspace / "made").exists()


def test_scope_shows_the_rules_in_force(audited: Shell) -> None:
    assert "node_modules" in audited("scope").text
    (found,) = audited.records("scope")
    assert (found["ignore"], found["accepted"]) == ("", False)
    assert "unknown action" in audited("scope", "nope", code=2).errors


def test_recover_has_nothing_to_do_after_a_clean_end(busy: Shell) -> None:
    assert "nothing to recover" in busy("recover").errors
    assert busy("recover", "--continue", "--abandon", code=2)
