"""The change index as one file per workspace, appended to and now and then written anew.

The file is a magic line, eight random bytes that tell one file from its successor, and then
batches: `length crc32` and a body of columns: kinds, stamps, hashes, identities, NUL-separated
paths. A batch that is cut short or does not match its checksum ends what is read; what is behind it
was a cache of stamps, so the paths are hashed again and nothing is lost. Never synced.
"""

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock as Mutex

from loom_audit.disk.access.paths import audit_errors
from loom_audit.model.files import BlobId
from loom_audit.ports import IndexEntry, Stamp

MAGIC = b"loom-audit index 2\n"
_START = len(MAGIC) + 8
_BATCH = struct.Struct("<QI")
_HEAD = struct.Struct("<QI")
_STAMP = struct.Struct("<IQqqQ")
_IDENTITY_BYTES = 16
_ROW_BYTES = 1 + _STAMP.size + 32 + _IDENTITY_BYTES
_GONE, _BLOB, _NO_BLOB = 0, 1, 2
_NO_STAMP, _NO_HASH, _NO_IDENTITY = bytes(_STAMP.size), bytes(32), bytes(_IDENTITY_BYTES)
_UNKNOWN = _NO_IDENTITY.hex()
_SMALL = 1 << 20
"""Bytes of a file that is never written anew, however many of its rows are outdated."""

_LOOKED_UP = 32
"""Paths that are looked up in batches as they lie in the file, and batches that are kept so."""

_AHEAD = ".ahead"
"""Ends the name of one that had followed more events than there are."""

_BITS = (1 << 64) - 1
_MOST = (1 << 63) - 1


