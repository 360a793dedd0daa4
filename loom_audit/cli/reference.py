"""The reference of all commands as Markdown, made from their help texts.

`python -m loom_audit.cli.reference docs/cli.md` brings the file up to date.
"""

from collections.abc import Iterator
from typing import Any

from loom_audit.cli.application import COMMANDS, app
from loom_audit.cli.shared.invocation import PROGRAM
from loom_audit.tools.bundled.reference import rewrite

MARK = "<!-- made from the help texts by loom_audit.cli.reference; do not edit below -->"


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


def reference() -> str:
    """The generated part of docs/cli.md."""
    parts = [MARK]
    heading = ""
    for title, name, text in commands():
        if title != heading:
            heading = title
            parts.append(f"## {title}")
        parts.append(f"### `{PROGRAM} {name}`\n\n```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    rewrite(MARK, reference())
