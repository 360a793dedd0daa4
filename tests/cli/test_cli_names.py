"""Names and words typed wrong: refused with what to do, nothing recorded."""

import pytest

from tests.cli.shells import Shell


@pytest.mark.parametrize(
    "name", ["", "@", "n" * 257, "ü" * 129, "a\x1b[31m", "two\nlines", "\u202egnp", "~/\udcff"]
)
def test_a_checkpoint_name_that_cannot_be_shown_or_typed_is_refused(
    audited: Shell, name: str
) -> None:
    log = audited.records("log", "--events", "-n", "0")
    assert "hint: " in audited("checkpoint", "--", name, code=2).errors
    assert audited.records("log", "--events", "-n", "0") == log


@pytest.mark.parametrize("name", ["before merge", "v1.0", "ünï/cödé", "head", "42", "n" * 256])
def test_any_other_checkpoint_name_is_a_point(audited: Shell, name: str) -> None:
    (made,) = audited.records("checkpoint", name)
    audited.call("delete_file", path="a.txt")
    at = [one["path"] for one in audited.records("ls", "--at", f"@{name}")]
    assert "a.txt" in at and made["name"] == name


@pytest.mark.parametrize(
    "words", [("--status", "okay"), ("--status", "OK"), ("--status", "requested")]
)
def test_a_filter_that_can_match_nothing_is_refused(audited: Shell, words: tuple[str, ...]) -> None:
    refused = audited("log", *words, code=2)
    assert "hint: " in refused.errors and words[1] in refused.errors


@pytest.mark.parametrize("words", [("nowhere.txt",), ("head", "nowhere.txt"), ("garbage",)])
def test_comparing_what_was_never_there_is_refused(audited: Shell, words: tuple[str, ...]) -> None:
    assert "hint: " in audited("diff", *words, code=4).errors


def test_comparing_what_is_the_same_or_was_deleted_is_not(audited: Shell) -> None:
    assert audited("diff", "a.txt").text == ""
    before = audited.records("checkpoint", "before")[0]["point"]
    audited.call("delete_file", path="a.txt")
    assert "-one" in audited("diff", str(before), "a.txt").text
    assert audited("diff", "a.txt").text == ""


def test_what_changed_nothing_is_not_said_to_be_undoable(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="x")
    point = str(audited.numbers()[-1])
    done = audited("rollback", point, "--yes")
    assert "nothing on disk will change" in done.text and "loom-audit undo" not in done.errors
    assert str(audited.numbers()[-1]) == point
