"""Transcripts that the clients of this user have written down."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from loom_audit.api.agents.failed_hooks import FailedSession
from loom_audit.api.agents.importing import Origin, origin_of
from loom_audit.api.store import repository_of
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import Place
from loom_audit.errors import AuditError


class FoundTranscript(Struct, frozen=True):
    """A transcript: who wrote it, in which session and folder, and when last (seconds of 1970)."""

    file: str
    client: str
    session: str
    cwd: str
    modified: float
    size: int


class FoundTranscripts(Struct, frozen=True):
    """The transcripts of a folder, newest first.

    `unread` are files that could not be read, with why, and `looked` counts all.
    """

    root: str
    found: tuple[FoundTranscript, ...]
    unread: tuple[tuple[str, str], ...]
    looked: int


def find_transcripts(
    path: Path, environment: Mapping[str, str] = os.environ, *, since: float = 0.0
) -> FoundTranscripts:
    """The transcripts of this user whose recorded folder is the repository of a path, or in it.

    Where it is in no repository, also those whose folder holds it. Only those written `since`, in
    seconds of 1970.
    """
    root = repository_of(path)
    found: list[FoundTranscript] = []
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
        if origin.cwd and (
            _is_within(origin.cwd, str(root)) or (holds and not (root / ".git").exists())
        ):
            about = (origin.client.name, origin.session, origin.cwd)
            found.append(FoundTranscript(str(file), *about, status.st_mtime, status.st_size))
    found.sort(key=lambda one: (-one.modified, one.file))
    return FoundTranscripts(str(root), tuple(found), tuple(unread), looked)


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


def own_transcripts(
    failed: FailedSession, environment: Mapping[str, str] = os.environ
) -> Iterator[tuple[str, Origin]]:
    """The transcripts that failed hooks name and that may be believed, and who wrote each.

    A transcript is believed that is a regular file of this account, of this session, and lies where
    the client keeps its transcripts.
    """
    for path in failed.transcripts:
        if (origin := _own(failed, path, environment)) is not None:
            yield path, origin


def _own(failed: FailedSession, named: str, environment: Mapping[str, str]) -> Origin | None:
    place = CLIENTS[failed.client].place
    if not place.transcripts or not os.path.isabs(named):
        return None
    base = os.path.realpath(folder_of(place, environment))
    with suppress(AuditError, OSError, ValueError):
        path = os.path.realpath(named)
        seen = os.lstat(path)
        tops = [pattern.split("/", 1)[0] for pattern in place.transcripts]
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid():
            return None
        if not any(path.startswith(os.path.join(base, top) + os.sep) for top in tops):
            return None
        origin = origin_of(Path(path), failed.client)
        if origin.cwd and failed.session.split(".")[0] == origin.session:
            return origin
    return None


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
