"""The quick check of projections: it agrees to a log in order, and to nothing else."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from loom_audit.history.check.verification import Verification, verify
from loom_audit.model.calls import IN_PART
from loom_audit.model.conversation import PromptSubmitted
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import CallFinished, CallRequested, CoverageLowered, Fact, FilesChanged
from loom_audit.ports import EventRow
from loom_audit.sql.evidence.evidence import SqlEvidence, open_evidence
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections.rows import ReadBack
from loom_audit.sql.projections.subjects import PROJECTIONS, STREAMED
from tests.given.cases import some
from tests.integrity.conftest import Recorded, Writer, record
from tests.integrity.test_tamper import PROJECTED, connect, find_seq, unguarded


class Counted:
    """Counts how often events are read once more from the start."""

    def __init__(self, evidence: SqlEvidence) -> None:
        self.again = -1
        real = evidence.events

        def counted(after: int = 0, until: int | None = None) -> Iterator[Sequence[EventRow]]:
            self.again += 1
            return real(after, until)

        evidence.events = counted  # type: ignore[method-assign] # counts, and reads on


def verified(store: Recorded) -> tuple[Verification, Counted]:
    with closing(store.open()) as database, closing(open_evidence(database, store.log)) as found:
        counted = Counted(found)
        return verify(found, heads=store.heads), counted


def test_a_log_in_order_is_read_once(master: Recorded) -> None:
    found, counted = verified(master)
    assert found.ok and counted.again == 0


@pytest.mark.few(2)
@pytest.mark.parametrize(("table", "sql"), PROJECTED)
def test_an_edited_projection_is_not_agreed_to(store: Recorded, table: str, sql: str) -> None:
    with connect(store) as raw:
        unguarded(raw)
        files, finish = find_seq(raw, "files.changed"), find_seq(raw, "call.finished")
        raw.execute(sql, {"files": files, "finish": finish})
    found, counted = verified(store)
    assert counted.again == 1
    assert not found.ok


@pytest.mark.few(2)
@pytest.mark.parametrize("table", [table for one in STREAMED for table in one.TABLES])
def test_a_log_with_a_column_that_is_not_read_back_is_not_agreed_to(
    store: Recorded, table: str
) -> None:
    with connect(store) as raw:
        raw.execute(f"ALTER TABLE {table} ADD COLUMN unheard TEXT")
    _, counted = verified(store)
    assert counted.again == 1


def test_a_column_that_a_statement_fills_is_read_back() -> None:
    filled = prepare("UPDATE call SET told = :told WHERE log = :log AND finished = :finished")
    one = ReadBack(filled, "call", {"told": "coalesce(call.told, 0)"}, "FROM call WHERE log = ?")
    assert one.query == "SELECT coalesce(call.told, 0), call.finished FROM call WHERE log = ?"
    assert one.columns == {"told", "finished"}


def columns_of(raw: Any, table: str) -> list[tuple[str, str]]:
    rows = raw.execute(f"PRAGMA table_info({table})").fetchall()
    return [(name, kind) for _, name, kind, *_ in rows]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A small log with a row in each table."""
    small = record(tmp_path_factory.mktemp("small") / "audit.db", 40)
    with closing(small.open()) as database:
        writer = Writer(database, small.log)
        first = writer.log.head() + 1
        facts: list[Fact] = [
            *(CallRequested(id, "run", {}, "execute") for id in ("one", "two")),
            CallRequested("three", "revert", {}, "write"),
            FilesChanged(
                (writer.changed("x", writer.state(b"x")),), "command", "one", causes=("one", "two")
            ),
            CallFinished("one", "run", "execute", "ok", {}, reverts=(3,)),
            FilesChanged(
                (writer.changed("y", writer.state(b"y")),),
                "command",
                "two",
                causes=(first + 1, first),
            ),
            CallFinished("two", "run", "execute", "ok", {}, reverts=(4,)),
            CallFinished("three", "revert", "write", "ok", {IN_PART: {"3": ["x"]}}, reverts=(4,)),
            CoverageLowered((1,), Coverage("partial", ("late",))),
            PromptSubmitted("do it"),
        ]
        writer.append(*facts, session="late", actor="agent:a")
        small.heads.append(writer.log.tree_head())
    return small


# a log this short has no keyframe
@pytest.mark.few(1)
@pytest.mark.parametrize("table", some(sorted({*PROJECTIONS} - {"keyframe"}), 4))
def test_no_column_of_a_projection_is_left_out(
    recorded: Recorded, tmp_path: Path, table: str
) -> None:
    small = recorded.copy(tmp_path / "small")
    assert verified(small)[1].again == 0
    with connect(small) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        names = columns_of(raw, table)
    for name, kind in names:
        if (table, name) == ("session", "number"):
            continue
        changed = f"CASE typeof({name}) WHEN 'text' THEN {name} || 'x' WHEN 'blob' THEN "
        changed += f"CAST({name} || x'01' AS BLOB) WHEN 'null' THEN "
        changed += ("'x'" if "CHAR" in kind.upper() else "1") + f" ELSE {name} + 1000000 END"
        with connect(small) as raw:
            raw.execute("BEGIN")
            unguarded(raw)
            before = raw.execute(f"SELECT {name} FROM {table} LIMIT 1").fetchone()
            key = raw.execute(f"SELECT * FROM {table} LIMIT 1").fetchone()
            where = " AND ".join(f"{column} IS ?" for column, _ in names)
            raw.execute(f"UPDATE {table} SET {name} = {changed} WHERE {where}", key)
            assert before is not None
            raw.execute("COMMIT")
        found, counted = verified(small)
        assert counted.again == 1, f"{table}.{name} is not looked at"
        assert not found.ok, f"{table}.{name} is not compared"
        with connect(small) as raw:
            raw.execute("BEGIN")
            new = dict(zip([column for column, _ in names], key, strict=True))
            others = {column: value for column, value in new.items() if column != name}
            match = " AND ".join(f"{column} IS ?" for column in others)
            raw.execute(
                f"UPDATE {table} SET {name} = ? WHERE {match}", (new[name], *others.values())
            )
            raw.execute("COMMIT")
    assert verified(small)[0].ok
