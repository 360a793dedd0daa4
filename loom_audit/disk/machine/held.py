"""Why sessions are held, as one small file for each, named by the SHA-256 of the session's id."""

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from loom_audit.disk.access.paths import audit_errors
from loom_audit.disk.access.system import closing_fd, sync_folder


class DiskHeldSessions:
    """A `ports.HeldSessions` in one folder, which is made when the first one is kept.

    A file holds the reason as text, in UTF-8.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, session: str, text: str) -> None:
        if self.get(session) == text:
            return
        with audit_errors(str(self._folder)):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._file(session)
            written = file.with_suffix(f".{os.getpid()}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with closing_fd(os.open(written, flags, 0o600)) as descriptor:
                rest = text.encode("utf-8", "backslashreplace")
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            written.replace(file)
            sync_folder(self._folder)
            sync_folder(self._folder.parent)  # in which the folder may be new

    def get(self, session: str) -> str | None:
        with audit_errors(str(self._folder)), suppress(FileNotFoundError):
            return self._file(session).read_text("utf-8", "backslashreplace")
        return None

    def discard(self, session: str) -> None:
        with audit_errors(str(self._folder)), suppress(FileNotFoundError):
            self._file(session).unlink()
            sync_folder(self._folder)

    def _file(self, session: str) -> Path:
        return self._folder / sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
