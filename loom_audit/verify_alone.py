"""Checks a store by docs/store-format.md alone: no other module of this package is imported.

    python -m loom_audit.verify_alone STORE [--head "loom-audit-head v1 LOG SIZE ROOT"] …

A copy of this file does the same; it needs Python 3.11 and, before Python 3.14, `backports.zstd`.
STORE is the database file. The head of each log is printed, and what was erased or is wrong, one a
line; of a log that is `forgotten` all is erased; `absent` is a content of which only the hash is
known, `unanchored` are events that are under none of the heads given. Exit 0: every leaf, hash,
node, commitment and content is as recorded; 1: not so; 2: not a store; 3: all is as recorded, and
changes are on record that do not fit together.
Tables that are derived from the log are not read; `loom-audit verify` compares them.
"""

import argparse
import hashlib
import json
import re
import sqlite3
import sys
import zlib
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

KINDS = {"f": "file", "l": "symlink", "d": "directory", "o": "opaque"}
SHAPES = {"f": 3, "l": 3, "d": 1, "o": 0}
"""How many items a state in a manifest has after its kind, and one more at most."""

TEXTS = ("v", "log", "kind", "at", "actor", "session", "id", "prev", "source", "parent", "call_id")
FORGOTTEN = "workspace.forgotten"
REVISIONS = {"0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008"}
HEAD = "loom-audit-head v1"
HEAD_LINE = re.compile(rf"\s*{HEAD} \S+ [0-9]+ [0-9a-f]{{64}}\s*")
TABLES = {"log", "event", "tree_node", "payload", "blob", "blob_content", "alembic_version"}
MAX_LEAF, MAX_ROW, CHUNK = (64 << 10) - 1, 1 << 20, 1 << 20
STORED_LEVELS, ENCODINGS = 8, {("raw", True), ("zstd", True), ("zstd-delta", False)}

# A store of format 1 does not hold its dictionary.
DICTIONARY_1 = (
    b'{"duration":1,"result":{"data":{"exit_code":0,"stderr":"","stdout":"","bytes":null,"error":'
    b'null,"files_changed":["src/"],"output":"Edited : 1 replacement","success":true}},"error":{"c'
    b'ode":"","message":"","details":{{"content":{"$content":0,"size":},"path":"src/","new_str":""'
    b',"old_str":"","command":"{"changes":[["",null,["f",420,["d",493]]],"origin":"outside","basel'
    b'ine""command"{"changes":[["src/",["f",420,,"origin":"tool"}'
    b'{"actor":"outside","at":"2026-{"actor":"agent:","at":"2026-11-21T22:50:40.000000Z","causes":'
    b'["coverage":{"level":"partial","reasons":["reverts":["sandbox":"plain","source":"session.sta'
    b'rted workspace.attached checkpoint.marked "status":"error""status":"denied""status":"timeout'
    b'""effect":"execute""effect":"read""call_id":"","coverage":{"level":"full"},"effect":"write",'
    b'"id":"","kind":"call.finished","log":"","payloads":[{"commit":"","n":0,"role":"result","size'
    b'":1"kind":"files.changed""kind":"change.intended","log":"","payloads":[{"commit":"","n":0,"r'
    b'ole":"manifest","size":1"n":0,"role":"fact","size":"n":1,"role":"content","size":,"n":0,"rol'
    b'e":"args","size":}],"prev":"","seq":1,"session":"","status":"ok","tool":"read_file","tool":"'
    b'write_file","tool":"shell_execute","tool":"edit_file","v":"1.0"}'
)
DICTIONARY_HASHES = {
    1: "e183ed63ec57baa1639bd26b322727be2afd230d5c78dcec65935ceca9382a6a",
    2: "d65d59f179d66ad9be3e50fb3fa99b940f1da9fede019e7b8d59b236b55d1929",
}


class Wrong(Exception):
    """What is stored is not what was recorded; the message says how."""


DAMAGED = (
    Wrong,
    sqlite3.Error,
    zstd.ZstdError,
    zlib.error,
    OSError,
    ValueError,
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
)
"""What is raised where damaged bytes are read as something."""


