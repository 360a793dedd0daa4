"""Which folders workspaces were found to be, so that one that was moved is known."""

import os
from pathlib import Path

from loom_audit.disk.identity import identity_at
from loom_audit.disk.paths import audit_errors

_KEPT = 8
"""So many of one workspace: each time its filesystem is mounted anew it has another."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def identity_of_folder(path: str) -> str:
    """The identity of the folder at a path; "" where there is none, or it cannot be told."""
    try:
        descriptor = os.open(path, _FOLDER)
    except OSError:
        return ""
    try:
        return identity_at(descriptor)
    finally:
        os.close(descriptor)


class RootIdentities:
    """The identities of workspaces' own folders, in a file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def kept(self, id: str) -> list[str]:
        """Those that a workspace had, oldest first."""
        try:
            return self._file(id).read_text("utf-8", "replace").split()
        except OSError:
            return []

    def keep(self, id: str, identity: str) -> None:
        """Keep one more, unless it is known or says nothing. StorageFailed."""
        known = self.kept(id)
        if not identity or identity in known:
            return
        file = self._file(id)
        unfinished = file.with_suffix(f".{os.getpid()}")
        with audit_errors(str(file)):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished.touch(0o600)
            unfinished.write_text("\n".join([*known, identity][-_KEPT:]) + "\n", "utf-8")
            unfinished.replace(file)

    def _file(self, id: str) -> Path:
        return self._folder / f"{id}.roots"