class DiskChangeIndex:
    """A `ports.ChangeIndex` in one file; a file that is not an index is taken for an empty one."""

    def __init__(self, path: str | Path) -> None:
        self._path = os.fspath(path)
        self._mutex = Mutex()
        self._entries: dict[str, IndexEntry] = {}
        self._unread: list[memoryview] = []
        self._asked = 0
        self._head = 0
        self._read_end = 0
        self._live_bytes = 0
        self._start = b""
        self._read_identity = (0, 0, 0)

    def load(self) -> dict[str, IndexEntry]:
        """All entries, after the batches that other processes have appended were read."""
        with self._mutex:
            self._refresh()
            self._read_batches()
            return dict(self._entries)

    def get(self, path: str) -> IndexEntry | None:
        """The entry of one path; the first few are looked up in the batches as they lie there."""
        with self._mutex:
            self._refresh()
            return self._get(path)

    def head(self) -> int:
        """The seq of the newest batch; 0 for an empty index."""
        with self._mutex:
            self._refresh()
            return self._head

    def update(self, entries: Mapping[str, IndexEntry | None], *, head: int) -> None:
        """Append what changed as one batch, or write the file anew when most rows are outdated.

        StorageFailed where the file cannot be written.
        """
        with self._mutex, audit_errors(self._path), self._open_for_writing() as descriptor:
            current = _identity(os.fstat(descriptor)) == self._read_identity
            if not current:
                self._refresh()
            changed = {path: entry for path, entry in entries.items() if self._get(path) != entry}
            if not changed and head == self._head:
                return
            batch = b"".join(_encode(changed, head))
            end = self._read_end + len(batch)
            if end > _SMALL and end > 3 * (self._live_bytes + len(batch)) and not self._unread:
                self._apply(changed, head)
                self._rewrite()
                return
            if not current or self._read_identity[1] != self._read_end:
                os.ftruncate(descriptor, self._read_end)
            _write(descriptor, batch, self._read_end)
            if self._unread:
                self._take(memoryview(batch)[_BATCH.size :], head)
            else:
                self._apply(changed, head)
            self._read_end = end
            self._read_identity = _identity(os.fstat(descriptor))

    def clear(self) -> None:
        """Write the file anew, empty. StorageFailed."""
        with self._mutex, audit_errors(self._path), self._open_for_writing():
            self._reset()
            self._rewrite()

    def displace(self) -> None:
        """Rename the file, so that its head stays known, and begin an empty one. StorageFailed."""
        with self._mutex, audit_errors(self._path), self._open_for_writing():
            with suppress(FileNotFoundError):
                os.replace(self._path, self._path + _AHEAD)
            self._reset()
            self._rewrite()

    def most_seen(self) -> int:
        """The larger of the heads of the file and of the displaced one."""
        displaced = self._path + _AHEAD
        return max(
            self.head(), DiskChangeIndex(displaced).head() if os.path.exists(displaced) else 0
        )

    # --- the file -------------------------------------------------------------------------

    def _reset(self) -> None:
        self._entries, self._unread, self._asked = {}, [], 0
        self._head = self._read_end = self._live_bytes = 0
        self._start, self._read_identity = b"", (0, 0, 0)

    def _apply(self, changed: Mapping[str, IndexEntry | None], head: int) -> None:
        self._head = head
        if not self._entries:
            self._entries = {path: entry for path, entry in changed.items() if entry is not None}
            self._live_bytes = sum(map(len, self._entries)) + len(self._entries) * (_ROW_BYTES + 1)
            return
        for path, entry in changed.items():
            size = _ROW_BYTES + 1 + len(path)
            if self._entries.pop(path, None) is not None:
                self._live_bytes -= size
            if entry is not None:
                self._entries[path] = entry
                self._live_bytes += size

    def _get(self, path: str) -> IndexEntry | None:
        self._asked += 1
        if self._unread and self._asked > _LOOKED_UP:
            self._read_batches()
        for body in reversed(self._unread):
            row = _row(body, path)
            if row is not None:
                return _decode(row)[0][path]
        return self._entries.get(path)

    def _take(self, body: memoryview, head: int) -> None:
        """Take a batch as the newest; it is read when more than a few paths are asked for."""
        if self._entries or len(self._unread) >= _LOOKED_UP:
            self._read_batches()
            self._apply(*_decode(body))
        else:
            self._unread.append(body)
            self._head = head

    def _read_batches(self) -> None:
        unread, self._unread = self._unread, []
        for body in unread:
            self._apply(*_decode(body))

    def _refresh(self) -> None:
        """Read what other processes have added, or all when the file is another one."""
        try:
            seen = os.stat(self._path)
            now = _identity(seen)
            if now == self._read_identity:
                return
            with open(self._path, "rb") as file:
                start = file.read(_START)
                if start != self._start or seen.st_size < self._read_end:
                    self._reset()
                    self._start = start
                if start.startswith(MAGIC) and len(start) == _START:
                    file.seek(max(self._read_end, _START))
                    self._read_end = max(self._read_end, _START) + self._apply_batches(file.read())
            self._read_identity = now
        except OSError:
            self._reset()

    def _apply_batches(self, data: bytes) -> int:
        """Apply the whole batches at the beginning of the data; returns their length."""
        at = 0
        while at + _BATCH.size <= len(data):
            length, crc = _BATCH.unpack_from(data, at)
            start = at + _BATCH.size
            if length > len(data) - start or length < _HEAD.size:
                break
            body = memoryview(data)[start : start + length]
            if zlib.crc32(body) != crc:
                break
            self._take(body, _HEAD.unpack_from(body)[0])
            at = start + length
        return at

    @contextmanager
    def _open_for_writing(self) -> Iterator[int]:
        """The file, locked against other writers, with its magic line."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            try:
                descriptor = os.open(self._path, flags, 0o600)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(self._path) or ".", mode=0o700, exist_ok=True)
                descriptor = os.open(self._path, flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                seen = os.fstat(descriptor)
                try:
                    present = os.stat(self._path).st_ino == seen.st_ino
                except FileNotFoundError:
                    present = False
                if not present:
                    continue
                start = os.pread(descriptor, _START, 0)
                if not start.startswith(MAGIC) or len(start) < _START:
                    os.ftruncate(descriptor, 0)
                    _write(descriptor, MAGIC + os.urandom(8), 0)
                yield descriptor
                return
            finally:
                os.close(descriptor)

    def _rewrite(self) -> None:
        """One batch with all there is, renamed over the old file."""
        temporary = f"{self._path}.{os.getpid()}"
        batch = _encode(self._entries, self._head) if self._entries or self._head else []
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        start = MAGIC + os.urandom(8)
        try:
            end = 0
            for part in (start, *batch):
                _write(descriptor, part, end)
                end += len(part)
        except BaseException:
            os.unlink(temporary)
            raise
        finally:
            os.close(descriptor)
        os.rename(temporary, self._path)
        self._start, self._read_end = start, end


def _identity(seen: os.stat_result) -> tuple[int, int, int]:
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def _write(descriptor: int, data: bytes | bytearray, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def _encode(entries: Mapping[str, IndexEntry | None], head: int) -> list[bytes | bytearray]:
    """A batch, in parts: that of all there is is not to be held twice."""
    kinds, stamps, hashes, identities = bytearray(), bytearray(), bytearray(), bytearray()
    for entry in entries.values():
        if entry is None:
            kinds.append(_GONE)
            stamps += _NO_STAMP
            hashes += _NO_HASH
            identities += _NO_IDENTITY
            continue
        stamp, blob, identity = entry
        kinds.append(_NO_BLOB if blob is None else _BLOB)
        stamps += _pack_stamp(stamp)
        hashes += _NO_HASH if blob is None else bytes.fromhex(blob)
        identities += bytes.fromhex(identity) if identity else _NO_IDENTITY
    paths = "\0".join(entries).encode("utf-8", "surrogateescape")
    first = _HEAD.pack(head, len(entries))
    body: list[bytes | bytearray] = [first, kinds, stamps, hashes, identities, paths]
    checksum = 0
    for part in body:
        checksum = zlib.crc32(part, checksum)
    return [_BATCH.pack(sum(map(len, body)), checksum), *body]


def _pack_stamp(stamp: Stamp) -> bytes:
    """A stamp's row. A time past the year 2262 is not kept whole: that file is hashed again."""
    mode, size, mtime, ctime, inode = stamp
    try:
        return _STAMP.pack(mode, size, mtime, ctime, inode & _BITS)
    except struct.error:
        return _STAMP.pack(mode, size & _BITS, mtime & _MOST, ctime & _MOST, inode & _BITS)


