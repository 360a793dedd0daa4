"""What people note while they read: viewed parts, how far they read, and what is unread."""

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model.events import CallRequested, Draft, FilesChanged, SessionStarted
from loom_audit.model.files import FileChange
from loom_audit.ports import Marks, UnreadSession
from tests.contracts.stores import UNKNOWN, Opened, draft, open_memory, open_sqlite, started
from tests.doubles.marks import MemoryMarks
from tests.given.examples import examples

ANN, BOB = "person:ann", "person:bob"
ONE, TWO, THREE = "00" * 16, "ff" * 16, "a1" * 16


@pytest.fixture
def marks(opened: Opened) -> Marks:
    if opened.database is None:
        return MemoryMarks(opened.log)
    return opened.database.marks(opened.log.id)


def test_viewed_parts_are_those_of_one_person(marks: Marks) -> None:
    marks.view(ANN, [ONE, TWO, ONE])
    marks.view(ANN, [TWO])
    marks.view(BOB, [THREE])
    assert marks.viewed(ANN, [ONE, TWO, THREE]) == {ONE, TWO}
    assert marks.viewed(ANN, [TWO, THREE]) == {TWO}
    assert marks.viewed(BOB, {THREE}) == {THREE}
    assert marks.viewed("person:eve", [ONE]) == marks.viewed(ANN, []) == frozenset()
    marks.view(ANN, [ONE, THREE], viewed=False)
    assert marks.viewed(ANN, [ONE, TWO, THREE]) == {TWO}
    assert marks.viewed(BOB, [THREE]) == {THREE}, "that mark is another person's"
    marks.view(ANN, [])
    assert marks.viewed(ANN, [ONE, TWO, THREE]) == {TWO}


def test_many_parts_are_marked_and_asked_for_at_once(marks: Marks) -> None:
    names = [f"{n:032x}" for n in range(1_300)]
    marks.view(ANN, names[:1_200])
    assert marks.viewed(ANN, names) == {*names[:1_200]}
    assert marks.viewed(ANN, names[1_100:]) == {*names[1_100:1_200]}


def test_how_far_a_session_was_read_is_kept_by_person_and_taken_back(marks: Marks) -> None:
    marks.read(ANN, {"s": 5, "t": 9})
    marks.read(BOB, {"s": 2})
    marks.read(ANN, {"s": 7})
    assert marks.read_to(ANN, ["s", "t", "u", "\udcff"]) == {"s": 7, "t": 9}
    assert marks.read_to(BOB, ["s", "t"]) == {"s": 2}
    marks.read(ANN, {"s": None, "u": None})
    assert marks.read_to(ANN, ["s", "t"]) == {"t": 9}
    assert marks.read_to(ANN, []) == {}


def test_sessions_with_changes_that_were_not_read_are_unread(opened: Opened, marks: Marks) -> None:
    a, b = opened.file(b"a"), opened.file(b"b")
    opened.log.append([started("s"), started("reads"), draft(SessionStarted("x", parent="s"), "x")])
    first = opened.call(FileChange("p", None, a), session="s")
    opened.call(session="reads")
    opened.call(FileChange("q", None, a), session="x")
    opened.change(FileChange("r", None, a), origin="outside", session="")
    assert [*marks.unread(ANN, 9)] == [UnreadSession("x", "s", 0), UnreadSession("s", None, 0)]
    assert [*marks.unread(ANN, 1)] == [UnreadSession("x", "s", 0)]
    marks.read(ANN, {"s": first, "x": first})
    assert [*marks.unread(ANN, 9)] == [UnreadSession("x", "s", first)]
    assert len(marks.unread(BOB, 9)) == 2, "what one person has read is not read by another"
    opened.call(session="s")
    assert [one.session for one in marks.unread(ANN, 9)] == ["x"], "only changes are to be read"
    opened.call(FileChange("p", a, b), session="s")
    assert [one.session for one in marks.unread(ANN, 9)] == ["x", "s"]
    marks.read(ANN, {one: opened.log.head() for one in ("s", "x")})
    assert [*marks.unread(ANN, 9)] == []
    opened.call(FileChange("p", b, a), session="undo", actor=ANN)
    assert [*marks.unread(ANN, 9)] == [], "what a person did is not to be read by that person"
    assert marks.unread(BOB, 9)[0].session == "undo"


def test_what_is_unread_is_found_without_the_changes_before_a_session(tmp_path: Path) -> None:
    opened = open_sqlite(tmp_path)
    assert opened.database
    marks, steps = opened.database.marks(opened.log.id), list[int]()
    for sessions in (range(30), range(30, 60)):
        for session in sessions:
            facts: list[Draft] = [started(f"s{session}")]
            for n in range(20):
                id, change = f"{session}.{n}", FileChange(f"{session}/{n}", None, UNKNOWN)
                facts.append(draft(CallRequested(id, "t", {}, "write"), f"s{session}"))
                facts.append(draft(FilesChanged((change,), "tool", id), f"s{session}"))
            opened.log.append(facts)
        steps.append(0)
        with opened.database.connections.reading() as connection:
            connection.raw.set_progress_handler(partial(_count, steps), 1)
        assert len(marks.unread(ANN, 99)) == sessions.stop
    assert steps[1] < 3 * steps[0]
    opened.database.close()


def _count(steps: list[int]) -> None:
    steps[-1] += 1


def test_each_log_has_a_random_key_of_its_own(tmp_path: Path) -> None:
    stored = open_sqlite(tmp_path)
    assert stored.database
    other = stored.database.create_log()
    keys = {stored.database.marks(id).key() for id in (stored.log.id, other)}
    assert len(keys) == 2 and {len(key) for key in keys} == {32}
    stored.database.marks(other).view(ANN, [ONE])
    assert stored.database.marks(stored.log.id).viewed(ANN, [ONE]) == frozenset()
    stored.database.close()


@examples(25, 100)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from("stu"), st.sampled_from(("call", "change", "read", "again"))),
        max_size=25,
    )
)
def test_what_is_unread_is_the_same_over_the_store_as_worked_out_from_the_log(
    steps: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    stored, simple = open_sqlite(tmp_path_factory.mktemp("marks")), open_memory()
    assert stored.database
    both: list[tuple[Opened, Marks]] = [
        (stored, stored.database.marks(stored.log.id)),
        (simple, MemoryMarks(simple.log)),
    ]
    for opened, marks in both:
        for n, (session, what) in enumerate(steps):
            if what == "call":
                opened.call(session=session)
            elif what == "change":
                opened.call(FileChange(f"p{n}", None, opened.file(b"x")), session=session)
            else:
                marks.read(ANN, {session: None if what == "again" else opened.log.head()})
    assert [*both[0][1].unread(ANN, 9)] == [*both[1][1].unread(ANN, 9)]
    stored.database.close()
