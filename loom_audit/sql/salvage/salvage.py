"""Getting everything readable out of a damaged, locked or read-only store, without writing it.

Written into an empty folder:

    events/LOG.jsonl   one line per event: its exact leaf, whether that matches its hash, payloads
    blobs/SHA256       every content that matches its hash
    trees/LOG/…        the last tree that the readable events make, as files
    failures.txt       what could not be had, and why

Payloads that are not as their event's leaf says are listed, and no tree is made of them.
Projections are not used: trees are folded from events.
"""

import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from shutil import copyfile, rmtree
from typing import Any, BinaryIO

from msgspec import Struct, field

from loom_audit.errors import AuditError, Conflict, Corrupt, StorageFailed
from loom_audit.model.continuity import TREE_FACTS, TREE_KINDS, TreeFact, TreeFold
from loom_audit.model.files import FileState
from loom_audit.model.stored.codec import MAX_LEAF, decode, read_envelope
from loom_audit.model.stored.facts import PayloadBytes
from loom_audit.model.stored.format_1 import salt_bytes_of
from loom_audit.model.stored.intentions import Intentions
from loom_audit.model.stored.manifest import check_manifest
from loom_audit.model.stored.merkle import leaf_hash
from loom_audit.model.stored.payloads import StoredPayload, check_payloads
from loom_audit.ports import OnProgress, Progress
from loom_audit.sql.events.event_rows import MAX_INLINE_PAYLOAD
from loom_audit.sql.ground.driver import driver
from loom_audit.sql.ground.packing import unpack, unpack_id
from loom_audit.sql.salvage.rescue import RescuedContents, open_source

_EVENTS = (
    "SELECT seq, id, kind, leaf, leaf_hash FROM event "
    "WHERE log = ? AND typeof(seq) = 'integer' ORDER BY seq"
)
_PAYLOADS = "SELECT role, n, salt, content, blob FROM payload WHERE log = ? AND seq = ?"
_LOGS = (
    "SELECT number, id FROM log UNION SELECT DISTINCT log, NULL FROM event "
    "WHERE log NOT IN (SELECT number FROM log) ORDER BY 1"
)
_ORDER = {"directory": 0, "file": 1, "symlink": 2}
_BLOBS = "SELECT number, sha256 FROM blob WHERE typeof(sha256) = 'blob' ORDER BY number"


class Salvaged(Struct, frozen=True):
    """The folder, counts and failures of a salvage; `notice` says when a copy had to be read."""

    folder: str
    logs: int
    events: int
    contents: int
    files: int
    failures: tuple[str, ...]
    notice: str


def salvage(path: str, to: str, *, progress: OnProgress | None = None) -> Salvaged:
    """Write what can be read of the store file at `path` into the folder `to`.

    Conflict when the folder is not absent or empty; StorageFailed when nothing can be read at all,
    or the folder cannot be written. The store is only read.
    """
    run = _Run(to, progress or (lambda _: None))
    try:
        _make_empty(to)
        private = os.path.join(to, ".copy")
        Path(private).mkdir(0o700)
        try:
            raw, notice = open_source(path, private, run.failures.append)
            with closing(raw):
                raw.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
                run.read(raw, os.path.join(os.path.dirname(path), "blobs"))
        finally:
            rmtree(private, ignore_errors=True)
        run.finish(notice)
    except (OSError, driver().Error) as error:
        raise StorageFailed(
            f"Salvage cannot go on: {error}", hint="Name a folder with room that you may write."
        ) from error
    return Salvaged(to, run.logs, run.events, run.contents, run.files, tuple(run.failures), notice)


def _make_empty(folder: str) -> None:
    if os.path.isdir(folder) and not os.path.islink(folder):
        if os.listdir(folder):
            raise Conflict(f"{folder} is not empty", hint="Name a new folder.")
        return
    if os.path.lexists(folder):
        raise Conflict(f"{folder} is not a folder", hint="Name a new folder.")
    os.makedirs(folder, mode=0o700)


