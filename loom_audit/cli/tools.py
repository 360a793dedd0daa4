"""`loom-audit tools`: the tools there are, with their arguments and limits."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, get_args

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command, spelled_nearly
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.output import Line
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.records import plain
from loom_audit.errors import InvalidArguments, UnknownTool
from loom_audit.model.text.display import one_line

if TYPE_CHECKING:
    from loom_audit.tools.calls.settings import ToolSettings
    from loom_audit.tools.calls.tool import Tool


@command(
    examples=("loom-audit tools", "loom-audit tools read_file", "loom-audit tools --schema openai"),
    codes={exits.UNREADABLE: "no tool of that name"},
)
def tools(
    invocation: Invocation,
    name: Annotated[str, argument("NAME", help="The one to show whole.")] = "",
    schema: Annotated[
        str | None,
        option(metavar="DIALECT", help="As openai, openai-flat, anthropic or mcp wants it, JSON."),
    ] = None,
) -> None:
    """List the tools, or show one whole.

    With its arguments, what it does to the workspace, when it asks, and its limits. Those that
    other packages offer are listed too. `loom-audit call` calls one.
    """
    from loom_audit.api.registry import builtin_registry, marked_schema
    from loom_audit.config import read_tool_settings
    from loom_audit.tools.calls.tool import Dialect

    settings = read_tool_settings(invocation.settings)
    output = invocation.output
    registry = builtin_registry()
    listed = [*registry.list()]
    if name:
        if (found := registry.get(name)) is None:
            near = spelled_nearly(name, (tool.name for tool in listed))
            meant = f"Did you mean {' or '.join(near)}? " if near else ""
            raise UnknownTool(
                f"there is no tool {name}", hint=f"{meant}`loom-audit tools` lists them."
            )
        listed = [found]
    if schema is not None:
        dialect = next((one for one in get_args(Dialect) if one == schema), None)
        if dialect is None:
            raise InvalidArguments(
                f"no dialect {schema}", hint=f"There are: {', '.join(get_args(Dialect))}."
            )
        for tool in listed:
            output.record(marked_schema(tool, dialect, settings))
    else:
        lines = _whole_lines if name else partial(_short_lines, output.width)
        output.each(listed, partial(_record, settings), partial(lines, settings))


def _record(settings: "ToolSettings", tool: "Tool") -> dict[str, object]:
    from loom_audit.tools.bundled.reference import arguments_of, asks

    return {
        "name": tool.name,
        "description": tool.description,
        "effect": tool.effect,
        "seconds": tool.timeout_seconds,
        "asks": asks(tool),
        "confinement": tool.confinement,
        "needs_workspace": tool.needs_workspace,
        "lacks": tool.lacks(settings),
        "arguments": [plain(one) for one in arguments_of(tool)],
    }


def _short_lines(width: int | None, settings: "ToolSettings", tool: "Tool") -> Iterator[Line]:
    said = tool.description.partition(". ")[0].rstrip(".")
    said = f"[cannot work here] {said}" if tool.lacks(settings) else said
    room = max((width or 1_000) - 28, 20)
    yield ((f"{tool.name:<18} ", "bold"), f"{tool.effect:<8} {one_line(said, room)}")


def _whole_lines(settings: "ToolSettings", tool: "Tool") -> Iterator[Line]:
    from loom_audit.tools.bundled.reference import arguments_of, facts_of, fields_of

    yield ((tool.name, "bold"),)
    yield (tool.description,)
    if lacks := tool.lacks(settings):
        yield ((f"cannot work here: {lacks}", "yellow"),)
    yield (" · ".join(f"{name} {fact}".lstrip() for name, fact in facts_of(tool)),)
    for one in arguments_of(tool):
        said = [one.kind, "needed" if one.needed else "", *one.limits]
        said += [f"default {one.default}"] if one.default else []
        yield ((f"  {one.name:<16} ", "cyan"), ", ".join(filter(None, said)))
        if one.description:
            yield ("                   ", (one.description, "dim"))
    for path, kind in fields_of(tool):
        yield (("  -> ", "green"), f"{path}: {kind}")
