"""read_file: a file, lines or bytes of it; of what is left out, the answer says where it begins."""

import hashlib
from base64 import b64encode
from typing import Annotated, BinaryIO, Literal

from msgspec import Meta, Struct

from loom_audit.model.kinds import MOST_PIXELS, Kind, kind_of
from loom_audit.model.text.display import count_text
from loom_audit.model.text.merge import is_binary
from loom_audit.tools.bundled.files.shown import (
    MAX_SHOWN,
    MAX_TAIL,
    ShownLines,
    ShownText,
    shown_bytes,
    shown_ends,
    shown_page,
)
from loom_audit.tools.bundled.text import Excerpt, count_lines, decode, read_bytes, read_part
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.fields import Fields, Output
from loom_audit.tools.calls.places.area import Entry
from loom_audit.tools.calls.result import Image, ToolResult
from loom_audit.tools.calls.tool import Tool, one_thread

MEBIBYTE = 1024 * 1024
MAX_IMAGE = 3_700_000
"""Bytes of a picture that is sent to a model: in base64 the vendors take 5 MB."""
MAX_HASHED = 256 * MEBIBYTE
"""Bytes of a file that are hashed or counted; more would not be done in the time a call has."""

NonEmpty = Annotated[str, Meta(min_length=1)]
Path = Annotated[
    NonEmpty, Meta(description="Path relative to the workspace, or absolute inside it")
]
Encoding = Annotated[Literal["utf-8", "base64"], Meta(extra_json_schema={"type": "string"})]


class ReadInput(Fields):
    path: Path
    line_range: Annotated[
        Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=2, max_length=2)] | None,
        Meta(description="[first, last] line, from 1, both included"),
    ] = None
    line_offset: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="First line to read, from 1: goes on where an answer ended"),
    ] = None
    line_limit: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="How many lines to read from line_offset; what fits when left out"),
    ] = None
    offset: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="First byte to read, from 0, instead of lines"),
    ] = None
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=16 * MEBIBYTE)] | None,
        Meta(description=f"How many bytes to read from offset; {MAX_SHOWN} when left out"),
    ] = None
    max_bytes: Annotated[
        int, Meta(ge=1, le=16 * MEBIBYTE, description="Read at most so many bytes")
    ] = MEBIBYTE
    encoding: Annotated[
        Encoding, Meta(description="utf-8 (other bytes become U+FFFD), or base64 for exact bytes")
    ] = "utf-8"
    numbers: Annotated[
        bool, Meta(description="Show lines with their numbers, which are not in the file")
    ] = True

    def __post_init__(self) -> None:
        if self.line_range and self.line_range[0] > self.line_range[1]:
            raise ValueError("line_range ends before it begins")
        if sum((self.line_range is not None, self.in_lines, self.in_bytes)) > 1:
            raise ValueError(
                "give line_range, or line_offset and line_limit, or offset and limit in bytes, "
                "not several of them"
            )

    @property
    def in_bytes(self) -> bool:
        """Whether bytes were asked for, not lines."""
        return self.offset is not None or self.limit is not None

    @property
    def in_lines(self) -> bool:
        """Whether a page of lines was asked for."""
        return self.line_offset is not None or self.line_limit is not None

    @property
    def first_and_last(self) -> tuple[int, int | None]:
        """The lines that were asked for, from 1; None for the last of the file."""
        if self.line_range:
            return self.line_range[0], self.line_range[1]
        first = self.line_offset or 1
        return first, self.line_limit and first + self.line_limit - 1

    def read(self, stream: BinaryIO, entry: Entry) -> "FilePart":
        """Return the part that was asked for; of what is not text, the hash of the file too."""
        if self.in_bytes:
            most = min(self.limit or MAX_SHOWN, self.max_bytes)
            part = read_bytes(stream, self.offset or 0, most, entry.size)
        else:
            part = read_part(stream, *self.first_and_last, self.max_bytes)
        if self.encoding == "base64":
            return FilePart(entry, part)
        if not is_binary(part.raw):
            return FilePart(
                entry, part, None if self.in_bytes else self._lines(stream, entry, part)
            )
        if entry.size > MAX_HASHED:
            return FilePart(entry, part, digest=f"only of files up to {MAX_HASHED} bytes")
        stream.seek(0)
        hashed, picture = hashlib.sha256(), b""
        while chunk := stream.read(MEBIBYTE):
            hashed.update(chunk)
            picture += chunk if entry.size <= MAX_IMAGE and not self.in_bytes else b""
        return FilePart(entry, part, digest=hashed.hexdigest(), picture=picture)

    def _lines(self, stream: BinaryIO, entry: Entry, part: Excerpt) -> ShownLines:
        """What is to be shown of lines; of a file that is too long, its end and count too."""
        first, last = self.first_and_last
        lines = ShownLines(part, entry.size, first, self.numbers)
        is_cut = part.truncated or not lines.fit
        ends = part.start + len(part.raw) >= entry.size
        if not is_cut and (ends or not self.in_lines):
            return lines
        total, tail = 0, b""
        if entry.size <= MAX_HASHED:
            total = count_lines(stream)
        if part.truncated and last is None and not lines.fit:
            stream.seek(max(0, entry.size - MAX_TAIL - 1))
            tail = stream.read()
        return ShownLines(part, entry.size, first, self.numbers, total, tail)


