"""What a person may type that is not what was meant: said plainly, and nothing happens."""

import re

import pytest

from tests.cli.shells import Shell

NUMBERS = ("abc", "head", "", "0", "-1", "1.5")


@pytest.mark.parametrize("typed", NUMBERS)
@pytest.mark.parametrize("words", [("show", "--"), ("diff", "--call"), ("revert", "--")])
def test_what_is_not_the_number_of_a_call_is_named(
    audited: Shell, words: tuple[str, ...], typed: str
) -> None:
    (*before, last) = words
    arguments = (*before, f"{last}={typed}") if last == "--call" else (*words, typed)
    refused = audited(*arguments, code=2).errors
    assert "error: not the number of a call: " in refused and "loom-audit log" in refused
    assert "range" not in refused


@pytest.mark.parametrize("words", [("show",), ("diff", "--call"), ("revert",)])
@pytest.mark.parametrize("number", ["9999", "9" * 18, "9" * 30, "9" * 5000])
def test_an_event_that_is_not_on_record_is_not_said_to_belong_to_no_call(
    audited: Shell, words: tuple[str, ...], number: str
) -> None:
    refused = audited(*words, number, code=4).errors
    assert "belong" not in refused and "no event" in refused


def test_a_number_that_is_not_one_is_not_called_a_range(audited: Shell) -> None:
    refused = audited("log", "-n", "many", code=2).errors
    assert "'many' is not a valid whole number" in refused and "range" not in refused


def test_the_same_call_named_twice_is_taken_back_once(audited: Shell) -> None:
    audited.call("write_file", path="new.txt", content="x")
    call = str(audited.numbers()[-1])
    (plan,) = audited.records("revert", call, call, "--dry-run")
    assert plan["target"] == f"{call} (write_file)" or plan["target"] == call
    assert f"revert {call}, {call}" not in audited("revert", call, call, "--dry-run").text


def test_a_session_to_end_must_be_named(audited: Shell) -> None:
    refused = audited("session", "end", code=2).errors
    assert "not named" in refused and "session end ID" in refused


@pytest.mark.parametrize("words", ["", "  "])
def test_a_search_for_nothing_is_refused(audited: Shell, words: str) -> None:
    assert "--search is empty" in audited("log", "--search", words, code=2).errors


@pytest.mark.parametrize("typed", [("--nonsense",), ("-x", "--", "true"), ("--titel=x", "true")])
def test_an_unknown_option_of_run_is_not_run(audited: Shell, typed: tuple[str, ...]) -> None:
    refused = audited("run", *typed, code=125).errors
    assert "No such option" in refused and "run --help" in refused
    assert audited.records("log") == []


def test_what_follows_two_dashes_is_the_command_whatever_it_is_called(audited: Shell) -> None:
    assert "Command not found: --nonsense" in audited("run", "--", "--nonsense", code=127).errors
    assert audited("run", "sh", "-c", "exit 3", code=3).code == 3


def test_one_of_something_is_not_several(audited: Shell) -> None:
    audited.call("write_file", path="new.txt", content="x")
    audited("verify", code=None)
    audited("checkpoint", "now")
    printed = [
        audited(*words, code=None)
        for words in (("session",), ("log",), ("verify",), ("status",), ("show", "8"))
    ]
    for ran in printed:
        assert not re.search(r"(?<![\d.,])1 \w+s\b(?<!ms)", ran.text + ran.errors), ran
    assert "1 event ago" in printed[1].errors


def test_times_say_their_zone_and_can_be_typed_as_they_are_shown(audited: Shell) -> None:
    audited.extra["TZ"] = "Asia/Kolkata"
    audited.real = True
    audited.call("write_file", path="new.txt", content="x")
    shown = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+05:30")
    for words in (("log",), ("log", "--events"), ("show", "8"), ("session",), ("history", "a.txt")):
        assert shown.search(audited(*words).text), words
    time = shown.search(audited("log").text)
    assert time and len(audited.records("log", "--since", time.group())) == 1


EMPTY = {
    "ls": (("ls", ""), 2),
    "cat": (("cat", ""), 2),
    "history": (("history", ""), 2),
    "log of a path": (("log", "--path", ""), 2),
    "log of a tool": (("log", "--tool", ""), 2),
    "log of an actor": (("log", "--actor", ""), 2),
    "verify": (("verify", "--against", ""), 4),
}


@pytest.mark.parametrize("what", EMPTY)
def test_an_empty_text_is_not_taken_for_all_or_for_a_folder(audited: Shell, what: str) -> None:
    words, code = EMPTY[what]
    refused = audited(*words, code=code)
    assert "is empty" in refused.errors and "hint: " in refused.errors and refused.text == ""


@pytest.mark.parametrize(
    "words", [("session",), ("history", "a.txt"), ("log",), ("log", "--events")]
)
def test_a_limit_above_all_there_is_lists_all(audited: Shell, words: tuple[str, ...]) -> None:
    audited.call("write_file", path="a.txt", content="x")
    assert audited.records(*words, "-n", "9" * 25) == audited.records(*words, "-n", "0") != []
