"""Packs that a mirror of objects makes of many small ones, each of which was checked by its hash.

As files of their own a hundred thousand objects take as many blocks and names. The format is that
of gitformat-pack(5), version 2, without deltas.
"""

import hashlib
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

OWN = "own-"
"""What the names of these packs begin with."""

KINDS: Mapping[bytes, int] = {b"commit": 1, b"tree": 2, b"blob": 3, b"tag": 4}

_HEADER = struct.Struct(">4sII")
_INDEX_HEADER = b"\377tOc" + struct.pack(">I", 2)
_FANOUT = struct.Struct(">256I")
_PIECE = 1 << 20

_SMALL = 512
_STORED = b"\x78\x01\x01"
"""The header of zlib, and that of a last block that is stored."""
_SIZES, _SUM = struct.Struct("<HH"), struct.Struct(">I")


def new_hash(*, long_ids: bool) -> "hashlib._Hash":
    """The hash by which objects of this length of id are named."""
    return hashlib.sha256() if long_ids else hashlib.sha1(usedforsecurity=False)


class PackWriter:
    """Writes a pack into an open file; `size` is how many bytes it has."""

    def __init__(self, file: BinaryIO, *, long_ids: bool) -> None:
        self._file = file
        self._long_ids = long_ids
        self._entries: list[tuple[bytes, int, int]] = []
        self.size = file.write(_HEADER.pack(b"PACK", 2, 0))

    @property
    def count(self) -> int:
        """How many objects it has."""
        return len(self._entries)

    def add(self, id: str, kind: int, body: bytes) -> None:
        """Write an object that is in no pack of this writer yet."""
        rest, head = len(body) >> 4, bytearray([kind << 4 | len(body) & 0xF])
        while rest:
            head[-1] |= 0x80
            head.append(rest & 0x7F)
            rest >>= 7
        written = bytes(head) + _deflated(body)
        self._entries.append((bytes.fromhex(id), zlib.crc32(written), self.size))
        self.size += self._file.write(written)

    def finish(self) -> bytes:
        """End the pack, and return the content of its index."""
        self._file.seek(0)
        self._file.write(_HEADER.pack(b"PACK", 2, len(self._entries)))
        self._file.seek(0)
        made = new_hash(long_ids=self._long_ids)
        while piece := self._file.read(_PIECE):
            made.update(piece)
        self._file.write(made.digest())
        self._file.flush()
        entries = sorted(self._entries)
        counts = [0] * 256
        for id, _, _ in entries:
            counts[id[0]] += 1
        sums = [sum(counts[: n + 1]) for n in range(256)]
        index = _INDEX_HEADER + _FANOUT.pack(*sums) + b"".join(id for id, _, _ in entries)
        index += b"".join(struct.pack(">I", one) for _, one, _ in entries)
        index += b"".join(struct.pack(">I", at) for _, _, at in entries) + made.digest()
        made = new_hash(long_ids=self._long_ids)
        made.update(index)
        return index + made.digest()


def _deflated(body: bytes) -> bytes:
    """A content as zlib has it (RFC 1950); of a small one the bytes as they are (RFC 1951, 3.2.4),
    since to begin to deflate takes longer than all else that is done with it.
    """
    size = len(body)
    if size > _SMALL:
        return zlib.compress(body, 1)
    return _STORED + _SIZES.pack(size, size ^ 0xFFFF) + body + _SUM.pack(zlib.adler32(body))


class PackIndex:
    """The index of a pack in a mirror, which was made there; `size` is the bytes of an id."""

    def __init__(self, path: Path, size: int) -> None:
        """Open it. OSError."""
        self._file = path.open("rb", buffering=0)
        self._size = size
        read = os.pread(self._file.fileno(), _FANOUT.size, len(_INDEX_HEADER))
        self._sums: tuple[int, ...] = (0, *_FANOUT.unpack(read))

    def __enter__(self) -> "PackIndex":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def count(self) -> int:
        """How many objects are in the pack."""
        return self._sums[-1]

    def ids(self, first: int) -> set[str]:
        """The ids whose first byte is this one. OSError."""
        begin, end, length = self._sums[first], self._sums[first + 1], 2 * self._size
        at = len(_INDEX_HEADER) + _FANOUT.size + begin * self._size
        names = os.pread(self._file.fileno(), (end - begin) * self._size, at).hex()
        return {names[n : n + length] for n in range(0, len(names), length)}

    def is_within(self, other: "PackIndex") -> bool:
        """Whether the other pack has all objects of this one. OSError."""
        return self.count <= other.count and all(
            self.ids(first) <= other.ids(first) for first in range(256)
        )


def ids_in(folder: Path, prefix: str, length: int) -> set[str]:
    """The ids in the packs of a mirror's folder that begin with two hex digits. OSError."""
    found: set[str] = set()
    for path in folder.glob("*.idx"):
        with PackIndex(path, length // 2) as index:
            found |= index.ids(int(prefix, 16))
    return found
