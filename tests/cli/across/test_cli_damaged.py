"""Commands on a store that is damaged: a clear error, the exit code for it, nothing changed."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from loom_audit.sql.ground.driver import driver
from tests.cli.shells import Shell

PAGE = 4096
COMMANDS = (
    ("log",),
    ("log", "--events"),
    ("show", "8"),
    ("diff", "1", "head"),
    ("cat", "b.txt", "--at", "head"),
    ("ls",),
    ("history", "b.txt"),
    ("blame", "b.txt"),
    ("status",),
    ("session",),
    ("workspaces",),
    ("head",),
    ("undo", "--dry-run"),
    ("verify",),
    ("verify", "--quick"),
    ("doctor",),
    ("db", "current"),
)


@pytest.fixture
def stored(audited: Shell) -> Shell:
    """A workspace with three calls on record, all in the database file itself."""
    audited.call("write_file", path="b.txt", content="one\n" * 400)
    audited.call("edit_file", path="b.txt", old_str="one\n" * 400, new_str="two\n" * 300)
    audited.call("delete_file", path="a.txt")
    with closing(driver().connect(str(audited.database))) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return audited


def put(shell: Shell, content: bytes) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{shell.database}{suffix}").unlink(missing_ok=True)
    shell.database.write_bytes(content)


def check(shell: Shell, content: bytes) -> None:
    """Every command ends in order on this database, and leaves it as it is."""
    for command in COMMANDS:
        put(shell, content)
        ran = shell(*command, code=None)
        assert ran.code in (0, 1, 3, 4, 6), command
        assert "internal error" not in ran.text + ran.errors, (command, ran.errors)
        if ran.code and command[0] not in ("verify", "doctor", "db"):
            assert "error: " in ran.errors and "hint: " in ran.errors, command
        assert shell.database.read_bytes() == content, command


def zeroed(content: bytes, page: int) -> bytes:
    return content[: page * PAGE] + bytes(PAGE) + content[(page + 1) * PAGE :]


def test_a_page_without_its_content_is_an_error_and_changes_nothing(stored: Shell) -> None:
    good = stored.database.read_bytes()
    for page in range(0, len(good) // PAGE, 15):
        check(stored, zeroed(good, page))


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_every_page_in_turn_without_its_content(stored: Shell) -> None:
    good = stored.database.read_bytes()
    for page in range(len(good) // PAGE):
        check(stored, zeroed(good, page))


@pytest.mark.few(2)
@pytest.mark.parametrize("size", [0, 1, 100, 511, 512, PAGE, 5 * PAGE + 7])
def test_a_store_that_was_cut_off_is_not_made_anew(stored: Shell, size: int) -> None:
    good = stored.database.read_bytes()
    check(stored, good[:size])
    put(stored, good[:size])
    assert stored("log", code=None).code in (3, 4, 6)
    put(stored, good)
    assert stored("log").text


ODD = ("text", b"\xff\xfe1234567890abcd", 2**63 - 1, -5, 1.5)
"""Values that a column can hold and none of ours does."""

COLUMNS = (
    "log.id",
    "event.seq",
    "event.leaf_hash",
    "blob.sha256",
    "workspace.root",
    "workspace.attached_at",
    "workspace.ignore",
    "session.started_at",
    "session.agent",
    "call.at",
    "call.tool",
    "call.reverts",
    "call.duration",
    "call.call_id",
    "path.path",
    "change_set.actor",
    "file_change.new_mode",
    "tree_entry.path",
    "payload.salt",
    "payload.role",
    "payload.n",
    "blob_content.content",
)


def put_odd(shell: Shell, column: str, value: object) -> None:
    table, name = column.split(".")
    with closing(driver().connect(str(shell.database), isolation_level=None)) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        guards = raw.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for guard, _ in guards:
            raw.execute(f"DROP TRIGGER {guard}")
        raw.execute(f"UPDATE OR IGNORE {table} SET {name} = ?", (value,))
        for _, sql in guards:
            raw.execute(sql)


def check_odd(
    shell: Shell, column: str, value: object, out: Path, *commands: tuple[str, ...]
) -> None:
    """Every command on a store with this value in the column ends with an error of ours."""
    put_odd(shell, column, value)
    for command in (*commands, ("salvage", "--to", str(out))):
        ran = shell(*command, code=None)
        shown = (column, value, command, ran.text[-300:], ran.errors)
        assert "internal error" not in ran.text + ran.errors, shown
        assert ran.code in (0, 1, 3, 4, 6), shown
    shutil.rmtree(out)


def test_a_value_of_another_type_is_an_error_of_ours(stored: Shell, tmp_path: Path) -> None:
    good = stored.database.read_bytes()
    for column in COLUMNS[::2]:
        put(stored, good)
        few = [("log",), ("show", "8"), ("ls",), ("session",), ("head",), ("verify", "--quick")]
        check_odd(stored, column, b"\xff\xfe1234567890abcd", tmp_path / "out", *few)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("value", ODD)
def test_each_value_in_each_column_with_each_command(
    stored: Shell, tmp_path: Path, value: object
) -> None:
    good = stored.database.read_bytes()
    for column in COLUMNS:
        put(stored, good)
        check_odd(stored, column, value, tmp_path / "out", *COMMANDS)


def test_salvage_of_a_store_cut_off_to_nothing_says_that_nothing_is_left(
    stored: Shell, tmp_path: Path
) -> None:
    put(stored, b"")
    refused = stored("salvage", "--to", str(tmp_path / "out"), code=4)
    assert "cannot be read" in refused.errors and "backup" in refused.errors
    assert stored.database.read_bytes() == b""


def test_what_lies_in_the_write_ahead_log_of_an_emptied_store_is_left_there_and_salvaged(
    audited: Shell, tmp_path: Path
) -> None:
    wal = Path(f"{audited.database}-wal")
    with closing(driver().connect(str(audited.database))) as keeps:
        keeps.execute("SELECT count(*) FROM event").fetchall()
        audited.call("write_file", path="b.txt", content="only in the log\n" * 9)
        with closing(driver().connect(str(audited.database), isolation_level=None)) as raw:
            raw.execute("VACUUM")
        kept = wal.read_bytes()
    put(audited, b"")
    wal.write_bytes(kept)
    for command in COMMANDS:
        if command[0] != "doctor":
            audited(*command, code=None)
        assert wal.read_bytes() == kept and audited.database.read_bytes() == b"", command
    assert "cut off" in audited("init", code=3).errors
    assert wal.read_bytes() == kept and audited.database.read_bytes() == b""
    audited("salvage", "--to", str(tmp_path / "out"), code=None)
    assert wal.read_bytes() == kept
    written = {file.read_bytes() for file in (tmp_path / "out" / "blobs").iterdir()}
    assert b"only in the log\n" * 9 in written
    shutil.rmtree(tmp_path / "out")
