"""What the documents say is so: commands and codes are all there, and examples run.

In a ```console block a line after `$ ` is a command, the lines below it are what it prints;
`…` stands for any text, on a line of its own for any lines. The blocks of one document run in
order in one new folder, with a store of their own; every command must succeed.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec.structs import fields

import loom_audit
from loom_audit import errors
from loom_audit.api.registry import builtin_registry
from loom_audit.cli.application import app
from loom_audit.tools.calls.settings import ToolSettings

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Example:
    line: int
    command: str
    output: list[str] = field(default_factory=list)


def examples(text: str) -> list[Example]:
    found: list[Example] = []
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1)) + 1
        for number, line in enumerate(block[1].splitlines(), first):
            if line.startswith("$ "):
                found.append(Example(number, line[2:]))
            elif (line == ">" or line.startswith("> ")) and not found[-1].output:
                found[-1].command += "\n" + line[2:]
            else:
                found[-1].output.append(line)
    return found


def matches(expected: list[str], printed: str) -> bool:
    """Whether it is what was to be printed; nothing expected allows anything."""
    if not expected:
        return True
    parts = []
    for line in expected:
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*?".join(re.escape(piece) for piece in line.split("…")) + r" *\n")
    return re.fullmatch("".join(parts), printed) is not None


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_of_a_document_run_and_print_what_it_says(path: Path, tmp_path: Path) -> None:
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, module in (("loom-audit", "-m loom_audit"), ("python", "")):
        shim = shims / name
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        shim.chmod(0o755)
    folder, temporary = tmp_path / "here", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    search = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(search),
        "HOME": str(tmp_path),
        "TMPDIR": str(temporary),
        "NO_COLOR": "1",
    }
    for example in examples(path.read_text("utf-8")):
        # the folder a command leaves the shell in is where the next one starts
        script = f'{example.command}\ncode=$?\npwd > "{tmp_path}/pwd"\nexit $code\n'
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        where = f"{path.name}:{example.line}: $ {example.command}\n{done.stdout}"
        assert done.returncode == 0, where
        assert matches(example.output, done.stdout), where
        folder = Path((tmp_path / "pwd").read_text().strip())


def documented(pattern: str) -> bool:
    return any(re.search(pattern, path.read_text("utf-8")) for path in DOCUMENTS)


def commands(group: Any, prefix: str) -> list[str]:
    found = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        below = commands(command, f"{prefix} {name}") if hasattr(command, "commands") else []
        found += below or [f"{prefix} {name}"]
    return found


def test_every_command_is_documented() -> None:
    named = commands(app, "loom-audit")
    assert len(named) > 20
    assert [name for name in named if not documented(re.escape(name) + r"\b")] == []


def test_every_error_code_is_documented() -> None:
    codes = [
        value.code
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.AuditError)
    ]
    assert len(codes) > 15
    assert [code for code in codes if not documented(rf"\b{code}\b")] == []


def test_what_methods_give_and_raise_is_importable_from_the_package() -> None:
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.AuditError):
            assert name in loom_audit.__all__ and getattr(loom_audit, name) is value
    for name in ("Status", "UndoResult", "Verification", "Checkpoint", "TreeHead"):
        assert name in loom_audit.__all__ and getattr(loom_audit, name).__name__ == name


def test_every_setting_is_listed_with_its_default() -> None:
    guide = (ROOT / "docs" / "tools.md").read_text("utf-8")
    rows = guide.split("## Settings")[1]
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", rows, re.MULTILINE))
    for each in fields(ToolSettings):
        assert each.name in listed
        if isinstance(each.default, bool):
            assert listed[each.name] == str(each.default).lower()
        elif isinstance(each.default, int):
            assert listed[each.name] == str(each.default)


@pytest.mark.parametrize("confinement", ["required", "preferred"])
def test_the_guide_names_every_tool_that_asks_to_be_confined(confinement: str) -> None:
    text = (ROOT / "docs" / "confinement.md").read_text("utf-8")
    row = next(line for line in text.splitlines() if line.startswith(f"| `{confinement}`"))
    named = re.findall(r"`(\w+)`", row.rstrip("| ").rpartition("|")[2])
    asking = [tool.name for tool in builtin_registry().list() if tool.confinement == confinement]
    assert sorted(named) == sorted(asking)


def test_links_between_documents_lead_somewhere() -> None:
    missing = []
    for path in (*DOCUMENTS, ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text("utf-8")):
            if "://" not in target and not (path.parent / target).exists():
                missing.append(f"{path.name}: {target}")
    assert missing == []


def test_an_example_that_prints_something_else_is_noticed() -> None:
    expected = ["one … three", "…", "last"]
    assert matches(expected, "one two three\nx\ny\nlast\n")
    assert matches(expected, "one  three\nlast\n")
    assert not matches(expected, "one two four\nlast\n")
    assert not matches(expected, "one two three\nx\n")
    assert matches([], "anything")
