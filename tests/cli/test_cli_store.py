"""Commands about the store itself: doctor, db, salvage, and stores that are not well."""

import random
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from loom_audit.api import open_store
from loom_audit.model.scope import TEMPORARY
from tests.cli.shells import Shell, walk


@pytest.fixture
def busy(audited: Shell) -> Shell:
    """A workspace with some history: edits, a binary file, a symlink, a deletion, a large file."""
    (audited.workspace / "link").symlink_to("a.txt")
    content = random.Random(1).randbytes
    (audited.workspace / "data.bin").write_bytes(content(3000))
    (audited.workspace / "large.bin").write_bytes(content(700_000))
    audited.sh("chmod 750 src")
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    audited.call("edit_file", path="a.txt", old_str="three", new_str="3")
    audited.call("delete_file", path="src/app.py")
    return audited


def database(shell: Shell) -> Path:
    return shell.home / "audit.db"


def test_salvage_of_a_healthy_store_gets_everything_out(busy: Shell, tmp_path: Path) -> None:
    (done,) = busy.records("salvage", "--to", str(tmp_path / "out"))
    assert (done["failures"], done["notice"]) == ([], "")
    assert done["events"] == len(busy.records("log", "--events", "-n", "0"))
    (tree,) = (tmp_path / "out" / "trees").iterdir()
    assert walk(tree) == busy.tree()
    text = busy("salvage", "--to", str(tmp_path / "again")).text
    assert text.startswith(f"{done['events']} events, {done['contents']} contents, ")


def test_salvage_of_a_damaged_store_says_what_failed_and_exits_with_1(
    busy: Shell, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(database(busy))) as raw:
        raw.execute("DELETE FROM blob_content WHERE blob = (SELECT min(blob) FROM blob_content)")
        raw.commit()
    ran = busy("salvage", "--to", str(tmp_path / "out"), code=1)
    assert "failures.txt" in ran.text
    assert (tmp_path / "out" / "failures.txt").read_text()


def test_salvage_of_a_locked_store_works(busy: Shell, tmp_path: Path) -> None:
    with closing(sqlite3.connect(database(busy), isolation_level=None)) as raw:
        raw.execute("BEGIN EXCLUSIVE")
        (done,) = busy.records("salvage", "--to", str(tmp_path / "out"))
    assert done["failures"] == []


def test_salvage_refuses_a_folder_that_is_not_empty(busy: Shell) -> None:
    refused = busy("salvage", "--to", str(busy.workspace), code=5)
    assert "not empty" in refused.errors


def test_doctor_finds_nothing_wrong_with_a_fresh_store(audited: Shell) -> None:
    checks = audited.records("doctor")
    assert [check for check in checks if check["verdict"] == "problem"] == []
    names = {check["name"] for check in checks}
    assert {
        "sqlite",
        "sandbox",
        "sandbox landlock",
        "space",
        "store",
        "store journal",
        "store triggers",
    } <= names


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


def test_doctor_sees_a_trigger_that_is_not_ours(audited: Shell) -> None:
    with closing(sqlite3.connect(database(audited))) as raw:
        raw.execute("CREATE TRIGGER quiet BEFORE INSERT ON event BEGIN SELECT RAISE(IGNORE); END")
        raw.commit()
    assert "store triggers" in problems(audited)
    assert "quiet" in audited("doctor", code=1).text


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


def test_doctor_names_leftover_temporaries_and_leaves_them(audited: Shell) -> None:
    left = audited.workspace / "src" / f"{TEMPORARY}0123456789abcdef-1"
    left.write_text("half a file")
    checks = audited.records("doctor", code=None)
    (found,) = [check for check in checks if left.name in check["text"]]
    assert found["verdict"] == "warning" and f"src/{left.name}" in found["text"]
    assert left.read_text() == "half a file"


def test_doctor_sees_a_clock_behind_the_log(audited: Shell) -> None:
    from datetime import UTC, datetime

    from loom_audit.api.doctor import check_all
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


def test_verify_of_a_store_that_cannot_be_opened_leads_to_salvage(audited: Shell) -> None:
    database(audited).write_bytes(b"no database " * 1000)
    refused = audited("verify", code=None)
    assert refused.code != 0 and "salvage" in refused.errors
    assert "loom-audit verify" not in refused.errors


def test_a_baseline_that_is_not_finished_is_told(shell: Shell) -> None:
    with open_store(str(shell.home / "audit.db")) as store:
        store.adapters.attach(shell.workspace, ignore=None, max_file_bytes=None)
    for command in ("status", "log"):
        assert "loom-audit init" in shell(command).errors
    assert "loom-audit init" in shell("rollback", "1", "--yes", code=4).errors
    shell("init")
    for command in ("status", "log"):
        assert "loom-audit init" not in shell(command).errors


def test_scope_shows_the_rules_in_force(audited: Shell) -> None:
    assert "node_modules" in audited("scope").text
    (found,) = audited.records("scope")
    assert (found["ignore"], found["accepted"]) == ("", False)
    assert "unknown action" in audited("scope", "nope", code=2).errors


def test_recover_has_nothing_to_do_after_a_clean_end(busy: Shell) -> None:
    assert "nothing to recover" in busy("recover").errors
    assert busy("recover", "--continue", "--abandon", code=2)
