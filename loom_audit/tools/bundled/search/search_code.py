"""search_code: definitions by name and text by words, from an index kept up by the log."""

import re
from time import monotonic
from typing import Annotated, Any, Literal

from msgspec.structs import asdict
from pydantic import Field

from loom_audit.errors import ExecutionFailed, FileNotFound, InvalidArguments
from loom_audit.history.ground.code_index import read_code, update_code_listing
from loom_audit.model.text.display import count_text
from loom_audit.ports import FoundCode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool

SECONDS = 25.0
MAX_WORDS = 20


class CodeSearchInput(Arguments):
    query: Annotated[str, Field(description="Words, or a name", min_length=1, max_length=500)]
    kind: Annotated[
        Literal["symbol", "text", "any"], Field(description="Definitions, lines, or both")
    ] = "any"
    path: Annotated[str, Field(description="Directory to search in")] = "."
    limit: Annotated[int, Field(ge=1, le=100, description="Results at most")] = 20


class CodeMatch(Output):
    path: str
    line: int
    kind: str
    name: str
    snippet: str


class CodeSearchOutput(Output):
    """`point` is the seq of the log that was searched; `unread` files were not read yet."""

    matches: list[CodeMatch]
    count: int
    truncated: bool
    point: int
    unread: int


class SearchCode(Tool):
    """Finds definitions and lines by the code index."""

    name = "search_code"
    description = (
        "Find definitions (functions, classes, …) by name and text by words in the recorded "
        "files, the best match first. Words, not meanings: for patterns use search_files."
    )
    input = CodeSearchInput
    output = CodeSearchOutput
    timeout_seconds = 30

    async def execute(self, args: CodeSearchInput, ctx: ToolContext) -> ToolResult:
        assert ctx.writer is not None
        attachment, index = ctx.writer.attachment, ctx.writer.attachment.on_disk.code
        if index is None:
            raise ExecutionFailed("there is no code index here", hint="Use search_files.")
        words = re.findall(r"\w+", args.query)[:MAX_WORDS]
        if not words:
            raise InvalidArguments("query holds no word", hint="For signs use search_files.")
        below = attachment.on_disk.workspace.relative(args.path)
        if below and await ctx.in_thread(lambda: attachment.on_disk.workspace.stamp(below)) is None:
            raise FileNotFound(f"File not found: {args.path}")
        began = monotonic()
        await ctx.in_thread(lambda: update_code_listing(attachment.stored, index))
        while unread := await ctx.in_thread(lambda: read_code(attachment.stored, index)):
            if monotonic() - began > SECONDS:
                break
        found: list[FoundCode] = []
        if args.kind != "text":
            found += await ctx.in_thread(lambda: index.symbols(words, below, args.limit + 1))
        if args.kind != "symbol" and len(found) <= args.limit:
            lines = await ctx.in_thread(lambda: index.text(words, below, args.limit + 1))
            there = {(one.path, one.line) for one in found}
            found += [one for one in lines if (one.path, one.line) not in there]
        # each search was asked for one more, which tells whether there are more
        matches = [asdict(one) for one in found[: args.limit]]
        data: dict[str, Any] = {
            "matches": matches,
            "count": len(matches),
            "truncated": len(found) > args.limit,
            "point": index.head(),
            "unread": unread,
        }
        output = [
            f"{m['path']}:{m['line']}: [{m['kind']}{' ' + m['name'] if m['name'] else ''}] "
            f"{m['snippet']}"
            for m in matches
        ] or ["[no matches: search_files looks through the text of files]"]
        output += ["[there are more: raise limit, or name a path]"] if data["truncated"] else []
        output += (
            [f"[{count_text(unread, 'file')} still to be read: search again]"] if unread else []
        )
        return ToolResult(True, "\n".join(output), data)
