"""`log`: its filters, and the facts under the calls."""

import pytest

from loom_audit import open_store
from loom_audit.api.upkeep.drift import accept_drift
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from tests.cli.shells import Shell
from tests.given.traced import traced as traced


def test_log_filters_and_shows_the_facts_below(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="1\n")
    audited.call("read_file", path="b.txt")
    audited("call", "read_file", '{"path": "nope.txt"}', code=4)
    tools = [r["tool"] for r in audited.records("log", "--oldest-first")]
    assert tools == ["write_file", "read_file", "read_file"]
    assert len(audited.records("log", "--tool", "read_file")) == 2
    assert len(audited.records("log", "--status", "error")) == 1
    assert len(audited.records("log", "--path", "b.txt")) == 2
    assert len(audited.records("log", "--path", "*.txt")) == 3
    assert len(audited.records("log", "--path", "nope.txt", "--status", "failed")) == 1
    assert audited.records("log", "--path", "b.txt", "--status", "failed") == []
    assert len(audited.records("log", "-n", "2")) == 2
    assert audited.records("log", "--since", "2299-01-01") == []
    assert len(audited.records("log", "--until", "2299-01-01")) == 3
    numbers = audited.numbers()
    assert [r["seq"] for r in audited.records("log", "--from", str(numbers[0]))] == [
        numbers[2],
        numbers[1],
    ]
    assert [r["seq"] for r in audited.records("log", "--to", str(numbers[0]))] == [numbers[0]]
    events = audited.records("log", "--events", "--oldest-first", "-n", "0")
    assert [r["seq"] for r in events] == list(range(1, len(events) + 1))
    kinds = audited.records("log", "--kind", "files.changed", "--path", "b.txt")
    assert [r["paths"] for r in kinds] == [["b.txt"]]
    assert {r["id"] for r in audited.records("log")} <= {r["id"] for r in events}
    sessions = audited.records("session")
    assert len(sessions) == 3
    assert audited("session", sessions[0]["id"]).text.count("read_file") == 1


def test_calls_are_found_by_what_their_commands_arguments_outputs_and_paths_say(
    audited: Shell,
) -> None:
    audited.call("write_file", path="src/parser.py", content="def parse_line(): ...\n")
    audited.call("read_file", path="src/parser.py")
    audited("run", "--", "sh", "-c", "echo Über den Wolken; echo made > cloud.txt")
    write, read, run = audited.numbers()

    def found(words: str, *more: str) -> list[int]:
        return [r["seq"] for r in audited.records("log", "--search", words, *more)]

    assert found("parse_line") == [read, write]
    assert found("parse_line read_file") == [read]
    assert found("echo wolken") == found("cloud.txt") == found("uber") == [run]
    assert found("pars", "--tool", "write_file") == [write]
    assert found("parse", "-n", "1") == [read]
    assert found("nothing") == found("...") == []
    audited.call("read_file", path="cloud.txt")
    assert found("made", "--oldest-first") == [run, audited.numbers()[-1]]
    assert "no calls match" in audited("log", "--search", "absent").errors


@pytest.mark.parametrize(
    "words", ['"', "NEAR(", "a:b OR *", "-x AND NOT", "^'; DROP TABLE", "\u0dbc0"]
)
def test_whatever_is_searched_for_is_taken_for_words(audited: Shell, words: str) -> None:
    audited.call("write_file", path="b.txt", content="harmless\n")
    assert audited.records("log", f"--search={words}") == []


def test_a_search_for_facts_is_refused(audited: Shell) -> None:
    for more in (("--events",), ("--kind", "files.changed")):
        refused = audited("log", "--search", "x", *more, code=2)
        assert "loom-audit show" in refused.errors


@pytest.mark.parametrize(
    "words", [("--status", "okay"), ("--status", "OK"), ("--status", "requested")]
)
def test_a_filter_that_can_match_nothing_is_refused(audited: Shell, words: tuple[str, ...]) -> None:
    refused = audited("log", *words, code=2)
    assert "hint: " in refused.errors and words[1] in refused.errors


