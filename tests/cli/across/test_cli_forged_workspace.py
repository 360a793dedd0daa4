"""The table of workspaces changed behind our back: the log says where a workspace is."""

from contextlib import closing

import pytest

from loom_audit.sql.ground.driver import driver
from tests.cli.shells import Shell

LOST = {
    "another folder": "UPDATE workspace SET root = CAST('/elsewhere' AS BLOB)",
    "no folder": "UPDATE workspace SET root = x''",
    "another log": "UPDATE workspace SET log = 999",
    "no row": "DELETE FROM workspace",
}
READS = {
    "log": ("log",),
    "status": ("status",),
    "undo": ("undo", "--yes"),
    "verify": ("verify",),
    "init again": ("init",),
}
EXITS = {"verify": 4, "init again": 6}


def forge(shell: Shell, sql: str) -> None:
    with closing(driver().connect(str(shell.database), isolation_level=None)) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        assert raw.execute(sql).rowcount == 1


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("how", LOST)
def test_a_workspace_that_the_table_does_not_name_any_more_is_corrupt(
    audited: Shell, how: str, read: str
) -> None:
    audited.call("write_file", path="new.txt", content="x")
    (listed,) = audited.records("workspaces")
    forge(audited, LOST[how])
    refused = audited(*READS[read], "--json", code=EXITS.get(read, 6)).errors
    assert '"CORRUPT"' in refused and str(listed["id"]) in refused
    assert "db rebuild" in refused and "NO_WORKSPACE" not in refused
    assert (audited.workspace / "new.txt").exists()


@pytest.mark.parametrize("how", LOST)
def test_the_table_of_workspaces_is_made_anew_from_the_log(audited: Shell, how: str) -> None:
    audited.call("write_file", path="new.txt", content="x")
    before = audited.records("workspaces")
    forge(audited, LOST[how])
    audited("db", "rebuild")
    assert audited.records("workspaces") == before
    (found,) = audited.records("verify", code=None)
    # a row of a log that is not there is left, and told
    assert len(found["findings"]) == (how == "another log")


def test_a_workspace_is_not_served_for_a_folder_that_the_table_was_made_to_name(
    audited: Shell,
) -> None:
    other = audited.workspace.parent / "other"
    other.mkdir()
    forge(audited, f"UPDATE workspace SET root = CAST('{other}' AS BLOB)")
    assert '"CORRUPT"' in audited("log", "--json", cwd=other, code=6).errors


def test_a_folder_that_never_was_a_workspace_is_still_none(audited: Shell) -> None:
    other = audited.workspace.parent / "other"
    other.mkdir()
    assert '"NO_WORKSPACE"' in audited("log", "--json", cwd=other, code=4).errors
    forge(audited, LOST["another folder"])
    assert '"NO_WORKSPACE"' in audited("log", "--json", cwd=other, code=4).errors


def test_by_its_id_too_nothing_is_written_into_another_folder(audited: Shell) -> None:
    audited.call("write_file", path="new.txt", content="x")
    (listed,) = audited.records("workspaces")
    other = audited.workspace.parent / "other"
    other.mkdir()
    (other / "new.txt").write_text("x")
    forge(audited, f"UPDATE workspace SET root = CAST('{other}' AS BLOB)")
    by_id = ("--workspace", str(listed["id"]), "--json")
    for words in (("undo", "--yes"), ("status",), ("call", "delete_file", '{"path": "new.txt"}')):
        assert '"CORRUPT"' in audited(*words, *by_id, code=6).errors
    assert (other / "new.txt").read_text() == "x"
    (found,) = audited.records("verify", *by_id[:2], code=1)
    assert any("workspace" in finding["message"] for finding in found["findings"])
