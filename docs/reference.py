"""The references in this folder, made from the code: of all commands and of all bundled tools.

`make reference` brings both files up to date; their first lines, above the mark, are written by
hand.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loom_audit.cli.application import COMMANDS, app
from loom_audit.cli.shared.invocation import PROGRAM
from loom_audit.tools.bundled.builtin import builtin_tools
from loom_audit.tools.bundled.reference import Argument, arguments_of, facts_of, fields_of
from loom_audit.tools.calls.tool import Tool

FOLDER = Path(__file__).parent
MARK = "<!-- made from the code by docs/reference.py; do not edit below -->"


def written(name: str) -> str:
    """A reference as it is to be: what is written by hand in its file, the mark, what is made."""
    by_hand = (FOLDER / name).read_text("utf-8").partition(MARK)[0]
    parts = [MARK, *REFERENCES[name]()]
    return by_hand + "\n\n".join(parts) + "\n"


def commands() -> Iterator[tuple[str, str, str]]:
    """Section, name and help text of every command, in the order of the help."""
    with app.make_context(PROGRAM, ["head"], terminal_width=80) as root:
        for name, title, _ in COMMANDS:
            yield from _with_children(root, title, name, app.get_command(root, name))


def _with_children(root: Any, title: str, name: str, found: Any) -> Iterator[tuple[str, str, str]]:
    context = found.context_class(found, info_name=name, parent=root, terminal_width=80)
    children = getattr(found, "commands", {})
    if not children:
        yield title, name, found.get_help(context)
    for child, below in children.items():
        inner = below.context_class(below, info_name=child, parent=context, terminal_width=80)
        yield title, f"{name} {child}", below.get_help(inner)


def commands_reference() -> Iterator[str]:
    """The sections of docs/cli.md: the help text of every command."""
    heading = ""
    for title, name, text in commands():
        if title != heading:
            heading = title
            yield f"## {title}"
        yield f"### `{PROGRAM} {name}`\n\n```text\n{text.rstrip()}\n```"


def tools_reference() -> Iterator[str]:
    """The sections of docs/tools-reference.md, one for each tool."""
    yield from (section(tool) for tool in builtin_tools())


def section(tool: Tool) -> str:
    """What there is to know about a tool: what it is, its arguments, the fields of its result."""
    facts = (f"{name} `{fact}`" if name else fact for name, fact in facts_of(tool))
    parts = [f"## `{tool.name}`", tool.description, " · ".join(facts)]
    if rows := [_argument_row(one) for one in arguments_of(tool)]:
        head = "| argument | type | default | limits | |\n|---|---|---|---|---|"
        parts.append("\n".join([head, *rows]))
    if fields := [f"| `{path}` | {kind} |" for path, kind in fields_of(tool)]:
        parts.append("\n".join(["| result | type |\n|---|---|", *fields]))
    return "\n\n".join(parts)


def _argument_row(one: Argument) -> str:
    default = "needed" if one.needed else f"`{one.default}`" if one.default else ""
    cells = [f"`{one.name}`", one.kind, default, ", ".join(one.limits), one.description]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


REFERENCES = {"cli.md": commands_reference, "tools-reference.md": tools_reference}


if __name__ == "__main__":
    for name in REFERENCES:
        (FOLDER / name).write_text(written(name), "utf-8")