def sha256(*pieces: bytes) -> bytes:
    """The SHA-256 of the pieces one behind the other, 32 bytes."""
    return hashlib.sha256(b"".join(pieces)).digest()


def base64url(raw: bytes) -> str:
    """The text of these bytes in base64url (RFC 4648 section 5) without padding."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def unpack(stored: bytes, dictionaries: Mapping[int, bytes], limit: int) -> bytes:
    """The bytes that were packed into a row (docs/store-format.md). Wrong, zlib.error."""
    way, text, trailing = stored[0], stored[1:], b""
    if way:
        if way not in dictionaries:
            raise Wrong(f"a row is packed in the unknown way {way!a}")
        unpacker = zlib.decompressobj(-15, zdict=dictionaries[way])
        text = unpacker.decompress(text, limit + 1)
        if len(text) <= limit and not unpacker.eof:
            raise Wrong("a packed row ends too early")
        trailing = unpacker.unused_data
    text = unfold(text, trailing) if trailing and way > 1 else text + trailing
    if len(text) > limit:
        raise Wrong(f"a packed row holds more than {limit} bytes")
    return text


def unfold(text: bytes, trailing: bytes) -> bytes:
    """The text with the bytes that follow the deflate stream in the place of their markers."""
    pieces = re.split(rb"([\x01-\x04])", text)
    for n in range(1, len(pieces), 2):
        marker = pieces[n][0]
        size = (16, 8, 32, 8)[marker - 1]
        raw, trailing = trailing[:size], trailing[size:]
        shown = base64url(raw) if marker == 3 else raw.hex()
        if marker == 4:
            moment = datetime(1970, 1, 1) + timedelta(microseconds=int.from_bytes(raw, "big"))
            shown = moment.isoformat(timespec="microseconds") + "Z"
        pieces[n] = shown.encode()
    return b"".join(pieces) + trailing


def pack_id(id: str) -> bytes:
    """An id as the column `event.id` holds it."""
    if not id or re.fullmatch("[0-9a-f]{32}|(?!ff)[0-9a-f]{16}", id):
        return bytes.fromhex(id)
    marked = b"\xff" + id.encode("utf-8", "surrogatepass")
    return marked + b"\xff" if len(marked) == 16 else marked


class Contents:
    """The contents of a store by the numbers of their rows, decoded and checked."""

    def __init__(self, rows: sqlite3.Connection, folder: Path) -> None:
        self._rows = rows
        self._folder = folder
        self.read = lru_cache(maxsize=64)(self._read)

    def check(self, number: int) -> None:
        """Read a content; one in a file a part at a time. Raises what is in DAMAGED."""
        digest, size, stored, encoding, base, large = self._row(number)
        self._check_shape(number, encoding, base, large)
        if encoding == "absent":
            return
        if not large:
            self.read(number)
            return
        hashed, count = hashlib.sha256(), 0
        with zstd.open(self._file(digest, stored), "rb") as stream:
            while count <= size and (part := stream.read(CHUNK)):
                hashed.update(part)
                count += len(part)
        if (encoding, base, count, hashed.digest()) != ("zstd", None, size, digest):
            raise Wrong("its file is not what its hash was made of")

    def _check_shape(self, number: int, encoding: str, base: int | None, large: int) -> None:
        """That the row says where the bytes are, and the place in the line of versions."""
        query = (
            "SELECT b.version, s.version, c.blob IS NOT NULL, b.stored <> 0 FROM blob b "
            "LEFT JOIN blob s ON s.number = b.base LEFT JOIN blob_content c ON c.blob = b.number "
            "WHERE b.number = ?"
        )
        version, before, inside, stored = self._rows.execute(query, (number,)).fetchone()
        step = 1
        while version and version % (step * 16) == 0:
            step *= 16
        placed = (
            before == version - step >= 0
            if encoding == "zstd-delta"
            else (version, base) == (0, None)
        )
        inside_or_large = (inside, large) in ((0, 0), (1, 0), (0, 1))
        if (
            not placed
            or not inside_or_large
            or (encoding == "absent" and (inside, large, stored) != (0, 0, 0))
        ):
            raise Wrong("its row does not say how it is stored")

    def _row(self, number: int) -> Any:
        query = "SELECT sha256, size, stored, encoding, base, large FROM blob WHERE number = ?"
        if (row := self._rows.execute(query, (number,)).fetchone()) is None:
            raise Wrong(f"there is no content number {number}")
        return row

    def _file(self, digest: bytes, stored: int) -> Path:
        path = self._folder / digest.hex()[:2] / digest.hex()[2:]
        if path.stat().st_size != stored:
            raise Wrong(f"its file is not {stored} bytes long")
        return path

    def _read(self, number: int) -> bytes:
        """The content whole. What it is stored against is read first, and so on."""
        digest, size, stored, encoding, base, large = self._row(number)
        if (encoding, base is None) not in ENCODINGS:
            raise Wrong("its row does not say how it is stored")
        prefix = None if base is None else zstd.ZstdDict(self.read(base), is_raw=True).as_prefix
        if large:
            packed = self._file(digest, stored).read_bytes()
        else:
            query = "SELECT content FROM blob_content WHERE blob = ?"
            (packed,) = self._rows.execute(query, (number,)).fetchone() or (b"",)
        content = packed
        if encoding != "raw":
            unpacker = zstd.ZstdDecompressor(zstd_dict=prefix)
            content = unpacker.decompress(packed, max_length=size + 1)
            if not unpacker.eof or unpacker.unused_data:
                raise Wrong("its stored bytes are not one whole zstd frame")
        if (len(packed), len(content), sha256(content)) != (stored, size, digest):
            raise Wrong("it is not what its hash was made of")
        return content


@dataclass
class Tree:
    """The Merkle tree over the leaves so far (RFC 9162 §2.1): its complete nodes, largest first."""

    size: int = 0
    nodes: list[tuple[int, bytes]] = field(default_factory=list)

    def append(self, hashed: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Add a leaf hash; give each node that the leaf completes as (level, position, hash)."""
        level = 0
        self.size += 1
        while self.nodes and self.nodes[-1][0] == level:
            hashed = sha256(b"\x01", self.nodes.pop()[1], hashed)
            level += 1
            yield level, (self.size - 1) >> level, hashed
        self.nodes.append((level, hashed))

    def root(self) -> str:
        """The root of the tree in hex (MTH of RFC 9162 section 2.1.1)."""
        root = self.nodes[-1][1] if self.nodes else sha256()
        for _, hashed in reversed(self.nodes[:-1]):
            root = sha256(b"\x01", hashed, root)
        return root.hex()


