"""read_file: a file, lines or bytes of it; of what is left out, the answer says where it begins."""

import hashlib
from base64 import b64encode
from codecs import getincrementaldecoder
from typing import Annotated, BinaryIO, Literal

from msgspec import Meta, Struct

from loom_audit.model.kinds import kind_of
from loom_audit.model.text.cutting import ends_of
from loom_audit.model.text.display import count_text
from loom_audit.model.text.merge import is_binary
from loom_audit.tools.bundled.text import Part, decode, read_bytes, read_part
from loom_audit.tools.calls.area import Entry
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.fields import Fields, Output
from loom_audit.tools.calls.result import MAX_OUTPUT, Image, ToolResult
from loom_audit.tools.calls.tool import Tool, one_thread

MEBIBYTE = 1024 * 1024
MAX_SHOWN = MAX_OUTPUT - 512
"""Bytes of a file that an answer has room for, beside what is said about them."""
MAX_IMAGE = 3_700_000
"""Bytes of a picture that is sent to a model: in base64 the vendors take 5 MB."""
MAX_HASHED = 256 * MEBIBYTE
"""Bytes of a binary that are hashed; more would not be done in the time a call has."""

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
    offset: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="First byte to read, from 0, instead of line_range"),
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

    def __post_init__(self) -> None:
        if self.line_range and self.line_range[0] > self.line_range[1]:
            raise ValueError("line_range ends before it begins")
        if self.line_range and self.in_bytes:
            raise ValueError("give line_range, or offset and limit, not both")

    @property
    def in_bytes(self) -> bool:
        """Whether bytes were asked for, not lines."""
        return self.offset is not None or self.limit is not None

    def read(self, stream: BinaryIO, entry: Entry) -> "FilePart":
        """Return the part that was asked for; of what is not text, the hash of the file too."""
        if self.in_bytes:
            most = min(self.limit or MAX_SHOWN, self.max_bytes)
            part = read_bytes(stream, self.offset or 0, most, entry.size)
        else:
            first, last = self.line_range or (1, None)
            part = read_part(stream, first, last, self.max_bytes)
        if self.encoding == "base64" or not is_binary(part.raw):
            return FilePart(entry, part)
        if entry.size > MAX_HASHED:
            return FilePart(entry, part, f"only of files up to {MAX_HASHED} bytes")
        stream.seek(0)
        hashed = hashlib.sha256()
        while chunk := stream.read(MEBIBYTE):
            hashed.update(chunk)
        return FilePart(entry, part, hashed.hexdigest())


class FilePart(Struct, frozen=True):
    """A part of a file; `digest` is the SHA-256 of one that is not text, or why there is none."""

    entry: Entry
    part: Part
    digest: str = ""


class ReadOutput(Output):
    """`truncated` when `output` or `content` is not all; `next_offset` is where the rest begins."""

    path: str
    content: str
    contents: str
    size: int
    modified: str
    truncated: bool
    encoding: Encoding
    offset: int
    next_offset: int | None


class ReadFile(Tool):
    """Reads a file, some of its lines or some of its bytes."""

    name = "read_file"
    description = (
        "Read a file, a range of its lines, or bytes of it from an offset. Text is UTF-8; of a "
        "binary file type, size and hash are given, and its bytes with encoding base64. Where an "
        "answer does not hold all, it says at which offset the rest begins."
    )
    input = ReadInput
    output = ReadOutput
    timeout_seconds = 10

    @one_thread
    async def execute(self, args: ReadInput, ctx: ToolContext) -> ToolResult:
        read = await ctx.open(args.path, args.read)
        entry, part = read.entry, read.part
        image: Image | None = None
        if args.encoding == "base64":
            content = b64encode(part.raw).decode("ascii")
            output, rest = _encoded(content, read)
        else:
            content = decode(part.raw, whole=not part.truncated)
            output, rest = _named(read) if read.digest else _shown(read)
            image = _image(read)
        if not part.raw and (args.line_range or args.in_bytes) and entry.size:
            has = f"{entry.size} bytes" if args.in_bytes else f"{count_text(part.lines, 'line')}"
            output = f"[nothing there: {args.path} has {has}]"
        data = {
            "path": entry.path,
            "content": content,
            "contents": content,
            "size": entry.size,
            "modified": entry.modified.isoformat(),
            "truncated": rest is not None or part.truncated,
            "encoding": args.encoding,
            "offset": part.start,
            "next_offset": rest,
        }
        return ToolResult(True, output, data, image=image)


def _shown(read: FilePart) -> tuple[str, int | None]:
    """The text, of a long one head and tail, and where what is left out begins."""
    part, size = read.part, read.entry.size
    raw = part.raw[_half_before(part.raw) if part.start else 0 :]
    start = part.start + len(part.raw) - len(raw)
    if part.truncated:
        raw = raw[: len(raw) - _half_behind(raw)]
    end = start + len(raw)
    more = f"\n[bytes {start} to {end} of {size}; offset {end} goes on]" if part.truncated else ""
    if len(raw) <= MAX_SHOWN:
        return decode(raw) + more, end if part.truncated else None
    behind, again = ends_of(raw, MAX_SHOWN * 3 // 4, MAX_SHOWN // 4)
    head, tail = decode(raw[:behind]), decode(raw[again:])
    begin, resumed = start + behind, start + again
    said = f"[… bytes {begin} to {resumed} of {size} are left out: offset {begin} goes on …]\n"
    return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{said}{tail}{more}", begin


def _half_before(raw: bytes) -> int:
    """Bytes at the beginning that belong to a character of UTF-8 that began before them."""
    return next((n for n, byte in enumerate(raw[:4]) if byte & 0xC0 != 0x80), 0)


def _half_behind(raw: bytes) -> int:
    """Bytes at the end of a character of UTF-8 that goes on behind them."""
    decoder = getincrementaldecoder("utf-8")("replace")
    decoder.decode(raw[-4:])
    return len(decoder.getstate()[0])


def _named(read: FilePart) -> tuple[str, int | None]:
    """What a binary file is, instead of signs that say nothing."""
    kind, size = kind_of(read.part.raw), read.entry.size
    said = f"[{kind.text}, {count_text(size, 'byte')}, SHA-256 {read.digest}; "
    return f"{said}encoding base64 gives its bytes]", None


def _encoded(content: str, read: FilePart) -> tuple[str, int | None]:
    """The base64, or that an answer does not hold it: half of it would be of no use."""
    part, size = read.part, read.entry.size
    end = part.start + len(part.raw)
    if len(content) > MAX_SHOWN:
        most = MAX_SHOWN * 3 // 4
        told = f"{count_text(len(part.raw), 'byte')} do not fit into an answer as base64"
        return (
            f"[{told}: read them in parts, with limit {most} and from offset {part.start}]",
            part.start,
        )
    if not part.truncated:
        return content, None
    return f"{content}\n[bytes {part.start} to {end} of {size}; offset {end} goes on]", end


def _image(read: FilePart) -> Image | None:
    """The picture, when all of one was read that a model can be sent."""
    raw = read.part.raw
    if not read.digest or len(raw) != read.entry.size or len(raw) > MAX_IMAGE:
        return None
    kind = kind_of(raw)
    return Image(kind.media, raw) if kind.is_shown(len(raw)) else None
