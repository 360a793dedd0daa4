"""Which folders workspaces were found to be, so that one that was moved or is hidden is known."""

import os
from pathlib import Path

from loom_audit.disk.access.identity import identity_at
from loom_audit.disk.access.paths import audit_errors
from loom_audit.disk.access.system import closing_fd, put_file

_KEPT = 8
"""The number of identities of one workspace that are kept: each time its filesystem is mounted anew
it has another."""

_PLACES = _MOUNTED, _PLAIN = "mount-point", "folder"
"""What is kept beside the identities: whether the folder was a mount point."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def identity_of_folder(path: str) -> str:
    """The identity of the folder at a path; "" where there is none, or it cannot be told."""
    try:
        descriptor = os.open(path, _FOLDER)
    except OSError:
        return ""
    with closing_fd(descriptor):
        return identity_at(descriptor)


class RootIdentities:
    """The identities of workspaces' own folders, in a file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def kept(self, id: str) -> list[str]:
        """The identities that a workspace's folder had, oldest first."""
        return [word for word in self._words(id) if word not in _PLACES]

    def was_mount_point(self, id: str) -> bool | None:
        """Whether the folder was a mount point when it was last seen; None where nobody knows."""
        said = [word for word in self._words(id) if word in _PLACES]
        return said[-1] == _MOUNTED if said else None

    def _words(self, id: str) -> list[str]:
        try:
            return self._file(id).read_text("utf-8", "replace").split()
        except OSError:
            return []

    def keep(self, id: str, identity: str, *, mounted: bool) -> None:
        """Keep an identity, and whether it is of a mount point, unless known. StorageFailed."""
        known, was = self.kept(id), self.was_mount_point(id)
        if identity in ("", *known) and was == mounted:
            return
        if identity and identity not in known:
            known.append(identity)
        file = self._file(id)
        place = _MOUNTED if mounted else _PLAIN
        with audit_errors(str(file)):
            put_file(file, ("\n".join([*known[-_KEPT:], place]) + "\n").encode())

    def _file(self, id: str) -> Path:
        return self._folder / f"{id}.roots"