@pytest.mark.parametrize("words", [("--kind", "bad"), ("--kind", "call.finished", "--kind", "x")])
def test_a_kind_that_there_is_not_is_refused_with_those_there_are(
    audited: Shell, words: tuple[str, ...]
) -> None:
    refused = audited("log", *words, code=2)
    assert f"no kind {words[-1]}" in refused.errors and "files.changed" in refused.errors
    audited("log", "--kind", "files.changed")


def test_a_persons_undo_in_an_agents_session_is_listed_as_the_persons(audited: Shell) -> None:
    audited("call", "write_file", '{"path": "a.txt", "content": "x"}', "--agent", "tester")
    audited("undo")
    head, undo, call = audited("log").text.splitlines()
    assert head.startswith("session ") and head.split()[-1].split(":")[0] == "agent"
    assert "undo" in undo and "[by person:" in undo and "by " not in call.partition("[")[0]
    assert "by person" not in call


def test_a_call_that_was_taken_back_in_part_is_not_listed_as_taken_back(audited: Shell) -> None:
    audited.sh("echo new > a.txt; echo new > b.txt")
    number = audited.numbers()[-1]
    audited("revert", str(number), "b.txt", "--yes")
    part = audited.numbers()[-1]
    text = audited("log").text
    assert f"taken back in part by {part}" in text and f"taken back by {part}" not in text
    [record] = [one for one in audited.records("log") if one["seq"] == number]
    assert (record["undone_by"], record["undone_in_part_by"]) == (None, [part])
    audited("revert", str(number), "--yes")
    [record] = [one for one in audited.records("log") if one["seq"] == number]
    assert (record["undone_by"], record["undone_in_part_by"]) == (audited.numbers()[-1], [])


@pytest.mark.parametrize("text", ["99999999999999d", "999999d", "0001-01-01", "tomorrow"])
def test_a_time_that_is_out_of_range_is_not_a_time(audited: Shell, text: str) -> None:
    assert f"not a time: {text}" in audited("log", "--since", text, code=2).errors


def test_who_took_calls_back_is_asked_once_however_many_they_are(
    traced: list[str], audited: Shell
) -> None:
    def statements(calls: int) -> int:
        for n in range(calls):
            audited.call("write_file", path=f"new{n}.txt", content=str(calls))
            audited("undo", "--yes")
        traced.clear()
        assert audited("log").text.count("taken back") >= calls
        return len(traced)

    assert statements(1) == statements(4)


def test_the_list_of_calls_counts_what_came_from_outside_among_them(audited: Shell) -> None:
    audited.call("read_file", path="a.txt")
    assert "from outside" not in audited("log").errors
    (audited.workspace / "mine.txt").write_text("my own\n")
    audited.sh("echo x > b.txt")
    said, oldest = audited("log").errors, audited.numbers()[0]
    assert f"1 change from outside since call {oldest}: `loom-audit history PATH`" in said
    assert "from outside" not in audited("log", "--tool", "read_file").errors
    assert "from outside" not in audited("log", "-n", "1").errors


def test_a_log_without_calls_says_so_and_counts_what_came_from_outside(audited: Shell) -> None:
    assert "no calls are on record" in audited("log").errors
    (audited.workspace / "a.txt").write_text("by a person\n")
    with open_store(str(audited.database)) as store:
        accept_drift(store.workspace(audited.workspace))
    said = audited("log")
    assert "no calls are on record" in said.errors
    assert "1 change from outside: `loom-audit history PATH`" in said.errors
    assert "no calls match" in audited("log", "--tool", "bash").errors


def test_the_list_of_events_says_what_was_asked_and_said(audited: Shell) -> None:
    with (
        open_store(str(audited.database)) as store,
        store.workspace(audited.workspace).session("talker") as session,
    ):
        for fact in (
            PromptSubmitted("Add a test."),
            MessageReceived("assistant", "It is there."),
            MessageReceived("system", "The task ended."),
        ):
            session.writer.record(fact)
    lines = audited("log", "--events", "-n", "4").text
    assert "prompt.submitted" in lines and "Add a test." in lines
    assert "It is there." in lines and "system: The task ended." in lines
