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

    def add(self, id: str, kind: int, body: bytes) -> None:
        """Write an object that is in no pack of this writer yet."""
        rest, head = len(body) >> 4, bytearray([kind << 4 | len(body) & 0xF])
        while rest:
            head[-1] |= 0x80
            head.append(rest & 0x7F)
            rest >>= 7
        written = bytes(head) + zlib.compress(body, 1)
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


def ids_in(folder: Path, prefix: str, length: int) -> set[str]:
    """The ids in the packs of ours in a folder that begin with two hex digits. OSError."""
    found: set[str] = set()
    first, size = int(prefix, 16), length // 2
    for path in folder.glob(f"{OWN}*.idx"):
        with path.open("rb", buffering=0) as file:
            sums = (0, *_FANOUT.unpack(os.pread(file.fileno(), _FANOUT.size, len(_INDEX_HEADER))))
            begin, end = sums[first], sums[first + 1]
            at = len(_INDEX_HEADER) + _FANOUT.size + begin * size
            names = os.pread(file.fileno(), (end - begin) * size, at).hex()
        found.update(names[n : n + length] for n in range(0, len(names), length))
    return found