def _row(body: memoryview, path: str) -> memoryview | None:
    """A batch of this path's entry alone; None when the batch says nothing of it."""
    head, count = _HEAD.unpack_from(body)
    paths_at = _HEAD.size + count * _ROW_BYTES
    paths = b"\0%b\0" % bytes(body[paths_at:])
    name = path.encode("utf-8", "surrogateescape")
    at = paths.find(b"\0%b\0" % name) if count else -1
    if at < 0:
        return None
    n, start = paths.count(b"\0", 0, at), _HEAD.size
    columns = []
    for width in (1, _STAMP.size, 32, _IDENTITY_BYTES):
        columns.append(body[start + n * width : start + (n + 1) * width])
        start += count * width
    return memoryview(b"".join((_HEAD.pack(head, 1), *columns, name)))


def _decode(body: memoryview) -> tuple[dict[str, IndexEntry | None], int]:
    """A batch's entries and its head."""
    head, count = _HEAD.unpack_from(body)
    if not count:
        return {}, head
    stamps_at = _HEAD.size + count
    hashes_at = stamps_at + count * _STAMP.size
    identities_at = hashes_at + count * 32
    paths_at = identities_at + count * _IDENTITY_BYTES
    kinds = body[_HEAD.size : stamps_at]
    text = body[hashes_at:identities_at].hex()
    blobs = [
        BlobId(text[n * 64 : n * 64 + 64]) if kind == _BLOB else None
        for n, kind in enumerate(kinds)
    ]
    text = body[identities_at:paths_at].hex()
    size = 2 * _IDENTITY_BYTES
    identities = [text[at : at + size] for at in range(0, count * size, size)]
    if _UNKNOWN in identities:
        identities = ["" if identity == _UNKNOWN else identity for identity in identities]
    # tuple.__new__ on C iterators: a Python call for each of 100,000 entries takes too long.
    stamps = map(partial(tuple.__new__, Stamp), _STAMP.iter_unpack(body[stamps_at:hashes_at]))
    paths = str(body[paths_at:], "utf-8", "surrogateescape").split("\0")
    entries: dict[str, IndexEntry | None] = dict(
        zip(
            paths,
            map(partial(tuple.__new__, IndexEntry), zip(stamps, blobs, identities, strict=True)),
            strict=True,
        )
    )
    for path, kind in zip(paths, kinds, strict=True):
        if kind == _GONE:
            entries[path] = None
    return entries, head
