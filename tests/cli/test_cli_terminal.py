"""At a terminal: questions are asked, contents are escaped, colours and progress are shown."""

import os
import pty
import select
import time

from tests.cli.shells import Shell
from tests.forked import Forked


def at_terminal(
    shell: Shell, *arguments: str, answer: bytes = b"", after: bytes = b"", columns: int = 100
) -> tuple[int, str]:
    """Run a command with a terminal at all three ends; exit code and all it printed.

    The answer is typed before it starts, or once it has printed `after`.
    """
    ours, theirs = pty.openpty()
    process = Forked(
        arguments,
        cwd=shell.workspace,
        env=shell.environment | {"TERM": "xterm", "COLUMNS": str(columns)},
        terminal=theirs,
    )
    os.close(theirs)
    if answer and not after:
        os.write(ours, answer)
    printed = b""
    deadline = time.monotonic() + 60  # only so that a hang ends
    while time.monotonic() < deadline:
        if not select.select([ours], [], [], 1.0)[0]:
            continue
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        printed += part
        if after and after in printed:
            os.write(ours, answer)
            after = b""
    code = process.wait(30)
    os.close(ours)
    return code, printed.decode("utf-8", "replace").replace("\r\n", "\n")


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
        audited, "run", "--", "sh", "-c", "test -t 0 && test -t 1 && read x && echo got $x; exit 3",
        answer=b"hello\n",
    )  # fmt: skip
    assert code == 3
    assert "got hello" in printed
