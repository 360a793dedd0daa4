"""What every set of projections says of a log, and that the SQL ones say what a naive fold does."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from loom_audit.errors import InvalidArguments, NotFound
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import (
    BaselineFinished,
    CallFinished,
    CallReported,
    CallRequested,
    CheckpointMarked,
    CoverageLowered,
    FilesChanged,
    PathsUntracked,
    ScopeAccepted,
    SessionEnded,
    SessionStarted,
    TreeRelisted,
    Untracked,
    WorkspaceAttached,
)
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.model.records import Tally
from loom_audit.model.scope import Scope
from loom_audit.model.text.summaries import failure, summarize
from loom_audit.ports import CallFilter, WordsFilter
from loom_audit.sql.ground.driver import connect
from loom_audit.sql.projections import keyframes
from loom_audit.sql.projections.keyframes import pack, unpack
from loom_audit.sql.projections.queries import SqlProjections
from loom_audit.sql.projections.searching import search
from loom_audit.sql.projections.subjects import PROJECTIONS
from tests.contracts.stores import (
    DIRECTORY,
    START,
    UNKNOWN,
    Opened,
    SetClock,
    draft,
    open_sqlite,
    started,
    symlink,
)
from tests.doubles import MemoryBlobStore, MemoryEventLog, MemoryProjections
from tests.given.examples import examples


def rebuild(opened: Opened) -> int:
    assert isinstance(opened.projections, SqlProjections)
    return opened.projections.rebuild()


# --- trees and changes --------------------------------------------------------------------


def test_an_empty_log_has_an_empty_tree(opened: Opened) -> None:
    assert opened.projections.tree() == {}
    assert opened.projections.tree(0) == {}
    assert opened.projections.state("a") is None
    with pytest.raises(NotFound):
        opened.projections.tree(1)


def test_the_tree_at_each_event_is_what_was_changed_up_to_it(opened: Opened) -> None:
    one, two = opened.file(b"one"), opened.file(b"two", 0o755)
    link = symlink(b"a/b", opened)
    opened.log.append([started()])
    first = opened.change(
        FileChange("d", None, DIRECTORY),
        FileChange("d/a", None, one),
        FileChange("caf\udce9", None, UNKNOWN),
        origin="baseline",
    )
    second = opened.change(FileChange("d/a", one, two), FileChange("l", None, link))
    third = opened.change(
        FileChange("d/a", two, None), FileChange("d", DIRECTORY, None), FileChange("d", None, link)
    )
    assert opened.projections.tree(1) == {}
    at_first = {"d": DIRECTORY, "d/a": one, "caf\udce9": UNKNOWN}
    assert opened.projections.tree(first) == at_first
    assert opened.projections.tree(second) == {**at_first, "d/a": two, "l": link}
    assert opened.projections.tree() == {"caf\udce9": UNKNOWN, "d": link, "l": link}
    assert opened.projections.tree(third) == opened.projections.tree()
    assert opened.projections.state("d/a", first) == one
    assert opened.projections.state("d/a", second) == two
    assert opened.projections.state("d/a") is None
    assert opened.projections.state("d") == link
    assert opened.projections.state("caf\udce9", first) == UNKNOWN


@pytest.mark.parametrize(
    "causes",
    [lambda one, two: (one, two), lambda one, two: ("c1", "c2")],
    ids=["requests", "the ids of format 1"],
)
def test_changes_are_listed_in_log_order_and_by_what_is_asked(
    opened: Opened, causes: Callable[[int, int], tuple[int | str, ...]]
) -> None:
    a, b = opened.file(b"a"), opened.file(b"b")
    requests = [draft(CallRequested(id, "t", {}, "write")) for id in ("c1", "c2")]
    one, two = (event.seq for event in opened.log.append(requests))
    baseline = opened.change(
        FileChange("x", None, a), FileChange("x/y", None, b), origin="baseline", session=""
    )
    mine = opened.change(FileChange("x", a, b), call_id="c1")
    shared = opened.change(FileChange("z", None, a), call_id="c1", causes=causes(one, two))

    def found(**asked: Any) -> list[tuple[int, str]]:
        return [(c.seq, c.change.path) for c in opened.projections.changes(**asked)]

    assert found() == [(baseline, "x"), (baseline, "x/y"), (mine, "x"), (shared, "z")]
    assert found(after=baseline, until=mine) == [(mine, "x")]
    assert found(paths=["x", "nothing"]) == [(baseline, "x"), (mine, "x")]
    assert found(paths=[]) == []
    assert found(calls=[one]) == [(mine, "x"), (shared, "z")]
    assert found(calls=[two]) == [(shared, "z")]
    assert found(calls=[baseline]) == []
    last = list(opened.projections.changes())[-1]
    assert (last.origin, last.call_id, last.causes) == ("tool", "c1", (one, two))
    assert (last.session, last.actor, last.at) == ("s", "agent:a", START)
    assert last.change == FileChange("z", None, a)


def test_a_cause_of_format_1_that_means_no_other_call_is_not_taken_for_a_known_one(
    opened: Opened,
) -> None:
    [own] = opened.log.append([draft(CallRequested("1", "t", {}, "execute"))])
    opened.change(
        FileChange("x", None, opened.file(b"a")), call_id="1", causes=("1", "1", "never requested")
    )
    [change] = opened.projections.changes()
    assert (change.requested, change.causes) == (own.seq, (own.seq, 0, 0))


def test_thousands_of_changes_are_streamed_whole(opened: Opened) -> None:
    state = opened.file(b"same")
    names = [f"n{n:04}" for n in range(2500)]
    opened.change(*(FileChange(name, None, state) for name in names))
    assert [c.change.path for c in opened.projections.changes()] == names
    assert list(opened.projections.tree()) != [] and len(opened.projections.tree()) == 2500


def test_the_history_of_a_path_is_its_own_newest_first(opened: Opened) -> None:
    a, b = opened.file(b"a"), opened.file(b"b")
    opened.change(FileChange("dir/f", None, a), FileChange("dir", None, DIRECTORY))
    opened.change(FileChange("dir/f", a, b), FileChange("dir0", None, a))
    opened.change(FileChange("dirf", None, a), FileChange("dir/sub/g", None, a))

    def seen(*path: str, **asked: Any) -> list[tuple[int, str]]:
        found = opened.projections.history(*path, **asked)
        return [(c.seq, c.change.path) for c in found]

    assert seen("dir/f") == [(2, "dir/f"), (1, "dir/f")]
    assert seen("dir/f", before=2) == [(1, "dir/f")]
    assert seen("dir/f", limit=1) == [(2, "dir/f")]
    assert seen("dir", below=True) == [(3, "dir/sub/g"), (2, "dir/f"), (1, "dir"), (1, "dir/f")]
    assert len(seen("", below=True)) == 6
    assert seen("dir") == [(1, "dir")]
    assert seen("none", below=True) == []


# --- calls and sessions -------------------------------------------------------------------


def test_a_call_says_what_came_of_it(opened: Opened) -> None:
    opened.log.append([started()])
    a, b = opened.file(b"a"), opened.file(b"b")
    request = CallRequested("c1", "shell", {"command": "make"}, "execute")
    opened.log.append([draft(request)])
    [open_call] = opened.projections.open_calls()
    assert (open_call.seq, open_call.status, open_call.requested) == (None, "open", 2)
    assert open_call.summary == "make"
    opened.change(FileChange("b", None, b), FileChange("a", None, a), call_id="c1")
    opened.change(FileChange("a", a, b), call_id="c1")
    finish = CallFinished(
        "c1",
        "shell",
        "execute",
        "error",
        {"error": {"message": "it failed"}},
        Coverage("partial", ("too large: x",)),
        "plain",
        1234,
    )
    opened.clock.pass_time(60)
    [finished] = opened.log.append([draft(finish)])
    [call] = opened.projections.calls()
    assert call == opened.projections.call("s", "c1") == opened.projections.call_at(finished.seq)
    assert opened.projections.call_at(3) == opened.projections.call_at(2) == call
    assert opened.projections.open_calls() == []
    assert (call.seq, call.requested, call.at, call.session) == (5, 2, START, "s")
    assert (call.tool, call.effect, call.status, call.error) == (
        "shell",
        "execute",
        "error",
        "it failed",
    )
    assert call.coverage == Coverage("partial", ("too large: x",))
    assert (call.paths, call.changed) == (("b", "a"), 2)
    assert (call.duration, call.sandbox, call.actor) == (1234, "plain", "agent:a")
    for nothing in (1, 99):
        with pytest.raises(NotFound):
            opened.projections.call_at(nothing)
    with pytest.raises(NotFound):
        opened.projections.call("s", "none")


def test_changes_shared_by_several_calls_are_listed_with_one(opened: Opened) -> None:
    a = opened.file(b"a")
    for id in ("c1", "c2"):
        opened.log.append([draft(CallRequested(id, "t", {}, "execute"))])
    seq = opened.change(FileChange("x", None, a), call_id="c1", causes=("c1", "c2"))
    one, two = sorted(opened.projections.open_calls(), key=lambda call: call.call_id)
    assert (one.paths, one.changed, two.paths, two.changed) == (("x",), 1, (), 0)
    assert opened.projections.call_at(seq).call_id == "c1"


def test_calls_are_filtered_and_paged(opened: Opened) -> None:
    a = opened.file(b"a")
    opened.log.append([started("s"), started("other")])
    one = opened.call(FileChange("dir/a", None, a))
    opened.clock.pass_time(100)
    two = opened.call(tool="read_file", session="other", actor="person:p")
    three = opened.call(FileChange("dir", None, DIRECTORY), status="error", tool="shell")
    opened.clock.pass_time(100)
    four = opened.call(FileChange("dir0", None, a), session="")

    def found(**asked: Any) -> list[int | None]:
        return [call.seq for call in opened.projections.calls(CallFilter(**asked))]

    assert found() == [four, three, two, one]
    assert found(newest_first=False, limit=2) == [one, two]
    newest = opened.projections.calls(CallFilter(limit=2))
    assert found(before=newest[-1].requested) == [two, one]
    assert found(after=newest[-1].requested) == [four]
    assert found(session="other") == [two]
    assert found(session="") == [four]
    assert found(session="none") == []
    assert found(tool="shell") == [three]
    assert found(actor="person:p") == [two]
    assert found(actor="agent:a") == [four, three, one]
    assert found(status="error") == [three]
    assert found(status="ok") == [four, two, one]
    assert found(path="dir") == [three, one]
    assert found(path="dir/a") == [one]
    assert found(path="") == [four, three, one]
    assert found(path="nothing") == []
    assert found(failed_only=True) == [three]
    assert found(since=START + timedelta(seconds=1)) == [four, three, two]
    assert found(until=START + timedelta(seconds=100)) == [three, two, one]
    assert found(changed_only=True) == [four, three, one]
    assert found(ended_after=two) == [four, three]
    assert found(partial_only=True) == []
    assert found(limit=None) == [four, three, two, one]


TYPED = {
    "src/mod_03.py": ["edit", "read", "cat"],
    "mod_03.py": ["edit", "other", "read", "cat"],
    "src": ["edit", "read", "cat", "grep"],
    "./src/": ["edit", "read", "cat", "grep"],
    "mod_0": ["edit", "other", "read", "cat"],
    "*.json": ["data", "wc"],
    "mod_??.py": ["edit", "other", "read", "cat"],
    "src/*.py": ["edit", "read", "cat"],
    "[": ["bracket"],
    "a[1].txt": ["bracket"],
    "nothing.json": [],
    "only-read.md": ["missing"],
    "caf\udce9": ["odd", "odd again"],
    "a\x00b": [],
    "*a" * 400 + "b": [],
}


def test_calls_are_found_by_what_a_person_types_of_a_path(opened: Opened) -> None:
    a = opened.file(b"a")
    opened.log.append([started("s")])
    opened.change(FileChange("src/mod_03.py", None, a), origin="baseline")

    def call(path: str, tool: str = "read_file", *changes: str) -> int:
        changed = [FileChange(one, None, a) for one in changes]
        name = "command" if tool == "shell" else "path"
        return opened.call(*changed, arguments={name: path}, tool=tool) or 0

    numbers = {
        "edit": call("src/mod_03.py", "write", "src/mod_03.py"),
        "other": call("lib/mod_03.py", "write", "lib/mod_03.py"),
        "read": call("src/mod_03.py"),
        "cat": call("cat ./src/mod_03.py|wc", "shell"),
        "grep": call("grep -r x src", "shell"),
        "data": call("make", "shell", "out/data.json"),
        "wc": call("wc -l 'out/data.json'", "shell"),
        "bracket": call("a[1].txt", "write", "a[1].txt"),
        "missing": call("only-read.md"),
        "odd": call("x", "write", "caf\udce9"),
        "odd again": call("caf\udce9"),
    }

    def found(typed: str, **more: Any) -> list[int | None]:
        asked = CallFilter(typed=typed, newest_first=False, **more)
        return [one.seq for one in opened.projections.calls(asked)]

    for typed, names in TYPED.items():
        wanted = [numbers[name] for name in names]
        assert found(typed) == wanted, typed
        assert found(typed, limit=1) == wanted[:1], typed
        later = [one for one in wanted if one > numbers["other"]]
        assert found(typed, after=numbers["other"]) == later, typed


def test_changes_from_outside_are_found_by_what_a_person_types(opened: Opened) -> None:
    a = opened.file(b"a")
    opened.log.append([started("s")])
    opened.call(FileChange("src/a.py", None, a))
    one = opened.change(FileChange("src/b.py", None, a), session="", origin="outside")
    many = [FileChange(f"f{n:02}", None, a) for n in range(30)]
    two = opened.change(*many, FileChange("z.json", None, a), session="", origin="outside")

    def found(**asked: Any) -> list[int]:
        return [one.seq for one in opened.projections.outside(**asked)]

    assert found() == [two, one]
    assert found(limit=1) == [two]
    assert found(before=two) == [one] and found(after=one) == [two]
    assert found(typed="b.py") == found(typed="src") == [one]
    assert found(typed="*.json") == found(typed="z") == [two]
    assert found(typed="nothing") == []
    [shown] = opened.projections.outside(typed="*.json")
    assert shown.paths[:2] == ("z.json", "f00") and len(shown.paths) == 20
    assert shown.changed == 31


@pytest.mark.parametrize(
    ("typed", "says"),
    [("x" * 10_000, "path"), ("*" * 10_000, "pattern"), ("\ud800", "cannot be the name")],
    ids=["a long path", "a long pattern", "no text"],
)
def test_what_cannot_be_typed_of_a_path_is_refused(opened: Opened, typed: str, says: str) -> None:
    with pytest.raises(InvalidArguments, match=says):
        opened.projections.calls(CallFilter(typed=typed))


def test_calls_are_found_by_their_coverage_and_by_when_they_ended(opened: Opened) -> None:
    opened.log.append([started("s")])
    for id in ("one", "two", "three"):
        opened.log.append([draft(CallRequested(id, "t", {}, "execute"))])
    ends = {}
    for id, coverage in (
        ("three", Coverage("partial", ("why",))),
        ("one", Coverage("none", ("why",))),
        ("two", Coverage("full")),
    ):
        fact = CallFinished(id, "t", "execute", "ok", {}, coverage)
        ends[id] = opened.log.append([draft(fact)])[0].seq

    def found(**asked: Any) -> list[str]:
        return [call.call_id for call in opened.projections.calls(CallFilter(**asked))]

    assert found(partial_only=True) == ["three", "one"]
    assert found(ended_after=ends["three"]) == ["two", "one"]
    assert found(ended_after=ends["three"], partial_only=True) == ["one"]
    assert found(ended_after=ends["two"]) == []


def test_what_is_told_takes_the_place_of_an_inferred_status_once(opened: Opened) -> None:
    opened.log.append([started("s")])
    numbers = []
    for id in ("c1", "c2"):
        opened.log.append([draft(CallRequested(id, "t", {}, "execute"))])
        error = {"error": {"message": "its client has ended"}}
        finish = CallFinished(id, "t", "execute", "interrupted", error, inferred=True)
        numbers += [event.seq for event in opened.log.append([draft(finish)])]
    assert opened.projections.session("s").errors == 2

    def tell(status: Any, message: str) -> None:
        result = {"error": {"message": message}}
        told = CallReported("c1", "t", status, result, numbers[0], "interrupted")
        opened.log.append([draft(told)])

    def look() -> None:
        call = opened.projections.call("s", "c1")
        assert (call.seq, call.status, call.error) == (numbers[0], "denied", "no")
        filters = (CallFilter(status="denied"), CallFilter(failed_only=True))
        found = [[one.call_id for one in opened.projections.calls(wanted)] for wanted in filters]
        assert found == [["c1"], ["c2", "c1"]]
        assert not opened.projections.calls(CallFilter(status="ok"))

    tell("denied", "no")
    tell("ok", "")
    assert opened.projections.session("s").errors == 1, "each of the two was counted"
    look()
    if isinstance(opened.projections, SqlProjections):
        opened.projections.rebuild()
        look()


def test_what_is_found_later_lowers_the_coverage_of_calls(opened: Opened) -> None:
    opened.log.append([started("s")])
    full, other = opened.call(), opened.call()
    opened.log.append([draft(CallRequested("c", "t", {}, "execute"))])
    finish = CallFinished("c", "t", "execute", "ok", {}, Coverage("none", ("no hook",)))
    [finished] = opened.log.append([draft(finish)])

    def lower(*numbers: int, level: Any = "partial", reasons: tuple[str, ...] = ("late",)) -> int:
        fact = CoverageLowered(numbers, Coverage(level, reasons))
        return opened.log.append([draft(fact)])[0].seq

    def coverage(number: int) -> Coverage:
        return opened.projections.call_at(number).coverage

    first = lower(full, finished.seq)
    assert coverage(full) == Coverage("partial", ("late",))
    assert coverage(finished.seq) == Coverage("none", ("no hook", "late"))
    assert coverage(other) == Coverage()
    second = lower(full, full, 999, level="none", reasons=("late", "later"))
    assert coverage(full) == Coverage("none", ("late", "later"))
    lower(other, reasons=())
    assert coverage(other) == Coverage()
    told = [[*opened.projections.lowered(one)] for one in (full, finished.seq, other)]
    assert told == [[first, second], [first], []]
    found = opened.projections.calls(CallFilter(partial_only=True))
    assert [call.seq for call in found] == [finished.seq, full]
    if isinstance(opened.projections, SqlProjections):
        rebuild(opened)
        assert coverage(full) == Coverage("none", ("late", "later"))


def test_a_call_says_which_call_contains_it(opened: Opened) -> None:
    [outer] = opened.log.append([draft(CallRequested("outer", "run", {}, "execute"))])
    opened.log.append([draft(CallRequested("inner", "t", {}, "read", within=outer.seq))])
    assert opened.projections.call("s", "inner").within == outer.seq
    assert opened.projections.call("s", "outer").within is None


def test_a_change_keeps_the_id_of_a_call_that_is_not_on_record(opened: Opened) -> None:
    opened.log.append([started("s"), draft(CallRequested("later", "t", {}, "write"), "other")])
    opened.change(FileChange("x", None, opened.file(b"x")), call_id="later")
    opened.log.append([draft(CallRequested("later", "t", {}, "write"))])
    [change] = opened.projections.changes()
    assert (change.call_id, change.number) == ("later", None)
    assert opened.projections.session("s").files == 1


def test_calls_are_found_by_their_words(opened: Opened) -> None:
    a = opened.file(b"a")
    opened.log.append([started("s")])
    one = opened.call(arguments={"path": "x", "content": "def parse_line(text): pass"})
    two = opened.call(arguments={"command": "grep needle"}, result={"output": ["Übergröße 42"]})
    three = opened.call(FileChange("src/needle_work.py", None, a), tool="shell")

    def seqs(words: str, **asked: Any) -> list[int | None]:
        return [call.seq for call in opened.projections.calls(CallFilter(words=words, **asked))]

    assert seqs("needle") == [three, two]
    assert seqs("needle", limit=1) == [three]
    assert seqs("needle", tool="shell") == [three]
    assert seqs("needle", before=two) == [two]
    assert seqs("needle", newest_first=False) == [two, three]
    assert seqs("parse_line(text)") == seqs("PASS def") == [one]
    assert seqs("übergröße 42") == seqs("42") == seqs("42 grep") == [two]
    assert seqs("write_file") == [two, one]
    assert seqs("src/needle_work.py shell") == [three]
    for nothing in ("", " * ", "absent", "needle absent", '"', "NEAR(", "a:b OR", "need grep"):
        assert seqs(nothing) == [], nothing
    opened.log.append([draft(CallRequested("open", "t", {"text": "needle again\x00"}, "read"))])
    assert [call.call_id for call in opened.projections.calls(CallFilter(words="again"))] == [
        "open"
    ]
    [four] = opened.log.append([draft(CallFinished("open", "t", "read", "ok", {"output": "done"}))])
    assert seqs("again") == seqs("again done") == [four.seq]
    if isinstance(opened.projections, SqlProjections):
        rebuild(opened)
    assert seqs("again done") == [four.seq]


def test_prompts_messages_and_outside_changes_are_found_by_their_words(opened: Opened) -> None:
    a = opened.file(b"a")
    opened.log.append([started("s"), started("t")])
    [prompt] = opened.log.append([draft(PromptSubmitted("Write the parser, please"))])
    call = opened.call(arguments={"command": "make parser"}, tool="shell", status="error")
    [said] = opened.log.append([draft(MessageReceived("assistant", "The parser is done."), "t")])
    outside = opened.change(FileChange("lib/parser.py", None, a), origin="outside", session="")
    opened.change(FileChange("lib/parser_own.py", None, a), session="")
    [asked] = opened.log.append([draft(CallRequested("open", "t", {"of": "parser"}, "read"))])

    def found(words: str, **more: Any) -> list[tuple[int, str, str]]:
        opened.projections.index_words()
        places = opened.projections.places(WordsFilter(words, **more)).places
        return [(one.seq, one.kind, one.session) for one in places]

    assert found("parser") == [
        (asked.seq, "call", "s"),
        (outside, "outside", ""),
        (said.seq, "message", "t"),
        (call, "call", "s"),
        (prompt.seq, "prompt", "s"),
    ]
    assert found("pars", kind="prompt") == [(prompt.seq, "prompt", "s")]
    assert found("parser", status="failed") == found("parser", tool="shell")
    assert [seq for seq, *_ in found("parser", status="failed")] == [call]
    assert [seq for seq, *_ in found("parser", status="open")] == [asked.seq]
    assert [seq for seq, *_ in found("parser", session="t")] == [said.seq]
    assert [seq for seq, *_ in found("parser", actor="outside")] == [outside]
    assert [seq for seq, *_ in found("parser done")] == [said.seq]
    assert found("parser absent") == found("") == []
    # an open call is found once, also when it has ended
    [end] = opened.log.append([draft(CallFinished("open", "t", "read", "ok", {"output": "x"}))])
    assert [seq for seq, *_ in found("parser x")] == [end.seq]
    # a page at a time
    first = opened.projections.places(WordsFilter("parser", limit=2))
    rest = opened.projections.places(WordsFilter("parser", before=first.before, limit=10))
    assert [one.seq for one in (*first.places, *rest.places)] == [
        seq for seq, *_ in found("parser")
    ]
    assert rest.before is None


def test_an_index_of_an_earlier_release_is_completed(tmp_path: Path) -> None:
    opened = open_sqlite(tmp_path)
    assert opened.database
    prompt, outside = [], []
    for n in range(2):
        [event] = opened.log.append([draft(PromptSubmitted(f"needle {n}"))])
        prompt.append(event.seq)
        change = FileChange(f"needle{n}", None, opened.file(b"a"))
        outside.append(opened.change(change, origin="outside", session=""))
        opened.call(arguments={"path": "x"})
        if n:
            break
        opened.projections.index_words()
        with opened.database.connections.writing() as connection:
            for seq in (0, prompt[0], outside[0]):
                connection.execute("DELETE FROM search WHERE rowid = ?", (1 << 40 | seq,))
    for _ in range(2):
        opened.projections.index_words()
        found = opened.projections.places(WordsFilter("needle")).places
        assert [one.seq for one in found] == [outside[1], prompt[1], outside[0], prompt[0]]
    opened.database.close()


def test_the_events_that_are_picked_come_in_order(opened: Opened) -> None:
    events = opened.log.append([started("s"), draft(PromptSubmitted("one")), started("t")])
    assert opened.log.picked([3, 1, 3]) == [events[0], events[2]]
    assert opened.log.picked([]) == []


def test_calls_are_listed_by_their_requests(opened: Opened) -> None:
    numbers = [opened.call() for _ in range(3)]
    requests = {call.seq: call.requested for call in opened.projections.calls()}
    wanted = (requests[numbers[0]], requests[numbers[2]])
    found = opened.projections.calls(CallFilter(only=wanted))
    assert [call.seq for call in found] == [numbers[2], numbers[0]]
    wanted = (numbers[1], 10_000)
    assert [one.seq for one in opened.projections.calls(CallFilter(numbers=wanted))] == [numbers[1]]
    wanted = (requests[numbers[1]], requests[numbers[2]])
    both = CallFilter(only=wanted, numbers=(numbers[0], numbers[1]))
    assert [call.seq for call in opened.projections.calls(both)] == [numbers[1]]


def test_more_calls_than_a_statement_takes_values_are_listed_in_order(opened: Opened) -> None:
    numbers = [opened.call() for _ in range(4)]
    requests = {call.seq: call.requested for call in opened.projections.calls()}
    others = range(10_000, 12_000)
    for wanted in (
        CallFilter(numbers=(*others, *numbers[1:])),
        CallFilter(only=(*(requests[one] for one in numbers[1:]), *others)),
    ):
        found = opened.projections.calls(wanted)
        assert [call.seq for call in found] == numbers[:0:-1]
        found = opened.projections.calls(replace(wanted, newest_first=False, limit=2))
        assert [call.seq for call in found] == numbers[1:3]


def test_what_failed_was_denied_or_came_from_outside_is_counted(opened: Opened) -> None:
    a = opened.file(b"a")
    opened.call(status="error")
    opened.change(FileChange("x", None, a), origin="outside", session="")
    opened.clock.pass_time(3600)
    after = opened.call(status="denied")
    since = opened.clock.now()
    opened.call(status="error")
    number = opened.call()
    opened.log.append(
        [draft(CoverageLowered((number,), Coverage("partial", ("looked at late",))), session="")]
    )
    opened.change(FileChange("y", None, a), origin="outside", session="")
    opened.change(FileChange("z", None, a), session="")
    # what `connect` wrote is a person's
    opened.change(FileChange("w", None, a), origin="outside", session="", actor="person:ada")
    everything = opened.projections.tally(0, START)
    assert everything == Tally(failed=3, denied=1, partial=1, outside=2)
    assert opened.projections.tally(0, since) == Tally(2, 1, 1, 1)
    assert opened.projections.tally(after, since) == Tally(1, 0, 1, 1)
    listed = opened.projections.outside(limit=2)
    assert [(one.actor, one.paths) for one in listed] == [
        ("person:ada", ("w",)),
        ("outside", ("y",)),
    ]


HOSTILE = st.one_of(
    st.text(max_size=200),
    st.text(alphabet="\"'*^():{}-+ANDORNEAT \x00", max_size=60),
    st.lists(st.sampled_from(["needle", "NOT", "AND", "words:", '"', "-x"]), max_size=300).map(
        " ".join
    ),
)


@examples(10, 25)
@given(HOSTILE)
def test_whatever_is_asked_for_is_taken_for_words(
    tmp_path_factory: pytest.TempPathFactory, words: str
) -> None:
    stored = open_sqlite(tmp_path_factory.mktemp("store"))
    stored.call(arguments={"text": words})
    found = stored.projections.calls(CallFilter(words=words))
    assert len(found) == (1 if re.search(r"[a-z0-9]", words) else len(found))
    assert stored.database
    stored.database.close()


def test_a_call_lists_its_first_twenty_paths(opened: Opened) -> None:
    a = opened.file(b"a")
    names = [f"z{n}" for n in range(30, 0, -1)]
    opened.call(*(FileChange(name, None, a) for name in names))
    [call] = opened.projections.calls()
    assert call.paths == tuple(names[:20])
    assert call.changed == 30


def test_sessions_count_calls_errors_and_files(opened: Opened) -> None:
    a, b = opened.file(b"a"), opened.file(b"b")
    opened.log.append([started("one")])
    opened.call(FileChange("x", None, a), session="one")
    opened.call(FileChange("x", a, b), FileChange("y", None, a), session="one", status="error")
    opened.clock.pass_time(5)
    opened.log.append([draft(SessionEnded("failed"), "one"), started("two")])
    opened.call(FileChange("x", b, a), session="two")
    assert [s.id for s in opened.projections.sessions()] == ["two", "one"]
    one, two = opened.projections.session("one"), opened.projections.session("two")
    assert (one.calls, one.errors, one.files, one.status) == (2, 1, 2, "failed")
    assert (one.started, one.started_at, one.title, one.agent) == (1, START, "about one", "a")
    assert one.ended_at == START + timedelta(seconds=5) and one.ended is not None
    assert (two.calls, two.errors, two.files, two.ended, two.status) == (1, 0, 1, None, "open")
    assert [s.id for s in opened.projections.sessions(before=two.started)] == ["one"]
    assert [s.id for s in opened.projections.sessions(limit=1)] == ["two"]
    with pytest.raises(NotFound):
        opened.projections.session("none")


def test_a_session_opened_again_is_open(opened: Opened) -> None:
    opened.log.append([started("one"), draft(SessionEnded(), "one"), started("one")])
    [session] = opened.projections.sessions()
    assert (session.started, session.ended, session.status) == (1, None, "open")


def test_who_made_calls_is_told_of_those_that_have_ended(opened: Opened) -> None:
    first, second = opened.call(), opened.call(tool="undo")
    [made] = {call.actor for call in opened.projections.calls()}
    assert opened.projections.actors([second, 99, first]) == {first: made, second: made}
    assert opened.projections.actors([]) == {}


def test_what_is_taken_back_of_some_calls_is_told_alone(opened: Opened) -> None:
    first, second = opened.call(), opened.call()
    calls = [opened.call(tool="undo", reverts=(second, first))]
    for _ in range(12):
        whole = opened.projections.taken_back().whole
        assert opened.projections.taken_back([]).whole == {}
        for number in (first, second, *calls):
            found = opened.projections.taken_back([number])
            assert found.whole.get(number) == whole.get(number)
        listed = {call.seq: call.undone_by for call in opened.projections.calls()}
        assert {one: by for one, by in listed.items() if by} == whole
        calls.append(opened.call(tool="undo", reverts=(calls[-1],)))


def test_undo_and_redo_of_undo_are_followed(opened: Opened) -> None:
    first, second = opened.call(), opened.call()
    outside = opened.change(FileChange("x", None, opened.file(b"x")), origin="outside", session="")
    undo = opened.call(tool="undo", reverts=(second, outside))
    assert opened.projections.taken_back().whole == {second: undo, outside: undo}
    redo = opened.call(tool="redo", reverts=(undo,))
    assert opened.projections.taken_back().whole == {undo: redo}
    again = opened.call(tool="undo", reverts=(redo,))
    assert opened.projections.taken_back().whole == {redo: again, second: undo, outside: undo}
    failed = opened.call(tool="undo", reverts=(first,), status="error")
    assert first not in opened.projections.taken_back().whole
    by_number = {call.seq: call for call in opened.projections.calls()}
    assert by_number[second].undone_by == undo
    assert by_number[first].undone_by is None
    assert by_number[redo].undone_by == again
    assert by_number[failed].reverts == (first,)


def test_a_checkpoint_marked_again_has_its_newest_point(opened: Opened) -> None:
    for name, point in (("a", 1), ("b", 2), ("a", 3)):
        opened.log.append([draft(CheckpointMarked(name, point, f"note {point}"))])
    found = [(c.name, c.point, c.seq, c.note) for c in opened.projections.checkpoints()]
    assert found == [("a", 3, 3, "note 3"), ("b", 2, 2, "note 2")]


def test_the_scope_is_the_one_accepted_last(opened: Opened) -> None:
    assert opened.projections.scope() == Scope()
    opened.log.append([draft(WorkspaceAttached("/w", "*.a", 7), "")])
    assert opened.projections.scope() == Scope("*.a", 7)
    opened.log.append([draft(ScopeAccepted("*.b"), "")])
    assert opened.projections.scope() == Scope("*.b", 7)
    opened.log.append([draft(WorkspaceAttached("/w", "*.b", 9), "")])
    assert opened.projections.scope() == Scope("*.b", 9)
    if isinstance(opened.projections, SqlProjections):
        rebuild(opened)
        assert opened.projections.scope() == Scope("*.b", 9)


def test_who_opens_a_session_again_did_not_make_its_earlier_calls(opened: Opened) -> None:
    opened.log.append([started("one")])
    number = opened.call(FileChange("x", None, opened.file(b"x")), session="one")
    again = draft(SessionStarted("other", "again"), "one", "person:p")
    opened.log.append([draft(SessionEnded(), "one"), again])
    later = opened.call(session="one", actor="person:p")
    assert opened.projections.call_at(number).actor == "agent:a"
    assert opened.projections.call_at(later).actor == "person:p"
    assert [c.actor for c in opened.projections.changes()] == ["agent:a"]
    session = opened.projections.session("one")
    assert (session.actor, session.agent, session.title) == ("agent:a", "other", "again")


def test_open_sessions_are_those_not_ended_oldest_first(opened: Opened) -> None:
    opened.log.append([started("b"), started("a"), started("c")])
    opened.log.append([draft(SessionEnded("completed"), "a")])
    assert [session.id for session in opened.projections.open_sessions()] == ["b", "c"]


# --- SQL alone ----------------------------------------------------------------------------


def test_workspaces_are_listed_with_their_state(stored: Opened) -> None:
    assert stored.database
    assert list(stored.database.workspaces()) == []
    stored.log.append([draft(WorkspaceAttached("/w/caf\udce9", "*.a", 7), "")])
    [entry] = stored.database.workspaces()
    assert (entry.id, entry.root, entry.head) == (stored.log.id, "/w/caf\udce9", 1)
    assert (entry.baseline_done, entry.ignore, entry.max_file_bytes) == (False, "*.a", 7)
    stored.log.append([draft(BaselineFinished(1, 1), ""), draft(ScopeAccepted("*.b"), "")])
    [entry] = stored.database.workspaces()
    assert (entry.baseline_done, entry.ignore, entry.head) == (True, "*.b", 3)
    assert entry.attached_at == START


def rows_of(opened: Opened) -> dict[str, list[tuple[Any, ...]]]:
    """All projection rows, sessions by their id instead of their number."""
    assert opened.database
    raw = connect(opened.database.connections.path, "ro")
    ids = dict(raw.execute("SELECT number, id FROM session"))
    found = {}
    for table in PROJECTIONS:
        cursor = raw.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        rows = []
        for row in cursor:
            shown = dict(zip(names, row, strict=True))
            if table == "session":
                shown.pop("number")
            elif "session" in shown:
                shown["session"] = ids.get(shown["session"])
            rows.append(tuple(shown.values()))
        found[table] = sorted(rows, key=repr)
    raw.close()
    return found


def test_rebuilding_gives_the_same_rows(stored: Opened) -> None:
    a, b = stored.file(b"a"), stored.file(b"b")
    stored.log.append([draft(WorkspaceAttached("/w", "", 7), ""), started("s"), started("t")])
    stored.call(FileChange("x", None, a), FileChange("y", None, b))
    number = stored.call(FileChange("x", a, b), session="t", status="error")
    stored.call(
        FileChange("x", b, None),
        reverts=(number,),
        tool="undo",
        session="none started",
        result={"in_part": {str(number): ["x"]}},
    )
    stored.log.append([draft(CheckpointMarked("c", 2)), draft(SessionEnded(), "t")])
    stored.log.append([draft(CallRequested("open", "t", None, "read"))])
    stored.change(FileChange("z", None, a), call_id="open", causes=("open", "call-1"))
    stored.log.append([draft(CoverageLowered((number,), Coverage("partial", ("late",))))])
    told = CallReported("call-1", "t", "denied", {}, number, "interrupted")
    stored.log.append([draft(told)])
    stored.log.append([draft(PathsUntracked((Untracked("z", "unreadable"),)), "")])
    stored.log.append([draft(TreeRelisted((FileChange("y", None, b),)), "")])
    stored.log.append([draft(PromptSubmitted("do it"), "t")])
    before = rows_of(stored)
    assert all(before[name] for name in before if name != "keyframe")
    assert rebuild(stored) == stored.log.head()
    assert rows_of(stored) == before


def test_a_tree_is_found_from_keyframes(stored: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom_audit.sql.projections.keyframes.KEYFRAME_EVENTS", 8)
    oracle: list[dict[str, FileState]] = [{}]
    for n in range(30):
        state = stored.file(str(n).encode(), 0o600 + n % 8)
        gone = f"f{(n * 7) % 11}"
        changes = [FileChange(f"f{n % 11}", None, state)]
        if gone in oracle[-1] and gone != f"f{n % 11}":
            changes.append(FileChange(gone, oracle[-1][gone], None))
        drafts = [draft(FilesChanged((change,), "tool")) for change in changes]
        for change, _ in zip(changes, stored.log.append(drafts), strict=True):
            tree = dict(oracle[-1])
            tree.pop(change.path, None)
            if change.after:
                tree[change.path] = change.after
            oracle.append(tree)
    assert stored.database
    raw = connect(stored.database.connections.path, "ro")
    kept = [row[0] for row in raw.execute("SELECT seq FROM keyframe ORDER BY seq")]
    raw.close()
    assert kept == list(range(8, len(oracle), 8))
    for seq, tree in enumerate(oracle):
        assert stored.projections.tree(seq) == tree
    assert stored.projections.tree() == oracle[-1]
    before = rows_of(stored)
    rebuild(stored)
    assert rows_of(stored) == before


def test_what_is_as_listed_among_hundreds_that_changed_since_is_not_told_of(
    stored: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number is among theirs, and a tree that lacks it would be another one."""
    monkeypatch.setattr("loom_audit.sql.projections.keyframes.KEYFRAME_EVENTS", 2)
    old, new = stored.file(b"old"), stored.file(b"new")
    names = [f"n{n:03}" for n in range(300)]
    stored.change(*(FileChange(name, None, old) for name in names))
    stored.change(FileChange("listed", None, old))
    changed = [name for name in names if name != "n150"]
    stored.change(*(FileChange(name, old, new) for name in changed))
    assert [*stored.projections.keyframes(3)] == [2]
    assert stored.projections.tree_since(2, changed) == dict.fromkeys(changed, new)
    assert stored.projections.tree_since(2, ["n150"])["n150"] == old


