"""What a model reads of a program that writes for a terminal."""

import pytest

from loom_audit.tools.bundled.printed import printed_text
from tests.tools.conftest import Bench


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("plain\n\ttext é\n", "plain\n\ttext é\n"),
        ("\x1b[1;31mred\x1b[0m and \x1b[38;5;9mmore\x1b[m", "red and more"),
        ("\x1b]0;title\x07name \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "name link"),
        ("\x1b(B\x1b[2J\x1b[Hclear\x1b7\x1b=", "clear"),
        ("  0%\r 50%\r100%\ndone\n", "100%\ndone\n"),
        ("10%\r20%\r\x1b[Kready\r\n", "ready\r\n"),
        ("one\r\ntwo\r\n", "one\r\ntwo\r\n"),
        ("N\bNA\bAM\bME\bE", "NAME"),
        ("\b\bx\b", ""),
        ("bell\x07 nul\x00 form\x0cfeed", "bell nul formfeed"),
        ("\x1b", ""),
        ("\x1b[", ""),
        ("\x1b]unended", "unended"),
        ("\r\r\r", "\r"),
    ],
)
def test_a_text_is_read_as_a_terminal_shows_it_at_the_end(printed: str, read: str) -> None:
    assert printed_text(printed) == read


def test_the_model_sees_the_cleaned_text_and_the_data_hold_all(bench: Bench) -> None:
    command = r"printf '\033[32m1/2\r2/2\033[0m\n'; printf '\033[31mbad\033[0m\n' >&2"
    result = bench.call("bash", {"command": command})
    assert result.output.startswith("2/2\n[stderr]\nbad")
    assert result.data["stdout"] == "\033[32m1/2\r2/2\033[0m\n"
