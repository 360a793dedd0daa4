"""Signed heads outside the store: all of them, and the last one once more, beside the keys.

All notes of a log are in the file `LOG.signed` of the folder of heads, each followed by an empty
line. The last one is in `LOG.last` in the folder of the keys, before it is among them: what the
signer goes by is not set back by who moves heads away, or puts back an older store.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from loom_audit.disk.access.system import closing_fd, put_file, sync_folder, write_all
from loom_audit.errors import Corrupt, StorageFailed
from loom_audit.model.signed.notes import MOST_BYTES
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


class DiskHeadsFolder:
    """A `ports.HeadsFolder`: files `LOG-SIZE-HASH.note`, of the hash of what is in them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, signed: SignedHead) -> bool:
        """Put one there, durably; whether it was not there yet. StorageFailed."""
        raw = signed.note.to_bytes()
        file = self._folder / _name(signed)
        beside = file.with_suffix(f".{os.getpid()}")
        try:
            if os.path.lexists(file):
                return False
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with closing_fd(os.open(beside, flags, 0o644)) as descriptor:
                write_all(descriptor, raw)
                os.fsync(descriptor)
            # not by a link, which not every filesystem has: what another process put there since
            # is the same, by its name
            beside.rename(file)
            sync_folder(self._folder)
        except OSError as error:
            raise StorageFailed(
                f"a signed head could not be put in {self._folder}: {error.strerror}",
                hint="It is kept here; `loom-audit heads send --to FOLDER` tries again.",
            ) from error
        return True

    def there(self, log: str) -> Mapping[str, SignedHead | None]:
        """The files there with heads of a log; None for one that is none. StorageFailed.

        One that is not as it was put there, by its name, is none.
        """
        files = sorted(self._folder.glob(f"{log}-*.note"))
        read = {file: _read(_content(file)) if _is_small_file(file) else None for file in files}
        return {
            str(file): one if one is not None and file.name == _name(one) else None
            for file, one in read.items()
        }


def _is_small_file(file: Path) -> bool:
    """Whether it is a file that may be a note: what is in the folder may be from anybody."""
    try:
        seen = file.lstat()
    except OSError:
        return False
    return stat.S_ISREG(seen.st_mode) and seen.st_size <= MOST_BYTES


def _name(signed: SignedHead) -> str:
    digits = sha256(signed.note.to_bytes()).hexdigest()[:16]
    return f"{signed.head.log}-{signed.head.size:012}-{digits}.note"


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
