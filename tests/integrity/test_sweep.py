"""Every column of every table is changed, and rows are deleted: what is read is right or CORRUPT.

A list may be wrong, and verification finds every change. One change at a time, of a copy of one
store, without the heads that were kept of it. And once more with a recording after the change:
nothing false goes into the log by it, and what was there before is read right or refused.
"""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.face import open_store
from loom_audit.errors import AuditError
from loom_audit.model.events import FilesChanged
from loom_audit.ports import EventFilter
from loom_audit.sql.ground.driver import driver
from loom_audit.sql.projections import keyframes
from loom_audit.sql.store.places import MARKS
from loom_audit.wiring import adapters
from tests.integrity.asking.ask_commands import commands
from tests.integrity.asking.ask_pages import pages
from tests.integrity.asking.ask_python import python
from tests.integrity.asking.readers import Answer, Made, Opened, make
from tests.integrity.test_tamper import connect, unguarded
from tests.places.made_store import lay_ballast
from tests.web.conftest import asking

REFUSED = {"CORRUPT", "AUDIT_UNAVAILABLE", "IO"}
"""Codes of an answer that says that the store is not as it should be."""

NOT_THERE = {
    ("workspace", "NOT_FOUND"),
    ("log", "NO_WORKSPACE"),
    ("log", "NOT_FOUND"),
}
"""Where the tables that name workspaces do not lead to this one any more, nothing is served."""

DERIVED = ("search", "searched", "sqlite_", "alembic_version", *MARKS)
"""The search index and people's marks are not evidence of anything and not verified; a version is
no content.
"""

SAMPLE = 1
"""So many mutations are tried by the ordinary test; each asks all readers, some 2 seconds."""

EACH = 12
"""So many mutations of each column make the whole sweep."""

