"""Rows from the pages of a database file, one page at a time, where its trees are broken.

A page says itself what its cells are, so rows come out whatever became of the pages above: see
https://www.sqlite.org/fileformat.html, sections 1.5 (freelist), 1.6 (b-tree pages), 2.1
(records) and 4.1 (write-ahead log). SQLite's own recovery extension is in no driver for Python.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, BinaryIO, Literal, NamedTuple

Tree = Literal["index", "table"]
"""Which kind of b-tree a row is from; tables without a rowid are of the kind `index`."""

_MAGIC = b"SQLite format 3\x00"
_WAL_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_WAL_HEADER, _FRAME_HEADER = 32, 24
_PAGE_SIZE = 4096
_CELLS_AT = {0x02: 12, 0x0A: 8, 0x0D: 8}
"""Bytes of the header of each kind of page that holds rows."""

_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
_MAX_ROW = 1 << 30


class PageRow(NamedTuple):
    """A row as its cell holds it: `rowid` is None in a tree of the kind `index`."""

    tree: Tree
    rowid: int | None
    values: tuple[Any, ...]


class _Broken(Exception):
    """The bytes of a cell are not what the format says of cells."""


@dataclass(slots=True)
class DatabasePages:
    """The pages of a database as of the last commit in its write-ahead log. A context manager.

    `broken` counts cells that could not be read. OSError when the file cannot be.
    """

    path: str
    size: int = _PAGE_SIZE
    broken: int = 0
    _file: BinaryIO = field(init=False)
    _wal: BinaryIO | None = None
    _frames: dict[int, int] = field(default_factory=dict)
    _closing: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "DatabasePages":
        self._file = self._closing.enter_context(open(self.path, "rb", buffering=0))
        header = self._file.read(100)
        if header[:16] == _MAGIC:
            self.size = _page_size(header[16:18])
        if os.path.exists(self.path + "-wal"):
            self._wal = self._closing.enter_context(open(self.path + "-wal", "rb", buffering=0))
            self._read_wal(self._wal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._closing.close()

    def rows(self) -> Iterator[PageRow]:
        """Every row of every page that is in use, in the order of pages."""
        count = max([os.fstat(self._file.fileno()).st_size // self.size, *self._frames])
        unused = self._unused()
        for number in range(2, count + 1):
            if number not in unused:
                yield from self._rows_of(self._page(number))

    def _read_wal(self, wal: BinaryIO) -> None:
        """Where the newest committed version of each page is."""
        header = wal.read(_WAL_HEADER)
        if header[:4] not in _WAL_MAGIC:
            return
        self.size = _page_size(header[8:12])
        salts = header[16:24]
        waiting: dict[int, int] = {}
        at = _WAL_HEADER
        while len(frame := os.pread(wal.fileno(), _FRAME_HEADER, at)) == _FRAME_HEADER:
            if frame[8:16] != salts:
                return
            waiting[int.from_bytes(frame[:4], "big")] = at + _FRAME_HEADER
            if frame[4:8] != bytes(4):
                self._frames |= waiting
                waiting = {}
            at += _FRAME_HEADER + self.size

    def _page(self, number: int) -> bytes:
        """A page; empty when it cannot be read."""
        try:
            if self._wal is not None and number in self._frames:
                return os.pread(self._wal.fileno(), self.size, self._frames[number])
            return os.pread(self._file.fileno(), self.size, (number - 1) * self.size)
        except OSError:
            self.broken += 1
            return b""

    def _unused(self) -> set[int]:
        """The pages on the freelist, where what was erased may lie; none when it is lost."""
        unused: set[int] = set()
        first = self._page(1)
        trunk = int.from_bytes(first[32:36], "big") if first[:16] == _MAGIC else 0
        while trunk and trunk not in unused:
            unused.add(trunk)
            page = self._page(trunk)
            count = min(int.from_bytes(page[4:8], "big"), self.size // 4 - 2)
            unused |= {int.from_bytes(page[8 + 4 * n :][:4], "big") for n in range(count)}
            trunk = int.from_bytes(page[:4], "big")
        return unused

    # --- cells ----------------------------------------------------------------------------

    def _rows_of(self, page: bytes) -> Iterator[PageRow]:
        kind = page[0] if len(page) == self.size else 0
        start = _CELLS_AT.get(kind)
        if start is None:
            return
        cells = int.from_bytes(page[3:5], "big")
        if not 0 < cells <= self.size // 4:
            return
        for n in range(cells):
            pointer = start + 2 * n
            at = int.from_bytes(page[pointer : pointer + 2], "big")
            try:
                yield self._row(kind, page, at)
            except (_Broken, IndexError):
                self.broken += 1

    def _row(self, kind: int, page: bytes, at: int) -> PageRow:
        if kind == 0x02:
            at += 4
        size, at = _varint(page, at)
        rowid = None
        if kind == 0x0D:
            rowid, at = _varint(page, at)
        record = self._payload(page, at, size, table=kind == 0x0D)
        return PageRow("table" if kind == 0x0D else "index", rowid, _values(record))

    def _payload(self, page: bytes, at: int, size: int, *, table: bool) -> bytes:
        """A cell's payload, with what of it lies on overflow pages."""
        usable = self.size
        most = usable - 35 if table else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return page[at : at + size]
        if size > _MAX_ROW:
            raise _Broken
        least = (usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (usable - 4)
        local = local if local <= most else least
        parts = [page[at : at + local]]
        left = size - local
        following = int.from_bytes(page[at + local : at + local + 4], "big")
        while left > 0:
            more = self._page(following) if following else b""
            if len(more) != usable:
                raise _Broken
            parts.append(more[4 : 4 + left])
            left -= usable - 4
            following = int.from_bytes(more[:4], "big")
        return b"".join(parts)


def _page_size(said: bytes) -> int:
    size = int.from_bytes(said, "big")
    size = 1 << 16 if size == 1 else size
    return size if size.bit_count() == 1 and 512 <= size <= 1 << 16 else _PAGE_SIZE


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint of SQLite's, big-endian, at most nine bytes, and where it ends."""
    value = 0
    for n in range(8):
        byte = data[at + n]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + n + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64 if value >> 63 else 0), at + 9


def _values(record: bytes) -> tuple[Any, ...]:
    """The columns of a record (section 2.1)."""
    end, at = _varint(record, 0)
    place = end
    values: list[Any] = []
    while at < end:
        code, at = _varint(record, at)
        if code in (8, 9):
            values.append(code - 8)
            continue
        size = (code - 12) // 2 if code >= 12 else 8 if code == 7 else _size_of_integer(code)
        part = record[place : place + size]
        if len(part) != size:
            raise _Broken
        place += size
        values.append(_value(code, part))
    if place != len(record):
        raise _Broken
    return tuple(values)


def _size_of_integer(code: int) -> int:
    if not 0 <= code < len(_INTEGER_BYTES):
        raise _Broken
    return _INTEGER_BYTES[code]


def _value(code: int, part: bytes) -> Any:
    if code == 0:
        return None
    if code >= 12:
        return part.decode("utf-8", "replace") if code % 2 else part
    # a float (7) is in no row of ours: its bits do as well
    return int.from_bytes(part, "big", signed=True)
