"""At a terminal: questions are asked, contents are escaped, colours and progress are shown."""

import re

from tests.cli.shells import Shell, at_terminal


def test_undo_asks_and_no_changes_nothing(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="new\n")
    disk = audited.tree()
    code, printed = at_terminal(audited, "undo", answer=b"n\n")
    assert code == 1
    assert "will change:" in printed
    assert "Undo?" in printed
    assert "nothing was changed" in printed
    assert audited.tree() == disk


def test_undo_asks_and_yes_carries_it_out(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="new\n")
    code, _ = at_terminal(audited, "undo", answer=b"y\n")
    assert code == 0
    assert not (audited.workspace / "b.txt").exists()


def test_yes_given_beforehand_is_not_asked_for(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="new\n")
    code, printed = at_terminal(audited, "undo", "--yes")
    assert (code, "Undo?" in printed) == (0, False)


def test_cat_escapes_to_a_terminal_unless_told_not_to(audited: Shell) -> None:
    audited.call("write_file", path="evil.txt", content="\x1b[2Jwiped\n")
    assert "\\x1b[2Jwiped" in at_terminal(audited, "cat", "evil.txt")[1]
    assert "\x1b[2Jwiped" in at_terminal(audited, "cat", "evil.txt", "--raw")[1]


def test_colour_is_left_out_with_no_color(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="new\n")
    assert "\x1b[" in at_terminal(audited, "log")[1]
    audited.extra = {"NO_COLOR": "1"}
    assert "\x1b[" not in at_terminal(audited, "log")[1]


def test_a_first_recording_works_with_progress_on_a_terminal(shell: Shell) -> None:
    code, printed = at_terminal(shell, "init")
    assert code == 0
    assert "is under audit" in printed


def test_run_passes_the_terminal_through(audited: Shell) -> None:
    code, printed = at_terminal(
        audited,
        "run",
        "--",
        "sh",
        "-c",
        "test -t 0 && test -t 1 && read x && echo got $x; exit 3",
        answer=b"hello\n",
    )
    assert code == 3
    assert "got hello" in printed


def test_a_question_that_is_not_answered_changes_nothing_and_says_so(audited: Shell) -> None:
    audited.call("write_file", path="new.txt", content="x")
    code, printed = at_terminal(audited, "undo", answer=b"\x04", after=b"]: ")
    assert "\nnothing was changed\n" in printed
    assert code == 130 and (audited.workspace / "new.txt").exists()


def test_a_file_is_printed_on_a_terminal_without_a_line_too_many(audited: Shell) -> None:
    _, printed = at_terminal(audited, "cat", "a.txt")
    assert printed == (audited.workspace / "a.txt").read_text()


def test_on_a_narrow_terminal_a_call_stays_on_one_line(audited: Shell) -> None:
    audited.call("write_file", path="n.txt", content="x")
    audited.extra["NO_COLOR"] = "1"
    audited("undo")
    for columns in (72, 80):
        _, printed = at_terminal(audited, "log", columns=columns)
        assert all(len(line) <= columns for line in printed.split("\n")), printed
        assert re.search(r"ok write_file n.txt  \[1 path; taken back by \d+\]\n", printed)
