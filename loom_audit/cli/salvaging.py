"""Gets everything readable out of a damaged, locked or read-only store, and lists what failed.

Leans on nothing that may be damaged: no projections, no index, no lock, no upgrade. What comes
out: `events.jsonl` (every event with its exact leaf), `contents/ab/cdef…` (every content, each
checked against its name), `workspaces/LOG/…` (the last tree), `failed.jsonl`.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from loom_audit.cli.output import to_json
from loom_audit.cli.records import event_record
from loom_audit.errors import AuditError, Conflict, NotFound, StorageFailed
from loom_audit.model.codec import MAX_LEAF, decode
from loom_audit.model.events import Event, FilesChanged
from loom_audit.model.files import FileState
from loom_audit.model.merkle import leaf_hash
from loom_audit.ports import Progress, Report
from loom_audit.sql.encodings import decompress
from loom_audit.sql.engine import connect, driver
from loom_audit.sql.large_objects import LargeObjects
from loom_audit.sql.packing import unpack

MAX_PAYLOAD = 256 * 1024 * 1024
BATCH = 200
PIECE = 1024 * 1024


@dataclass(slots=True)
class Salvaged:
    """How much came out; `failures` counts the lines of `failed.jsonl`."""

    events: int = 0
    contents: int = 0
    files: int = 0
    failures: int = 0


@dataclass(slots=True)
class _Salvage:
    raw: Any
    large: LargeObjects
    to: Path
    failed: Any
    report: Report | None
    done: Salvaged = field(default_factory=Salvaged)

    def fail(self, what: str, error: Exception | str, **where: Any) -> None:
        """Put a failure on the list and go on."""
        self.done.failures += 1
        self.failed.write(to_json({"what": what, **where, "error": str(error)}) + "\n")

    def progress(self, stage: str, done: int) -> None:
        if self.report and done % BATCH == 0:
            self.report(Progress(stage, done, unit=stage))


def salvage(file: Path, to: Path, report: Report | None = None) -> Salvaged:
    """Everything readable of the store at `file` into the new or empty folder `to`."""
    if not file.exists():
        raise NotFound(f"{file} does not exist", hint="Name the store with --store.")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise Conflict(f"{to} is not an empty folder", hint="Name a new folder.")
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    large = LargeObjects(str(file.parent / "blobs"))
    with open(to / "failed.jsonl", "w", encoding="ascii") as failed:
        work = _Salvage(None, large, to, failed, report)
        _large_contents(work)
        try:
            work.raw = _open(file, to)
        except (StorageFailed, OSError) as error:
            work.fail("store", error, file=str(file))
            return work.done
        with closing(work.raw):
            _contents(work)
            with open(to / "events.jsonl", "w", encoding="ascii") as events:
                for number, log in _logs(work):
                    _log(work, number, log, events)
    return work.done


def _open(file: Path, to: Path) -> Any:
    """A reading connection: to the store itself, or to a copy where that cannot be opened."""
    with suppress(Exception):  # whatever is wrong with it, the copy is tried next
        raw = connect(str(file), "ro")
        raw.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return raw
    copy = to / "copy"
    copy.mkdir(mode=0o700)
    for suffix in ("", "-wal"):
        if Path(f"{file}{suffix}").exists():
            shutil.copyfile(f"{file}{suffix}", copy / f"{file.name}{suffix}")
    module: Any = driver()
    try:
        raw = module.connect(copy / file.name, isolation_level=None)
        raw.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except Exception as error:
        raise StorageFailed(f"the database cannot be read at all: {error}") from error
    return raw


def _spans(work: _Salvage, what: str, sql: str, first: int, last: int, *more: Any) -> Iterator[Any]:
    """Rows with first <= key <= last; around unreadable ones the span is halved."""
    try:
        rows = work.raw.execute(sql, (*more, first, last)).fetchall()
    except Exception as error:  # noqa: BLE001 - any error of the driver means: not readable
        if first == last:
            work.fail(what, error, number=first)
            return
        middle = (first + last) // 2
        yield from _spans(work, what, sql, first, middle, *more)
        yield from _spans(work, what, sql, middle + 1, last, *more)
        return
    yield from rows


def _last(work: _Salvage, *queries: tuple[str, tuple[Any, ...]]) -> int:
    """The greatest key that any of the queries can still tell."""
    found = 0
    for sql, values in queries:
        with suppress(Exception):  # an unreadable page there: the others may tell
            found = max(found, work.raw.execute(sql, values).fetchone()[0] or 0)
    return found


# --- contents -----------------------------------------------------------------------------


def _target(work: _Salvage, digest: bytes) -> Path:
    name = digest.hex()
    folder = work.to / "contents" / name[:2]
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name[2:]


def _large_contents(work: _Salvage) -> None:
    for path in sorted(Path(work.large.folder).glob("??/*")):
        with suppress(ValueError):  # a name that is no hash is no content
            digest = bytes.fromhex(path.parent.name + path.name)
            _keep(work, digest, partial(_large, work, digest))


def _large(work: _Salvage, digest: bytes) -> BinaryIO:
    return work.large.open(digest, _size(work, digest))


def _size(work: _Salvage, digest: bytes) -> int:
    """How long a large content is, found by reading it: the database may not be able to say."""
    from backports.zstd import ZstdFile

    total = 0
    with ZstdFile(work.large.path(digest), "rb") as stream:
        while piece := stream.read(PIECE):
            total += len(piece)
    return total


def _keep(work: _Salvage, digest: bytes, opened: Callable[[], BinaryIO]) -> None:
    """Write a content under its name, if what comes out is what the name says."""
    target = _target(work, digest)
    seen = hashlib.sha256()
    try:
        with opened() as stream, open(target, "wb") as file:
            while piece := stream.read(PIECE):
                seen.update(piece)
                file.write(piece)
        if seen.digest() != digest:
            raise StorageFailed("does not match its hash")
    except Exception as error:  # noqa: BLE001 - whatever it is, the next content is tried
        target.unlink(missing_ok=True)
        work.fail("content", error, sha256=digest.hex())
        return
    work.done.contents += 1
    work.progress("contents", work.done.contents)


def _contents(work: _Salvage) -> None:
    """Every content in the database, bases before what leans on them."""
    last = _last(
        work, ("SELECT max(number) FROM blob", ()), ("SELECT max(blob) FROM blob_content", ())
    )
    sql = (
        "SELECT b.number, b.sha256, b.size, b.encoding, base.sha256, c.content FROM blob b"
        " LEFT JOIN blob base ON base.number = b.base"
        " LEFT JOIN blob_content c ON c.blob = b.number"
        " WHERE b.large = 0 AND b.encoding <> 'absent' AND b.number BETWEEN ? AND ?"
        " ORDER BY b.number"
    )
    for first in range(1, last + 1, BATCH):
        for row in _spans(work, "content", sql, first, min(first + BATCH - 1, last)):
            digest = bytes(row[1])
            _keep(work, digest, partial(_decoded, work, row))


def _decoded(work: _Salvage, row: Any) -> BinaryIO:
    _, _, size, encoding, base, content = row
    if content is None:
        raise StorageFailed("its bytes are gone")
    against = _target(work, bytes(base)).read_bytes() if base is not None else None
    return BytesIO(decompress(encoding, bytes(content), size, against))


# --- events -------------------------------------------------------------------------------


def _logs(work: _Salvage) -> Iterator[tuple[int, str]]:
    last = _last(work, ("SELECT max(number) FROM log", ()), ("SELECT max(log) FROM event", ()))
    sql = "SELECT number, id FROM log WHERE number BETWEEN ? AND ?"
    named = dict(_spans(work, "log", sql, 1, max(last, 1)))
    for number in range(1, last + 1):
        yield number, named.get(number, f"log-{number}")


def _log(work: _Salvage, number: int, log: str, out: Any) -> None:
    last = _last(
        work,
        ("SELECT max(seq) FROM event WHERE log = ?", (number,)),
        ("SELECT max(seq) FROM payload WHERE log = ?", (number,)),
        ("SELECT max(finished) FROM call WHERE log = ?", (number,)),
    )
    sql = (
        "SELECT seq, leaf, leaf_hash FROM event WHERE log = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    )
    tree: dict[str, FileState] = {}
    expected = 1
    for first in range(1, last + 1, BATCH):
        for seq, leaf, stored in _spans(
            work, "event", sql, first, min(first + BATCH - 1, last), number
        ):
            if seq > expected:
                work.fail("event", "missing", log=log, first=expected, last=seq - 1)
            expected = seq + 1
            event = _event(work, number, log, seq, bytes(leaf), bytes(stored), out)
            if event is not None and isinstance(event.fact, FilesChanged):
                for change in event.fact.changes:
                    tree.pop(change.path, None)
                    if change.after is not None:
                        tree[change.path] = change.after
    _files(work, log, tree)


def _event(
    work: _Salvage, number: int, log: str, seq: int, packed: bytes, stored: bytes, out: Any
) -> Event | None:
    try:
        leaf = unpack(packed, MAX_LEAF)
    except AuditError as error:
        work.fail("event", error, log=log, seq=seq)
        return None
    line: dict[str, Any] = {"log": log, "seq": seq, "leaf": leaf.decode("utf-8", "replace")}
    line |= {"leaf_hash": stored.hex(), "intact": leaf_hash(leaf) == stored}
    if not line["intact"]:
        work.fail("event", "the leaf does not match its hash", log=log, seq=seq)
    event = None
    try:
        event = decode(leaf, _payloads(work, number, log, seq))
        line |= {"event": event_record(event)}
    except AuditError as error:
        work.fail("event", error, log=log, seq=seq)
    out.write(to_json(line) + "\n")
    work.done.events += 1
    work.progress("events", work.done.events)
    return event


def _payloads(work: _Salvage, number: int, log: str, seq: int) -> dict[tuple[str, int], bytes]:
    sql = (
        "SELECT p.role, p.n, p.content, b.sha256 FROM payload p"
        " LEFT JOIN blob b ON b.number = p.blob WHERE p.log = ? AND p.seq BETWEEN ? AND ?"
    )
    found: dict[tuple[str, int], bytes] = {}
    for role, n, content, digest in _spans(work, "payload", sql, seq, seq, number):
        try:
            if content is not None:
                found[role, n] = unpack(bytes(content), MAX_PAYLOAD)
            elif digest is not None:
                found[role, n] = _target(work, bytes(digest)).read_bytes()
        except (AuditError, OSError) as error:
            work.fail("payload", error, log=log, seq=seq, role=role, n=n)
    return found


# --- the last tree ------------------------------------------------------------------------


def _files(work: _Salvage, log: str, tree: dict[str, FileState]) -> None:
    """Write the tree's files; symlinks last, so that nothing is ever written through one."""
    root = work.to / "workspaces" / "".join(c if c.isalnum() or c in "-_" else "_" for c in log)
    root.mkdir(parents=True, exist_ok=True)
    links = [path for path, state in tree.items() if state.kind == "symlink"]
    rest = [path for path, state in sorted(tree.items()) if state.kind != "symlink"]
    for path in (*rest, *links):
        try:
            _file(work, root, path, tree[path])
        except Exception as error:  # noqa: BLE001 - whatever it is, the next file is tried
            work.fail("file", error, log=log, path=path)
        else:
            work.done.files += tree[path].kind != "directory"


def _file(work: _Salvage, root: Path, path: str, state: FileState) -> None:
    if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise StorageFailed("not a path inside a workspace")
    target = os.path.join(os.fsencode(root), path.encode("utf-8", "surrogateescape"))
    os.makedirs(target if state.kind == "directory" else os.path.dirname(target), exist_ok=True)
    if state.blob is None:
        return
    source = _target(work, bytes.fromhex(state.blob))
    if state.kind == "symlink":
        os.symlink(source.read_bytes(), target)
    else:
        shutil.copyfile(os.fsencode(source), target)
        Path(os.fsdecode(target)).chmod(state.mode & 0o777 | 0o400)
