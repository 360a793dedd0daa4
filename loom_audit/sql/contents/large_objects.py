"""Contents too large for a row: one zstd file each, `blobs/ab/cdef…` by their SHA-256.

A file is complete and durable under its name or not there at all. Memory is bounded whatever
the size. Folders are 0700, files 0600.
"""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

from backports.zstd import (
    CompressionParameter,
    DecompressionParameter,
    ZstdCompressor,
    ZstdDecompressor,
    ZstdError,
)

from loom_audit.errors import AuditUnavailable, Corrupt, StorageFailed
from loom_audit.sql.contents.encodings import LEVEL

CHUNK = 1 << 20
_UNFINISHED = "tmp-"
_WINDOW_LOG = 21
"""2 MiB, so that reading back needs little memory."""


class LargeObjects:
    """The folder of large contents beside a store."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def path(self, digest: bytes) -> str:
        """The path of the file of this SHA-256, whether it is there or not."""
        name = digest.hex()
        return os.path.join(self.folder, name[:2], name[2:])

    def write(self, content: Iterator[bytes]) -> tuple[bytes, int, int]:
        """Write a content into a file of its own; its SHA-256, its size, how many bytes are stored.

        AuditUnavailable when it cannot be written; then nothing is left behind.
        """
        with _unavailable_errors():
            _make_folder(self.folder)
            temporary = os.path.join(self.folder, f"{_UNFINISHED}{secrets.token_hex(8)}")
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            try:
                with open(descriptor, "wb") as file:
                    digest, size = _compress(content, file)
                    file.flush()
                    # durable before it has its name, which the folder makes durable below
                    os.fsync(file.fileno())
                    stored = file.tell()
                target = self.path(digest)
                _make_folder(os.path.dirname(target))
                os.rename(temporary, target)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)
                raise
            sync_folder(os.path.dirname(target))
        return digest, size, stored

    def remove_unfinished(self) -> None:
        """Delete what writers left that were killed; nobody writes a content meanwhile."""
        for left in Path(self.folder).glob(f"{_UNFINISHED}*"):
            left.unlink()

    def open(self, digest: bytes, size: int) -> BinaryIO:
        """The content as a stream, which raises Corrupt at its end when it is not what was hashed.

        Corrupt when its file is gone or is none, StorageFailed when it cannot be read.
        """
        try:
            # non-blocking, in case that somebody put a pipe there
            descriptor = os.open(self.path(digest), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise Corrupt(
                f"The content {digest.hex()} is on record, but its file is gone",
                hint="Restore the folder `blobs` beside the store from a copy.",
                details={"blob": digest.hex()},
            ) from error
        except OSError as error:
            raise StorageFailed(f"The content {digest.hex()} cannot be read: {error}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise Corrupt(f"What lies in place of the content {digest.hex()} is not a file")
        return BufferedReader(_CheckedStream(descriptor, digest, size), CHUNK)


def _compress(content: Iterator[bytes], file: BinaryIO) -> tuple[bytes, int]:
    options: dict[int, int] = {
        CompressionParameter.compression_level: LEVEL,
        CompressionParameter.window_log: _WINDOW_LOG,
    }
    packer = ZstdCompressor(options=options)
    hashed, size = hashlib.sha256(), 0
    for chunk in content:
        hashed.update(chunk)
        size += len(chunk)
        file.write(packer.compress(chunk))
    file.write(packer.flush())
    return hashed.digest(), size


class _CheckedStream(RawIOBase):
    """Decompresses a file and checks what came out at its end."""

    def __init__(self, descriptor: int, digest: bytes, size: int) -> None:
        self._file = FileIO(descriptor)
        self._digest = digest
        self._remaining = size
        self._hashed = hashlib.sha256()
        self._unpacker = ZstdDecompressor(
            options={DecompressionParameter.window_log_max: _WINDOW_LOG}
        )

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer).cast("B") as view:
            data = self._next(len(view))
            view[: len(data)] = data
        if data:
            self._hashed.update(data)
            self._remaining -= len(data)
        elif self._remaining or self._hashed.digest() != self._digest:
            raise self._corrupt("does not match its hash")
        return len(data)

    def _next(self, limit: int) -> bytes:
        try:
            while not self._unpacker.eof:
                more = self._file.read(CHUNK) if self._unpacker.needs_input else b""
                if not more and self._unpacker.needs_input:
                    raise self._corrupt("ends too early")
                data = self._unpacker.decompress(more, limit)
                if len(data) > self._remaining:
                    raise self._corrupt("is longer than it should be")
                if data:
                    return data
        except ZstdError as error:
            raise self._corrupt(f"cannot be decompressed ({error})") from error
        except OSError as error:
            raise StorageFailed(
                f"The content {self._digest.hex()} cannot be read: {error}"
            ) from error
        return b""

    def _corrupt(self, why: str) -> Corrupt:
        return Corrupt(
            f"The content {self._digest.hex()} {why}", details={"blob": self._digest.hex()}
        )

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def _unavailable_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise AuditUnavailable(
            f"A content cannot be stored: {error.strerror or error}",
            hint="Free some space where the store lies." if full else "Run `loom-audit doctor`.",
            details={"cause": "full" if full else "io"},
        ) from error


def _make_folder(path: str) -> None:
    try:
        Path(path).mkdir(0o700)
    except FileExistsError:
        return
    sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
