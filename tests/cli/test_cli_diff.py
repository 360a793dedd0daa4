"""`diff`: what was never there is refused."""

import pytest

from tests.cli.shells import Shell


@pytest.mark.parametrize("words", [("nowhere.txt",), ("head", "nowhere.txt"), ("garbage",)])
def test_comparing_what_was_never_there_is_refused(audited: Shell, words: tuple[str, ...]) -> None:
    assert "hint: " in audited("diff", *words, code=4).errors


def test_comparing_what_is_the_same_or_was_deleted_is_not(audited: Shell) -> None:
    assert audited("diff", "a.txt").text == ""
    before = audited.records("checkpoint", "before")[0]["point"]
    audited.call("delete_file", path="a.txt")
    assert "-one" in audited("diff", str(before), "a.txt").text
    assert audited("diff", "a.txt").text == ""
