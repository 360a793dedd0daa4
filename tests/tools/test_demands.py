"""demands.md: each demand on the tools names the tests that show it, and they exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.tools.bundled.test_bad_input import BAD

ROOT = Path(__file__).parents[2]
TEXT = (Path(__file__).parent / "demands.md").read_text("utf-8")
DOCUMENTS = {"000": 65, "002": 85, "003": 75, "004": 30}
"""At least so many rows: as many sentences demand something."""

NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:\[([^\]`]+)\])?`")


def rows(document: str) -> list[list[str]]:
    section = TEXT.split(f"\n### Document {document}\n")[1].split("\n### ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


@cache
def defined_in(path: str) -> frozenset[str]:
    """The names of the test functions that a file defines; none when there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    return frozenset(
        node.name
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_row_says_what_is_asked_what_is_done_and_which_test_shows_it(document: str) -> None:
    found = rows(document)
    assert len(found) >= DOCUMENTS[document]
    for row in found:
        assert len(row) == 4 and all(row), row
        tests = row[3].split(", ")
        assert all(NAMED.fullmatch(test) for test in tests), row
    assert len({(row[0], row[1]) for row in found}) == len(found)


def test_every_test_that_is_named_exists() -> None:
    found = NAMED.findall(TEXT)
    assert {row for _, _, row in found if row} <= {*BAD}
    named = {(path, name) for path, name, _ in found}
    assert len(named) > 100
    assert {(path, name) for path, name in named if name not in defined_in(path)} == set()


def test_there_is_no_document_without_rows_and_no_rows_of_another() -> None:
    assert re.findall(r"^### Document (\w+)$", TEXT, re.MULTILINE) == [*DOCUMENTS]