class FilePart(Struct, frozen=True):
    """A part of a file; `lines` where it is text that was asked for in lines.

    `digest` is the SHA-256 of a file that is not text, or why there is none, and `picture` all of
    one that may be a picture for a model.
    """

    entry: Entry
    part: Excerpt
    lines: ShownLines | None = None
    digest: str = ""
    picture: bytes = b""

    @property
    def image(self) -> Image | None:
        """The picture, when it is one that a model can be sent."""
        kind = kind_of(self.picture)
        return Image(kind.media, self.picture) if kind.is_shown(len(self.picture)) else None


class ReadOutput(Output):
    """`truncated` when `content` is not all that was asked for.

    What the answer leaves out begins at `next_offset`, a byte, and with `next_line`, which is null
    inside a line.
    """

    path: str
    content: str
    contents: str
    size: int
    modified: str
    truncated: bool
    encoding: Encoding
    offset: int
    next_offset: int | None
    next_line: int | None


class ReadFile(Tool):
    """Reads a file, some of its lines or some of its bytes."""

    name = "read_file"
    description = (
        "Read a file, some of its lines, or bytes of it from an offset. Lines are shown with their "
        "numbers, which are not part of the file. Of a binary file type, size and hash are given, "
        "and its bytes with encoding base64. Where an answer does not hold all, it says where to "
        "go on."
    )
    input = ReadInput
    output = ReadOutput
    timeout_seconds = 10

    @one_thread
    async def execute(self, args: ReadInput, ctx: ToolContext) -> ToolResult:
        read = await ctx.open(args.path, args.read)
        entry, part, image = read.entry, read.part, None
        if args.encoding == "base64":
            content = b64encode(part.raw).decode("ascii")
            shown = _encoded(content, read)
        else:
            content = decode(part.raw, whole=not part.truncated)
            image = read.image if read.digest else None
            shown = _named(read, image) if read.digest else _shown(read, args)
        text = _nothing(read, args) if not part.raw else shown.text + _line_ends(read, args)
        data = {
            "path": entry.path,
            "content": content,
            "contents": content,
            "size": entry.size,
            "modified": entry.modified.isoformat(),
            "truncated": part.truncated,
            "encoding": args.encoding,
            "offset": part.start,
            "next_offset": shown.next_offset,
            "next_line": shown.next_line,
        }
        return ToolResult(True, text, data, image=image, message_truncated=not shown.whole)


def _nothing(read: FilePart, args: ReadInput) -> str:
    """What is said where no byte was read: the file is empty, or ends before."""
    if not read.entry.size:
        return "[the file is empty]"
    part = read.part
    has = f"{read.entry.size} bytes" if args.in_bytes else count_text(part.lines, "line")
    return f"[nothing there: {args.path} has {has}]"


def _shown(read: FilePart, args: ReadInput) -> ShownText:
    """The text that was asked for, as far as an answer has room for it."""
    lines = read.lines
    if lines is None:
        return shown_bytes(read.part, read.entry.size)
    if not args.in_lines and not lines.fit and (lines.tail or not read.part.truncated):
        return shown_ends(lines)
    if args.in_lines or read.part.truncated:
        return shown_page(lines)
    return lines.whole


def _line_ends(read: FilePart, args: ReadInput) -> str:
    """A note that lines end with CRLF, which is not to be seen; "" where they do not."""
    raw = read.part.raw
    if read.lines is None or not args.numbers or b"\r\n" not in raw:
        return ""
    all_do = raw.count(b"\r\n") == raw.count(b"\n")
    said = "the lines end with CRLF" if all_do else "some lines end with CRLF, some with LF"
    return f"[{said}]" if raw.endswith(b"\n") else f"\n[{said}]"


def _named(read: FilePart, image: Image | None) -> ShownText:
    """What a binary file is, instead of signs that say nothing, and what to do for more."""
    kind, size = kind_of(read.picture or read.part.raw), read.entry.size
    said = f"[{kind.text}, {count_text(size, 'byte')}, SHA-256 {read.digest}; "
    return ShownText(f"{said}{_way_on(kind, size, image)}]")


def _way_on(kind: Kind, size: int, image: Image | None) -> str:
    if image is not None:
        return "it goes with this answer to a model that takes pictures"
    if kind.is_shown(size) and size <= MAX_IMAGE:
        return "read without offset and limit it is shown to a model that takes pictures"
    if kind.media:
        most = f"{MAX_IMAGE} bytes and {MOST_PIXELS} pixels"
        return f"too large to be shown, which takes at most {most}: make a smaller copy of it"
    at_once = MAX_SHOWN * 3 // 4
    if size <= at_once:
        return "encoding base64 gives its bytes"
    return f"encoding base64 gives its bytes, {at_once} at a time, with offset and limit"


def _encoded(content: str, read: FilePart) -> ShownText:
    """The base64, or that an answer does not hold it: half of it would be of no use."""
    part, size = read.part, read.entry.size
    end = part.start + len(part.raw)
    if len(content) > MAX_SHOWN:
        most = MAX_SHOWN * 3 // 4
        told = f"{count_text(len(part.raw), 'byte')} do not fit into an answer as base64"
        return ShownText(
            f"[{told}: read them in parts, with limit {most} and from offset {part.start}]",
            part.start,
            whole=False,
        )
    if not part.truncated:
        return ShownText(content)
    said = f"[bytes {part.start} to {end} of {size}; offset {end} goes on]"
    return ShownText(f"{content}\n{said}", end)
