"""The tools that list directories."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from loom_audit.tools.calls.area import SCRATCH, Entry, EntryType
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool, one_thread

MAX_ENTRIES = 5_000
MAX_DEPTH = 10
IGNORED = frozenset({".git", "node_modules", "__pycache__"})


class ListInput(Arguments):
    path: Annotated[str, Field(description="A directory; by default the workspace")] = "."
    recursive: Annotated[
        bool | None,
        Field(
            description="true: all entries below it, false: its own entries; "
            "when left out, a tree of two levels"
        ),
    ] = None
    include_hidden: Annotated[
        bool | None,
        Field(alias="includeHidden", description="Whether to list names that begin with a dot"),
    ] = None


class EntryOutput(Output):
    name: str
    type: EntryType
    size: int
    modified: str


class ListOutput(Output):
    path: str
    entries: list[EntryOutput]
    truncated: bool


class ListDirectory(Tool):
    """Lists a directory as a tree of two levels, or as entries."""

    name = "list_directory"
    description = (
        "List a directory: as a tree of two levels, or with `recursive` as entries with name, "
        "type, size and time. Never goes into .git, node_modules or __pycache__."
    )
    input = ListInput
    output = ListOutput
    timeout_seconds = 10

    @one_thread
    async def execute(self, args: ListInput, ctx: ToolContext) -> ToolResult:
        as_tree = args.recursive is None
        depth = 2 if as_tree else MAX_DEPTH if args.recursive else 1
        hidden = as_tree if args.include_hidden is None else args.include_hidden
        top = (await ctx.stat(args.path)).path

        def shown(entry: Entry) -> bool:
            if entry.name == ".git" or (as_tree and entry.name in IGNORED):
                return False
            return hidden or not entry.name.startswith(".")

        entries, more = await _entries(ctx, args.path, depth, shown)
        below = len(top) + (not top.endswith("/")) if top else 0
        named = [(entry.path[below:], entry) for entry in entries]
        lines = _tree(args.path, named) if as_tree else [_line(*pair) for pair in named]
        data: dict[str, Any] = {
            "path": top,
            "entries": [entry.to_dict(name) for name, entry in named],
            "truncated": bool(more),
        }
        return ToolResult(True, "\n".join(lines + more) or "[empty]", data)


async def _entries(
    ctx: ToolContext, path: str, depth: int, shown: Callable[[Entry], bool]
) -> tuple[list[Entry], list[str]]:
    """The entries that are shown, down to a depth, and a line that says when there are more."""

    def enter(entry: Entry, level: int) -> bool:
        return level < depth and entry.name not in IGNORED and shown(entry)

    # twice as many: those that are not shown count in a walk
    found = [*await ctx.walk(path, enter=enter, limit=2 * MAX_ENTRIES)]
    entries = [entry for entry in found if shown(entry)]
    cut = len(found) > 2 * MAX_ENTRIES or len(entries) > MAX_ENTRIES
    del entries[MAX_ENTRIES:]
    more = f"[more than {len(entries)} entries: name a directory below, or use ls in bash]"
    return entries, [more] if cut else []


def _tree(top: str, named: list[tuple[str, Entry]]) -> list[str]:
    lines = [top if top == SCRATCH else f"{top.rstrip('/') or '/'}/"]
    for name, entry in named:
        mark = {"directory": "/", "symlink": "@", "other": "?"}.get(entry.type, "")
        lines.append("  " * (name.count("/") + 1) + entry.name + mark)
    return lines


def _line(name: str, entry: Entry) -> str:
    return f"{entry.type:<9} {entry.size:>10} {entry.modified:%Y-%m-%dT%H:%M:%SZ} {name}"


class FilesInput(Arguments):
    path: Annotated[str, Field(description="A directory; by default the workspace")] = "."
    recursive: Annotated[bool, Field(description="Go into the directories below it")] = False
    max_depth: Annotated[
        int, Field(ge=1, le=MAX_DEPTH, description="How many levels to go down when recursive")
    ] = MAX_DEPTH


class FileOutput(Output):
    path: str
    size: int
    is_dir: bool


class FilesOutput(Output):
    files: list[FileOutput]
    truncated: bool


class ListFiles(Tool):
    """Lists the paths below a directory with their sizes."""

    name = "list_files"
    description = (
        "List the files and directories in a directory, with size, or with `recursive` all "
        "below it down to max_depth. Paths are relative to the workspace. Never goes into .git, "
        "node_modules or __pycache__."
    )
    input = FilesInput
    output = FilesOutput
    timeout_seconds = 10

    @one_thread
    async def execute(self, args: FilesInput, ctx: ToolContext) -> ToolResult:
        depth = args.max_depth if args.recursive else 1
        entries, more = await _entries(ctx, args.path, depth, lambda entry: True)
        files = [
            {"path": entry.path, "size": entry.size, "is_dir": entry.type == "directory"}
            for entry in entries
        ]
        lines = [f"{f['size']:>10}  {f['path']}{'/' if f['is_dir'] else ''}" for f in files]
        data = {"files": files, "truncated": bool(more)}
        return ToolResult(True, "\n".join(lines + more) or "[empty]", data)
