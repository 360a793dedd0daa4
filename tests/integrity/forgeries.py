"""What somebody with the account may do to a log: rows changed, and events made anew that fit.

A forger who knows the format hashes the leaves again, names in each the one before, makes the
nodes of the tree and the commitments to what he changed.
"""

import json
import random
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from loom_audit.model.stored.merkle import Frontier, leaf_hash
from loom_audit.sql.events.merkle_tree import TILE
from loom_audit.sql.ground.driver import driver
from loom_audit.sql.ground.packing import pack, pack_id, unpack
from tests.integrity.test_sweep import mutate

TABLES = (
    *("event", "payload", "blob", "blob_content", "tree_node", "log", "dictionary"),
    "alembic_version",
)
"""Those that hold the log, or say how to read it. What else there is is derived from them."""

ODD: tuple[Any, ...] = (
    None,
    "",
    "x",
    0,
    1,
    2,
    3,
    7,
    -1,
    2**60,
    1.5,
    True,
    False,
    [],
    {},
    [1],
    [[]],
    {"a": 1},
    "ok",
)
"""What may stand where something else is due."""

STATES: tuple[Any, ...] = (None, ["d", 0o755], ["o"], ["d", 0o700], ["o", {"i": "x"}], ["d"], ["x"])


@dataclass
class Part:
    """A row of `payload`; `content` is None where it is a content of its own, number `blob`."""

    role: str
    n: int
    salt: bytes
    content: bytes | None
    blob: int | None
    anew: bool = False
    """Whether the commitment to it is made anew."""


@dataclass
class Forged:
    """An event as it is read, changed and written again."""

    seq: int
    envelope: dict[str, Any]
    parts: list[Part] = field(default_factory=list)
    stored: str = ""
    """The kind that its row has, where it is not its own."""

    def copy(self) -> "Forged":
        parts = [Part(p.role, p.n, p.salt, p.content, p.blob) for p in self.parts]
        return Forged(self.seq, json.loads(json.dumps(self.envelope)), parts)

    def part(self, role: str) -> Part | None:
        return next((p for p in self.parts if p.role == role and p.content is not None), None)

    @property
    def is_first_format(self) -> bool:
        return str(self.envelope.get("v")).startswith("1.")