@pytest.mark.few(0)
def test_keyframes_are_due_every_ten_thousand_events(stored: Opened) -> None:
    change = FileChange("x", None, stored.file(b"x"))
    stored.change(change)
    for _ in range(10):
        stored.log.append([started("s") for _ in range(1000)])
    stored.clock.pass_time(60)
    stored.log.append([started("s")])
    assert stored.projections.tree(10_001) == {"x": change.after}
    assert stored.log.listed_before(START - timedelta(minutes=1)) == 0
    assert stored.log.listed_before(START) == 10_000
    assert keyframes.KEYFRAME_EVENTS == 10_000
    assert rows_of(stored)["keyframe"][0][1] == 10_000


LISTED = st.lists(
    st.tuples(
        st.integers(1, 1 << 40),
        st.integers(0, 0o177777),
        st.integers(0, 1 << 60),
        st.one_of(st.none(), st.integers(1, 1 << 40)),
    ),
    unique_by=lambda entry: entry[0],
)


@given(LISTED)
def test_keyframes_hold_any_listing(entries: list[Any]) -> None:
    entries.sort()
    assert list(unpack(pack(entries))) == entries


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"path": "src/a.py", "content": "x"}, "src/a.py"),
        ({"command": "make\n  test"}, "make test"),
        ({"command": ["ls", "-l"]}, "ls -l"),
        ({"source": "a", "target": "b"}, "a → b"),
        ({"command": "x" * 300}, "x" * 239 + "…"),
        ({"from": "a", "to": "b", "overwrite": True}, "a → b"),
        ({"pattern": "step", "path": "src"}, "step in src"),
        ({"pattern": "*.py"}, "*.py"),
        ({"old_string": "x", "file_path": "a.py"}, "a.py"),
        ({"path": "caf\udce9\x00"}, "caf\\udce9\\x00"),
        ({"n": 1, "text": "hello"}, "hello"),
        ({}, ""),
        (None, ""),
        ("text", "text"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_a_call_is_summed_up_in_one_line(arguments: Any, line: str) -> None:
    assert summarize(arguments) == line


def test_a_failure_is_said_in_one_line() -> None:
    assert failure("error", {"error": {"message": "no\nsuch file"}}) == "no such file"
    assert failure("error", {"error": "plain"}) == "plain"
    assert failure("ok", {"error": "plain"}) == ""
    assert failure("timeout", None) == ""


# --- against a naive fold -----------------------------------------------------------------

PATHS = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e/f", "d0", "caf\udce9", "d/caf\udce9"])
STATES = st.one_of(
    st.none(),
    st.just(DIRECTORY),
    st.builds(
        lambda kind, n, mode: FileState(kind, BlobId(f"{n:064x}"), mode, n * 100),
        st.sampled_from(["file", "symlink"]),
        st.integers(1, 6),
        st.sampled_from([0o644, 0o755, 0o777, 0o4755]),
    ),
)
CHANGES = st.lists(st.builds(FileChange, PATHS, STATES, STATES), min_size=1, max_size=4)
SESSIONS = st.sampled_from(["", "s", "t"])


class SaysWhatAFoldSays(RuleBasedStateMachine):
    """The same appends to SQLite and to memory; whatever is asked, both say the same."""

    finished: Bundle[int] = Bundle("finished")

    def __init__(self) -> None:
        super().__init__()
        self.clock = SetClock()
        self.folder = _folders.__next__()
        self.real = open_sqlite(self.folder, self.clock)
        self.log = MemoryEventLog(self.real.log.id, MemoryBlobStore(), self.clock)
        self.naive = MemoryProjections(self.log)
        self.calls: list[tuple[str, str]] = []
        self.number = 0

    def append(self, *drafts: Any) -> list[int]:
        self.clock.pass_time(1)
        seqs = [event.seq for event in self.real.log.append(drafts)]
        assert seqs == [event.seq for event in self.log.append(drafts)]
        return seqs

    @rule(session=SESSIONS, effect=st.sampled_from(["read", "execute"]))
    def request(self, session: str, effect: Any) -> None:
        self.number += 1
        self.calls.append((session, f"c{self.number}"))
        self.append(draft(CallRequested(f"c{self.number}", "tool", {"path": "p"}, effect), session))

    @rule(
        target=finished,
        data=st.data(),
        status=st.sampled_from(["ok", "ok", "error", "running", "unknown"]),
    )
    def finish(self, data: st.DataObject, status: Any) -> int:
        if not self.calls:
            return 0
        session, call_id = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        reverts = tuple(data.draw(st.lists(st.integers(1, self.log.head()), max_size=2)))
        fact = CallFinished(call_id, "tool", "write", status, {"error": "e"}, reverts=reverts)
        return self.append(draft(fact, session))[0]

    @rule(changes=CHANGES, data=st.data())
    def change(self, changes: list[FileChange], data: st.DataObject) -> None:
        session, call_id = "", None
        causes: tuple[int | str, ...] = ()
        if bool(self.calls) and data.draw(st.booleans()):
            calls = st.sampled_from(self.calls)
            session, call_id = data.draw(calls)
            others = data.draw(st.lists(calls, max_size=2))
            causes = tuple(dict.fromkeys(id for _, id in others))
            if data.draw(st.booleans()):
                causes = tuple(self.naive.call(*one).requested for one in dict.fromkeys(others))
        origin: Any = "tool" if call_id else "outside"
        self.append(draft(FilesChanged(tuple(changes), origin, call_id, causes=causes), session))

    @rule(target=finished, data=st.data())
    def undo(self, data: st.DataObject) -> int:
        self.number += 1
        id = f"u{self.number}"
        reverts = tuple(data.draw(st.lists(st.integers(1, self.log.head() + 1), max_size=3)))
        finish = CallFinished(id, "undo", "write", "ok", None, reverts=reverts)
        return self.append(draft(CallRequested(id, "undo", {}, "write"), "s"), draft(finish, "s"))[
            -1
        ]

    @rule(session=SESSIONS.filter(bool), end=st.booleans())
    def session(self, session: str, end: bool) -> None:
        self.append(draft(SessionEnded(), session) if end else started(session))

    @rule()
    def rebuild(self) -> None:
        rebuild(self.real)

    @rule(at=st.integers(0, 1000))
    def look_back(self, at: int) -> None:
        at %= self.log.head() + 1
        assert self.real.projections.tree(at) == self.naive.tree(at)
        for path in ("d", "d/a", "caf\udce9"):
            assert self.real.projections.state(path, at) == self.naive.state(path, at)

    @rule(path=PATHS, before=st.integers(1, 60), limit=st.integers(1, 5))
    def look_along(self, path: str, before: int, limit: int) -> None:
        real, naive = self.real.projections, self.naive
        for below in (False, True):
            asked: Any = {"below": below, "before": before, "limit": limit}
            assert real.history(path, **asked) == naive.history(path, **asked)
        assert list(real.changes(paths=[path])) == list(naive.changes(paths=[path]))
        filter = CallFilter(path=path, before=before, limit=limit)
        assert real.calls(filter) == naive.calls(filter)

    @invariant()
    def all_the_same(self) -> None:
        real, naive = self.real.projections, self.naive
        assert real.tree() == naive.tree()
        assert real.calls() == naive.calls()
        assert real.open_calls() == naive.open_calls()
        assert real.taken_back().doings == naive.taken_back().doings
        numbers = [call.seq or 0 for call in naive.calls()]
        assert real.actors(numbers) == naive.actors(numbers)
        assert real.sessions() == naive.sessions()
        assert list(real.changes()) == list(naive.changes())
        calls = [call.requested for call in naive.calls(CallFilter(limit=2))]
        assert list(real.changes(calls=calls)) == list(naive.changes(calls=calls))

    def teardown(self) -> None:
        assert self.real.database
        self.real.database.close()


_folders: Iterator[Path]


def compare(factory: pytest.TempPathFactory, examples: int, steps: int) -> None:
    global _folders
    _folders = iter(lambda: factory.mktemp("store"), None)
    run_state_machine_as_test(
        SaysWhatAFoldSays, settings=settings(max_examples=examples, stateful_step_count=steps)
    )


@pytest.mark.drawn
def test_projections_say_what_a_naive_fold_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    compare(tmp_path_factory, 3, 20)


@pytest.mark.deep
@pytest.mark.drawn
@pytest.mark.timeout(3600)
def test_projections_say_what_a_naive_fold_says_at_length(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    compare(tmp_path_factory, 200, 50)


@pytest.mark.few(0)
def test_words_that_thousands_of_calls_say_are_found_with_other_filters(tmp_path: Path) -> None:
    opened = open_sqlite(tmp_path)
    assert opened.database
    facts: list[Any] = [started("s")]
    for n in range(search.FEW + 100):
        other = "" if n % 300 else "rare"
        facts.append(
            draft(CallRequested(f"c{n}", f"t{n % 7}", {"text": f"common {other}"}, "read"))
        )
        facts.append(draft(CallFinished(f"c{n}", f"t{n % 7}", "read", "ok", {"output": f"o{n}"})))
    opened.log.append(facts)
    ask = opened.projections.calls
    every = ask(CallFilter(limit=None))
    assert [*ask(CallFilter(words="common", limit=None))] == [*every]
    assert [*ask(CallFilter(words="common", limit=3))] == [*every[:3]]
    assert [*ask(CallFilter(words="com", newest_first=False, limit=400))] == [*every[::-1][:400]]
    assert len(ask(CallFilter(words="common", tool="t3", limit=None))) == len(every) // 7
    before = every[300].requested
    assert [*ask(CallFilter(words="common", before=before, limit=2))] == [*every[301:303]]
    assert len(ask(CallFilter(words="common rare", limit=None))) == 7
    opened.database.close()
