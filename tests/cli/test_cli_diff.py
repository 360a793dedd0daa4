"""`diff`: what was never there is refused."""

import subprocess

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


def test_the_own_change_of_a_session_names_the_call_of_each_line(audited: Shell) -> None:
    audited.call("write_file", path="a.txt", content="one\n2\nthree\n")
    [number] = audited.numbers()
    [session] = audited.records("session")
    words = ("diff", "--session", session["id"])
    own = audited(*words, "--own").text.splitlines()
    assert own[0] == f"a.txt  +1 -1  [by {number}]"
    assert own[1:] == [
        "@@ -1,3 +1,3 @@",
        f"{'':{len(str(number)) + 1}}  one",
        f"#{number} -two",
        f"#{number} +2",
        f"{'':{len(str(number)) + 1}}  three",
    ]
    assert audited(*words, "--all").text == audited(*words).text
    assert audited(*words, "--own", "--stat").text.splitlines() == own[:1]
    assert audited(*words, "--own", "--name-only").text == "a.txt\n"
    [record] = audited.records(*words, "--own")
    assert (record["added"], record["removed"], record["calls"]) == (1, 1, [number])
    [hunk] = record["hunks"]
    assert [line["text"] for line in hunk["lines"]] == ["one\n", "two\n", "2\n", "three\n"]
    assert record["writers"][hunk["lines"][1]["by"]]["call"] == number
    assert audited(*words, "--own", "src").text == ""
    assert "-two" in audited(*words).text


def test_a_patch_has_binary_contents_and_git_takes_it(audited: Shell) -> None:
    audited.sh("head -c 100 /dev/urandom > data; chmod 755 a.txt; mkdir -m 700 folder")
    after = audited.tree()
    [session] = audited.records("session")
    words = ("diff", "--session", session["id"], "--patch")
    own = audited(*words, "--own")
    assert own.stdout == audited(*words).stdout
    assert "left out: folder: git does not know such a change" in own.errors
    audited("undo", "--yes")
    done = subprocess.run(["git", "apply"], cwd=audited.workspace, input=own.stdout)
    assert done.returncode == 0
    del after["folder"]
    assert audited.tree() == after


@pytest.mark.parametrize(
    "words",
    [
        ("--own",),
        ("--patch",),
        ("1", "--session", "x"),
        ("--call", "1", "--session", "x"),
        ("1", "--own"),
        ("1", "2", "--all"),
        ("--session", "x", "--own", "--all"),
    ],
)
def test_options_that_say_different_things_are_refused(
    audited: Shell, words: tuple[str, ...]
) -> None:
    assert "hint: " in audited("diff", *words, code=2).errors
