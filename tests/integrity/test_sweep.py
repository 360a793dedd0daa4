"""Every column of every table is changed, and rows are deleted: what is read is right or CORRUPT.

A list may be wrong, and then verification finds it. One change at a time, of a copy of one store,
without the heads that were kept of it.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from loom_audit import wiring
from loom_audit.errors import AuditError
from loom_audit.sql.driver import driver
from loom_audit.sql.projections import keyframes
from tests.integrity.readers import Made, Reader, make
from tests.integrity.test_tamper import unguarded

REFUSED = {"CORRUPT", "AUDIT_UNAVAILABLE", "IO"}
"""Codes of an answer that says that the store is not as it should be."""

NOT_FOUND = "NO_WORKSPACE"
"""Of a store whose tables do not lead to the workspace any more: nothing is served."""

DERIVED = ("search", "searched", "sqlite_", "alembic_version")
"""The search index is not evidence of anything and not verified; a version is no content."""

SAMPLE = 24


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOM_AUDIT_HOME", "")
        patch.setattr(keyframes, "KEYFRAME_EVENTS", 32)
        patch.setattr(wiring, "KEYFRAME_EVENTS", 32)
        yield make(tmp_path_factory.mktemp("sweep"))


def columns(made: Made) -> list[tuple[str, str]]:
    with closing(driver().connect(str(made.home / "audit.db"))) as raw:
        tables = [
            name
            for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith(DERIVED)
        ]
        return [
            (table, row[1])
            for table in tables
            for row in raw.execute(f"PRAGMA table_info({table})").fetchall()
        ]


def other_value(value: Any, chance: random.Random) -> Any:
    """A value of the same type, or now and then of another."""
    if chance.random() < 0.1:
        return chance.choice([None, "text", 7, b"bytes", -1])
    if isinstance(value, int):
        return chance.choice([value + 1, value - 1, 0, value * 2 + 1, -value])
    if isinstance(value, str):
        return chance.choice([value + "x", value[1:], "ok", ""])
    if isinstance(value, bytes) and value:
        at = chance.randrange(len(value))
        changed = value[:at] + bytes([value[at] ^ 1 << chance.randrange(8)]) + value[at + 1 :]
        return chance.choice([changed, value[:-1], bytes(len(value))])
    return chance.choice([0, 1, "x", b"x"])


def mutate(raw: Any, table: str, column: str, chance: random.Random) -> str:
    """Change one value of a column, take it from another row, or delete a row; what was done."""
    keys = [row[1] for row in raw.execute(f"PRAGMA table_info({table})").fetchall() if row[5]]
    picked = ", ".join([*keys, column])
    rows = raw.execute(f"SELECT {picked} FROM {table}").fetchall()
    if not rows:
        return ""
    *key, value = chance.choice(rows)
    where = " AND ".join(f"{name} IS ?" for name in keys)
    how = chance.choice(["other", "other", "swapped", "deleted"])
    try:
        if how == "deleted":
            raw.execute(f"DELETE FROM {table} WHERE {where}", key)
            return f"deleted {table} {key}"
        new = other_value(value, chance) if how == "other" else chance.choice(rows)[-1]
        if new == value:
            return ""
        raw.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (new, *key))
        return f"{table}.{column} of {key}: {value!r:.60} became {new!r:.60}"
    except driver().Error:
        return ""  # the table does not take it


def ask(made: Made, store: Any, reader: Reader) -> Any:
    try:
        return reader(store.workspace(made.id))
    except AuditError as error:
        return error


class Sweep:
    """Mutates copies of one store and asks all readers, beside what they answered at first."""

    def __init__(self, made: Made, folder: Path) -> None:
        self.made = made
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        with closing(made.open(made.home)) as store:
            everything = {**made.readers, **made.lists}
            self.genuine = {name: ask(made, store, one) for name, one in everything.items()}
            assert not store.workspace(made.id).verify().findings

    def run(self, table: str, column: str, seed: str) -> None:
        home = self.folder / "forged"
        shutil.copytree(self.made.home, home, ignore=shutil.ignore_patterns("*.ballast"))
        try:
            with closing(driver().connect(str(home / "audit.db"))) as raw:
                raw.execute("PRAGMA foreign_keys = OFF")
                unguarded(raw)
                done = mutate(raw, table, column, random.Random(seed))
                raw.commit()
            if done:
                self.counts["mutations"] += 1
                self._judge(home, done)
        finally:
            shutil.rmtree(home)

    def _judge(self, home: Path, done: str) -> None:
        try:
            store = self.made.open(home)
        except AuditError as error:
            self.counts["not opened"] += 1
            if error.code not in REFUSED:
                self.wrong.append(f"{done}: opening: {error.code} {error}")
            return
        with closing(store):
            doubtful = []
            for name, genuine in self.genuine.items():
                answer = ask(self.made, store, {**self.made.readers, **self.made.lists}[name])
                if same(answer, genuine):
                    self.counts["right"] += 1
                elif isinstance(answer, AuditError) and answer.code in REFUSED:
                    self.counts["CORRUPT"] += 1
                elif isinstance(answer, AuditError) and answer.code == NOT_FOUND:
                    self.counts["no workspace"] += 1
                elif name in self.made.lists:
                    doubtful.append(name)
                else:
                    self.wrong.append(f"{done}: {name}: {shown(answer)}")
            if doubtful:
                self.counts["lists found by verify"] += len(doubtful)
                try:
                    found = store.workspace(self.made.id).verify().findings
                except AuditError as error:
                    found = (error,)
                if not found:
                    self.wrong.append(f"{done}: {doubtful}, and verify finds nothing")


def same(answer: Any, genuine: Any) -> bool:
    if isinstance(genuine, AuditError):
        return isinstance(answer, AuditError) and (answer.code, str(answer)) == (
            genuine.code,
            str(genuine),
        )
    return bool(answer == genuine)


def shown(answer: Any) -> str:
    said = f"{answer.code} {answer}" if isinstance(answer, AuditError) else repr(answer)
    return said[:300]


def test_what_is_read_from_a_changed_store_is_right_or_refused(made: Made, tmp_path: Path) -> None:
    sweep = Sweep(made, tmp_path)
    chance = random.Random("sample")
    for n, (table, column) in enumerate(chance.sample(columns(made), SAMPLE)):
        sweep.run(table, column, f"sample {n}")
    assert sweep.wrong == []
    assert sweep.counts["CORRUPT"] and sweep.counts["right"]


@pytest.mark.deep
@pytest.mark.parametrize("part", range(8))
def test_every_column_of_every_table(
    made: Made, tmp_path: Path, part: int, record_property: Callable[[str, object], None]
) -> None:
    sweep = Sweep(made, tmp_path)
    for table, column in columns(made)[part::8]:
        for n in range(12):
            sweep.run(table, column, f"{table}.{column} {n}")
    record_property("counts", dict(sweep.counts))
    assert sweep.wrong == []
