"""The command line while the store's disk is full, or nearly so."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import started
from tests.cli.shells import Shell, new_shell
from tests.given.cases import some
from tests.places.small_disks import fill_up, mounting

READS = {
    "log": ("log",),
    "log of events": ("log", "--events"),
    "search": ("log", "--search", "second"),
    "show": ("show", "{call}"),
    "cat": ("cat", "a.txt"),
    "ls": ("ls", "-r"),
    "diff of a call": ("diff", "--call", "{call}"),
    "diff of points": ("diff", "head~1", "head"),
    "diff with the disk": ("diff",),
    "history": ("history", "a.txt"),
    "blame": ("blame", "a.txt"),
    "session": ("session",),
    "status": ("status",),
    "undo, dry": ("undo", "--dry-run"),
    "head": ("head",),
    "workspaces": ("workspaces",),
    "verify": ("verify",),
    "db current": ("db", "current"),
}

WRITES = {
    "a call": ("call", "write_file", '{"path": "new.txt", "content": "x"}'),
    "an undo": ("undo", "--yes"),
    "a checkpoint": ("checkpoint", "now"),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The disk of the store."""
    with mounting(tmp_path) as mount:
        yield mount("home", 400)


@pytest.fixture
def recorded(tmp_path: Path, disk: Path) -> Shell:
    """A workspace whose store lies on a disk of its own."""
    shell = new_shell(tmp_path)
    shell("init")
    shell.call("write_file", path="a.txt", content="second\n")
    return shell


def closed(shell: Shell) -> None:
    """Nobody has the store open: SQLite's files beside it are gone, or never were."""
    for name in ("audit.db-shm", "audit.db.ballast"):
        (shell.home / name).unlink(missing_ok=True)
    assert not (shell.home / "audit.db-wal").exists() or _size(shell.home / "audit.db-wal") == 0


def left_by_a_kill(shell: Shell) -> None:
    """What was committed last lies in the write-ahead log alone."""
    recorder = started(shell, "touch ready; exec sleep 1000")
    recorder.kill()
    recorder.communicate()
    wal = shell.home / "audit.db-wal"
    for name in ("audit.db-shm", "audit.db.ballast"):
        (shell.home / name).unlink(missing_ok=True)
    assert _size(wal) > 0


def _size(path: Path) -> int:
    return path.stat().st_size


@pytest.mark.few(1)
@pytest.mark.parametrize("read", some([*READS], 2))
def test_what_is_on_record_is_read_on_a_full_disk(recorded: Shell, read: str) -> None:
    call = str(recorded.numbers()[-1])
    words = [word.format(call=call) for word in READS[read]]
    before = recorded(*words).text
    closed(recorded)
    fill_up(recorded.home)
    assert _without_times(recorded(*words).text) == _without_times(before)


def _without_times(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if "verif" not in line)


def test_what_a_killed_process_committed_is_read_on_a_full_disk(recorded: Shell) -> None:
    left_by_a_kill(recorded)
    fill_up(recorded.home)
    log = recorded("log").text
    assert " run " in log
    assert recorded("cat", "a.txt").text == "second\n"


def test_a_full_disk_is_only_read_by_one_and_is_free_again_at_once(recorded: Shell) -> None:
    closed(recorded)
    filler = fill_up(recorded.home)
    recorded("log")
    recorded("verify")
    filler.unlink()
    recorded.call("write_file", path="a.txt", content="third\n")
    assert recorded("verify").code == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("write", WRITES)
def test_a_write_on_a_full_disk_says_where_and_how_much_is_free(
    recorded: Shell, write: str
) -> None:
    closed(recorded)
    fill_up(recorded.home)
    before = recorded.tree()
    refused = recorded(*WRITES[write], code=3).errors
    assert "store" in refused and "hint: Free" in refused and "move the store" in refused
    if write != "a call":  # of which no session begins
        assert "is full" in refused and str(recorded.database) in refused
    assert "disk I/O error" not in refused
    assert recorded.tree() == before


@pytest.mark.few(0)
def test_init_and_run_begin_nothing_where_too_little_room_is_left(recorded: Shell) -> None:
    filler = fill_up(recorded.home, leave=100 << 20)
    for words, code in ((("run", "--", "touch", "new"), 125), (("call", "bash", "{}"), 3)):
        refused = recorded(*words, code=code).errors
        assert "only 1" in refused and "no session begins" in refused and "Free some" in refused
    assert not (recorded.workspace / "new").exists()
    assert [record["tool"] for record in recorded.records("log")] == ["write_file"]
    other = recorded.workspace.parent / "other"
    other.mkdir()
    assert "the listing stopped" in recorded("init", str(other), code=3).errors
    assert recorded("undo", "--yes").code == 0, "what is on record may be taken back"
    filler.unlink()
    assert recorded("run", "--", "touch", "new").code == 0


def test_a_command_that_leaves_too_little_room_is_on_record_and_says_so(recorded: Shell) -> None:
    filler = recorded.home / "filler"
    ran = recorded("run", "--", "sh", "-c", f"head -c 300M /dev/zero > {filler}; echo x > new")
    assert "no other session begins" in ran.errors
    assert recorded.records("log")[0]["paths"] == ["new"]


def test_a_damaged_store_is_not_said_to_lie_on_a_full_disk(recorded: Shell) -> None:
    with sqlite3.connect(recorded.database) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.truncate(recorded.database, 100_000)
    closed(recorded)
    fill_up(recorded.home)
    assert "is full" not in recorded("log", code=None).errors
