"""`log`: its filters, and the facts under the calls."""

import pytest

from tests.cli.shells import Shell


def test_log_filters_and_shows_the_facts_below(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="1\n")
    audited.call("read_file", path="b.txt")
    audited("call", "read_file", '{"path": "nope.txt"}', code=4)
    tools = [r["tool"] for r in audited.records("log", "--oldest-first")]
    assert tools == ["write_file", "read_file", "read_file"]
    assert len(audited.records("log", "--tool", "read_file")) == 2
    assert len(audited.records("log", "--status", "error")) == 1
    assert len(audited.records("log", "--path", "b.txt")) == 1
    assert len(audited.records("log", "-n", "2")) == 2
    assert audited.records("log", "--since", "2999-01-01") == []
    assert len(audited.records("log", "--until", "2999-01-01")) == 3
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
    heads = [line for line in audited("log").text.splitlines() if line.startswith("session ")]
    assert [line.split()[-1].split(":")[0] for line in heads] == ["person", "agent"]
    assert heads[0].split()[1] == heads[1].split()[1]
