"""docs/tools-demands.md: each row names tests that exist; docs/tools.md lists each setting."""

import ast
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from loom_audit.tools.bundled.builtin import builtin_registry
from loom_audit.tools.calls.settings import ToolSettings
from tests.tools.test_bad_input import BAD

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "tools.md").read_text("utf-8")
TEXT = (ROOT / "docs" / "tools-demands.md").read_text("utf-8")
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


def test_every_setting_is_listed_with_its_default() -> None:
    listed = dict(
        re.findall(r"^\| `(\w+)` \| ([^|]+) \|", GUIDE.split("## Settings")[1], re.MULTILINE)
    )
    for field in fields(ToolSettings):
        assert field.name in listed
        if isinstance(field.default, bool):
            assert listed[field.name] == str(field.default).lower()
        elif isinstance(field.default, int):
            assert listed[field.name] == str(field.default)


@pytest.mark.parametrize("confinement", ["required", "preferred"])
def test_the_guide_names_every_tool_that_asks_to_be_confined(confinement: str) -> None:
    text = (ROOT / "docs" / "confinement.md").read_text("utf-8")
    row = next(line for line in text.splitlines() if line.startswith(f"| `{confinement}`"))
    named = re.findall(r"`(\w+)`", row.rstrip("| ").rpartition("|")[2])
    asking = [tool.name for tool in builtin_registry().list() if tool.confinement == confinement]
    assert sorted(named) == sorted(asking)
