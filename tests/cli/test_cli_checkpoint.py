"""`checkpoint`: names for points."""

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


def test_a_checkpoint_that_moves_says_so(audited: Shell) -> None:
    assert "moved" not in audited("checkpoint", "good").errors
    assert "has moved" in audited("checkpoint", "good").errors
