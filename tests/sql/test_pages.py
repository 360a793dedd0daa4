"""Rows read from pages are those that SQLite reads, whatever their types and sizes."""

import random
from contextlib import closing
from pathlib import Path

import pytest

from loom_audit.sql.ground.driver import driver
from loom_audit.sql.salvage.pages import DatabasePages, PageRow

INTEGERS = [0, 1, -1, 127, -128, 32767, 1 << 23, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63)]


def made(path: Path, page_size: int = 4096) -> None:
    choice = random.Random(page_size)
    with closing(driver().connect(str(path), isolation_level=None)) as raw:
        raw.execute(f"PRAGMA page_size = {page_size}")
        raw.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b, c)")
        raw.execute("CREATE TABLE w (a, b, c, PRIMARY KEY (a, b)) WITHOUT ROWID")
        raw.execute("BEGIN")
        for n, size in enumerate([0, 1, 100, 1000, 4061, 4062, 5000, 8190, 100_000] * 40):
            blob = choice.randbytes(size % 70_000 if n > 9 else size)
            raw.execute("INSERT INTO t VALUES (?, ?, ?)", (n * 70_001 - 9, INTEGERS[n % 11], blob))
            raw.execute("INSERT INTO w VALUES (?, ?, ?)", (n % 7, f"schlüssel {n}", blob))
            raw.execute("INSERT INTO w VALUES (?, ?, NULL)", (INTEGERS[n % 11], f"{n}"))
        raw.execute("COMMIT")


def read(path: Path) -> list[PageRow]:
    with DatabasePages(str(path)) as pages:
        found = list(pages.rows())
        assert pages.broken == 0
    return found


def rows_of(path: Path, sql: str) -> set[tuple[object, ...]]:
    with closing(driver().connect(str(path))) as raw:
        return set(raw.execute(sql).fetchall())


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_every_row_of_both_kinds_of_tables_is_found_once(tmp_path: Path, page_size: int) -> None:
    path = tmp_path / "a.db"
    made(path, page_size)
    found = read(path)
    tables = [(row.rowid, *row.values[1:]) for row in found if row.tree == "table"]
    indexed = [row.values for row in found if row.tree == "index"]
    assert set(tables) == rows_of(path, "SELECT * FROM t") and len(tables) == len(set(tables))
    assert set(indexed) == rows_of(path, "SELECT * FROM w") and len(indexed) == len(set(indexed))


def test_what_was_deleted_is_not_brought_back(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    made(path)
    with closing(driver().connect(str(path))) as raw:
        raw.execute("DELETE FROM w WHERE c IS NOT NULL")
        raw.commit()
    assert all(row.values[2] is None for row in read(path) if row.tree == "index")


def test_pages_are_those_of_the_last_commit_in_the_write_ahead_log(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    with closing(driver().connect(str(path), isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA cache_size = 1")
        raw.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
        raw.execute("INSERT INTO t VALUES (1, 'in the file')")
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        raw.execute("UPDATE t SET b = 'committed'")
        raw.execute("BEGIN")
        raw.execute("UPDATE t SET b = 'not yet'")
        raw.executemany("INSERT INTO t (b) VALUES (?)", [("x" * 3000,) for _ in range(50)])
        for ending in ("", "-wal"):
            Path(f"{copy}{ending}").write_bytes(Path(f"{path}{ending}").read_bytes())
        raw.execute("ROLLBACK")
    assert [row.values[1] for row in read(copy)] == ["committed"]


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(20))
def test_damage_costs_no_more_than_what_it_lies_on(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "a.db"
    made(path)
    whole = set(read(path))
    data, choice = bytearray(path.read_bytes()), random.Random(seed)
    for _ in range(30):
        data[choice.randrange(4096, len(data))] ^= 1 << choice.randrange(8)
    path.write_bytes(data)
    with DatabasePages(str(path)) as pages:
        left = set(pages.rows())
    assert len(left & whole) > len(whole) // 2
