"""What is taken back in part only: its exit code, by whether somebody chose that."""

import pytest

from tests.cli.shells import Shell

OUTSIDE = ("--dry-run", "--yes")


@pytest.mark.parametrize("how", OUTSIDE)
def test_a_rollback_that_keeps_what_came_from_outside_unasked_is_one_in_part(
    audited: Shell, how: str
) -> None:
    audited("checkpoint", "start")
    audited.call("write_file", path="tool.txt", content="t\n")
    (audited.workspace / "mine.txt").write_text("my own\n")
    said = audited("rollback", "@start", how, code=7).errors
    last = "in part: 1 path kept as it is, listed above (exit 7)\n"
    assert said.endswith(last) == (how == "--yes")
    assert (audited.workspace / "tool.txt").exists() == (how == "--dry-run")


@pytest.mark.parametrize("choice", [("--choose", "mine.txt=current"), ("--outside",)])
def test_a_rollback_that_does_what_was_chosen_is_done(
    audited: Shell, choice: tuple[str, ...]
) -> None:
    audited("checkpoint", "start")
    audited.call("write_file", path="tool.txt", content="t\n")
    (audited.workspace / "mine.txt").write_text("my own\n")
    assert "in part" not in audited("rollback", "@start", *choice, "--yes", code=0).errors


def test_an_undo_that_leaves_a_folder_for_what_somebody_put_there_is_one_in_part(
    audited: Shell,
) -> None:
    audited.sh("mkdir new; echo 1 > new/a")
    (audited.workspace / "new" / "mine").write_text("my own\n")
    audited("undo", "--yes", code=7)
    assert not (audited.workspace / "new" / "a").exists()
    assert (audited.workspace / "new" / "mine").exists()
    audited("redo", "--yes", code=0)
    assert (audited.workspace / "new" / "a").exists()


def test_an_undo_of_a_path_kept_by_choice_is_done(audited: Shell) -> None:
    audited.sh("echo 1 > x.txt; echo 1 > y.txt")
    audited("undo", "--choose", "x.txt=current", "--yes", code=0)
    assert (audited.workspace / "x.txt").exists()
    assert not (audited.workspace / "y.txt").exists()


def test_what_is_taken_back_whole_is_done(audited: Shell) -> None:
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    call = str(audited.numbers()[-1])
    for words in (("undo",), ("redo",), ("revert", call), ("rollback", "3")):
        audited(*words, "--yes", code=0)


def test_a_hard_link_that_changes_with_its_file_is_not_left_out(audited: Shell) -> None:
    audited.sh("ln a.txt b.txt")
    audited.call("write_file", path="a.txt", content="both\n")
    audited("undo", "--yes", code=0)
    assert (audited.workspace / "b.txt").read_text().startswith("one")


def test_the_help_says_what_the_exit_code_of_a_part_means(audited: Shell) -> None:
    for verb in ("undo", "redo", "revert", "rollback"):
        assert "\n      7  done in part" in audited(verb, "--help").text


@pytest.mark.few(2)
@pytest.mark.parametrize("how", OUTSIDE)
@pytest.mark.parametrize("verb", ["undo", "revert", "rollback"])
def test_an_effect_that_was_not_captured_makes_it_one_in_part(
    audited: Shell, verb: str, how: str
) -> None:
    """The note that says so has no path: it is about the call."""
    audited("checkpoint", "start")
    audited.sh("echo 1 > x.txt; mkdir node_modules; echo unseen > node_modules/y")
    number = str(audited.numbers()[-1])
    target = {"undo": (), "revert": (number,), "rollback": ("@start",)}[verb]
    done = audited(verb, *target, how, code=7)
    assert ("not undone, listed above (exit 7)" in done.errors) == (how == "--yes")
    assert f"what call {number} did that was not captured" in done.text
    assert (audited.workspace / "x.txt").exists() == (how == "--dry-run")


def test_what_is_taken_back_already_is_not_a_part_that_is_left(audited: Shell) -> None:
    audited.sh("echo 1 > x.txt")
    audited.sh("echo 1 > y.txt")
    first, second = map(str, audited.numbers()[-2:])
    audited("revert", first, "--yes", code=0)
    assert "taken back already" in audited("revert", first, second, "--yes", code=0).text