class _Run(Struct):
    """One salvage, as far as it has come."""

    folder: str
    tell: Callable[[Progress], None]
    logs: int = 0
    events: int = 0
    contents: int = 0
    files: int = 0
    failures: list[str] = field(default_factory=list)
    _intentions: Intentions = field(default_factory=Intentions)

    def read(self, raw: Any, blob_folder: str) -> None:
        """Everything: contents first, since trees are made of them."""
        for name in ("events", "blobs", "trees"):
            Path(self.folder, name).mkdir(0o700)
        contents = RescuedContents(raw, blob_folder)
        last = 0
        for number, digest in raw.execute(_BLOBS):
            self._note_gap("content", last, number)
            last = number
            self._save_content(contents, number, digest)
        for number, id in raw.execute(_LOGS).fetchall():
            self.logs += 1
            if id is None:
                id = _named_by_leaf(raw, number)
                self.failures.append(f"log {id}: its row is gone")
            self._save_log(raw, contents, number, _file_name(id))

    def finish(self, notice: str) -> None:
        """Write down what failed."""
        with _create(os.path.join(self.folder, "failures.txt")) as file:
            for line in (notice, *self.failures):
                if line:
                    file.write(line.encode("utf-8", "backslashreplace") + b"\n")

    def _note_gap(self, what: str, last: int, number: int) -> None:
        if number > last + 1:
            missing = f"{last + 1} to {number - 1}" if number > last + 2 else str(number - 1)
            self.failures.append(f"{what} {missing}: not found")

    def _save_content(self, contents: RescuedContents, number: int, digest: Any) -> None:
        target = os.path.join(self.folder, "blobs", bytes(digest).hex())
        try:
            if contents.row(number)[2] == "absent":
                return
            parts = contents.pieces(number)
            try:
                with _create(target) as file:
                    for part in parts:
                        file.write(part)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(target)
                raise
        except AuditError as error:
            self.failures.append(f"content {number} ({bytes(digest).hex()}): {error}")
            return
        self.contents += 1
        self.tell(Progress("contents", self.contents, unit="contents"))

    def _save_log(self, raw: Any, contents: RescuedContents, log: int, name: str) -> None:
        tree = TreeFold()
        self._intentions = Intentions()
        with _create(os.path.join(self.folder, "events", f"{name}.jsonl")) as file:
            last = 0
            for seq, id, kind, packed, hashed in raw.execute(_EVENTS, (log,)):
                self._note_gap(f"log {name}: event", last, seq)
                last = seq
                try:
                    found = self._event(raw, contents, log, name, (seq, kind, packed, hashed))
                except AuditError as error:
                    self.failures.append(f"log {name}: event {seq}: {error}")
                    continue
                line = {"seq": seq, "id": _text_id(id), "kind": str(kind), **found.record}
                file.write(json.dumps(line).encode() + b"\n")
                self.events += 1
                if found.fact is not None:
                    tree.follow(found.fact)
                elif kind in TREE_KINDS:
                    self.failures.append(f"log {name}: event {seq}: the tree goes on without it")
                self.tell(Progress("events", self.events, unit="events"))
        self.files += write_tree(
            tree.states,
            os.path.join(self.folder, "trees", name),
            os.path.join(self.folder, "blobs"),
            lambda text: self.failures.append(f"log {name}: {text}"),
        )

    def _event(
        self,
        raw: Any,
        contents: RescuedContents,
        log: int,
        name: str,
        row: tuple[int, Any, Any, Any],
    ) -> "_Event":
        seq, kind, packed, hashed = row
        leaf = unpack(packed, MAX_LEAF)
        intact = leaf_hash(leaf) == hashed
        if not intact:
            self.failures.append(f"log {name}: event {seq}: its leaf does not match its hash")
        record: dict[str, Any] = {
            "leaf": leaf.decode("utf-8", "backslashreplace"),
            "leaf_hash": hashed.hex() if isinstance(hashed, bytes) else None,
            "intact": intact,
            "payloads": [],
        }
        payloads = self._payloads(raw, contents, (log, seq), record["payloads"])
        for message in _unproven(leaf, payloads, record["payloads"]):
            self.failures.append(f"log {name}: event {seq}: {message}")
        whole: PayloadBytes = payloads
        with suppress(AuditError):
            whole = self._intentions.complete(seq, kind, leaf, payloads)
        return _Event(record, _changes(leaf, whole) if intact else None)

    def _payloads(
        self,
        raw: Any,
        contents: RescuedContents,
        key: tuple[int, int],
        records: list[dict[str, Any]],
    ) -> dict[tuple[str, int], bytes]:
        """The payloads that can be read, and a record of each."""
        found: dict[tuple[str, int], bytes] = {}
        for role, n, salt, content, blob in raw.execute(_PAYLOADS, key):
            if not all(map(isinstance, (role, n, salt), (str, int, bytes))):
                self.failures.append(f"event {key[1]}: payload {role!a} {n!a} is not one of ours")
                continue
            try:
                data = unpack(content, MAX_INLINE_PAYLOAD) if content is not None else None
                if data is None:
                    data = b"".join(contents.pieces(blob))
                records.append(_part_record(role, n, salt, data, inside=content is not None))
            except (AuditError, TypeError) as error:
                self.failures.append(f"event {key[1]}: payload {role} {n}: {error}")
                continue
            found[role, n] = data
        return found


