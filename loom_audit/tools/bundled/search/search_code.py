"""search_code: definitions by name and text by words, from an index kept up by the log."""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile, zip_longest
from time import monotonic
from typing import Annotated, Any, Literal

from msgspec.structs import asdict
from pydantic import Field

from loom_audit.errors import ExecutionFailed, InvalidArguments
from loom_audit.history.ground.code_index import read_code, update_code_listing
from loom_audit.model.text.display import count_text
from loom_audit.ports import CodeIndex, FoundCode
from loom_audit.tools.bundled.text import encode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import LIMIT_NAMES, Tool

SECONDS = 25.0
MAX_WORDS = 20
MIN_LETTERS = 3
"""The number of letters of a word, where one word is enough: shorter ones stand everywhere."""
MAX_OFFSET = 1_000


class CodeSearchInput(Arguments):
    query: Annotated[str, Field(description="Words, or a name", min_length=1, max_length=500)]
    kind: Annotated[
        Literal["symbol", "text", "any"], Field(description="Definitions, lines, or both")
    ] = "any"
    path: Annotated[str, Field(description="Directory to search in")] = "."
    limit: Annotated[int, Field(ge=1, le=100, description="Results at most")] = 20
    offset: Annotated[
        int, Field(ge=0, le=MAX_OFFSET, description="Results to leave out, for the next page")
    ] = 0


class CodeMatch(Output):
    path: str
    line: int
    kind: str
    name: str
    snippet: str


class CodeSearchOutput(Output):
    """`point` is the seq of the log that was searched; `unread` files were not read yet.

    `next_offset` is where the next page begins, None when this is the last one.
    """

    matches: list[CodeMatch]
    count: int
    truncated: bool
    next_offset: int | None
    point: int
    unread: int


class SearchCode(Tool):
    """Finds definitions and lines by the code index."""

    name = "search_code"
    description = (
        "Find definitions (functions, classes, …) by name and text by words in the recorded "
        "files: what holds all the words first, then what holds some. Words, not meanings: for "
        "patterns use search_files."
    )
    input = CodeSearchInput
    output = CodeSearchOutput
    timeout_seconds = 30
    other_names = LIMIT_NAMES

    async def execute(self, args: CodeSearchInput, ctx: ToolContext) -> ToolResult:
        attachment = ctx.open_writer.attachment
        index = attachment.on_disk.code
        if index is None:
            raise ExecutionFailed("there is no code index here", hint="Use search_files.")
        encode(args.query, "query")
        words = re.findall(r"\w+", args.query)[:MAX_WORDS]
        if not words:
            raise InvalidArguments("query holds no word", hint="For signs use search_files.")
        below = attachment.on_disk.workspace.relative(args.path)
        if below and not await ctx.in_thread(lambda: ctx.exists(below)):
            raise await ctx.missing(args.path)
        began = monotonic()
        await ctx.in_thread(lambda: update_code_listing(attachment.stored, index))
        while unread := await ctx.in_thread(lambda: read_code(attachment.stored, index)):
            if monotonic() - began > SECONDS:
                break
        # one more than is given tells whether there are more
        most = args.offset + args.limit + 1
        found, whole = await ctx.in_thread(lambda: _results(index, words, below, args.kind, most))
        matches = [asdict(one) for one in found[args.offset : most - 1]]
        following = args.offset + len(matches) if len(found) >= most else None
        data: dict[str, Any] = {
            "matches": matches,
            "count": len(matches),
            "truncated": following is not None,
            "next_offset": following,
            "point": index.head(),
            "unread": unread,
        }
        output = [
            f"{m['path']}:{m['line']}: [{m['kind']}{' ' + m['name'] if m['name'] else ''}] "
            f"{m['snippet']}"
            for m in matches
        ]
        if not matches:
            last = f"[the results end before offset {args.offset}]"
            nothing = "[no matches: search_files looks through the text of files]"
            output = [last if args.offset and found else nothing]
        elif args.offset + len(matches) > whole:
            first = max(whole - args.offset, 0)
            output.insert(first, "[these hold some of the words:]")
        if following is not None:
            output.append(f"[there are more: offset {following} gives the next]")
        if unread:
            output.append(f"[{count_text(unread, 'file')} still to be read: search again]")
        return ToolResult(True, "\n".join(output), data)


def _results(
    index: CodeIndex, words: Sequence[str], below: str, kind: str, most: int
) -> tuple[list[FoundCode], int]:
    """At most `most` results, the best first, and how many of them hold all the words."""
    found: dict[tuple[str, int], FoundCode] = {}
    whole = 0
    for some in (False, True) if len(words) > 1 else (False,):
        if some:
            words = [word for word in words if len(word) >= MIN_LETTERS] or words
        if len(found) < most:
            symbols = index.symbols(words, below, most, some=some) if kind != "text" else ()
            lines = index.text(words, below, most, some=some) if kind != "symbol" else ()
            for one in _in_turn(symbols, lines, words) if some else (*symbols, *lines):
                found.setdefault((one.path, one.line), one)
        whole = whole if some else len(found)
    return [*found.values()][:most], min(whole, most)


def _in_turn(
    symbols: Sequence[FoundCode], lines: Sequence[FoundCode], words: Sequence[str]
) -> Iterator[FoundCode]:
    """What holds some of the words: first the definitions whose names have half of their letters.

    Then a definition and a line in turn: a line may hold more of the words than any name does.
    """
    defined = {(one.path, one.line): one for one in symbols}
    half = sum(map(len, words)) / 2
    close = [*takewhile(lambda one: _letters(one.name, words) >= half, symbols)]
    yield from close
    for line, symbol in zip_longest(lines, symbols[len(close) :]):
        if symbol is not None:
            yield symbol
        if line is not None:
            yield defined.get((line.path, line.line), line)


def _letters(name: str, words: Sequence[str]) -> int:
    """How many letters the words have that a name holds."""
    lowered = name.lower()
    return sum(len(word) for word in words if word.lower() in lowered)
