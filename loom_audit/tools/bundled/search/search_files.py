"""Search by regular expression, in a process of its own: a pattern may run for ever."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from loom_audit.errors import ExecutionFailed, InvalidArguments, InvalidPath, ToolTimeout
from loom_audit.model.scope import HEAVY
from loom_audit.model.text.display import count_text
from loom_audit.tools.bundled.text import decode
from loom_audit.tools.calls.area import SCRATCH
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool

MAX_MATCHES = 1_000
MAX_TEXT = 300
MAX_FILE = 16 * 1024 * 1024
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


class Match(Output):
    path: str
    line: int
    text: str


class SearchOutput(Output):
    """`files` were searched; `skipped` are binary or too large."""

    matches: list[Match]
    count: int
    files: int
    skipped: int
    truncated: bool


class SearchFiles(Tool):
    """Searches files by a regular expression, in a process that can be killed."""

    name = "search_files"
    description = (
        "Search files line by line for a regular expression, as of Python's re; gives "
        "`path:line: text`, sorted, at most 1000. Skips binary files, files over 16 MiB, "
        "symlinks and folders like .git, node_modules and .venv."
    )
    input = SearchInput
    output = SearchOutput
    timeout_seconds = 30

    async def execute(self, args: SearchInput, ctx: ToolContext) -> ToolResult:
        top = await ctx.stat(args.path)
        if top.type not in ("file", "directory"):
            raise InvalidPath(
                f"{args.path} is neither a file nor a directory",
                hint="Name a file or a directory.",
            )
        beside = SCRATCH if top.path.startswith(SCRATCH) else ""
        request = {
            "pattern": args.pattern,
            "path": top.path.removeprefix(SCRATCH),
            "glob": args.file_pattern,
            "skip": sorted(HEAVY | {".git"}),
            "max_matches": MAX_MATCHES,
            "max_text": MAX_TEXT,
            "max_file": MAX_FILE,
            "seconds": MAX_SECONDS,
        }
        seconds = max(1.0, self.timeout_seconds - 5)
        done = await ctx.compute(
            sys.executable,
            "-I",
            "-S",
            "-c",
            _PROGRAM,
            _FOLDER,
            stdin=json.dumps(request).encode(),
            timeout=seconds,
            cwd=beside,
            limit=4 * 1024 * 1024,
        )
        matches, end = _parse(done.stdout)
        for match in matches:
            match["path"] = beside + match["path"]
        ended: dict[str, Any] = {
            key: end[key] for key in ("files", "skipped", "truncated") if key in end
        }
        data: dict[str, Any] = {"matches": matches, "count": len(matches), **ended}
        text = "\n".join(f"{m['path']}:{m['line']}: {m['text']}" for m in matches)
        if done.timed_out or "stuck" in end:
            lasted = f"{count_text(seconds, 'second')}"
            if "stuck" in end:
                lasted = f"{count_text(MAX_SECONDS, 'second')} in {beside}{end['stuck']}"
            error = ToolTimeout(
                f"The search was stopped after {lasted}",
                hint="Use a simpler pattern, or search a smaller directory.",
            )
            return ToolResult.failure(error, output=text, data={**data, "truncated": True})
        _raise_for(end, args)
        if done.exit_code or "files" not in end:
            raise ExecutionFailed(
                f"The search failed: {decode(done.stderr)[-500:].strip() or done.exit_code}"
            )
        if end["truncated"]:
            text += f"\n[more than {MAX_MATCHES} matches: name a narrower path or pattern]"
        return ToolResult(True, text or _nothing(args.pattern, end["files"]), data)


def _nothing(pattern: str, files: int) -> str:
    """What is said where nothing matches, and how much was searched."""
    case = "" if pattern.startswith("(?i)") else "; with (?i) before it, case does not matter"
    return f"[no matches in {count_text(files, 'file')}{case}]"


def _raise_for(end: dict[str, Any], args: SearchInput) -> None:
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


def _parse(stdout: bytes) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The matches, and what the program said at its end, from its lines of JSON."""
    matches: list[dict[str, Any]] = []
    end: dict[str, Any] = {}
    for line in stdout.split(b"\n"):
        try:
            item = json.loads(line)
        except ValueError:
            continue  # the last line of a program that was killed
        if "path" in item:
            matches.append(item)
        else:
            end = item
    return matches, end