class _Event(Struct, frozen=True):
    record: dict[str, Any]
    fact: TreeFact | None


def _named_by_leaf(raw: Any, log: int) -> str:
    """The id of a log by the first of its events that can be read."""
    for _, _, _, packed, hashed in raw.execute(_EVENTS, (log,)):
        with suppress(AuditError, TypeError, KeyError):
            leaf = unpack(packed, MAX_LEAF)
            if leaf_hash(leaf) == hashed:
                return str(read_envelope(leaf)["log"])
    return f"number-{log}"


def _unproven(
    leaf: bytes, payloads: dict[tuple[str, int], bytes], records: list[dict[str, Any]]
) -> Iterator[str]:
    """What of an event's payloads is not as its leaf says; that is taken out of `payloads`."""
    stored = [
        StoredPayload(r["role"], r["n"], bytes.fromhex(r["salt"]), bytes.fromhex(r["sha256"]), None)
        for r in records
    ]
    try:
        listed = read_envelope(leaf).get("payloads", ())
        problems = [message for _, message in check_payloads(listed, stored)]
    except (AuditError, KeyError, TypeError) as error:
        problems = [f"its leaf cannot be read: {error}"]
    if problems:
        payloads.clear()
    elif (manifest := payloads.get(("manifest", 0))) is not None:
        keys = payloads.pop(("keys", 0), None)
        salt_bytes = salt_bytes_of(read_envelope(leaf))
        problems = [text for _, text in check_manifest(manifest, keys, salt_bytes=salt_bytes)]
        if keys is None and problems:
            problems = ["payload keys 0 is not stored"]
        elif keys is not None and not problems:
            payloads["keys", 0] = keys
    yield from problems


def _changes(leaf: bytes, payloads: PayloadBytes) -> TreeFact | None:
    with suppress(AuditError):
        fact = decode(leaf, payloads).fact
        if isinstance(fact, TREE_FACTS):
            return fact
    return None


def _part_record(role: str, n: int, salt: bytes, data: bytes, *, inside: bool) -> dict[str, Any]:
    found = {"role": role, "n": n, "salt": bytes(salt).hex(), "sha256": sha256(data).hexdigest()}
    if not inside:
        return found
    try:
        return {**found, "text": data.decode()}
    except UnicodeDecodeError:
        return {**found, "base64": b64encode(data).decode()}


def _text_id(packed: Any) -> str:
    try:
        return unpack_id(packed)
    except Corrupt:
        return repr(packed)


def _file_name(id: Any) -> str:
    """A log's id as a file name, whatever a damaged row holds."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in str(id))
    return name[:100] or "_"


def _create(path: str) -> BinaryIO:
    return open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600), "wb")


# --- the tree -----------------------------------------------------------------------------


def write_tree(
    tree: Mapping[str, FileState], folder: str, blobs: str, failed: Callable[[str], None]
) -> int:
    """Write the paths of a tree that can be written into a new folder; how many they are.

    Nothing is written outside of it: a path that could lead there is refused, and symlinks
    come last, so that no file is written through one.
    """
    Path(folder).mkdir(0o700)
    done = 0
    modes: list[tuple[Path, int]] = []
    kept = ((path, state) for path, state in tree.items() if state.kind != "opaque")
    for path, state in sorted(kept, key=lambda item: (_ORDER[item[1].kind], item[0])):
        raw = path.encode("utf-8", "surrogateescape")
        if not _is_inside(raw):
            failed(f"the path {path!a} leads elsewhere")
            continue
        target = Path(folder, os.fsdecode(raw))
        try:
            target.parent.mkdir(0o700, parents=True, exist_ok=True)
            if state.kind == "directory":
                target.mkdir(0o700, exist_ok=True)
                modes.append((target, state.mode))
            else:
                _write_path(target, state, Path(blobs, str(state.blob)))
            done += 1
        except OSError as error:
            failed(f"the {state.kind} {path!a}: {error.strerror or error}")
            continue
    for target, mode in sorted(modes, reverse=True):
        with suppress(OSError):
            target.chmod(mode)
    return done


def _is_inside(path: bytes) -> bool:
    parts = path.split(b"/")
    return b"\0" not in path and not any(part in (b"", b".", b"..") for part in parts)


def _write_path(target: Path, state: FileState, blob: Path) -> None:
    if state.kind == "symlink":
        target.symlink_to(os.fsdecode(blob.read_bytes()))
        return
    # made first, so that nothing that is there already is written over
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    try:
        copyfile(blob, target)
        target.chmod(state.mode)
    except OSError:
        target.unlink()
        raise
