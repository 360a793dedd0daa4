"""What nothing refers to: rows of `keys` that are not due, of no log, and logs without events."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integrity.conftest import Recorded, record
from tests.integrity.test_tamper import connect, unguarded


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("small") / "audit.db", 60)


LAST_KEYS = "role = 'keys' AND seq = (SELECT max(seq) FROM payload WHERE role = 'keys')"


def copied_to(seq: str) -> str:
    """Statement: the last row of keys is stored for another event as well."""
    return (
        f"INSERT INTO payload SELECT log, ({seq}), role, 0, salt, content, blob "
        f"FROM payload WHERE {LAST_KEYS}"
    )


def last_of(kind: str, *, without_manifest: bool = False) -> str:
    which = " AND NOT EXISTS (SELECT 1 FROM payload p WHERE p.log = e.log AND p.seq = e.seq)"
    end = which if without_manifest else ""
    return f"SELECT max(seq) FROM event e WHERE kind = '{kind}'{end}"


KEYS = {
    "salted": f"UPDATE payload SET salt = x'00' WHERE {LAST_KEYS}",
    "with a text for a salt": f"UPDATE payload SET salt = '' WHERE {LAST_KEYS}",
    "a second time": "INSERT INTO payload SELECT log, seq, role, 1, salt, content, blob "
    f"FROM payload WHERE {LAST_KEYS}",
    "of a call that finished": copied_to(last_of("call.finished")),
    "of a decision": copied_to(last_of("call.decided")),
    "of an event whose manifest its intention has": copied_to(
        last_of("files.changed", without_manifest=True)
    ),
    "of a session's end, without payloads": copied_to(last_of("session.ended")),
}


@pytest.mark.parametrize("sql", KEYS.values(), ids=KEYS)
def test_keys_that_are_not_due_are_found(small: Recorded, tmp_path: Path, sql: str) -> None:
    forged = small.copy(tmp_path / "forged")
    with connect(forged) as raw:
        [(seq,)] = raw.execute(f"SELECT seq FROM payload WHERE {LAST_KEYS}").fetchall()
        before = {row[0] for row in raw.execute("SELECT seq FROM payload WHERE role = 'keys'")}
        assert raw.execute(sql).rowcount == 1
        after = {row[0] for row in raw.execute("SELECT seq FROM payload WHERE role = 'keys'")}
    (where,) = after - before or {seq}
    found = forged.verify()
    assert found.exit_code == 1
    assert {(one.seq, one.code) for one in found.findings} == {(where, "keys.extra")}


def test_keys_of_a_manifest_without_contents_are_found(small: Recorded, tmp_path: Path) -> None:
    forged = small.copy(tmp_path / "forged")
    with connect(forged) as raw:
        raw.execute(f"UPDATE payload SET content = x'00', blob = NULL WHERE {LAST_KEYS}")
    assert "keys.extra" in {one.code for one in forged.verify().findings}


@pytest.mark.parametrize("role", ["args", "result", "fact", "manifest", "keys"])
@pytest.mark.parametrize("blob", ["1", "99999", "0", "'x'"])
def test_a_content_that_a_payload_names_and_does_not_use_is_found(
    small: Recorded, tmp_path: Path, role: str, blob: str
) -> None:
    forged = small.copy(tmp_path / "forged")
    with connect(forged) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        changed = raw.execute(
            f"UPDATE payload SET blob = {blob} WHERE role = ? AND content IS NOT NULL AND seq = "
            "(SELECT max(seq) FROM payload WHERE role = ? AND content IS NOT NULL)",
            (role, role),
        )
        assert changed.rowcount == 1
    found = forged.verify()
    assert found.exit_code == 1
    assert any(f"payload {role}" in one.message for one in found.findings)


# --- logs ---------------------------------------------------------------------------------


def tables_of_logs(raw: Any) -> list[str]:
    names = [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type='table'")]
    columns = {name: raw.execute(f"PRAGMA table_info({name})").fetchall() for name in names}
    return [name for name in names if any(column[1] == "log" for column in columns[name])]


def values_for(raw: Any, table: str, log: str) -> list[str]:
    """A value of the right type for each column, the given log among them."""
    plain = {"INTEGER": "7", "BLOB": "x'00'"}
    return [
        log if name == "log" else "88888" if name == "number" else plain.get(kind, "'x'")
        for _, name, kind, *_ in raw.execute(f"PRAGMA table_info({table})")
    ]


@pytest.mark.parametrize("log", ["999", "0", "-5", "'x'", "x'01'", "1.5"])
def test_rows_of_a_log_that_there_is_not_are_found_in_every_table(
    small: Recorded, tmp_path: Path, log: str
) -> None:
    forged = small.copy(tmp_path / "forged")
    with connect(forged) as raw:
        unguarded(raw).execute("PRAGMA foreign_keys = OFF")
        tables = tables_of_logs(raw)
        whole = log.lstrip("-").isdigit()
        for table in tables:
            # a column that is the row's number takes nothing else
            taken = log if whole or table not in ("workspace", "reach", "searched") else "999"
            raw.execute(f"INSERT INTO {table} VALUES ({', '.join(values_for(raw, table, taken))})")
    assert {"event", "payload", "tree_node", "call", "session", "path"} <= set(tables)
    found = forged.verify()
    assert found.exit_code == 1
    said = [one.message for one in found.findings if one.code == "database"]
    assert [table for table in tables if not any(f"table {table} " in text for text in said)] == []


def test_the_rows_of_a_log_that_was_struck_from_the_list_are_found(
    small: Recorded, tmp_path: Path
) -> None:
    forged = small.copy(tmp_path / "forged")
    with closing(forged.open()) as database:
        other = database.create_log()
    with connect(forged) as raw:
        unguarded(raw).execute("PRAGMA foreign_keys = OFF")
        raw.execute("INSERT INTO event SELECT 2, seq, id, kind, leaf, leaf_hash FROM event")
        raw.execute("DELETE FROM log WHERE id = ?", (other,))
    said = [one.message for one in forged.verify().findings]
    assert any("table event " in text for text in said)


def test_another_log_without_events_is_found_and_its_own_absence_is_none(
    small: Recorded, tmp_path: Path
) -> None:
    """A kill between making a log and its first event leaves one: that is not tampering."""
    store = small.copy(tmp_path / "copy")
    with closing(store.open()) as database:
        empty = database.create_log()
    found = store.verify()
    assert [(one.code, one.grade) for one in found.findings] == [("log.empty", "incomplete")]
    assert empty in found.findings[0].message
    assert found.exit_code == 3
    assert Recorded(store.path, empty, []).verify().findings == ()


def test_another_log_without_its_first_event_is_found(small: Recorded, tmp_path: Path) -> None:
    forged = small.copy(tmp_path / "forged")
    with closing(forged.open()) as database:
        other = database.create_log()
    with connect(forged) as raw:
        unguarded(raw).execute(
            "INSERT INTO event SELECT 2, seq, id, kind, leaf, leaf_hash FROM event WHERE seq = 5"
        )
    found = forged.verify()
    assert found.exit_code == 1
    assert any(other in one.message and "first" in one.message for one in found.findings)
