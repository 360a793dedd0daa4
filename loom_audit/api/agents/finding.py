"""Transcripts that the clients of this user have written down."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from loom_audit.api.agents.importing import origin_of
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import Place
from loom_audit.errors import AuditError


class Found(Struct, frozen=True):
    """A transcript: who wrote it, in which session and folder, and when last (seconds of 1970)."""

    file: str
    client: str
    session: str
    cwd: str
    modified: float
    size: int


class Finding(Struct, frozen=True):
    """The transcripts of a folder, newest first.

    `unread` are files that could not be read, with why, and `looked` counts all.
    """

    root: str
    found: tuple[Found, ...]
    unread: tuple[tuple[str, str], ...]
    looked: int


def repository_of(path: Path) -> Path:
    """The git repository that holds a path, or the path where none does."""
    here = Path(os.path.realpath(path))
    return next((one for one in (here, *here.parents) if _has_git(one)), here)


def _has_git(folder: Path) -> bool:
    return (folder / ".git").exists()


def find_transcripts(
    path: Path, environment: Mapping[str, str] = os.environ, *, since: float = 0.0
) -> Finding:
    """The transcripts of this user whose recorded folder is the repository of a path, or in it.

    Where it is in no repository, also those whose folder holds it. Only those written `since`, in
    seconds of 1970.
    """
    root = repository_of(path)
    found: list[Found] = []
    unread: list[tuple[str, str]] = []
    looked = 0
    for file in _candidates(environment):
        looked += 1
        try:
            status = file.stat()
            if status.st_mtime < since:
                continue
            origin = origin_of(file)
        except (AuditError, OSError) as error:
            unread.append((str(file), str(error)))
            continue
        holds = origin.cwd and _is_within(str(root), os.path.realpath(origin.cwd))
        if origin.cwd and (_is_within(origin.cwd, str(root)) or (holds and not _has_git(root))):
            about = (origin.client.name, origin.session, origin.cwd)
            found.append(Found(str(file), *about, status.st_mtime, status.st_size))
    found.sort(key=lambda one: (-one.modified, one.file))
    return Finding(str(root), tuple(found), tuple(unread), looked)


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    for client in CLIENTS.values():
        for pattern in client.place.transcripts:
            yield from _files(folder_of(client.place, environment), pattern)


def folder_of(place: Place, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder in which a client keeps its files, which a variable of the user's may name."""
    if named := environment.get(place.home):
        return Path(named)
    home = Path(environment.get("HOME") or Path.home())
    if not place.folder.startswith(".config/"):
        return home / place.folder
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    return config / place.folder.removeprefix(".config/")


def _files(base: Path, pattern: str) -> Sequence[Path]:
    try:
        return sorted(file for file in base.glob(pattern) if file.is_file())
    except OSError:
        return ()


def _is_within(folder: str, root: str) -> bool:
    """Whether a recorded folder is the root or below it, by name or by where it leads now."""
    for one in (os.path.normpath(folder), os.path.realpath(folder)):
        if one == root or one.startswith(root.rstrip("/") + "/"):
            return True
    return False
