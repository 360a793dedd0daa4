"""Search by regular expression, in a process of its own: a pattern may run for ever."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from loom_audit.errors import ExecutionFailed, InvalidArguments, InvalidPath, ToolTimeout
from loom_audit.model.scope import HEAVY
from loom_audit.model.text.display import count_text
from loom_audit.ports import CommandResult
from loom_audit.tools.bundled.text import decode, encode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.places.area import SCRATCH, Entry
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import LIMIT_NAMES, Tool

MAX_MATCHES = 1_000
MAX_TEXT = 300
MAX_CONTEXT = 20
MAX_FILE = 16 * 1024 * 1024
MAX_PRINTED = 4 * 1024 * 1024
MAX_SECONDS = 10
"""How long one file may take: then the pattern is one that would run for ever."""

_PROGRAM = "import sys; sys.path.append(sys.argv[1]); import search_program; search_program.main()"
_FOLDER = str(Path(__file__).parent)


class SearchInput(Arguments):
    pattern: Annotated[NonEmpty, Field(description="Regular expression, as of Python's re")]
    path: Annotated[str, Field(description="Directory or file to search")] = "."
    file_pattern: Annotated[
        NonEmpty | None,
        Field(description="Glob for names like `*.py`, `*.{js,ts}`, or paths `src/**`"),
    ] = None
    context: Annotated[
        int, Field(ge=0, le=MAX_CONTEXT, description="Lines to show before and after each match")
    ] = 0
    files_only: Annotated[
        bool, Field(description="Give the paths of the files with a match, no lines")
    ] = False
    count: Annotated[
        bool, Field(description="Give how many lines of each file match, no lines")
    ] = False
    limit: Annotated[
        int, Field(ge=1, le=MAX_MATCHES, description="Matches, or files, to give at most")
    ] = MAX_MATCHES

    @model_validator(mode="after")
    def _one_form(self) -> "SearchInput":
        if sum((self.context > 0, self.files_only, self.count)) > 1:
            raise ValueError("give one of context, files_only and count")
        return self

    @property
    def shows(self) -> str:
        """What is given of the files that match: lines, files or count."""
        return "files" if self.files_only else "count" if self.count else "lines"


class Match(Output):
    path: str
    line: int
    text: str


class MatchingFile(Output):
    """`count` lines of it match; with `files_only` at least one."""

    path: str
    count: int


class SearchOutput(Output):
    """`files` were searched; `skipped` are binary or too large; `around` are lines of context.

    `count` are the matching lines, with `files_only` the matching files.
    """

    matches: list[Match]
    around: list[Match]
    matching_files: list[MatchingFile]
    count: int
    files: int
    skipped: int
    truncated: bool


class SearchFiles(Tool):
    """Searches files by a regular expression, in a process that can be killed."""

    name = "search_files"
    description = (
        "Search files line by line for a regular expression, as of Python's re; gives "
        "`path:line: text`, sorted, at most 1000; with `context` also `path-line- text` around "
        "it, with files_only or count the files alone. Skips binary files, files over 16 MiB, "
        "symlinks and folders like .git, node_modules and .venv."
    )
    input = SearchInput
    output = SearchOutput
    timeout_seconds = 30
    other_names = LIMIT_NAMES

    async def execute(self, args: SearchInput, ctx: ToolContext) -> ToolResult:
        encode(args.pattern, "pattern")
        top = await ctx.stat(args.path)
        if top.type not in ("file", "directory"):
            raise InvalidPath(
                f"{args.path} is neither a file nor a directory",
                hint="Name a file or a directory.",
            )
        beside = SCRATCH if top.path.startswith(SCRATCH) else ""
        seconds = max(1.0, self.timeout_seconds - 5)
        done = await ctx.compute(
            sys.executable,
            "-I",
            "-S",
            "-c",
            _PROGRAM,
            _FOLDER,
            stdin=json.dumps(_request(args, top)).encode(),
            timeout=seconds,
            cwd=beside,
            limit=MAX_PRINTED,
        )
        items, end = _parse(done.stdout)
        for item in items:
            item["path"] = beside + item["path"]
        data = _data(items, end)
        text = "\n".join(_lines(items, args))
        if done.timed_out or "stuck" in end:
            lasted = f"{count_text(seconds, 'second')}"
            if "stuck" in end:
                lasted = f"{count_text(MAX_SECONDS, 'second')} in {beside}{end['stuck']}"
            error = ToolTimeout(
                f"The search was stopped after {lasted}",
                hint="Use a simpler pattern, or search a smaller directory.",
            )
            return ToolResult.failure(error, output=text, data={**data, "truncated": True})
        _raise_for(end, args, done)
        if end["truncated"]:
            what = "matches" if args.shows == "lines" else "files"
            shown = len(data["matches"] or data["matching_files"])
            text += f"\n[more than {shown} {what}: name a narrower path or pattern]"
        return ToolResult(True, text or _nothing(args.pattern, end["files"]), data)


def _request(args: SearchInput, top: Entry) -> dict[str, Any]:
    """What the program is asked for."""
    return {
        "pattern": args.pattern,
        "path": top.path.removeprefix(SCRATCH),
        "glob": args.file_pattern,
        "context": args.context,
        "show": args.shows,
        "skip": sorted(HEAVY | {".git"}),
        "max_matches": args.limit,
        "max_text": MAX_TEXT,
        "max_file": MAX_FILE,
        "space": MAX_PRINTED * 3 // 4,
        "seconds": MAX_SECONDS,
    }


def _data(items: Sequence[dict[str, Any]], end: dict[str, Any]) -> dict[str, Any]:
    """The fields of the result, from what the program printed."""
    matches = [item for item in items if "text" in item]
    files = [item for item in items if "count" in item]
    around = [
        {"path": item["path"], "line": item["line"], "text": item["around"]}
        for item in items
        if "around" in item
    ]
    ended: dict[str, Any] = {
        key: end[key] for key in ("files", "skipped", "truncated") if key in end
    }
    return {
        "matches": matches,
        "around": around,
        "matching_files": files,
        "count": len(matches) + sum(file["count"] for file in files),
        **ended,
    }


def _lines(items: Sequence[dict[str, Any]], args: SearchInput) -> Iterator[str]:
    """The lines of the answer; between stretches of lines that do not touch, `--`."""
    last = ("", 0)
    for item in items:
        path = item["path"]
        if "count" in item:
            yield f"{path}: {item['count']}" if args.count else path
            continue
        if args.context and last[1] and last != (path, item["line"] - 1):
            yield "--"
        last = (path, item["line"])
        sign = ":" if "text" in item else "-"
        yield f"{path}{sign}{item['line']}{sign} {item.get('text', item.get('around'))}"


def _nothing(pattern: str, files: int) -> str:
    """What is said where nothing matches, and how much was searched."""
    case = "" if pattern.startswith("(?i)") else "; with (?i) before it, case does not matter"
    return f"[no matches in {count_text(files, 'file')}{case}]"


def _raise_for(end: dict[str, Any], args: SearchInput, done: CommandResult) -> None:
    """Raise for what the program could not search."""
    if "invalid" in end:
        raise InvalidArguments(
            f"Invalid regular expression: {end['invalid']}",
            hint="Write a backslash before a special character that is meant as text.",
            details={"pattern": args.pattern[:500]},
        )
    if "moved" in end:
        raise InvalidPath(
            f"{args.path} was moved or replaced while it was opened: {end['moved']}",
            hint="List it and search again.",
        )
    if done.exit_code or "files" not in end:
        raise ExecutionFailed(
            f"The search failed: {decode(done.stderr)[-500:].strip() or done.exit_code}"
        )


def _parse(stdout: bytes) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What the program found, in its order, and what it said at its end, from lines of JSON."""
    items: list[dict[str, Any]] = []
    end: dict[str, Any] = {}
    for line in stdout.split(b"\n"):
        try:
            item = json.loads(line)
        except ValueError:
            continue  # the last line of a program that was killed
        if "path" in item:
            items.append(item)
        else:
            end = item
    return items, end
