"""Why sessions are held, as one small file for each, named by the SHA-256 of the session's id."""

from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from loom_audit.disk.access.paths import audit_errors
from loom_audit.disk.access.system import put_file, sync_folder


class DiskHeldSessions:
    """A `ports.HeldSessions` in one folder, which is made when the first one is kept.

    A file holds the reason as text, in UTF-8.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, session: str, text: str) -> None:
        """Write the reason into the file of a session, durably. StorageFailed."""
        if self.get(session) == text:
            return
        with audit_errors(str(self._folder)):
            content = text.encode("utf-8", "backslashreplace")
            put_file(self._file(session), content, durable=True)

    def get(self, session: str) -> str | None:
        """The reason in the file of a session; None where there is no file. StorageFailed."""
        with audit_errors(str(self._folder)), suppress(FileNotFoundError):
            return self._file(session).read_text("utf-8", "backslashreplace")
        return None

    def discard(self, session: str) -> None:
        """Delete the file of a session, durably; nothing where there is none. StorageFailed."""
        with audit_errors(str(self._folder)), suppress(FileNotFoundError):
            self._file(session).unlink()
            sync_folder(self._folder)

    def _file(self, session: str) -> Path:
        return self._folder / sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