PARTS = 100
"""The whole sweep in parts of about half a minute, of which CI takes a sample."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOM_AUDIT_HOME", "")
        patch.setattr(keyframes, "KEYFRAME_EVENTS", 32)
        patch.setattr(adapters, "KEYFRAME_EVENTS", 32)
        yield make(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def dashboard(made: Made) -> Iterator[TestClient]:
    """Somebody who has signed in, and whose dashboard is given another store to serve."""
    with (
        closing(open_store(str(made.home / "audit.db"))) as store,
        asking(store, raises=False) as client,
    ):
        yield client


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
        return f"{table}.{column} of {key}: {value!r} became {new!r}"
    except driver().Error:
        return ""  # the table does not take it


class Sweep:
    """Mutates copies of one store and asks all readers, beside what they answered at first."""

    def __init__(self, made: Made, dashboard: TestClient, folder: Path) -> None:
        self.made = made
        self.dashboard = dashboard
        self.home = folder / "copy"
        self.readers = python(made) | commands(made) | pages(made)
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.tried: set[tuple[str, bool]] = set()
        """What was done to a copy, and whether something was recorded then: once is enough."""
        with self._copied() as opened:
            self.genuine = {name: ask(opened) for name, ask in self.readers.all.items()}
            found = opened.workspace.verify().findings
            assert found == ()
            self.head = opened.workspace.log.head()
            self.truth = dict(opened.workspace.timeline.tree())
        self.kept = folder / "work"
        shutil.copytree(made.work, self.kept, symlinks=True)

    @cached_property
    def stable(self) -> dict[str, Answer]:
        """What is answered as before when something has been recorded, by reader."""
        with self._copied() as opened, self._put_back():
            assert self._record(opened) == ""
            return {
                name: genuine
                for name, genuine in self.genuine.items()
                if self.readers.all[name](opened) == genuine
            }

    def run_recorded(self, table: str, column: str, seed: str) -> None:
        """Change something, record, and ask what was there before."""
        stable, done = self.stable, list[str]()
        with (
            self._copied(
                lambda raw: done.append(mutate(raw, table, column, random.Random(seed)))
            ) as opened,
            self._put_back(),
        ):
            if not self._is_new(done[0], recorded=True):
                return
            self.counts["recorded" if self._record(opened) == "" else "recording refused"] += 1
            self._judge_recorded(opened, done[0])
            self._judge(opened, table, done[0], stable, found=False)

    @contextmanager
    def _put_back(self) -> Iterator[None]:
        """The workspace is afterwards as it was, whatever was recorded."""
        try:
            yield
        finally:
            shutil.rmtree(self.made.work)
            shutil.copytree(self.kept, self.made.work, symlinks=True)

    def _record(self, opened: Opened) -> str:
        """Write files by a tool and by a block; the code with which that was refused."""
        work = self.made.work
        try:
            with opened.workspace.session("later") as session:
                for path in ("src/0.py", "src/1.py", "later.txt"):
                    arguments = {"path": path, "content": "later\n"}
                    result = asyncio.run(session.call("write_file", arguments))
                    if result.error is not None:
                        return str(result.error.code)
                with session.recording("build"):
                    (work / "src" / "2.py").write_text("built\n")
                    (work / "last.txt").unlink()
                    shutil.rmtree(work / "out")
        except AuditError as error:
            return error.code
        return ""

    def _judge_recorded(self, opened: Opened, done: str) -> None:
        """What was recorded since says of each path what really was there before."""
        tree = dict(self.truth)
        try:
            for event in opened.workspace.log.read(EventFilter(after=self.head)):
                if isinstance(event.fact, FilesChanged):
                    for change in event.fact.changes:
                        if change.before != tree.get(change.path):
                            self.wrong.append(
                                f"{done:.200}: laundered with event {event.seq}: {change}"
                            )
                        tree.pop(change.path, None)
                        if change.after is not None:
                            tree[change.path] = change.after
        except AuditError:
            self.counts["what was recorded is refused"] += 1

    @contextmanager
    def _copied(self, harm: Callable[[Any], object] = lambda raw: None) -> Iterator[Opened]:
        """A copy with harm done to its tables; always at the same place, as answers name it."""
        ignore = shutil.ignore_patterns("*.ballast", "*.heads")
        shutil.copytree(self.made.home, self.home, ignore=ignore)
        lay_ballast(self.home / "audit.db")
        try:
            with connect(self.home / "audit.db") as raw:
                raw.execute("PRAGMA foreign_keys = OFF")
                harm(unguarded(raw))
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("LOOM_AUDIT_HOME", str(self.home))
                with closing(Opened(self.made, self.home, self.dashboard)) as opened:
                    yield opened
        finally:
            shutil.rmtree(self.home)

    def run(self, table: str, column: str, seed: str) -> None:
        done: list[str] = []
        with self._copied(
            lambda raw: done.append(mutate(raw, table, column, random.Random(seed)))
        ) as opened:
            if self._is_new(done[0], recorded=False):
                self._judge(opened, table, done[0])

    def _is_new(self, done: str, *, recorded: bool) -> bool:
        """Whether something was done that was not tried yet: now it is.

        The row that one column of a table draws may be deleted for another column, too.
        """
        if not done or (done, recorded) in self.tried:
            return False
        self.tried.add((done, recorded))
        self.counts["mutations"] += 1
        return True

    def _judge(
        self,
        opened: Opened,
        table: str,
        done: str,
        asked: Mapping[str, Answer] | None = None,
        *,
        found: bool = True,
    ) -> None:
        """Ask the readers; verification must have `found` the change, where a list is wrong at
        least: a recording may have replaced what was changed.
        """
        doubtful = []
        for name, genuine in (self.genuine if asked is None else asked).items():
            answer = self.readers.all[name](opened)
            if answer == genuine:
                self.counts["right"] += 1
            elif answer.code in REFUSED and set(answer.lines) <= set(genuine.lines):
                self.counts["CORRUPT"] += 1
            elif (table, answer.code) in NOT_THERE:
                self.counts["no workspace"] += 1
            elif name in self.readers.lists:
                doubtful.append(name)
            else:
                self.wrong.append(f"{done:.200}: {name}: {said(answer, genuine)}")
        self.counts["lists found by verify"] += len(doubtful)
        if (found or doubtful) and not found_by_verify(opened):
            self.wrong.append(f"{done:.200}: {doubtful}, and verify finds nothing")


def said(answer: Answer, genuine: Answer) -> str:
    """An answer as it is reported: of a text, the lines that were not in the genuine one."""
    other = [line for line in answer.lines if line not in genuine.lines]
    return f"{answer.code} {other or answer.said!r}"[:600]


def found_by_verify(opened: Opened) -> bool:
    try:
        return bool(opened.workspace.verify().findings)
    except AuditError:
        return True


@pytest.fixture(scope="module")
def asked(made: Made, dashboard: TestClient, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """All readers, with what they answer of the store as it was made."""
    return Sweep(made, dashboard, tmp_path_factory.mktemp("sweep"))


@pytest.fixture
def sweep(asked: Sweep) -> Sweep:
    """The same, with nothing counted yet."""
    asked.counts, asked.wrong = Counter(), []
    return asked


@pytest.mark.deep
def test_what_is_read_from_a_changed_store_is_right_or_refused(
    made: Made, sweep: Sweep, seed: str
) -> None:
    chance, tries = random.Random(seed), 0
    while sweep.counts["mutations"] < SAMPLE:
        sweep.run(*chance.choice(columns(made)), f"{seed} {tries}")
        tries += 1
    assert sweep.wrong == []
    assert sweep.counts["CORRUPT"] + sweep.counts["lists found by verify"]


@pytest.mark.few(0)
@pytest.mark.parametrize("how", ["deleted", "of another log"])
def test_what_is_read_of_a_log_without_its_last_event_is_right_or_refused(
    sweep: Sweep, how: str
) -> None:
    last = "WHERE seq = (SELECT max(seq) FROM event)"
    sql = {
        "deleted": f"DELETE FROM event {last}",
        "of another log": f"UPDATE event SET log = 9 {last}",
    }
    with sweep._copied(lambda raw: raw.execute(sql[how])) as opened:
        sweep._judge(opened, "event", how)
    assert sweep.wrong == []
    assert sweep.counts["CORRUPT"] > len(sweep.readers.verified) - 5


@pytest.mark.deep
@pytest.mark.parametrize("part", range(PARTS))
def test_every_column_of_every_table(
    made: Made, sweep: Sweep, part: int, record_property: Callable[[str, object], None]
) -> None:
    for table, column in columns(made)[part::PARTS]:
        for n in range(EACH):
            sweep.run(table, column, f"{table}.{column} {n}")
    record_property("counts", dict(sweep.counts))
    assert sweep.wrong == []


@pytest.mark.deep
def test_what_is_recorded_on_a_changed_store_is_right_or_refused(
    made: Made, sweep: Sweep, seed: str
) -> None:
    assert len(sweep.stable) > 20
    chance, tries = random.Random(f"recorded {seed}"), 0
    while sweep.counts["mutations"] < SAMPLE:
        table = chance.choice(["file_change", "tree_entry", "change_set", "path", "keyframe"])
        column = chance.choice([name for of, name in columns(made) if of == table])
        sweep.run_recorded(table, column, f"recorded {seed} {tries}")
        tries += 1
    assert sweep.wrong == []


@pytest.mark.deep
@pytest.mark.parametrize("part", range(PARTS))
def test_every_column_of_every_table_before_a_recording(
    made: Made, sweep: Sweep, part: int, record_property: Callable[[str, object], None]
) -> None:
    for table, column in columns(made)[part::PARTS]:
        for n in range(EACH):
            sweep.run_recorded(table, column, f"recorded {table}.{column} {n}")
    record_property("counts", dict(sweep.counts))
    assert sweep.wrong == []
