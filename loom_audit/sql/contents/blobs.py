"""Contents in the store: staged in memory, and written with the next event's transaction."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from io import BytesIO
from typing import BinaryIO

from loom_audit.errors import Corrupt, InvalidArguments, NotFound
from loom_audit.model.files import BlobId
from loom_audit.sql.contents import blob_rows
from loom_audit.sql.contents.blob_rows import NO_BLOBS, StoredBlob, load_with_bases
from loom_audit.sql.contents.encodings import (
    MAX_DELTA,
    compress,
    compress_delta,
    compressor,
    decompress,
)
from loom_audit.sql.contents.large_objects import CHUNK, LargeObjects
from loom_audit.sql.ground.connections import Connections

INLINE_BYTES = 256 * 1024
"""Most stored bytes that lie in a row; more become a file."""

CACHE_BYTES = 32 * 1024 * 1024
_CACHE_ROW = 256
"""What a content takes in the cache beside its bytes."""

MIN_BASE = 64
"""Shortest content that another is stored against."""

_CLEARLY_SMALLER = 8
"""A delta this many times shorter than its content is taken without trying plain zstd."""

MAX_CHAIN = 64
RADIX = 16


class SqlBlobStore:
    """Contents in a store's database, and beside it where they are large.

    A new version of a content is kept as a delta against an earlier one of its line, as
    `base_version` says. A content that was put and was durable already is not looked up again until
    the next append.
    """

    def __init__(self, connections: Connections, folder: str) -> None:
        self._connections = connections
        self._large = LargeObjects(folder)
        self._lock = threading.RLock()
        self._packer = compressor()
        self._staged: dict[bytes, StoredBlob] = {}
        self._put_again: dict[bytes, StoredBlob] = {}
        self._pending = 0
        self._cache: OrderedDict[bytes, bytes] = OrderedDict()
        self._cached_bytes = 0

    # --- the port -------------------------------------------------------------------------

    def put(self, content: bytes | BinaryIO, *, similar_to: BlobId | None = None) -> BlobId:
        """Keep the content until the next append makes it durable; a large one at once."""
        head, rest = _read_head(content)
        if rest is not None:
            digest, size, stored = self._large.write(_chunks(head, rest))
            if self._find(digest) is None:
                self._stage(StoredBlob(digest, size, stored, "zstd", large=True))
            return BlobId(digest.hex())
        digest = sha256(head).digest()
        known = self._find(digest)
        if known is None:
            self._stage(self._encode(digest, head, similar_to))
        else:
            self._put_again[digest] = known
        self._cache_put(digest, head)
        return BlobId(digest.hex())

    def get(self, blob: BlobId) -> bytes:
        """The whole content, checked against its hash. NotFound, Corrupt."""
        digest = _digest(blob)
        row = self._row(digest)
        if row.large:
            with self._large.open(digest, row.size) as stream:
                return stream.read()
        return self._read(row)

    def get_many(self, blobs: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """The contents that lie in rows, durable and whole, by a few statements for all."""
        links = load_with_bases(self._connections, [_digest(blob) for blob in blobs])
        found = {}
        for blob in blobs:
            row = links.get(bytes.fromhex(blob))
            if row is not None and not row.large:
                with suppress(Corrupt, NotFound):  # `get` says which
                    found[blob] = self._read(row, links)
        return found

    def open(self, blob: BlobId) -> BinaryIO:
        """The content as a stream; a large one is checked at its end. NotFound, Corrupt."""
        digest = _digest(blob)
        row = self._row(digest)
        return self._large.open(digest, row.size) if row.large else BytesIO(self.get(blob))

    def __contains__(self, blob: object) -> bool:
        if not isinstance(blob, str):
            return False
        return self._find(_digest(BlobId(blob))) is not None

    def missing(self, blobs: Iterable[BlobId]) -> set[BlobId]:
        """The blobs whose content is neither staged nor durable."""
        wanted = {_digest(blob): blob for blob in blobs}
        with self._lock:
            rest = sorted(wanted.keys() - self._staged.keys())
        found = blob_rows.present(self._connections, rest)
        return {wanted[digest] for digest in rest if digest not in found}

    def size(self, blob: BlobId) -> int:
        """Bytes of the content. NotFound when it is not stored."""
        return self._row(_digest(blob)).size

    def pending_bytes(self) -> int:
        """Stored bytes that wait in memory for the next append."""
        return self._pending

    # --- for the log's transaction --------------------------------------------------------

    def staged(self) -> tuple[StoredBlob, ...]:
        """The contents that wait to be written, bases before the deltas against them."""
        with self._lock:
            return tuple(self._staged.values())

    def forget_staged(self, written: Sequence[StoredBlob]) -> None:
        """Let go of contents that are durable now."""
        with self._lock:
            self._put_again.clear()
            for row in written:
                if self._staged.pop(row.sha256, None) is not None:
                    self._pending -= len(row.content or b"")

    # --- storing --------------------------------------------------------------------------

    def _stage(self, row: StoredBlob) -> None:
        with self._lock:
            if row.sha256 not in self._staged:
                self._staged[row.sha256] = row
                self._pending += len(row.content or b"")

    def _encode(self, digest: bytes, content: bytes, similar_to: BlobId | None) -> StoredBlob:
        base = self._base(similar_to) if similar_to and len(content) >= MIN_BASE else None
        if base is not None:
            against, old, version = base
            delta = compress_delta(content, old)
            small = len(delta) <= INLINE_BYTES
            if small and len(delta) * _CLEARLY_SMALLER < len(content):
                return _delta_row(digest, content, delta, against, version)
            encoding, packed = compress(content, self._packer)
            if small and len(delta) < len(packed):
                return _delta_row(digest, content, delta, against, version)
        else:
            encoding, packed = compress(content, self._packer)
        if len(packed) > INLINE_BYTES:
            _, size, stored = self._large.write(iter([content]))
            return StoredBlob(digest, size, stored, "zstd", large=True)
        return StoredBlob(digest, len(content), len(packed), encoding, content=packed)

    def _base(self, similar_to: BlobId) -> tuple[StoredBlob, bytes, int] | None:
        """The row to store a new version against, its content, and the number of the version."""
        digest = _digest(similar_to)
        row = self._put_again.get(digest) or self._find(digest)
        if row is None or not MIN_BASE <= row.size <= MAX_DELTA:
            return None
        version = row.version + 1
        wanted = base_version(version)
        try:
            while row.version > wanted and row.base is not None:
                row = self._row(row.base)
            if row.version != wanted or decodes(version) > MAX_CHAIN:
                return None
            return row, self._read(row), version
        except (Corrupt, NotFound):
            # nothing new is to lean on what is damaged
            return None

    # --- reading --------------------------------------------------------------------------

    def _row(self, digest: bytes) -> StoredBlob:
        row = self._find(digest)
        if row is None:
            raise NotFound(
                f"The content {digest.hex()} is not in the store",
                hint="It was recorded by its hash only, or erased.",
                details={"blob": digest.hex()},
            )
        return row

    def _find(self, digest: bytes) -> StoredBlob | None:
        with self._lock:
            staged = self._staged.get(digest)
            if staged is not None:
                return staged
            return blob_rows.load_stored(self._connections, digest)

    def _read(self, row: StoredBlob, links: Mapping[bytes, StoredBlob] = NO_BLOBS) -> bytes:
        """The content, checked; large ones whole. Corrupt names it."""
        try:
            try:
                content = self._decode(row, links)
            except (Corrupt, NotFound):
                # it may have been encoded anew between two of the statements that read it
                now = blob_rows.load_stored(self._connections, row.sha256)
                if now is None or row.content is not None or now == row:
                    raise
                content = self._decode(now, NO_BLOBS)
        except Corrupt as error:
            blob = row.sha256.hex()
            raise Corrupt(
                f"The content {blob} is damaged: {error.message}",
                hint="Run `loom-audit verify` to see what else is.",
                details={"blob": blob},
            ) from error
        self._cache_put(row.sha256, content)
        return content

    def _decode(self, row: StoredBlob, links: Mapping[bytes, StoredBlob]) -> bytes:
        content = self._decode_chain(row, links)
        if sha256(content).digest() != row.sha256:
            raise Corrupt("it does not match its hash")
        return content

    def _decode_chain(self, row: StoredBlob, links: Mapping[bytes, StoredBlob]) -> bytes:
        chain = [row]
        content = self._cache_lookup(row.sha256)
        while content is None and chain[-1].base is not None:
            if len(chain) > MAX_CHAIN:
                raise Corrupt("its deltas go in a circle")
            base = chain[-1].base
            chain.append(links.get(base) or self._row(base))
            content = self._cache_lookup(chain[-1].sha256)
        if content is not None:
            chain.pop()
        for link in reversed(chain):
            if link.large:
                with self._large.open(link.sha256, link.size) as stream:
                    content = stream.read()
            else:
                content = decompress(link.encoding, self._bytes(link), link.size, content)
        if content is None:
            raise Corrupt("its deltas lead nowhere")
        return content

    def _bytes(self, row: StoredBlob) -> bytes:
        if row.content is not None:
            return row.content
        content = blob_rows.load_content(self._connections, row.number)
        if content is None:
            raise Corrupt(f"the stored bytes of {row.sha256.hex()} are gone")
        return content

    def _cache_lookup(self, digest: bytes) -> bytes | None:
        with self._lock:
            content = self._cache.get(digest)
            if content is not None:
                self._cache.move_to_end(digest)
            return content

    def _cache_put(self, digest: bytes, content: bytes) -> None:
        if len(content) > MAX_DELTA:
            return
        with self._lock:
            if digest not in self._cache:
                self._cache[digest] = content
                self._cached_bytes += len(content) + _CACHE_ROW
                while self._cached_bytes > CACHE_BYTES:
                    _, gone = self._cache.popitem(last=False)
                    self._cached_bytes -= len(gone) + _CACHE_ROW


def base_version(version: int) -> int:
    """The version of a line that a version is stored against: v - 16**n, n as large as fits.

    Fifteen of sixteen are stored against the one before, which makes the shortest deltas; the
    rest go further back, as in a skip list. So version v takes as many decodes as its base-16
    digits add up to: 60 at most below version 16**4.
    """
    step = 1
    while version % (step * RADIX) == 0:
        step *= RADIX
    return version - step


def decodes(version: int) -> int:
    """How many contents are decoded to read this version of a line."""
    return sum(int(digit, RADIX) for digit in f"{version:x}")


def _delta_row(
    digest: bytes, content: bytes, delta: bytes, base: StoredBlob, version: int
) -> StoredBlob:
    return StoredBlob(
        digest, len(content), len(delta), "zstd-delta", base.sha256, version, content=delta
    )


def _read_head(content: bytes | BinaryIO) -> tuple[bytes, BinaryIO | None]:
    """The content whole, or its beginning and a stream of the rest when it is large."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        whole = bytes(content)
        return (whole, None) if len(whole) <= MAX_DELTA else (b"", BytesIO(whole))
    parts: list[bytes] = []
    read = 0
    while read <= MAX_DELTA:
        part = content.read(CHUNK)
        if not part:
            return b"".join(parts), None
        parts.append(part)
        read += len(part)
    return b"".join(parts), content


def _chunks(head: bytes, rest: BinaryIO) -> Iterator[bytes]:
    yield head
    while chunk := rest.read(CHUNK):
        yield chunk


def _digest(blob: BlobId) -> bytes:
    try:
        digest = bytes.fromhex(blob)
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise InvalidArguments(f"{blob!r} is not a blob id", hint="A blob id is 64 hex digits.")
    return digest
