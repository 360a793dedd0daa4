"""A text that is not in a file: what stands there instead, and in what it differs."""

import pytest

from loom_audit.model.text.nearest import MAX_LINES, nearest
from tests.tools.conftest import Bench

FILE = b"""\
import os


def largest(a, b):
\tif a == 'x':
\t\treturn b
\treturn None
"""


@pytest.mark.parametrize(
    ("wanted", "first", "differs"),
    [
        ("if a == 'x':\n    return b\n", 5, ["indentation (the file: 2 tabs, old_str: 4 spaces)"]),
        ("    return None", 7, ["indentation (the file: 1 tab, old_str: 4 spaces)"]),
        ("def largest(a,b):\n", 4, ["white space"]),
        ("if a == ‘x’:", 5, ["quotes or dashes"]),
        ("def Largest(a, b):", 4, ["upper and lower case"]),
        ('IF a=="x":', 5, ["white space", "quotes or dashes", "upper and lower case"]),
        ("\n\n\n\nimport os\n", 1, ["the white space around it"]),
        ("def smallest(a, b):", 4, []),
    ],
)
def test_the_nearest_lines_are_found_and_what_differs_is_said(
    wanted: str, first: int, differs: list[str]
) -> None:
    found = nearest(FILE, wanted.encode())
    assert found is not None
    assert (found.line, [*found.differs]) == (first, differs)
    assert found.lines[0] == FILE.decode().split("\n")[first - 1]


def test_line_ends_are_told_apart() -> None:
    found = nearest(b"one\r\n\ttwo\r\n", b"one\n  two\n")
    assert found is not None
    assert [*found.differs] == [
        "line ends (the file: CRLF, old_str: LF)",
        "indentation (the file: 1 tab, old_str: 2 spaces)",
    ]
    assert "\r" not in found.text()


@pytest.mark.parametrize(
    ("content", "wanted"), [(FILE, "quite another text"), (b"", "x"), (b"a\0b", "ab"), (FILE, " ")]
)
def test_where_nothing_is_like_it_nothing_is_named(content: bytes, wanted: str) -> None:
    assert nearest(content, wanted.encode()) is None


def test_of_many_and_long_lines_some_are_shown() -> None:
    lines = [f"line {n} {'x' * 300}" for n in range(50)]
    found = nearest("\n".join(lines).encode(), "\n".join(f" {line}" for line in lines).encode())
    assert found is not None
    shown = found.text().splitlines()
    assert len(shown) == MAX_LINES + 2 and max(map(len, shown)) < 250
    assert shown[-1] == f"       | [{50 - MAX_LINES} more]"


def test_a_model_that_missed_is_shown_the_lines_with_their_numbers(bench: Bench) -> None:
    (bench.root / "a.py").write_bytes(FILE)
    result = bench.call(
        "edit_file", {"path": "a.py", "old_str": "    return None\n", "new_str": ""}
    )
    assert result.error.code == "INVALID_ARGUMENTS"
    assert result.output.endswith(
        "Nearest is line 7, which differs in indentation (the file: 1 tab, old_str: 4 spaces):\n"
        "     7 | \treturn None"
    )
    assert (bench.root / "a.py").read_bytes() == FILE