class Log:
    """One log of a database that is open to be written, as a list of events."""

    def __init__(self, raw: Any, number: int) -> None:
        self.raw, self.number = raw, number
        self.events: list[Forged] = []
        self.keeps_places = False
        """Whether what events say of other events' numbers stays, whatever goes before them."""
        for seq, leaf in raw.execute(
            "SELECT seq, leaf FROM event WHERE log = ? ORDER BY seq", (number,)
        ).fetchall():
            self.events.append(Forged(seq, json.loads(unpack(leaf, 1 << 16))))
        for seq, role, n, salt, content, blob in raw.execute(
            "SELECT seq, role, n, salt, content, blob FROM payload WHERE log = ?", (number,)
        ).fetchall():
            text = None if content is None else unpack(content, 1 << 20)
            self.events[seq - 1].parts.append(Part(role, n, salt, text, blob))

    def write(self) -> None:
        """Write all anew, so that every hash fits."""
        for table in ("event", "payload", "tree_node"):
            self.raw.execute(f"DELETE FROM {table} WHERE log = ?", (self.number,))
        places = {one.seq: n for n, one in reversed([*enumerate(self.events, 1)])}
        prev, frontier, ids = b"", Frontier(), set[str]()
        for seq, one in enumerate(self.events, 1):
            if isinstance(given := one.envelope.get("id"), str) and given:
                while one.envelope["id"] in ids:
                    one.envelope["id"] += "1"  # one of its own, as the table has to have it
                ids.add(one.envelope["id"])
            leaf = self._leaf(one, seq, prev, places)
            prev = leaf_hash(leaf)
            row = (
                self.number,
                seq,
                _id(one),
                one.stored or str(one.envelope.get("kind")),
                pack(leaf),
                prev,
            )
            self.raw.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)", row)
            for p in one.parts:
                content = None if p.content is None else pack(p.content)
                self.raw.execute(
                    "INSERT OR REPLACE INTO payload VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (self.number, seq, p.role, p.n, p.salt, content, p.blob),
                )
            for level, index, node in frontier.append(prev):
                if level % TILE == 0:
                    node_row = self.number, level, index, node
                    self.raw.execute("INSERT INTO tree_node VALUES (?, ?, ?, ?)", node_row)

    def _leaf(self, one: Forged, seq: int, prev: bytes, places: Mapping[int, int]) -> bytes:
        envelope = one.envelope
        if envelope.get("seq") == one.seq:
            envelope["seq"] = seq
        envelope.pop("prev", None)
        if prev:
            envelope["prev"] = prev.hex() if one.is_first_format else prev.hex()[:16]
        if not self.keeps_places:
            for name in ("intention", "within", "event", "call", "replaces"):
                if type(envelope.get(name)) is int:
                    envelope[name] = places.get(envelope[name], envelope[name])
        for p in one.parts:
            if p.anew and p.content is not None:
                self._commit(one, p)
        text = json.dumps(envelope, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8", "replace")

    @staticmethod
    def _commit(one: Forged, p: Part) -> None:
        content = p.content or b""
        made = sha256(p.salt + p.role.encode() + sha256(content).digest()).digest()
        commit = made.hex() if one.is_first_format else _base64url(made)
        item = {"role": p.role, "n": p.n, "size": len(content), "commit": commit}
        listed = one.envelope.setdefault("payloads", [])
        if isinstance(listed, list):
            others = [i for i in listed if not _is_of(i, p)]
            one.envelope["payloads"] = [*others, item]


def _is_of(item: Any, p: Part) -> bool:
    return isinstance(item, dict) and (item.get("role"), item.get("n")) == (p.role, p.n)


def _id(one: Forged) -> bytes:
    given = one.envelope.get("id", "")
    return pack_id(given) if isinstance(given, str) else b""


def _base64url(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


# --- rows, by somebody who does not know the format ----------------------------------------


def change_rows(raw: Any, chance: random.Random) -> Iterator[str]:
    """One to three values of the tables that hold the log become others; rows go, or come twice."""
    raw.execute("PRAGMA ignore_check_constraints = ON")
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        table = chance.choice(TABLES)
        columns = [row[1] for row in raw.execute(f"PRAGMA table_info({table})").fetchall()]
        if chance.random() < 0.1:
            yield _doubled(raw, table, columns, chance)
        else:
            yield mutate(raw, table, chance.choice(columns), chance)


def _doubled(raw: Any, table: str, columns: list[str], chance: random.Random) -> str:
    """A row once more, under another key."""
    rows = raw.execute(f"SELECT * FROM {table}").fetchall()
    if not rows:
        return ""
    row = [*chance.choice(rows)]
    keys = [c for c in raw.execute(f"PRAGMA table_info({table})").fetchall() if c[5]]
    n = chance.choice(keys)[0]
    row[n] = row[n] + chance.choice((1, -1, 500)) if isinstance(row[n], int) else "other"
    try:
        raw.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", row)
    except driver().Error:
        return ""
    return f"{table}: {row!r:.80} came to be"


# --- events, by somebody who knows it -----------------------------------------------------


def forge_events(raw: Any, chance: random.Random) -> Iterator[str]:
    """One to three things of the events of a log become others, and all that follows is made
    anew to fit them.
    """
    numbers = [n for (n,) in raw.execute("SELECT number FROM log").fetchall()]
    log = Log(raw, chance.choice(numbers))
    log.keeps_places = chance.random() < 0.2
    blobs = raw.execute("SELECT sha256, size FROM blob").fetchall()
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        how = chance.choice(FORGERIES)
        if log.events:
            yield f"{how.__name__}: {how(log, chance, blobs)}"
    log.write()


Blobs = list[tuple[bytes, int]]


def _of_trees(log: Log, chance: random.Random) -> Forged:
    """An event, more often one that trees are folded from."""
    kinds = ("files.changed", "change.intended", "paths.untracked", "scope.accepted", "tree.")
    some = [e for e in log.events if str(e.envelope.get("kind")).startswith(kinds)]
    return chance.choice(some if some and chance.random() < 0.7 else log.events)


def drop(log: Log, chance: random.Random, _: Blobs) -> str:
    one = _of_trees(log, chance)
    log.events.remove(one)
    return f"{one.seq}"


def double(log: Log, chance: random.Random, _: Blobs) -> str:
    one, at = _of_trees(log, chance), chance.randrange(len(log.events) + 1)
    if chance.random() < 0.5:
        at = log.events.index(one) + 1
    log.events.insert(at, one.copy())
    return f"{one.seq} at {at}"


def trade_places(log: Log, chance: random.Random, _: Blobs) -> str:
    a = chance.randrange(len(log.events))
    b = min(a + chance.choice((1, 1, 2, 5)), len(log.events) - 1)
    log.events[a], log.events[b] = log.events[b], log.events[a]
    return f"{a + 1} and {b + 1}"


def cut_off(log: Log, chance: random.Random, _: Blobs) -> str:
    at = chance.randrange(len(log.events) + 1)
    del log.events[at:]
    return f"after {at}"


FIELDS = (
    *("v", "v", "kind", "session", "call_id", "origin", "intention", "intention", "causes"),
    *("reverts", "status", "coverage", "tool", "effect", "within", "inferred", "replaces", "kept"),
    *("at", "id", "log", "seq", "actor", "source", "parent", "payloads", "event", "call"),
)
VERSIONS = ("1.0", "2.0", "2.1", "2.2", "3.0", "1.5", "2", "x", "")


def change_a_field(log: Log, chance: random.Random, _: Blobs) -> str:
    one, name = _of_trees(log, chance), chance.choice(FIELDS)
    others = [e.envelope[name] for e in log.events if name in e.envelope] or [None]
    odd = VERSIONS if name == "v" and chance.random() < 0.9 else ODD
    value = json.loads(json.dumps(chance.choice(others if chance.random() < 0.6 else odd)))
    if chance.random() < 0.2:
        one.envelope.pop(name, None)
        return f"{name} of {one.seq} goes"
    one.envelope[name] = value
    return f"{name} of {one.seq} is {value!r:.60}"


def say_it_elsewhere(log: Log, chance: random.Random, _: Blobs) -> str:
    """An envelope says one thing, and in an object in it what the row says."""
    one, name = _of_trees(log, chance), chance.choice(("seq", "kind", "log", "id"))
    inside = {"id": "", **{key: one.envelope.get(key) for key in ("kind", "log")}, "a": 1}
    one.envelope["hidden"] = {**inside, "prev": "0" * 16, "seq": one.seq, "z": 1}
    if chance.random() < 0.7:
        one.envelope[name] = chance.choice([e.envelope.get(name, "") for e in log.events])
        if name == "seq":
            one.envelope[name] = chance.choice((one.seq + 1, 0, 10**6))
    return f"{name} of {one.seq}"


def change_a_fact(log: Log, chance: random.Random, _: Blobs) -> str:
    """A field of the payload `fact`, of an event that trees are folded from where there is one."""
    some = [e for e in log.events if e.part("fact")]
    near = [e for e in some if str(e.envelope.get("kind")) in FACTS_OF_TREES]
    if not some:
        return "none"
    one = chance.choice(near if near and chance.random() < 0.8 else some)
    part = one.part("fact")
    assert part is not None
    fact = _read(part)
    if fact is None:
        return "none"
    names = (*fact, "untracked", "part", "last", "paths", "continuous", "root", "point", "listing")
    name = chance.choice(names)
    if chance.random() < 0.2:
        fact.pop(name, None)
    else:
        fact[name] = _other_fact(log, name, chance)
    part.content, part.anew = json.dumps(fact, separators=(",", ":")).encode(), True
    return f"{name} of {one.seq} is {fact.get(name)!r:.60}"


FACTS_OF_TREES = (
    *("workspace.attached", "paths.untracked", "scope.accepted", "tree.relisted", "tree.listed"),
)


def _other_fact(log: Log, name: str, chance: random.Random) -> Any:
    paths = _paths(log) or ["x"]
    match name:
        case "untracked":
            named = chance.choices(paths, k=chance.randrange(3))
            return chance.choice([named, [[path, "why"] for path in named]])
        case "paths":
            return [[path, "why"] for path in chance.choices(paths, k=chance.randrange(3))]
        case "part" | "point":
            return chance.choice((0, 1, 2, 3, -1, len(log.events)))
        case "last" | "continuous":
            return chance.choice((True, False))
        case "root":
            return chance.choice(("import:/x", "/x", ""))
    return chance.choice(ODD)


def _read(part: Part) -> dict[str, Any] | None:
    """What a payload says; None where something else was put there before."""
    try:
        found = json.loads(part.content or b"{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _paths(log: Log) -> list[Any]:
    found: dict[str, Any] = {}
    for one in log.events:
        part = one.part("manifest")
        if part is not None:
            for path, *_ in (_read(part) or {}).get("changes", ()):
                found[json.dumps(path)] = path
    return [*found.values()]


def change_a_manifest(log: Log, chance: random.Random, blobs: Blobs) -> str:
    """What an event says of paths, with a key for each content it names."""
    some = [e for e in log.events if e.part("manifest")]
    if not some:
        return "none"
    one = chance.choice(some)
    manifest = one.part("manifest")
    keys = one.part("keys")
    assert manifest is not None
    body = _read(manifest)
    if body is None or not isinstance(body.get("changes"), list):
        return "none"
    rows = _with_keys(one, body["changes"], keys.content if keys else b"")
    how = chance.choice(MANIFEST_FORGERIES)
    said = how(rows, log, chance, blobs)
    body["changes"], packed = _without_keys(one, rows)
    manifest.content, manifest.anew = json.dumps(body, separators=(",", ":")).encode(), True
    one.parts = [p for p in one.parts if p.role != "keys"]
    if packed:
        one.parts.append(Part("keys", 0, b"", packed, None))
    return f"{how.__name__} of {one.seq}: {said}"


Row = list[Any]
"""A path, and two states of which each is with its key: (state, salt and hash)."""


def _with_keys(one: Forged, changes: list[Any], keys: bytes | None) -> list[Row]:
    width, rest, rows = 64 if one.is_first_format else 48, keys or b"", []
    for path, *states in changes:
        row: Row = [path]
        for state in states:
            key = b""
            if state and state[0] in ("f", "l"):
                key, rest = rest[:width], rest[width:]
            row.append((state, key))
        rows.append(row)
    return rows


def _without_keys(one: Forged, rows: list[Row]) -> tuple[list[Any], bytes]:
    salt, packed, changes = 32 if one.is_first_format else 16, b"", []
    for path, *sides in rows:
        states = []
        for state, key in sides:
            if state and state[0] in ("f", "l") and key:
                key = key[:salt].ljust(salt, b"s") + key[-32:]
                packed += key
                made = sha256(key[:salt] + b"content" + key[salt:]).digest()
                commit = _base64url(made)
                if any(key):
                    state = [*state[:3], commit, *state[4:]]
            states.append(state)
        changes.append([path, *states])
    return changes, packed


def another_path(rows: list[Row], log: Log, chance: random.Random, _: Blobs) -> str:
    if rows:
        row = chance.choice(rows)
        row[0] = chance.choice([*_paths(log), "x", "src/0.py/below", "nowhere/x", "a/../b"])
        return f"{row[0]}"
    return "none"


def sides_traded(rows: list[Row], _: Log, chance: random.Random, __: Blobs) -> str:
    for row in [chance.choice(rows)] if rows else []:
        row[1], row[2] = row[2], row[1]
    return ""


def another_state(rows: list[Row], _: Log, chance: random.Random, blobs: Blobs) -> str:
    if not rows:
        return "none"
    row, side = chance.choice(rows), chance.choice((1, 2, 2))
    others = [one for other in rows for one in other[1:]]
    digest, size = chance.choice(blobs)
    content = ["f", 0o644, size, ""], b"s" * 16 + digest
    row[side] = chance.choice([(chance.choice(STATES), b""), chance.choice(others), content])
    return f"side {side} of {row[0]!r} is {row[side][0]}"


def another_mode(rows: list[Row], _: Log, chance: random.Random, __: Blobs) -> str:
    found = [(r, s) for r in rows for s in (1, 2) if r[s][0] and r[s][0][0] in ("f", "l", "d")]
    if not found:
        return "none"
    row, side = chance.choice(found)
    state, key = row[side]
    more: list[Any] = chance.choice(
        ([], [{"g": 1}], [{"a": 1}], [{"i": "other"}], [{"a": True}], [{}])
    )
    if chance.random() < 0.5:
        row[side] = [state[0], 0o600, *state[2:]], key
    else:
        row[side] = [*state[: 2 if state[0] == "d" else 4], *more], key
    return f"{row[0]!r}: {row[side][0]}"


def a_change_less(rows: list[Row], _: Log, chance: random.Random, __: Blobs) -> str:
    return str(rows.pop(chance.randrange(len(rows)))[0]) if rows else "none"


def a_change_twice(rows: list[Row], _: Log, chance: random.Random, __: Blobs) -> str:
    if rows:
        rows.insert(chance.randrange(len(rows) + 1), [*chance.choice(rows)])
    return ""


def in_another_order(rows: list[Row], _: Log, chance: random.Random, __: Blobs) -> str:
    chance.shuffle(rows)
    return ""


def a_change_more(rows: list[Row], log: Log, chance: random.Random, blobs: Blobs) -> str:
    digest, size = chance.choice(blobs)
    content = ["f", 0o644, size, ""], b"s" * 16 + digest
    sides = [(chance.choice(STATES), b""), content, (None, b"")]
    rows.append([chance.choice([*_paths(log), "x/y"]), chance.choice(sides), chance.choice(sides)])
    return f"{rows[-1]}"


MANIFEST_FORGERIES = (
    another_path,
    sides_traded,
    another_state,
    another_state,
    another_mode,
    a_change_less,
    a_change_twice,
    in_another_order,
    a_change_more,
)


def change_a_part(log: Log, chance: random.Random, _: Blobs) -> str:
    """A payload goes, is another one, or has another salt; its commitment stays, or not."""
    some = [e for e in log.events if e.parts]
    if not some:
        return "none"
    one = chance.choice(some)
    part = chance.choice(one.parts)
    match chance.randrange(6):
        case 0:
            one.parts.remove(part)
            return f"{part.role} of {one.seq} goes"
        case 1:
            part.salt = chance.choice((b"", b"s" * 16, b"s" * 32))
        case 2 if part.content is not None:
            part.content = chance.choice((b"", b"{}", b"[]", b"null", b"{", part.content[:-1]))
            part.anew = part.role != "keys" and chance.random() < 0.7
        case 3 if part.content is not None and part.role == "keys":
            part.content = chance.choice((bytes(48), part.content * 2, b"", bytes(64)))
        case 4:
            role = chance.choice(("keys", "fact", "content", "args", "other"))
            one.parts.append(Part(role, chance.choice((0, 1, 7)), b"", b"{}", None))
        case _:
            part.n += 1
    return f"{part.role} of {one.seq}"


FORGERIES = (
    drop,
    double,
    trade_places,
    cut_off,
    *(change_a_field,) * 4,
    say_it_elsewhere,
    *(change_a_fact,) * 2,
    *(change_a_manifest,) * 5,
    *(change_a_part,) * 2,
)

Harm = Callable[[Any, random.Random], Iterator[str]]
Forgery = Callable[[Log, random.Random, Blobs], str]
