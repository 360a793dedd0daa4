"""`init`: which folders can be put under audit, and doing it again."""

from pathlib import Path

import pytest

from loom_audit.api.face import open_store
from loom_audit.model.scope import MAX_FILE_BYTES
from tests.cli.shells import Shell


def test_attaching_again_changes_nothing(audited: Shell) -> None:
    events = audited("log", "--events", "--json").text
    (again,) = audited.records("init")
    assert again["files"] == 2
    assert audited("log", "--events", "--json").text == events
    assert [r["root"] for r in audited.records("workspaces")] == [str(audited.workspace)]


@pytest.mark.parametrize("store", ["store.db", "below/store.db"])
def test_a_folder_that_would_hold_its_own_store_is_refused_before_one_is_made(
    shell: Shell, store: str
) -> None:
    before = shell.tree()
    refused = shell("--store", str(shell.workspace / store), "init", code=5)
    assert "hint: " in refused.errors
    assert shell.tree() == before


@pytest.mark.parametrize(("folder", "code"), [("/", 2), ("missing", 4), ("a.txt", 2)])
def test_a_folder_that_can_be_no_workspace_makes_no_store(
    shell: Shell, folder: str, code: int
) -> None:
    assert "hint: " in shell("init", folder, code=code).errors
    assert not shell.home.exists()


def test_an_init_with_other_rules_is_refused(audited: Shell, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("*.log\n")
    refused = audited("init", "--ignore", str(rules), "--json", code=5)
    assert '"CONFLICT"' in refused.errors and '"hint"' in refused.errors


def test_an_init_with_another_limit_changes_it_on_record(audited: Shell) -> None:
    audited("init", "--max-file-bytes", "10")
    assert audited.records("scope")[0]["max_file_bytes"] == 10
    (fact, *_) = audited.records("log", "--events")
    assert (fact["kind"], fact["actor"][:7]) == ("workspace.attached", "person:")
    audited("init", "--max-file-bytes", "0")
    assert audited.records("scope")[0]["max_file_bytes"] == MAX_FILE_BYTES
    audited("init")


def test_a_file_of_rules_that_is_not_there_or_no_rules_makes_no_workspace(shell: Shell) -> None:
    refused = shell("init", "--ignore", "nowhere", code=4)
    assert "hint: " in refused.errors
    (shell.workspace / "rules").write_bytes(b"\xff\xfe\n!\n")
    assert "not a pattern" in shell("init", "--ignore", "rules", code=2).errors
    assert shell.records("db", "path") and shell("status", code=4).errors
    shell("init")


def test_a_baseline_that_is_not_finished_is_told(shell: Shell) -> None:
    with open_store(str(shell.home / "audit.db")) as store:
        store.adapters.attach(shell.workspace, ignore=None, max_file_bytes=None)
    for command in ("status", "log"):
        assert "loom-audit init" in shell(command).errors
    assert "loom-audit init" in shell("rollback", "1", "--yes", code=4).errors
    shell("init")
    for command in ("status", "log"):
        assert "loom-audit init" not in shell(command).errors


def test_in_a_repository_it_is_said_whose_name_an_agent_s_commits_bear(shell: Shell) -> None:
    assert "bears your name" not in shell("init").errors
    (shell.workspace / ".git").mkdir()
    told = shell("init").errors
    assert "bears your name" in told and "git_identity in tools.toml" in told
