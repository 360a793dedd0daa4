"""Transcripts of other programs, read from files into logs of their own."""

import os
import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from loom_audit.api.store import AuditStore
from loom_audit.clients.fields import STRANGE, TORN
from loom_audit.clients.known import CLIENTS, client_of
from loom_audit.clients.reports import Client, SessionTold, Transcript
from loom_audit.clients.reports import Report as Told
from loom_audit.errors import FileNotFound, InvalidArguments
from loom_audit.history.told.importing import Importing, ImportTarget
from loom_audit.model.imported import IMPORTED
from loom_audit.ports import OnProgress, Progress
from loom_audit.wiring.files import audit_errors

LONGEST_LINE = 64 << 20
"""Bytes of a line, or of a file that is one object; what is longer is skipped."""

FIRST_LINES = 200
"""How many lines are looked at for who wrote a transcript, and where."""

SKIPPED = 100
"""How many skipped lines are named."""

_LONG = f"line of more than {LONGEST_LINE >> 20} MiB"


class Imported(Struct, frozen=True):
    """What became of one file: `calls` are those that were not on record before.

    `skipped` are numbers of lines with the reason, at most 100 of them; `unread` counts what else
    was not understood, by its kind.
    """

    file: str
    client: str
    workspace: str
    root: str
    sessions: tuple[str, ...]
    calls: int
    lines: int
    skipped: tuple[tuple[int, str], ...]
    unread: dict[str, int]


class Origin(Struct, frozen=True):
    """Who wrote a transcript, in which session and folder; "" where it does not tell."""

    client: Client
    session: str
    cwd: str
    whole: bool


def import_file(
    store: AuditStore,
    file: Path,
    origin: Origin | None = None,
    *,
    report: OnProgress | None = None,
) -> Imported:
    """Put a transcript on record in a log of the folder that it names, which no workspace has.

    Done again it adds what is new in the file. `origin` is what `origin_of` says of the file, None
    where that was not asked yet. FileNotFound, PermissionDenied; InvalidArguments for what is not a
    transcript that is known.
    """
    origin = origin or origin_of(file)
    root = origin.cwd or f"{origin.client.name}/{origin.session}"
    id = store.adapters.imported_log(IMPORTED + root)
    target = ImportTarget(
        store.adapters.log(id),
        store.adapters.blobs,
        store.adapters.projections(id),
        origin.cwd or "/",
    )
    reader = origin.client.transcript()
    skipped: list[tuple[int, str]] = []
    number = 0
    with store.adapters.lock.hold(f"workspace-{id}", timeout=60.0), _opened(file) as source:
        importing = Importing(target, origin.client.name, origin.session)
        size, read = os.fstat(source.fileno()).st_size, 0
        for line in _whole(source) if origin.whole else _lines(source):
            number += 1
            read += len(line)
            if reason := _take(reader, line, importing):
                skipped.append((number, reason))
                del skipped[SKIPPED:]
            if report is not None and number % 100 == 0:
                report(Progress(f"import {file.name}", min(read, size), size, "bytes"))
        sessions = importing.finish()
    unread = {kind: count for kind, count in reader.unread.items() if kind not in (TORN, STRANGE)}
    return Imported(
        file=str(file),
        client=origin.client.name,
        workspace=id,
        root=IMPORTED + root,
        sessions=tuple(sessions),
        calls=importing.calls,
        lines=number,
        skipped=tuple(skipped),
        unread=unread,
    )


def _take(reader: Transcript, line: bytes, importing: Importing) -> str:
    """Record what a line tells; why it tells nothing, if it is damaged."""
    if len(line) > LONGEST_LINE:
        return _LONG
    before = (reader.unread[TORN], reader.unread[STRANGE])
    importing.take(reader.read(line), len(line))
    if reader.unread[TORN] > before[0]:
        return TORN
    return STRANGE if reader.unread[STRANGE] > before[1] else ""


def origin_of(file: Path, client: str | None = None) -> Origin:
    """Who wrote a transcript, in which session and folder, by its first lines.

    FileNotFound, PermissionDenied; InvalidArguments for what is not a transcript that is known, or
    not of this `client`.
    """
    if client is not None and client not in CLIENTS:
        raise InvalidArguments(
            f"{client!r:.100} is not a client whose transcripts are known",
            hint=f"There are: {', '.join(CLIENTS)}.",
        )
    with _opened(file) as source:
        found = next(filter(None, map(client_of, _first(source))), None)
        whole = found is None or found.whole
        if whole:
            source.seek(0)
            found = next(filter(None, map(client_of, _whole(source))), None)
        if found is not None and client in (None, found.name):
            source.seek(0)
            return _told_origin(found, _whole(source) if whole else _first(source), file, whole)
    raise InvalidArguments(
        f"{file} is not a transcript of {client or 'a known client'}",
        hint=f"Known are transcripts of {', '.join(CLIENTS)}; `--client` names one. "
        "Of opencode it is what `opencode export SESSION` prints.",
    )


def told_in(file: Path, client: str) -> Iterator[Told]:
    """The reports of a transcript that is written line by line; lines too long are left out."""
    reader = CLIENTS[client].transcript()
    with _opened(file) as source:
        for line in _lines(source):
            yield from reader.read(line) if len(line) <= LONGEST_LINE else ()


def _told_origin(client: Client, lines: Iterable[bytes], file: Path, whole: bool) -> Origin:
    session, cwd = "", ""
    reader = client.transcript()
    for line in lines:
        for told in reader.read(line):
            if isinstance(told, SessionTold):
                session = session or told.parent or told.session
                cwd = cwd or told.cwd
        if cwd:
            break
    return Origin(client, session or file.stem, cwd, whole)


def _opened(file: Path) -> BinaryIO:
    """A regular file, open to be read; a pipe is not waited for."""
    with audit_errors(str(file)):
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileNotFound(f"{file} is not a file", hint="Name a transcript's file.")
        return os.fdopen(descriptor, "rb")


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """The lines without their ends; of one that is too long only so much that this is seen."""
    while line := source.readline(LONGEST_LINE + 2):
        if len(line) > LONGEST_LINE + 1 or (len(line) > LONGEST_LINE and line[-1:] != b"\n"):
            while (more := source.readline(1 << 20)) and more[-1:] != b"\n":
                pass
        yield line.rstrip(b"\r\n")


def _first(source: BinaryIO) -> Iterator[bytes]:
    return islice(_lines(source), FIRST_LINES)


def _whole(source: BinaryIO) -> Iterator[bytes]:
    """The file as one line."""
    yield source.read(LONGEST_LINE + 1)
