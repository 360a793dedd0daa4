"""Points at which nobody knows what was there: said to be unknown, never absent."""

from pathlib import Path

import pytest

from tests.cli.shells import Shell


@pytest.fixture
def listed(audited: Shell) -> int:
    """The event with which the first listing was whole."""
    (event,) = audited.records("log", "--events", "--kind", "baseline.finished")
    return int(event["seq"])


READS = {
    "ls": ("ls", "--at", "1"),
    "ls of a folder": ("ls", "src", "--at", "1"),
    "cat": ("cat", "a.txt", "--at", "1"),
    "cat of what came later": ("cat", "late.txt", "--at", "1"),
    "diff from it": ("diff", "1", "head"),
    "diff to it": ("diff", "head", "1"),
    "diff of its names": ("diff", "0", "1", "--name-only"),
    "replay": ("replay", "1", "--to", "{folder}"),
}


@pytest.mark.parametrize("read", READS)
def test_what_was_there_before_the_first_listing_is_unknown(
    audited: Shell, listed: int, read: str, tmp_path: Path
) -> None:
    audited.call("write_file", path="late.txt", content="x")
    words = [word.format(folder=tmp_path / "then") for word in READS[read]]
    refused = audited(*words, code=4)
    assert f"nothing was on record before event {listed}" in refused.errors
    assert refused.errors.startswith("error: unknown") and refused.text == ""
    assert "did not exist" not in refused.errors
    assert not (tmp_path / "then").exists()


def test_what_an_unfinished_listing_does_not_say_is_unknown(audited: Shell, listed: int) -> None:
    early = str(listed - 1)
    shown = audited("ls", "--at", early)
    assert "a.txt" in shown.text and "what is not listed is unknown" in shown.errors
    assert audited("cat", "a.txt", "--at", early).text.startswith("one")
    assert "unknown" not in audited("ls", "--at", str(listed)).errors


def test_what_came_after_the_first_listing_was_absent_before(audited: Shell, listed: int) -> None:
    audited.call("write_file", path="late.txt", content="x")
    gone = audited("cat", "late.txt", "--at", str(listed), code=4).errors
    assert f"late.txt did not exist at {listed}" in gone
    assert audited("diff", str(listed), "head", "--name-only").text == "A late.txt  (1 B)\n"
