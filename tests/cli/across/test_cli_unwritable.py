"""A store that cannot be written: nothing with an effect runs, what is there can be read."""

import os
import shutil
from collections.abc import Iterator

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


LOOKS = {
    "status": ("status",),
    "an undo": ("undo", "--dry-run"),
    "a revert": ("revert", "{call}", "--dry-run"),
    "a rollback": ("rollback", "head~1", "--dry-run"),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_needs_no_lock_where_none_can_be_taken(unlockable: Shell, look: str) -> None:
    (unlockable.workspace / "a.txt").write_text("by hand\n")
    call = str(unlockable.numbers()[-1])
    before = unlockable.tree()
    words = (word.format(call=call) for word in LOOKS[look])
    (found,) = unlockable.records(*words, code=7 if look == "a rollback" else 0)
    if look == "status":
        assert [one["path"] for one in found["drift"]] == ["a.txt"]
    else:
        assert [one["path"] for one in found["changes"]] == ["b.txt"]
    assert unlockable.tree() == before


@pytest.fixture
def read_only(audited: Shell) -> Iterator[Shell]:
    """A store in which nothing can be made or written."""
    audited.call("write_file", path="b.txt", content="one\n")
    (audited.workspace / "b.txt").write_text("by hand\n")
    parts = [audited.home, *audited.home.rglob("*")]
    for path in parts:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        if os.access(audited.home, os.W_OK):
            pytest.skip("root may write everywhere")
        yield audited
    finally:
        for path in parts:
            path.chmod(0o700 if path.is_dir() else 0o600)


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_at_a_read_only_store_needs_no_lock(read_only: Shell, look: str) -> None:
    call = str(read_only.numbers()[-1])
    code = 0 if look == "status" else 5
    (found,) = read_only.records(*(word.format(call=call) for word in LOOKS[look]), code=code)
    assert [one["path"] for one in found["drift" if look == "status" else "blocked"]] == ["b.txt"]


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


def test_a_plan_for_a_store_that_cannot_be_written_is_provisional(unlockable: Shell) -> None:
    (unlockable.workspace / "a.txt").write_text("by hand\n")
    told = unlockable("rollback", "head~1", "--dry-run", code=7)
    assert "provisional: what is on disk is not on record yet" in told.text
