"""The tools that list directories."""

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Struct
from pydantic import Field

from loom_audit.tools.bundled.search.search_program import matcher
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.places.area import SCRATCH, Entry, EntryType
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import LIMIT_NAMES, Tool, one_thread

MAX_ENTRIES = 5_000
MAX_WALKED = 100_000
"""Entries that are looked at to find those that fit a glob."""
MAX_DEPTH = 10

Glob = Annotated[
    NonEmpty | None,
    Field(
        description="Only what fits a glob, in all directories below: names like `*.py`, "
        "`*.{js,ts}`, or paths `src/**`"
    ),
]
All = Annotated[
    bool,
    Field(
        alias="all",
        description="Go into folders of dependencies and caches too, like node_modules, .venv "
        "and __pycache__, which are otherwise only counted",
    ),
]


class ListInput(Arguments):
    path: Annotated[str, Field(description="A directory; by default the workspace")] = "."
    recursive: Annotated[
        bool | None,
        Field(
            description="true: all entries below it, false: its own entries; "
            "when left out, a tree of two levels, with a glob all entries"
        ),
    ] = None
    include_hidden: Annotated[
        bool | None,
        Field(alias="includeHidden", description="Whether to list names that begin with a dot"),
    ] = None
    glob: Glob = None
    all_folders: All = False
    limit: Annotated[int, Field(ge=1, le=MAX_ENTRIES, description="Entries to give at most")] = (
        MAX_ENTRIES
    )


class EntryOutput(Output):
    name: str
    type: EntryType
    size: int
    modified: str


class ListOutput(Output):
    """`left_out` counts the folders that were not gone into, by name."""

    path: str
    entries: list[EntryOutput]
    left_out: dict[str, int]
    truncated: bool


class ListDirectory(Tool):
    """Lists a directory as a tree of two levels, or as entries."""

    name = "list_directory"
    description = (
        "List a directory: as a tree of two levels, or with `recursive` or a glob as entries with "
        "name, type, size and time. Folders of dependencies and caches are counted and left out, "
        "unless `all`; .git always is."
    )
    input = ListInput
    output = ListOutput
    timeout_seconds = 10
    other_names = LIMIT_NAMES

    @one_thread
    async def execute(self, args: ListInput, ctx: ToolContext) -> ToolResult:
        recursive = args.recursive if args.glob is None else args.recursive is not False
        as_tree = recursive is None
        depth = 2 if as_tree else MAX_DEPTH if recursive else 1
        hidden = as_tree if args.include_hidden is None else args.include_hidden

        def shown(entry: Entry) -> bool:
            return entry.name != ".git" and (hidden or not entry.name.startswith("."))

        listed = await _listed(ctx, args, depth, shown)
        below = _length(listed.top)
        named = [(entry.path[below:], entry) for entry in listed.entries]
        lines = _tree(args.path, named) if as_tree else [_line(*pair) for pair in named]
        data: dict[str, Any] = {
            "path": listed.top,
            "entries": [entry.to_dict(name) for name, entry in named],
            "left_out": dict(listed.left_out),
            "truncated": listed.is_cut,
        }
        return ToolResult(True, listed.text(lines), data)


class _Listed(Struct, frozen=True):
    """What is listed of a directory."""

    top: str
    entries: list[Entry]
    left_out: Counter[str]
    is_cut: bool
    glob: str | None

    def text(self, lines: list[str]) -> str:
        nothing = f"[nothing fits {self.glob}]" if self.glob else "[empty]"
        found = lines or [nothing]
        if self.is_cut:
            found.append(
                f"[more than {len(self.entries)} entries: name a directory below, or a glob]"
            )
        if self.left_out:
            names = sorted(self.left_out.items())
            counted = ", ".join(f"{n} × {name}" if n > 1 else name for name, n in names)
            found.append(f"[left out: {counted}; all: true goes into them]")
        return "\n".join(found)


async def _listed(
    ctx: ToolContext,
    args: "ListInput | FilesInput",
    depth: int,
    shown: Callable[[Entry], bool] = lambda entry: True,
) -> _Listed:
    """The entries that are shown, down to a depth."""
    heavy = frozenset() if args.all_folders else ctx.open_writer.attachment.scope.heavy

    def is_heavy(entry: Entry) -> bool:
        return entry.type == "directory" and entry.name in heavy

    def enter(entry: Entry, level: int) -> bool:
        return level < depth and shown(entry) and not is_heavy(entry) and entry.name != ".git"

    # those that are not shown count in a walk
    most = MAX_WALKED if args.glob else 2 * MAX_ENTRIES
    found = [*await ctx.walk(args.path, enter=enter, limit=most)]
    seen = [entry for entry in found if shown(entry)]
    # what lies in the directory itself is named even then
    left_out = Counter(entry.name for entry in seen if depth > 1 and is_heavy(entry))
    entries = [entry for entry in seen if entry.name not in left_out or not is_heavy(entry)]
    top = (await ctx.stat(args.path)).path
    if args.glob:
        fits, below = matcher(args.glob), _length(top)
        entries = [one for one in entries if fits(one.path) or fits(one.path[below:])]
    is_cut = len(found) > most or len(entries) > args.limit
    return _Listed(top, entries[: args.limit], left_out, is_cut, args.glob)


def _length(top: str) -> int:
    """How many signs of the path of an entry are those of the directory above it."""
    return len(top) + (not top.endswith("/")) if top else 0


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
    glob: Glob = None
    all_folders: All = False
    limit: Annotated[int, Field(ge=1, le=MAX_ENTRIES, description="Entries to give at most")] = (
        MAX_ENTRIES
    )


class FileOutput(Output):
    path: str
    size: int
    is_dir: bool


class FilesOutput(Output):
    """`left_out` counts the folders that were not gone into, by name."""

    files: list[FileOutput]
    left_out: dict[str, int]
    truncated: bool


class ListFiles(Tool):
    """Lists the paths below a directory with their sizes."""

    name = "list_files"
    description = (
        "List the files and directories in a directory, with size, or with `recursive` or a glob "
        "all below it down to max_depth. Paths are relative to the workspace. Folders of "
        "dependencies and caches are counted and left out, unless `all`; .git is not gone into."
    )
    input = FilesInput
    output = FilesOutput
    timeout_seconds = 10
    other_names = LIMIT_NAMES

    @one_thread
    async def execute(self, args: FilesInput, ctx: ToolContext) -> ToolResult:
        recursive = args.recursive or args.glob is not None
        listed = await _listed(ctx, args, args.max_depth if recursive else 1)
        files = [
            {"path": entry.path, "size": entry.size, "is_dir": entry.type == "directory"}
            for entry in listed.entries
        ]
        lines = [f"{f['size']:>10}  {f['path']}{'/' if f['is_dir'] else ''}" for f in files]
        data = {"files": files, "left_out": dict(listed.left_out), "truncated": listed.is_cut}
        return ToolResult(True, listed.text(lines), data)