State = tuple[Any, ...] | None
"""Kind, mode, size, SHA-256 of the content, and what else a manifest says but for the identity."""

Change = tuple[str, State, State]


def text_of(value: Any) -> str:
    """The text of a path that a manifest or a fact holds as text or as base64."""
    if isinstance(value, str):
        return value
    return b64decode(value["$b64"]).decode("utf-8", "surrogateescape")


def without_identity(state: Any, digest: bytes | None) -> State:
    """A state of a manifest as states are compared: with a hash in the place of a commitment."""
    if state is None:
        return None
    kind, *rest = state
    width = SHAPES[kind]
    [more] = rest[width:] or [{}]
    mode, size = (*rest[:width], 0, 0)[:2]
    said = mode, size, more.get("g") or 0
    if len(rest) < width or [type(one) for one in said] != [int] * 3:
        raise Wrong(f"its manifest says {state!a} of a file")
    return kind, mode, 0 if kind == "d" else size, digest, more.get("g"), bool(more.get("a"))


def shown(path: str) -> Any:
    """The form that a path has in a manifest: text, or base64 where the name is not UTF-8."""
    raw = path.encode("utf-8", "surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"$b64": b64encode(raw).decode()}


def above(path: str) -> Iterator[str]:
    """The folders above a path, innermost first."""
    while path := path.rpartition("/")[0]:
        yield path


@dataclass
class Files:
    """The files that a log says there are; `known` while all that says so could be read.

    `gone` are the paths that are not known, with all below them; `inside` counts the paths that are
    directly in each folder. What is told in a log of no folder need not fit together.
    """

    states: dict[str, State] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    inside: Counter[str] = field(default_factory=Counter)
    listed: list[Change] = field(default_factory=list)
    last_part: int = 0
    known: bool = True
    of_folder: bool = True

    def change(self, changes: Sequence[Change]) -> Iterator[str]:
        """Follow the changes of an event; give a sentence for each that cannot be."""
        changed: dict[str, State] = {}
        for path, before, after in changes:
            there = self.states.get(path)
            if before != there and not self._is_unknown(path) and not self._erased(before, there):
                yield f"{path!a} was not before what it says"
            self._put(path, after)
            changed[path] = after
        for path, after in sorted(changed.items()):  # a folder before what is in it
            self.gone.discard(path)
            if after is not None:
                yield from self._check_folder(path)
            if after is not None and after[0] == "o":
                self.leave([path], inside=True)
            elif self.inside[path] and (after is None or after[0] != "d"):
                yield f"something is left below {path!a}"

    def _put(self, path: str, state: State) -> None:
        was = self.states.pop(path, None)
        if state is not None:
            self.states[path] = state
        self.inside[path.rpartition("/")[0]] += (state is not None) - (was is not None)

    def _kind(self, path: str) -> str:
        state = self.states.get(path)
        return str(state[0]) if state else ""

    def _is_unknown(self, path: str) -> bool:
        return bool(self.gone) and not self.gone.isdisjoint((path, *above(path)))

    def _check_folder(self, path: str) -> Iterator[str]:
        """That what is at a path lies in a directory, where that is known."""
        if "/" not in path or self._kind(next(above(path))) == "d":
            return
        if self._is_unknown(path) or "o" in map(self._kind, above(path)):
            self._put(path, None)
        else:
            yield f"{path!a} is not in a directory"

    @staticmethod
    def _erased(one: State, other: State) -> bool:
        """Whether two states differ in nothing but a content that was erased."""
        if one is None or other is None or one[0] not in ("f", "l") or (one[3] and other[3]):
            return False
        return (*one[:3], *one[4:]) == (*other[:3], *other[4:])

    def leave(self, paths: Sequence[str], *, inside: bool = False) -> None:
        """Let paths leave the tree with all below each, or only what is inside of each."""
        named = set(paths)
        for path in [*self.states]:
            if not named.isdisjoint(above(path)) or (path in named and not inside):
                self._put(path, None)
        self.gone = {path for path in self.gone if named.isdisjoint(above(path))}
        if not inside:
            self.gone |= named

    def relist(self, changes: Sequence[Change], fact: Mapping[str, Any]) -> Iterator[str]:
        """Follow a part of a whole listing; the last part begins the files anew."""
        part = fact.get("part", 1)
        if part == 1:
            self.listed, self.last_part = [], 0
        if part != self.last_part + 1:
            self.last_part = -1
            return
        self.listed += changes
        self.last_part = part
        if fact.get("last", True):
            self.states, self.inside, self.gone = {}, Counter(), set()
            for path, _, after in self.listed:
                self._put(path, after)
            self.leave([text_of(path) for path, *_ in fact.get("untracked", ())])
            self.known, self.listed, self.last_part = True, [], 0
            for path in sorted(self.states):
                yield from self._check_folder(path)

    def listing(self) -> str | None:
        """The hash of the listing of all that is there; None where that is not known."""
        hashed = hashlib.sha256()
        for path in sorted(
            [*self.states, *self.gone], key=lambda path: path.encode("utf-8", "surrogateescape")
        ):
            line: list[Any] = [shown(path)]
            if state := self.states.get(path):
                kind, mode, size, digest, group, acl = state
                if digest is None and kind in ("f", "l"):
                    return None  # it was erased
                line += [KINDS[kind], mode, size, digest and digest.hex()]
                more = {"a": 1 if acl else None, "g": group}
                said = {name: value for name, value in more.items() if value is not None}
                line += [said] if said else []
            hashed.update(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        return hashed.hexdigest() if self.known else None


class Check:
    """A check of a store as of one moment: prints what it finds, and counts it."""

    def __init__(self, rows: sqlite3.Connection, contents: Contents, heads: Sequence[str]) -> None:
        self.rows, self.contents = rows, contents
        self.counts: Counter[str] = Counter()
        self.heads = [(log, int(size), root) for _, _, log, size, root in map(str.split, heads)]
        self.dictionaries = {1: DICTIONARY_1}
        self.intended: dict[tuple[int, str], object] = {}
        self.named: dict[object, str] = {}
        self.twice: dict[object, int] = {}
        self.older = True
        self.meant: dict[tuple[int, str], list[Change] | None] = {}
        self.files = Files()
        self.changes: list[Change] | None = None
        self.fact: Any = None
        self.lost = False
        self.listings: dict[int, str | None] = {}
        self.forgotten = False

    def tell(self, sort: str, where: str, what: object) -> None:
        """Print one line on what is `erased` or `wrong`, with all but ASCII escaped."""
        self.counts[sort] += 1
        if self.forgotten and sort == "erased":
            return
        if isinstance(what, Exception) and not isinstance(what, Wrong):
            what = f"it cannot be read: {what!r}"
        print(f"{sort}: {ascii(f'{where}: {what}')[1:-1]}")

    def store(self) -> None:
        """Check every log and every content."""
        self._read_dictionaries()
        revisions = [name for (name,) in self.rows.execute("SELECT * FROM alembic_version")]
        if len(revisions) != 1 or revisions[0] not in REVISIONS:
            self.tell("wrong", "store", f"it says that it is at the revisions {revisions!a}")
        logs = dict(self.rows.execute("SELECT id, number FROM log"))
        for log, number in logs.items():
            self._check_log(log, number)
        for table in ("event", "payload", "tree_node"):
            query = f"SELECT DISTINCT log FROM {table} WHERE log NOT IN (SELECT number FROM log)"
            for (number,) in self.rows.execute(query):
                self.tell("wrong", f"log number {number!a}", f"{table} rows are of no log")
        for log in {log for log, _, _ in self.heads} - logs.keys():
            self.tell("wrong", f"log {log}", "it is not here, there is a head of it")
        query = "SELECT blob FROM blob_content WHERE blob NOT IN (SELECT number FROM blob)"
        for (number,) in self.rows.execute(query):
            self.tell("wrong", f"content number {number}", "its bytes are stored, it has no row")
        query = "SELECT number, hex(sha256), encoding = 'absent' FROM blob ORDER BY number"
        for number, digest, absent in self.rows.execute(query):
            self.counts["contents"] += not absent
            try:
                self.contents.check(number)
                if absent:
                    self.tell("absent", f"content {digest.lower()}", "only its hash is known")
            except DAMAGED as error:
                self.tell("wrong", f"content {digest.lower()}", error)

    def _read_dictionaries(self) -> None:
        query = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'dictionary'"
        if self.rows.execute(query).fetchone() is None:
            return
        stored = dict(self.rows.execute("SELECT number, words FROM dictionary"))
        self.dictionaries |= stored
        if {n: sha256(words).hex() for n, words in stored.items()} != DICTIONARY_HASHES:
            self.tell("wrong", "store", "its dictionaries are not the published ones")

    def _check_log(self, log: str, number: int) -> None:
        tree, where, prev, anchored = Tree(), f"log {log}", b"", 0
        heads = [(size, root) for of, size, root in self.heads if of == log]
        self.files = Files()
        due = self._points(number)
        query = "SELECT kind FROM event WHERE log = ? ORDER BY seq DESC LIMIT 1"
        self.forgotten = self.rows.execute(query, (number,)).fetchone() == (FORGOTTEN,)
        self.listings = {0: self.files.listing()}
        query = "SELECT seq, id, kind, leaf, leaf_hash FROM event WHERE log = ? ORDER BY seq"
        for seq, *row, packed, stored in self.rows.execute(query, (number,)):
            if seq != tree.size + 1:
                self.tell("wrong", where, f"event {tree.size + 1} is missing")
                return
            self.counts["events"] += 1
            hashed, shown = stored, f"{where} event {seq}"
            try:
                leaf = unpack(packed, self.dictionaries, MAX_LEAF)
                if (hashed := sha256(b"\x00", leaf)) != stored:
                    self.tell("wrong", shown, "its leaf is not what its hash was made of")
                problems = [*self._check_event((number, log, seq, *row), leaf, prev)]
                for problem in problems:
                    self.tell("wrong", shown, problem)
                if problems:
                    self.files.known = False
                self._follow(shown, number, json.loads(leaf))
            except DAMAGED as error:
                self.tell("wrong", shown, error)
                self.files.known = False
            if seq in due:
                self.listings[seq] = self.files.listing()
            prev = hashed if isinstance(hashed, bytes) else b""
            self._append(tree, where, number, prev)
            for size, root in heads:
                if size == seq and root != tree.root():
                    self.tell("wrong", where, f"the head of {size} events does not match")
                elif size == seq:
                    anchored = size
        if any(size == 0 and root != Tree().root() for size, root in heads):
            self.tell("wrong", where, "the head of no events does not match")
        self.counts["unanchored"] += tree.size - anchored
        self._check_ends(tree.size, where, number, max(heads, default=(0, ""))[0])
        if self.forgotten:
            self.tell("forgotten", where, f"what its events before {tree.size} say is erased")
        self.forgotten = False
        print(f"{HEAD} {ascii(log)[1:-1]} {tree.size} {tree.root()}")

    def _points(self, number: int) -> set[Any]:
        """The events after which the tree is listed, by those that can be read."""
        points = set()
        query = (
            "SELECT p.content FROM event e JOIN payload p ON p.log = e.log AND p.seq = e.seq "
            "WHERE e.log = ? AND e.kind = 'tree.listed' AND p.role = 'fact'"
        )
        for (packed,) in self.rows.execute(query, (number,)):
            with suppress(*DAMAGED):
                points.add(json.loads(unpack(packed, self.dictionaries, MAX_ROW))["point"])
        return points

    def _append(self, tree: Tree, where: str, number: int, hashed: bytes) -> None:
        """Add a leaf hash, and compare the stored nodes that are complete with it."""
        query = "SELECT hash FROM tree_node WHERE log = ? AND level = ? AND position = ?"
        for level, position, node in tree.append(hashed):
            if level % STORED_LEVELS == 0:
                self.counts["nodes"] += 1
                if self.rows.execute(query, (number, level, position)).fetchone() != (node,):
                    self.tell("wrong", where, f"node {position} of level {level}")

    def _check_ends(self, size: int, where: str, number: int, due: int) -> None:
        """What lies behind the last event, and a head of more events."""
        if due > size:
            why = "cut off, or copied while it was written"
            self.tell("wrong", where, f"it has {size} events, a head {due}: {why}")
        for twice in self.twice.values():
            self.tell("wrong", f"{where} event {twice}", "it says once more what happened")
        self.twice.clear()
        levels = range(STORED_LEVELS, size.bit_length(), STORED_LEVELS)
        query = "SELECT count(*) FROM tree_node WHERE log = ?"
        if self.rows.execute(query, (number,)).fetchone() != (sum(size >> n for n in levels),):
            self.tell("wrong", where, "there are more nodes, or fewer, than its events make")
        query = "SELECT DISTINCT seq FROM payload WHERE log = ? AND (seq < 1 OR seq > ?)"
        for (seq,) in self.rows.execute(query, (number, size)):
            self.tell("wrong", where, f"there are payloads of event {seq!a}, which is not there")

    def _check_event(self, row: tuple[Any, ...], leaf: bytes, prev: bytes) -> Iterator[str]:
        """Each thing that is wrong with an event beside its hash."""
        number, log, seq, id, kind = row
        envelope = json.loads(leaf)
        major = envelope["v"].partition(".")[0]
        if major not in ("1", "2"):
            raise Wrong(f"it is in the format {envelope['v']}, which is not known here")
        if any(not isinstance(envelope.get(name, ""), str) for name in TEXTS):
            yield "its envelope has what is not text where one is due"
        if "actor" not in envelope or datetime.fromisoformat(envelope["at"]).tzinfo is None:
            yield "it does not say who did it, or when"
        said = envelope["log"], envelope["seq"], envelope["kind"], pack_id(envelope.get("id", ""))
        if said != (log, seq, kind, id):
            yield "its leaf is that of another event than its row"
        if envelope.get("prev", "") != (prev.hex() if major == "1" else prev.hex()[:16]):
            yield "its leaf does not follow the one before"
        yield from self._check_intention(number, envelope)
        where, salt_bytes = f"log {log} event {seq}", 32 if major == "1" else 16
        yield from self._check_payloads(number, where, envelope, salt_bytes)

    def _follow(self, shown: str, number: int, envelope: Mapping[str, Any]) -> None:
        """Follow what an event says of files, and tell what cannot be."""
        kind, files, seq = envelope["kind"], self.files, envelope["seq"]
        fact = self.fact if isinstance(self.fact, dict) else {}
        if seq == 1 and str(fact.get("root", "")).startswith("import:"):
            files.of_folder = False
        names = kind in ("files.changed", "change.intended", "tree.relisted")
        if names and "intention" not in envelope and self.changes is None and not self.lost:
            self.tell("wrong", shown, "it says of no paths what is there")
        if kind == "change.intended":
            self.meant[number, repr(seq)] = self.changes
        if kind == "files.changed":
            call = number, envelope.get("session", ""), envelope.get("call_id")
            named, again = envelope.get("intention"), self.twice.get(call) == seq
            changes = (
                self.changes
                if "intention" not in envelope
                else self.meant.pop((number, repr(named)), None)
            )
            if again:
                return
            files.known = files.known and changes is not None
            for problem in files.change(changes or []):
                if files.known and files.of_folder:
                    self.tell("inconsistent", shown, problem)
        elif kind == "paths.untracked" and envelope["v"] not in ("1.0", "2.0"):
            files.leave([text_of(path) for path, *_ in fact.get("paths", ())])
        elif kind == "scope.accepted":
            files.leave([text_of(path) for path in fact.get("untracked", ())])
        elif kind == "tree.relisted":
            for problem in files.relist(self.changes or [], {"part": 0} if self.lost else fact):
                if files.of_folder:
                    self.tell("inconsistent", shown, problem)
        elif kind == "tree.listed" and fact.get("continuous"):
            point, listing = fact["point"], fact["listing"]
            if self.listings.get(point, "") not in (None, listing):
                self.tell("wrong", shown, f"it does not list the tree after event {point}")
        if self.lost and kind in ("paths.untracked", "scope.accepted", "tree.relisted"):
            files.known = False

    def _check_intention(self, number: int, envelope: Mapping[str, Any]) -> Iterator[str]:
        """That what an event says was intended was, and happened once.

        What an interruption let a release before format 2.1 record twice is told, and not wrong.
        """
        kind, seq = envelope["kind"], envelope["seq"]
        named = repr(envelope["intention"]) if "intention" in envelope else ""
        self.older = (self.older or seq == 1) and envelope["v"] in ("1.0", "2.0")
        call = number, envelope.get("session", ""), envelope.get("call_id")
        if kind == "change.intended" and not envelope["v"].startswith("1."):
            self.intended[number, repr(seq)] = call
        if named and kind != "files.changed":
            yield "it says that what was intended happened, and changes no files"
            return
        again = kind == "files.changed" and named and self.named.get(call) == named
        if kind == "files.changed":
            self.named[call] = named
        if again and self.older and call not in self.twice:
            self.twice[call] = seq
        elif named and self.intended.pop((number, named), None) != call:
            yield "what it says was intended is not an intention of its call, or not only its own"
        if kind == "call.finished":
            self.named.pop(call, None)
            if (twice := self.twice.pop(call, None)) and envelope.get("status") != "cancelled":
                yield f"event {twice} says once more what happened, and its call was not cancelled"
            elif twice:
                shown = f"log {envelope['log']} event {twice}"
                self.tell("repeated", shown, "it was recorded twice by an interruption")

    def _check_payloads(
        self, number: int, where: str, envelope: Mapping[str, Any], salt_bytes: int
    ) -> Iterator[str]:
        """Compare the payloads of an event with the commitments to them."""
        query = (
            "SELECT p.role, p.n, p.salt, p.content, p.blob, b.encoding FROM payload p "
            "LEFT JOIN blob b ON b.number = p.blob WHERE p.log = ? AND p.seq = ?"
        )
        rows = self.rows.execute(query, (number, envelope["seq"]))
        stored = {(role, n): (salt, self._bytes(*row)) for role, n, salt, *row in rows}
        keys = stored.pop(("keys", 0), None) if ("manifest", 0) in stored else None
        self.changes, self.fact, self.lost = None, None, False
        for item in envelope.get("payloads", ()):
            role, n = item["role"], item["n"]
            salt, content = stored.pop((role, n), (b"", None))
            if content is None:
                self.tell("erased", where, f"payload {role} {n}")
                self.lost = self.lost or role in ("fact", "manifest")
                continue
            self.counts["payloads"] += 1
            made = sha256(salt, role.encode(), sha256(content))
            if item["commit"] not in (base64url(made), made.hex()) or item["size"] != len(content):
                yield f"payload {role} {n} is not the one on record"
            elif role == "manifest":
                yield from self._check_manifest(where, content, keys and keys[1], salt_bytes)
            elif role == "fact":
                self.fact = json.loads(content)
        if keys and (keys[0] != b"" or keys[1] == b""):
            yield "its keys have a salt, or are none"
        for role, n in stored:
            yield f"payload {role} {n} is stored and not on record"

    def _bytes(self, packed: bytes | None, blob: int | None, encoding: str) -> bytes | None:
        """What the row of a payload holds; None when its content was erased."""
        if (packed is None) == (blob is None):
            raise Wrong("a payload is nowhere, or in two places")
        if packed is not None:
            return unpack(packed, self.dictionaries, MAX_ROW)
        return None if encoding == "absent" else self.contents.read(blob or 0)

    def _check_manifest(
        self, where: str, manifest: bytes, keys: bytes | None, salt_bytes: int
    ) -> Iterator[str]:
        """Compare each content that a manifest names with the commitment to it."""
        width, left, query = salt_bytes + 32, keys, "SELECT size FROM blob WHERE sha256 = ?"
        self.changes = []
        for path, *states in json.loads(manifest)["changes"]:
            sides: list[State] = []
            for state in states:
                sides.append(without_identity(state, None))
                if state is None or state[0] not in ("f", "l"):
                    continue
                self.counts["files"] += 1
                shown = f"the content of {json.dumps(path)}"
                key, left = (bytes(width), None) if left is None else (left[:width], left[width:])
                salt, digest = key[:salt_bytes], key[salt_bytes:]
                sides[-1] = without_identity(state, None if key == bytes(width) else digest)
                if key == bytes(width):
                    self.tell("erased", where, shown)
                elif base64url(sha256(salt, b"content", digest)) != state[3]:
                    yield f"{shown} is not the one on record"
                elif self.rows.execute(query, (digest,)).fetchone() != (state[2],):
                    yield f"{shown} is missing, or its size is another"
            self.changes.append((text_of(path), sides[0], sides[1]))
        if left:
            yield "there are keys for more contents than its manifest has"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the store that the arguments name, print what was found, and give the exit code."""
    parser = argparse.ArgumentParser(prog="verify_alone", description="Check a loom-audit store.")
    parser.add_argument("store", type=lambda text: Path(text).absolute(), help="the database file")
    parser.add_argument("--head", action="append", default=[], metavar="HEAD")
    asked = parser.parse_args(arguments)
    if others := [line for line in asked.head if not HEAD_LINE.fullmatch(line)]:
        parser.error(f"argument --head: not a head: {others[0]}")
    try:
        rows = sqlite3.connect(f"{asked.store.as_uri()}?mode=ro", uri=True, isolation_level=None)
        rows.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        rows.execute("BEGIN")
        missing = TABLES - {name for (name,) in rows.execute("SELECT name FROM sqlite_schema")}
    except (sqlite3.Error, ValueError) as error:  # what it says may not be UTF-8
        missing = {str(error)}
    if missing:
        print(f"{asked.store} is not a store: {min(missing)}", file=sys.stderr)
        return 2
    check = Check(rows, Contents(rows, asked.store.parent / "blobs"), asked.head)
    try:
        check.store()
    except DAMAGED as error:
        check.tell("wrong", "store", error)
    print(", ".join(f"{count} {what}" for what, count in sorted(check.counts.items())))
    return 1 if check.counts["wrong"] else 3 if check.counts["inconsistent"] else 0


if __name__ == "__main__":
    sys.exit(main())
