"""`doctor`: what is wrong with the machine, the store or a workspace."""

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from loom_audit.model.scope import TEMPORARY
from tests.cli.shells import Shell


@contextmanager
def mode(path: Path, bits: int) -> Iterator[None]:
    before = stat.S_IMODE(path.stat().st_mode)
    path.chmod(bits)
    yield
    path.chmod(before)


def problems(shell: Shell) -> set[str]:
    found = shell.records("doctor", code=None)
    return {check["name"] for check in found if check["verdict"] != "ok"}


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


def test_doctor_says_when_nothing_is_asked_and_when_the_rules_are_not_valid(audited: Shell) -> None:
    def found() -> tuple[str, str]:
        [check] = [
            one for one in audited.records("doctor", code=None) if one["name"] == "approvals"
        ]
        return check["verdict"], check["text"]

    assert found()[0] == "warning" and found()[1].startswith("nothing is asked: there is no ")
    audited("approvals", "init")
    assert found() == ("ok", "asked by 6 rules")
    (audited.home / "config/approvals.toml").write_text("[[rule]]\n")
    assert found()[0] == "problem"


def test_doctor_sees_a_store_that_others_can_read(audited: Shell) -> None:
    with mode(audited.database, 0o644):
        assert "store" in problems(audited)
        assert audited("doctor", code=1).text.count("chmod 600") >= 1
    with mode(audited.home, 0o755):
        assert "data folder" in problems(audited)


def test_doctor_sees_a_missing_trigger(audited: Shell) -> None:
    with closing(sqlite3.connect(audited.database)) as raw:
        raw.execute("DROP TRIGGER event_no_delete")
        raw.commit()
    assert "store triggers" in problems(audited)


def test_doctor_sees_a_trigger_that_is_not_ours(audited: Shell) -> None:
    with closing(sqlite3.connect(audited.database)) as raw:
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

    from loom_audit.api.upkeep.doctor import check_all
    from loom_audit.config import read_settings

    settings = read_settings(environment={"LOOM_AUDIT_HOME": str(audited.home)})
    found = list(check_all(settings, datetime(2020, 1, 1, tzinfo=UTC)))
    assert [c for c in found if c.verdict == "problem" and "clock" in c.text]


def test_doctor_says_that_heads_kept_beside_the_store_prove_less(shell: Shell) -> None:
    for command in ("init", "status", "head"):
        shell(command)
        (check,) = [c for c in shell.records("doctor", code=None) if c["name"] == "tree heads"]
        assert check["verdict"] == "warning" and "beside the store" in check["text"]
        assert "LOOM_AUDIT_HOME" in check["hint"]


def test_a_store_that_was_deleted_is_not_one_to_be_made(audited: Shell) -> None:
    audited.call("write_file", path="a.txt", content="a\n")
    for file in audited.home.glob("audit.db*"):
        file.unlink()
    (check,) = [c for c in audited.records("doctor", code=1) if c["name"] == "store"]
    assert check["verdict"] == "problem"
    assert "init" not in check["hint"] and "backup" in check["hint"]
    assert "1 log" in check["hint"] and "not there any more" in check["text"]
    for command in ("log", "verify", "status", "workspaces"):
        refused = audited(command, code=None)
        assert "backup" in refused.errors and "loom-audit init" not in refused.errors
    audited.database.touch()
    refused = audited("log", code=None)
    assert "is empty" in refused.errors and "loom-audit init" not in refused.errors


def test_a_log_that_the_store_has_not_got_is_missed(audited: Shell) -> None:
    audited.call("write_file", path="a.txt", content="a\n")
    for file in audited.home.glob("audit.db*"):
        file.unlink()
    audited("init")
    checks = [c for c in audited.records("doctor", code=1) if c["name"] == "logs"]
    assert [check["verdict"] for check in checks] == ["problem"]
    assert "backup" in checks[0]["hint"]


def test_where_nothing_was_kept_a_store_is_to_be_made(shell: Shell) -> None:
    (check,) = [c for c in shell.records("doctor", code=None) if c["name"] == "store"]
    assert (check["verdict"], check["hint"]) == ("warning", "`loom-audit init`")


def test_doctor_says_whether_commands_look_at_all_of_a_workspace(
    audited: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "can be watched between commands" in audited("doctor").text
    monkeypatch.setattr("loom_audit.api.upkeep.checks.workspaces.most_watches", lambda: 0)
    said = audited("doctor").text
    assert "every command looks at all of it" in said and "max_user_watches" in said
