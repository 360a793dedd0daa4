"""Signed heads outside the store: all of them, and the last one once more, beside the keys.

All notes of a log are in the file `LOG.signed` of the folder of heads, each followed by an empty
line. The last one is in `LOG.last` in the folder of the keys, before it is among them: what the
signer goes by is not set back by who moves heads away, or puts back an older store.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from loom_audit.disk.access.system import closing_fd, put_file, sync_folder, write_all
from loom_audit.errors import Corrupt, StorageFailed
from loom_audit.model.signed.signed_heads import SignedHead, read_signed_head

_BETWEEN = re.compile(rb"(?m)^(?=loom-audit/|l[a-z-]{0,9}$)")
"""A note begins with the line that names its log, or with what a power cut left of that."""


class DiskSignedHeads:
    """A `ports.SignedHeads` of one log, in the folders of heads and of keys of its store."""

    def __init__(self, heads: Path, keys: Path, log: str) -> None:
        self._file = heads / f"{log}.signed"
        self._last = keys / f"{log}.last"

    def kept(self) -> Sequence[SignedHead]:
        """The heads that were signed, oldest first, those that can be read. StorageFailed."""
        return [found for _, found in self._notes() if found is not None]

    def damaged(self) -> Sequence[str]:
        """What among them cannot be read: `the note at line N of FILE`. StorageFailed.

        What a power cut or a full disk left of a note is none, where the note follows whole.
        """
        return [
            f"the note at line {line} of {self._file}"
            for line, found in self._notes()
            if found is None
        ]

    def last(self) -> SignedHead | None:
        """The one of most events, the newest of them. Corrupt, StorageFailed."""
        own = _content(self._last)
        found = [read_signed_head(own)] if own else []
        return max((*found, *reversed(self.kept())), key=lambda one: one.head.size, default=None)

    def keep(self, signed: SignedHead) -> None:
        """Keep one durably, for `last` first; nothing is added where it is the last. StorageFailed.

        What is left of one that was not finished stays, and is ended by a line feed.
        """
        raw = signed.note.to_bytes()
        try:
            put_file(self._last, raw, durable=True)
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            with closing_fd(os.open(self._file, flags, 0o600)) as descriptor:
                size = os.fstat(descriptor).st_size
                end = os.pread(descriptor, len(raw) + 2, max(0, size - len(raw) - 2))
                if end.endswith(raw + b"\n") and end[: -len(raw) - 1] in (b"", b"\n"):
                    return
                ended = not size or end.endswith(b"\n")
                write_all(descriptor, b"\n" * (not ended) + raw + b"\n")
                os.fsync(descriptor)
            sync_folder(self._file.parent)
        except OSError as error:
            raise StorageFailed(
                f"the signed head could not be kept in {self._file}: {error.strerror}",
                hint="`loom-audit heads send` tries again.",
            ) from error

    def _notes(self) -> Iterator[tuple[int, SignedHead | None]]:
        """Each note with the line at which it begins; None for one that is damaged."""
        pieces = _BETWEEN.split(_content(self._file))
        line = 1
        for piece, after in zip(pieces, (*pieces[1:], b""), strict=True):
            begin = piece.rstrip(b"\n\0")
            if begin and not after.startswith(begin):  # else the same follows, whole
                yield line, _read(begin + b"\n")
            line += piece.count(b"\n")


def _read(raw: bytes) -> SignedHead | None:
    """The head of a note; None where it is another text."""
    try:
        return read_signed_head(raw)
    except Corrupt:
        return None


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageFailed(
            f"the signed heads in {file} cannot be read: {error.strerror}",
            hint="Give this user the right to read them.",
        ) from error
