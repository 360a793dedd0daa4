"""docs/tools-reference.md is what the tools say of themselves."""

from pathlib import Path

import pytest

from docs.reference import section, written
from loom_audit.tools.bundled.builtin import builtin_tools
from loom_audit.tools.calls.function import tool
from loom_audit.tools.calls.tool import Tool

ROOT = Path(__file__).parents[3]


def test_the_reference_is_what_the_tools_say() -> None:
    text = (ROOT / "docs" / "tools-reference.md").read_text("utf-8")
    assert text == written("tools-reference.md"), "bring it up to date: make reference"


@pytest.mark.parametrize("each", builtin_tools(), ids=lambda each: each.name)
def test_a_section_names_every_argument_and_every_field_of_the_result(each: Tool) -> None:
    text = section(each)
    for name in each.parameters.get("properties", {}):
        assert f"\n| `{name}` | " in text
    for name in (each.output_schema or {}).get("properties", {}):
        assert f"\n| `{name}` | " in text or f"\n| `{name}." in text or f"\n| `{name}[]." in text
    assert f"effect `{each.effect}` · {each.timeout_seconds:g} s" in text


def test_limits_defaults_and_reasons_to_ask_are_those_of_the_code() -> None:
    sections = {each.name: section(each) for each in builtin_tools()}
    assert "| `max_bytes` | number | `1048576` | ≥ 1, ≤ 16777216 |" in sections["read_file"]
    assert "asks when it *overwrites …*" in sections["write_file"]
    assert "asks when it *deletes …*" in sections["delete_file"]
    assert "confinement `required`" in sections["run_code"]
    assert "does not ask" in sections["read_file"]

    @tool(requires_approval=True)
    def launch(code: str | int, times: list[int] | None = None) -> None:
        """Launch it."""

    text = section(launch)
    assert "asks always" in text and "| `code` | text or number | needed |" in text
    assert "| `times` | list of number |" in text
