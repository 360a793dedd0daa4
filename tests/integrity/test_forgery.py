"""What a forger can do that leaves every row in order: numbers that lead elsewhere, values of
another type than was written, and tables, indexes and triggers that are not ours.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integrity.conftest import Recorded, record
from tests.integrity.test_tamper import codes, connect, unguarded


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("small") / "audit.db", 60)


def session_of_another_log(raw: Any) -> None:
    names = ", ".join(
        name
        for _, name, *_ in raw.execute("PRAGMA table_info(session)").fetchall()
        if name not in ("number", "log")
    )
    raw.execute(
        f"INSERT INTO session (number, log, {names}) SELECT 7777, 999, {names} "
        "FROM session WHERE id = 'session-2'"
    )


def path_of_another_log(raw: Any) -> None:
    raw.execute("INSERT INTO path SELECT 7777, 999, path FROM path WHERE number = 9")


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE session SET agent = 'somebody else', started = -1 WHERE id = 'session-2'",
        "UPDATE workspace SET root = '/elsewhere', attached = -1",
        "UPDATE call SET tool = 'another', requested = -1 WHERE requested = "
        "(SELECT max(requested) FROM call)",
    ],
)
def test_a_row_that_says_it_is_about_no_event_differs_all_the_same(
    small: Recorded, tmp_path: Path, sql: str
) -> None:
    forged = small.copy(tmp_path / "forged")
    with connect(forged) as raw:
        assert raw.execute(sql).rowcount == 1
    found = forged.verify()
    assert found.exit_code == 1
    assert -1 in {one.seq for one in found.findings}


ELSEWHERE = {
    "call's session": (
        session_of_another_log,
        "UPDATE call SET session = 7777 WHERE session = "
        "(SELECT number FROM session WHERE log = 1 AND id = 'session-2')",
    ),
    "change's session": (
        session_of_another_log,
        "UPDATE change_set SET session = 7777 WHERE session = "
        "(SELECT number FROM session WHERE log = 1 AND id = 'session-2')",
    ),
    "change's path": (
        path_of_another_log,
        "UPDATE file_change SET path = 7777 WHERE path = 9",
        "UPDATE tree_entry SET path = 7777 WHERE path = 9",
    ),
    "session of none": ("UPDATE change_set SET session = 7777 WHERE session IS NULL",),
    "content of a folder": (
        "UPDATE file_change SET new_blob = 7777 WHERE new_mode = 16877",
        "UPDATE tree_entry SET blob = 7777 WHERE mode = 16877",
    ),
    "content of an absent file": ("UPDATE file_change SET old_blob = 7777 WHERE old_mode IS NULL",),
}


@pytest.mark.parametrize("steps", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_number_that_leads_elsewhere_is_a_projection_that_differs(
    small: Recorded, tmp_path: Path, steps: tuple[str | Callable[[Any], None], ...]
) -> None:
    store = small.copy(tmp_path / "forged")
    with connect(store) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        for step in steps:
            if callable(step):
                step(raw)
            else:
                assert raw.execute(step).rowcount > 0
    found = store.verify()
    assert found.exit_code == 1
    of_no_log = {"database"} if callable(steps[0]) else set()
    assert {one.code for one in found.findings} == {"projection"} | of_no_log


def test_an_id_that_reads_like_none_is_not_none(small: Recorded, tmp_path: Path) -> None:
    store = small.copy(tmp_path / "forged")
    with connect(store) as raw:
        unguarded(raw).execute("UPDATE event SET id = x'78' WHERE seq = 20 AND id = x''")
    assert ("event.column", 20) in codes(store.verify())


def test_the_name_that_was_recorded_last_is_missed_when_its_row_is_gone(
    small: Recorded, tmp_path: Path
) -> None:
    store = small.copy(tmp_path / "forged")
    with connect(store) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        assert raw.execute("DELETE FROM path WHERE number = (SELECT max(number) FROM path)")
    found = store.verify()
    assert found.exit_code == 1
    assert any("the projection path lacks a row" in one.message for one in found.findings)


ALTERED = {
    "swallowing trigger": (
        "the trigger quiet",
        "CREATE TRIGGER quiet BEFORE INSERT ON event WHEN NEW.kind = 'call.finished' "
        "BEGIN SELECT RAISE(IGNORE); END",
    ),
    "hollow guard": (
        "the trigger event_no_delete",
        "DROP TRIGGER event_no_delete",
        "CREATE TRIGGER event_no_delete BEFORE DELETE ON event BEGIN SELECT 1; END",
    ),
    "missing guard": ("the trigger tree_node_no_update", "DROP TRIGGER tree_node_no_update"),
    "view in a table's place": (
        "the view call",
        "ALTER TABLE call RENAME TO calls",
        "CREATE VIEW call AS SELECT * FROM calls WHERE random() <> 0",
    ),
    "column": ("the table event", "ALTER TABLE event ADD COLUMN more TEXT DEFAULT 'x'"),
    "computed column": (
        "the table call",
        "ALTER TABLE call ADD COLUMN more TEXT AS (status) VIRTUAL",
    ),
    "table": ("the table stash", "CREATE TABLE stash (x)"),
    "full-text table": ("the table stash", "CREATE VIRTUAL TABLE stash USING fts5(x)"),
    "index": ("the index more", "CREATE INDEX more ON call (tool)"),
    "missing index": ("the index event_id", "DROP INDEX event_id"),
    "narrowed index": (
        "the index call_number",
        "DROP INDEX call_number",
        "CREATE INDEX call_number ON call (log, finished) WHERE requested <> 60",
    ),
    "index that ignores case": (
        "the index session_id",
        "DROP INDEX session_id",
        "CREATE UNIQUE INDEX session_id ON session (log, id COLLATE NOCASE)",
    ),
}


@pytest.mark.parametrize("altered", ALTERED.values(), ids=ALTERED)
def test_what_was_altered_or_added_to_the_tables_is_named(
    small: Recorded, tmp_path: Path, altered: tuple[str, ...]
) -> None:
    name, *statements = altered
    store = small.copy(tmp_path / "forged")
    with connect(store) as raw:
        for statement in statements:
            raw.execute(statement)
    found = store.verify()
    assert found.exit_code == 1
    assert {one.code for one in found.findings} == {"database"}
    assert any(one.message.startswith(f"{name} ") for one in found.findings)


SURROGATE = b"\xed\xa0\x80"
ODD = [-1, 0, 2**63 - 1, 1.5, "text", "", b"", b"\xff\xfe", b"x" * 32, SURROGATE]
"""Values that a column can hold and none of ours does; the last one as a text."""

TYPED = [
    *(("event", name) for name in ("id", "kind", "leaf", "leaf_hash")),
    *(("payload", name) for name in ("role", "n", "salt", "content")),
    *(("blob", name) for name in ("sha256", "size", "encoding", "base", "version", "large")),
    ("blob_content", "content"),
    ("path", "path"),
    ("call", "call_id"),
    ("call", "at"),
    ("workspace", "root"),
]


def put(small: Recorded, folder: Path, value: object, sql: str) -> Recorded:
    """A copy of the store after the statement, with its value as a parameter."""
    forged = small.copy(folder)
    with connect(forged) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("PRAGMA ignore_check_constraints = ON")
        unguarded(raw)
        marked = "CAST(? AS TEXT)" if value is SURROGATE else "?"
        assert raw.execute(sql.replace("?", marked), (value,)).rowcount == 1
    return forged


@pytest.mark.few(1)
@pytest.mark.parametrize(("table", "column"), TYPED, ids=[".".join(one) for one in TYPED])
def test_a_value_of_another_type_is_a_finding_and_never_a_failure(
    small: Recorded, tmp_path: Path, table: str, column: str
) -> None:
    # a third of the values each: every value is put into five columns or more
    put_into(small, tmp_path, table, column, ODD[TYPED.index((table, column)) % 3 :: 3])


@pytest.mark.deep
@pytest.mark.parametrize(("table", "column"), TYPED, ids=[".".join(one) for one in TYPED])
def test_any_value_of_another_type_is_a_finding(
    small: Recorded, tmp_path: Path, table: str, column: str
) -> None:
    put_into(small, tmp_path, table, column, ODD)


def put_into(small: Recorded, tmp_path: Path, table: str, column: str, values: list[Any]) -> None:
    """Every value in turn into one row of the column; whatever changes is found."""
    key = {"event": "(log, seq)", "payload": "(log, seq, role, n)", "call": "(log, requested)"}
    where = key.get(table, "rowid")
    used = {"payload": "role = 'args'", "blob": "encoding = 'zstd-delta'"}.get(table, "true")
    some = f"SELECT {where.strip('()')} FROM {table} WHERE {used} AND {column} IS NOT NULL LIMIT 1"
    sql = f"UPDATE {table} SET {column} = ? WHERE {where} = ({some})"
    for n, value in enumerate(values):
        forged = put(small, tmp_path / str(n), value, sql)
        found = forged.verify()
        with connect(forged) as raw, connect(small) as whole:
            listed = f"SELECT {column}, typeof({column}) FROM {table} ORDER BY {where.strip('()')}"
            raw.text_factory = whole.text_factory = bytes
            same = raw.execute(listed).fetchall() == whole.execute(listed).fetchall()
        assert same or found.exit_code == 1, value
        assert forged.verify(quick=True).exit_code in (0, 1)
        assert forged.verify(sample=1000).exit_code in (0, 1)


@pytest.mark.parametrize("column", ["level", "position", "hash"])
def test_a_node_of_another_type_is_one_too_many(
    small: Recorded, tmp_path: Path, column: str
) -> None:
    names = {"level": "8", "position": "0", "hash": "zeroblob(32)"} | {column: "?"}
    for n, value in enumerate(ODD):
        forged = put(
            small,
            tmp_path / str(n),
            value,
            f"INSERT INTO tree_node VALUES (1, {', '.join(names.values())})",
        )
        assert ("tree.extra", None) in codes(forged.verify(quick=True)), value
