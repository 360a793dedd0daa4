"""The keys of a store in a file that nobody else may read."""

import os
import stat
from pathlib import Path

from loom_audit.disk.access.system import closing_fd, put_file
from loom_audit.errors import PermissionDenied, StorageFailed
from loom_audit.model.signed.key_ring import KeyRing, read_key_ring

_FILE = "ring.json"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MOST_BYTES = 1 << 20


class DiskKeys:
    """A `ports.SigningKeys` in a folder of its own, mode 0700, the file 0600."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def file(self) -> Path:
        """Where the keys are, or would be."""
        return self._folder / _FILE

    def read(self) -> KeyRing | None:
        """The keys; None where none were made.

        PermissionDenied where others may read or write them, Corrupt, StorageFailed.
        """
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            _check(self._folder, os.stat(self._folder))
            with closing_fd(os.open(self.file, flags)) as descriptor:
                _check(self.file, os.fstat(descriptor))
                raw = os.read(descriptor, _MOST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(
                f"the keys in {self.file} cannot be read: {error.strerror}",
                hint="It is to be a file of yours, no link, that you may read.",
            ) from error
        return read_key_ring(raw)

    def write(self, ring: KeyRing) -> None:
        """Put the keys in place of those that are there, durably, all at once. StorageFailed."""
        try:
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            put_file(self.file, ring.to_bytes(), durable=True)
            # what a process left that was killed while it wrote holds a key, too
            for written in self._folder.glob("ring.*"):
                if written.name != _FILE:
                    written.unlink()
        except OSError as error:
            raise StorageFailed(
                f"the keys cannot be written to {self.file}: {error.strerror}",
                hint="Nothing was signed; give this user the right to write there.",
            ) from error


def _check(path: Path, seen: os.stat_result) -> None:
    """Refuse what others than this user could have read or written: PermissionDenied."""
    if seen.st_uid != os.geteuid():
        raise PermissionDenied(
            f"{path} belongs to another user",
            hint="Nothing is signed with a key that somebody else has; move it away.",
        )
    if seen.st_mode & _OTHERS:
        kind = "700" if stat.S_ISDIR(seen.st_mode) else "600"
        raise PermissionDenied(
            f"others may read or write {path}: its mode is {stat.S_IMODE(seen.st_mode):03o}",
            hint=f"Who may have read it can sign as you: `chmod {kind} {path}`, then "
            "`loom-audit keys rotate`.",
        )
