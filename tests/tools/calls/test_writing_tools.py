"""docs/writing-tools.md runs as it stands, from an installed package of its own."""

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from jsonschema import Draft202012Validator

from loom_audit.api.face import Session
from loom_audit.api.registry import ToolRegistry, builtin_registry
from loom_audit.tools.calls.batch import BatchOutcome, HookOutcome
from loom_audit.tools.calls.tool import Dialect
from tests.tools.conftest import Bench

TEXT = (Path(__file__).parents[3] / "docs" / "writing-tools.md").read_text("utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
(PROJECT,) = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
NAMES = ["stamp", "factor", "count_words", "shout"]


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToolRegistry]:
    """A registry after a package with exactly that text was installed."""
    site = tmp_path / "site-packages"
    info = site / "my_tools-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "my_tools.py").write_text("\n\n".join(PYTHON))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-tools\nVersion: 1.0\n")
    groups = tomllib.loads(PROJECT)["project"]["entry-points"]
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(site))
    yield builtin_registry()
    sys.modules.pop("my_tools", None)


def test_each_way_takes_at_most_twenty_lines_of_code() -> None:
    assert len(PYTHON) == 6
    for block in PYTHON:
        lines = [line for line in block.splitlines() if line and "import " not in line]
        assert len(lines) <= 20


def test_tools_of_another_package_are_called_and_recorded(
    bench: Bench, registry: ToolRegistry
) -> None:
    async def work(session: Session) -> None:
        stamped = await session.call("stamp", {"path": "s.txt", "text": "two words"})
        assert stamped.data == {"path": "s.txt"} and stamped.files_changed == ["s.txt"]
        factors = await session.call("factor", {"number": 12})
        assert factors.data == {"result": [2, 2, 3]}
        counted = await session.call("count_words", {"path": "s.txt"})
        assert counted.output == "2 words" and counted.data == {"words": 2}
        assert (await session.call("shout", {"text": "hello"})).output == "HELLO"
        for name, arguments in (
            ("stamp", {}),
            ("factor", {"number": "twelve"}),
            ("count_words", {"path": "s.txt", "more": 1}),
            ("shout", {"text": "x" * 81}),
        ):
            refused = await session.call(name, arguments)
            assert refused.error.code == "INVALID_ARGUMENTS"

    with bench.workspace.session("maker", registry=registry) as session:
        anyio.run(work, session)
    calls = [*reversed(bench.workspace.timeline.calls())]
    assert [call.tool for call in calls] == NAMES * 2
    assert (bench.root / "s.txt").read_text() == "two words"
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


def test_its_hook_runs_after_a_batch_and_its_calls_are_on_record(
    bench: Bench, registry: ToolRegistry
) -> None:
    async def work(session: Session) -> BatchOutcome:
        asked = {"name": "stamp", "input": {"path": "s.txt"}, "id": "t1", "type": "tool_use"}
        changed = importlib.import_module("my_tools").Changed()
        return await session.batch([asked], hooks=[changed]).run()

    registry.list()  # as the package is imported then
    with bench.workspace.session("maker", registry=registry) as session:
        outcome = anyio.run(work, session)
    assert outcome.hooks == (HookOutcome("changed", True, "1 changed"),)
    assert (bench.root / "CHANGED").read_text() == "s.txt"
    assert [call.tool for call in bench.workspace.timeline.calls()] == ["stamp", "stamp"]


@pytest.mark.parametrize(
    ("dialect", "key"),
    [
        ("openai", "parameters"),
        ("openai-flat", "parameters"),
        ("anthropic", "input_schema"),
        ("mcp", "inputSchema"),
    ],
)
def test_their_schemas_are_valid_in_every_dialect(
    registry: ToolRegistry, dialect: Dialect, key: str
) -> None:
    schemas = registry.all_schemas(dialect)[-len(NAMES) :]
    inner = [schema["function"] if dialect == "openai" else schema for schema in schemas]
    assert [schema["name"] for schema in inner] == NAMES
    for schema in inner:
        assert schema["description"]
        Draft202012Validator.check_schema(schema[key])
        assert schema[key]["additionalProperties"] is False
    assert [*inner[0][key]["properties"]] == ["path", "text"]
    if dialect == "mcp":
        assert inner[2]["outputSchema"]["properties"] == {"words": {"type": "integer"}}
        assert inner[3]["outputSchema"]["properties"] == {"text": {"type": "string"}}
