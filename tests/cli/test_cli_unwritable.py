"""A store that cannot be written: nothing with an effect runs, what is there can be read."""

import os
import shutil

import pytest

from tests.cli.shells import Shell

ACTIONS = {
    "a call": ("call", "write_file", '{"path": "new.txt", "content": "x"}'),
    "an undo": ("undo", "--yes"),
    "a rollback": ("rollback", "3", "--yes"),
    "a checkpoint": ("checkpoint", "now"),
}


@pytest.fixture
def unlockable(audited: Shell) -> Shell:
    """A store whose locks cannot be taken, by root neither."""
    audited.call("write_file", path="b.txt", content="one\n")
    shutil.rmtree(audited.home / "locks")
    (audited.home / "locks").write_text("no folder")
    return audited


@pytest.mark.parametrize("action", ACTIONS)
def test_nothing_runs_when_the_store_s_locks_cannot_be_taken(
    unlockable: Shell, action: str
) -> None:
    before = unlockable.tree()
    refused = unlockable(*ACTIONS[action], "--json", code=3)
    assert '"AUDIT_UNAVAILABLE"' in refused.errors and '"hint"' in refused.errors
    assert unlockable.tree() == before


def test_no_command_runs_when_the_store_s_locks_cannot_be_taken(unlockable: Shell) -> None:
    refused = unlockable("run", "--json", "--", "touch", "new.txt", code=125)
    assert '"AUDIT_UNAVAILABLE"' in refused.errors
    assert "new.txt" not in unlockable.tree()


def test_what_is_on_record_is_read_all_the_same(unlockable: Shell) -> None:
    assert len(unlockable.records("log")) == 1
    assert unlockable("cat", "b.txt").text == "one\n"
    assert unlockable.records("verify", code=None)[0]["findings"] == []


def test_a_store_copied_to_a_read_only_folder_is_read(audited: Shell) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    audited.call("write_file", path="b.txt", content="one\n")
    shutil.rmtree(audited.home / "locks")
    audited.home.chmod(0o500)
    try:
        assert len(audited.records("log")) == 1
        assert '"AUDIT_UNAVAILABLE"' in audited("undo", "--json", "--yes", code=3).errors
    finally:
        audited.home.chmod(0o700)
