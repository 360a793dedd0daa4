"""Whoever holds the file can change it; each kind of change is found, and found where it is.

The attacks work on the database directly, with the guards removed, as somebody with another
program would. What the guards stop by themselves is tested first.
"""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from loom_audit.errors import AuditError, Corrupt
from loom_audit.history.check.verification import Verification
from loom_audit.model.events import CallFinished, Draft, FilesChanged, SessionStarted
from loom_audit.model.stored.codec import encode, intention_of, read_envelope
from loom_audit.model.stored.merkle import Frontier, leaf_hash
from loom_audit.sql.events.merkle_tree import TILE
from loom_audit.sql.ground.clock import SystemClock
from loom_audit.sql.ground.driver import driver
from loom_audit.sql.ground.packing import pack, unpack
from loom_audit.sql.schema import triggers
from tests.integrity.conftest import Recorded, record

WHERE = 300
"""An event in the middle of the log, under the second stored tree node."""


@contextmanager
def connect(store: Recorded | Path) -> Iterator[Any]:
    """Somebody else's connection, who puts back the guards that `unguarded` took away."""
    path = store if isinstance(store, Path) else store.path
    with closing(driver().connect(str(path), isolation_level=None)) as raw:
        yield raw
        there = raw.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone()
        for sql in () if there[0] else triggers().values():
            raw.execute(sql)


def unguarded(raw: Any) -> Any:
    """The connection after its append-only triggers are gone."""
    for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        raw.execute(f"DROP TRIGGER {name}")
    return raw


def leaf_of(raw: Any, seq: int) -> bytes:
    [(packed,)] = raw.execute("SELECT leaf FROM event WHERE seq = ?", (seq,)).fetchall()
    return unpack(packed, 65536)


def put_leaf(raw: Any, seq: int, leaf: bytes, *, rehash: bool = True) -> None:
    raw.execute("UPDATE event SET leaf = ? WHERE seq = ?", (pack(leaf), seq))
    if rehash:
        raw.execute("UPDATE event SET leaf_hash = ? WHERE seq = ?", (leaf_hash(leaf), seq))


def other_actor(leaf: bytes) -> bytes:
    """The same event, done by somebody else."""
    envelope = json.loads(leaf)
    envelope["actor"] = "agent:somebody-else"
    return rfc8785.dumps(envelope)


def find_seq(raw: Any, kind: str, after: int = WHERE) -> int:
    sql = "SELECT min(seq) FROM event WHERE kind = ? AND seq >= ?"
    seq: int = raw.execute(sql, (kind, after)).fetchone()[0]
    return seq


def rehash_tree(raw: Any) -> None:
    """Make all nodes fit the leaf hashes that are there now."""
    raw.execute("DELETE FROM tree_node")
    frontier = Frontier()
    for (hashed,) in raw.execute("SELECT leaf_hash FROM event ORDER BY seq").fetchall():
        for level, index, node in frontier.append(hashed):
            if level % TILE == 0:
                raw.execute("INSERT INTO tree_node VALUES (1, ?, ?, ?)", (level, index, node))


def rewrite_from(raw: Any, first: int) -> None:
    """Change one event and make everything after it fit: only a head kept elsewhere can tell."""
    prev = leaf_hash(leaf_of(raw, first - 1)) if first > 1 else None
    rows = raw.execute("SELECT seq FROM event WHERE seq >= ? ORDER BY seq", (first,)).fetchall()
    for (seq,) in rows:
        envelope = json.loads(leaf_of(raw, seq))
        if seq == first:
            envelope["source"] = "rewritten"
        if prev is not None:
            envelope["prev"] = prev.hex()[:16]
        leaf = rfc8785.dumps(envelope)
        put_leaf(raw, seq, leaf)
        prev = leaf_hash(leaf)
    rehash_tree(raw)


def swap(
    raw: Any, table: str, columns: str, where: str, one: tuple[object, ...], two: tuple[object, ...]
) -> None:
    """Exchange columns between two rows."""
    names = columns.split(", ")
    select = f"SELECT {columns} FROM {table} WHERE {where}"
    first, second = (raw.execute(select, key).fetchone() for key in (one, two))
    update = f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in names)} WHERE {where}"
    raw.execute("PRAGMA ignore_check_constraints = ON")
    # a value of its own in between, because of unique columns
    raw.execute(update, (*(b"" if isinstance(v, bytes) else v for v in first), *one))
    raw.execute(update, (*first, *two))
    raw.execute(update, (*second, *one))


def forge(raw: Any, store: Recorded, fact: Any, session: str) -> int:
    """Append an event that fits the log as it is: leaf, hash and predecessor."""
    seq: int = raw.execute("SELECT max(seq) FROM event").fetchone()[0]
    forged = encode(
        Draft(fact, session, "agent:forger"),
        log=store.log,
        seq=seq + 1,
        at=SystemClock().now(),
        prev=leaf_hash(leaf_of(raw, seq)),
        salts=lambda: bytes(16),
    )
    row = (seq + 1, b"", forged.kind, pack(forged.leaf), forged.leaf_hash)
    raw.execute("INSERT INTO event (log, seq, id, kind, leaf, leaf_hash) VALUES (1,?,?,?,?,?)", row)
    for item in forged.payloads:
        raw.execute(
            "INSERT INTO payload (log, seq, role, n, salt, content) VALUES (1, ?, ?, ?, ?, ?)",
            (seq + 1, item.role, item.n, item.salt, pack(item.content)),
        )
    return seq + 1


# --- the guards ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE event SET leaf = x'00' WHERE seq = 300",
        "UPDATE event SET leaf_hash = zeroblob(32) WHERE seq = 300",
        "DELETE FROM event WHERE seq = 300",
        "DELETE FROM event",
        "UPDATE event SET seq = 100000 WHERE seq = 300",
        "INSERT OR REPLACE INTO event SELECT log, seq, id, kind, leaf, zeroblob(32) FROM event "
        "WHERE seq = 300",
        "INSERT OR REPLACE INTO event SELECT log, 100000, id, kind, leaf, zeroblob(32) FROM event "
        "WHERE seq = 300",
        "UPDATE tree_node SET hash = zeroblob(32)",
        "DELETE FROM tree_node",
        "INSERT OR REPLACE INTO tree_node SELECT log, level, position, zeroblob(32) FROM tree_node",
        "UPDATE log SET id = 'x'",
        "DELETE FROM log",
    ],
)
@pytest.mark.parametrize("recursive", ["ON", "OFF"])
def test_the_guards_stop_plain_statements_whatever_the_settings(
    store: Recorded, sql: str, recursive: str
) -> None:
    with connect(store) as raw:
        raw.execute(f"PRAGMA recursive_triggers = {recursive}")
        with pytest.raises(driver().IntegrityError, match="append-only"):
            raw.execute(sql)
    assert store.verify(quick=True).ok


# --- the attacks --------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """The findings that an attack must lead to, as (code, seq); None for any seq."""

    findings: set[tuple[str, int | None]]
    quick: bool = False
    only_with_heads: bool = False


Attack = Callable[[Any, Recorded], Expected]


def edit_a_leaf(raw: Any, store: Recorded) -> Expected:
    put_leaf(raw, WHERE, other_actor(leaf_of(raw, WHERE)), rehash=False)
    return Expected({("leaf.hash", WHERE)}, quick=True)


def edit_a_leaf_and_its_hash(raw: Any, store: Recorded) -> Expected:
    put_leaf(raw, WHERE, other_actor(leaf_of(raw, WHERE)))
    return Expected({("event.prev", WHERE), ("tree.node", 257)}, quick=True)


def edit_a_leaf_its_hash_and_the_tree(raw: Any, store: Recorded) -> Expected:
    put_leaf(raw, WHERE, other_actor(leaf_of(raw, WHERE)))
    rehash_tree(raw)
    return Expected({("event.prev", WHERE), ("head.root", None)}, quick=True)


def edit_a_hash(raw: Any, store: Recorded) -> Expected:
    raw.execute("UPDATE event SET leaf_hash = zeroblob(32) WHERE seq = ?", (WHERE,))
    return Expected({("leaf.hash", WHERE), ("tree.node", 257)}, quick=True)


def make_a_leaf_unreadable(raw: Any, store: Recorded) -> Expected:
    raw.execute("UPDATE event SET leaf = x'0102' WHERE seq = ?", (WHERE,))
    return Expected({("leaf.unreadable", WHERE)}, quick=True)


def delete_an_event(raw: Any, store: Recorded) -> Expected:
    raw.execute("DELETE FROM event WHERE seq = ?", (WHERE,))
    return Expected({("event.missing", WHERE)}, quick=True)


def delete_an_event_and_close_the_gap(raw: Any, store: Recorded) -> Expected:
    raw.execute("DELETE FROM event WHERE seq = ?", (WHERE,))
    for table in ("event", "payload"):
        raw.execute(f"DELETE FROM {table} WHERE seq = ?", (WHERE,))
        raw.execute(f"UPDATE {table} SET seq = -seq + 1 WHERE seq > ?", (WHERE,))
        raw.execute(f"UPDATE {table} SET seq = -seq WHERE seq < 0")
    return Expected({("event.place", WHERE), ("tree.node", 257), ("log.short", None)}, quick=True)


def delete_many_events(raw: Any, store: Recorded) -> Expected:
    raw.execute("DELETE FROM event WHERE seq BETWEEN 200 AND 600")
    return Expected({("event.missing", 200)}, quick=True)


def insert_an_event(raw: Any, store: Recorded) -> Expected:
    for table in ("event", "payload"):
        raw.execute(f"UPDATE {table} SET seq = -seq - 1 WHERE seq > ?", (WHERE,))
        raw.execute(f"UPDATE {table} SET seq = -seq WHERE seq < 0")
    leaf = other_actor(leaf_of(raw, WHERE))
    raw.execute(
        "INSERT INTO event (log, seq, id, kind, leaf, leaf_hash) VALUES (1, ?, x'aa', 'x', ?, ?)",
        (WHERE + 1, pack(leaf), leaf_hash(leaf)),
    )
    return Expected({("event.place", WHERE + 1), ("tree.node", 257)}, quick=True)


def reorder_two_events(raw: Any, store: Recorded) -> Expected:
    swap(raw, "event", "leaf, leaf_hash", "seq = ?", (WHERE,), (WHERE + 7,))
    return Expected({("event.place", WHERE), ("event.place", WHERE + 7)}, quick=True)


def replace_an_event(raw: Any, store: Recorded) -> Expected:
    leaf = other_actor(leaf_of(raw, WHERE))
    raw.execute(
        "INSERT OR REPLACE INTO event SELECT log, seq, id, kind, ?, ? FROM event WHERE seq = ?",
        (pack(leaf), leaf_hash(leaf), WHERE),
    )
    return Expected({("event.prev", WHERE), ("tree.node", 257)}, quick=True)


def truncate_the_tail(raw: Any, store: Recorded) -> Expected:
    raw.execute("DELETE FROM event WHERE seq > 600")
    raw.execute("DELETE FROM payload WHERE seq > 600")
    return Expected({("log.short", 600)}, quick=True, only_with_heads=True)


def truncate_the_tail_over_a_tree_node(raw: Any, store: Recorded) -> Expected:
    raw.execute("DELETE FROM event WHERE seq > 500")
    return Expected({("log.short", 500), ("tree.extra", 500)}, quick=True)


def truncate_the_tail_and_the_tree(raw: Any, store: Recorded) -> Expected:
    for table in ("event", "payload"):
        raw.execute(f"DELETE FROM {table} WHERE seq > 500")
    rehash_tree(raw)
    return Expected({("log.short", 500)}, quick=True, only_with_heads=True)


def rewrite_the_suffix(raw: Any, store: Recorded) -> Expected:
    rewrite_from(raw, WHERE)
    return Expected({("head.root", None)}, quick=True, only_with_heads=True)


def rewrite_the_whole_log(raw: Any, store: Recorded) -> Expected:
    rewrite_from(raw, 1)
    return Expected({("head.root", None)}, quick=True, only_with_heads=True)


def edit_an_id_column(raw: Any, store: Recorded) -> Expected:
    raw.execute("UPDATE event SET id = x'ff41' WHERE seq = ?", (WHERE,))
    return Expected({("event.column", WHERE)}, quick=True)


def edit_a_kind_column(raw: Any, store: Recorded) -> Expected:
    seq = find_seq(raw, "files.changed")
    raw.execute("UPDATE event SET kind = 'session.ended' WHERE seq = ?", (seq,))
    return Expected({("event.column", seq)}, quick=True)


def edit_a_kind_column_so_that_the_leaf_holds_it(raw: Any, store: Recorded) -> Expected:
    kind = f'session.started","log":"{store.log}'
    seq = find_seq(raw, "session.started")
    raw.execute("UPDATE event SET kind = ? WHERE seq = ?", (kind, seq))
    return Expected({("event.column", seq)}, quick=True)


def file_an_event(raw: Any, seq: int | str | bytes) -> Expected:
    raw.execute(
        "INSERT INTO event SELECT log, ?, x'ff41', kind, leaf, leaf_hash FROM event WHERE seq = ?",
        (seq, WHERE),
    )
    return Expected({("event.place", None)}, quick=True)


def add_an_event_before_the_first(raw: Any, store: Recorded) -> Expected:
    return file_an_event(raw, 0)


def add_an_event_far_before_the_first(raw: Any, store: Recorded) -> Expected:
    return file_an_event(raw, -(2**63))


def add_an_event_far_behind_the_last(raw: Any, store: Recorded) -> Expected:
    return file_an_event(raw, 2**63 - 1)


def add_an_event_whose_seq_is_a_text(raw: Any, store: Recorded) -> Expected:
    return file_an_event(raw, "last")


def add_an_event_whose_seq_is_bytes(raw: Any, store: Recorded) -> Expected:
    return file_an_event(raw, b"last")


def file_an_event_between_two_others(raw: Any, store: Recorded) -> Expected:
    raw.execute("UPDATE event SET seq = seq + 0.5 WHERE seq = ?", (WHERE,))
    return Expected({("event.place", None), ("event.missing", WHERE)}, quick=True)


def add_payloads_before_the_first_event_and_behind_all_numbers(
    raw: Any, store: Recorded
) -> Expected:
    for seq in (-1, "last"):
        raw.execute(
            "INSERT INTO payload VALUES (1, ?, 'note', 0, zeroblob(32), x'00', NULL)", (seq,)
        )
    return Expected({("payload.extra", -1), ("payload.extra", 2**63 - 1)})


def swap_payloads_between_events(raw: Any, store: Recorded) -> Expected:
    one = find_seq(raw, "call.requested")
    two = find_seq(raw, "call.requested", one + 1)
    swap(raw, "payload", "salt, content, blob", "role = 'args' AND seq = ?", (one,), (two,))
    return Expected({("payload.mismatch", one), ("payload.mismatch", two)})


def edit_a_payload(raw: Any, store: Recorded) -> Expected:
    seq = find_seq(raw, "call.finished")
    packed = pack(b'{"duration":1,"result":{"success":true}}')
    raw.execute(
        "UPDATE payload SET content = ?, blob = NULL WHERE seq = ? AND role = 'result'",
        (packed, seq),
    )
    return Expected({("payload.mismatch", seq)})


def edit_a_salt(raw: Any, store: Recorded) -> Expected:
    seq = find_seq(raw, "call.requested")
    raw.execute("UPDATE payload SET salt = zeroblob(32) WHERE seq = ? AND role = 'args'", (seq,))
    return Expected({("payload.mismatch", seq)})


def delete_a_payload(raw: Any, store: Recorded) -> Expected:
    seq = find_seq(raw, "call.requested")
    raw.execute("DELETE FROM payload WHERE seq = ? AND role = 'args'", (seq,))
    return Expected({("payload.missing", seq)})


def add_a_payload(raw: Any, store: Recorded) -> Expected:
    raw.execute("INSERT INTO payload VALUES (1, ?, 'note', 0, zeroblob(32), x'00', NULL)", (WHERE,))
    raw.execute("INSERT INTO payload VALUES (1, 9999, 'note', 0, zeroblob(32), x'00', NULL)")
    return Expected({("payload.extra", WHERE), ("payload.extra", 9999)})


def put_a_payload_elsewhere_too(raw: Any, store: Recorded) -> Expected:
    raw.execute("UPDATE payload SET blob = 0 WHERE seq = ? AND content IS NOT NULL", (WHERE,))
    assert raw.execute("SELECT changes()").fetchone()[0]
    return Expected({("database", None)})


def edit_a_key(raw: Any, store: Recorded) -> Expected:
    seq = find_seq(raw, "change.intended")
    [(keys,)] = raw.execute(
        "SELECT content FROM payload WHERE seq = ? AND role = 'keys'", (seq,)
    ).fetchall()
    changed = keys[:-1] + bytes([keys[-1] ^ 1])
    raw.execute("UPDATE payload SET content = ? WHERE seq = ? AND role = 'keys'", (changed, seq))
    return Expected({("keys.mismatch", seq)})


def swap_two_contents_of_a_change(raw: Any, store: Recorded) -> Expected:
    seq = find_seq(raw, "change.intended")
    [(packed,)] = raw.execute(
        "SELECT content FROM payload WHERE seq = ? AND role = 'keys'", (seq,)
    ).fetchall()
    keys = unpack(packed, 10_000)
    swapped = pack(keys[48:96] + keys[:48])
    raw.execute("UPDATE payload SET content = ? WHERE seq = ? AND role = 'keys'", (swapped, seq))
    return Expected({("keys.mismatch", seq)})


def delete_keys(raw: Any, store: Recorded) -> Expected:
    seq = find_seq(raw, "change.intended")
    raw.execute("DELETE FROM payload WHERE seq = ? AND role = 'keys'", (seq,))
    return Expected({("keys.erased", seq)})


def blob_of(raw: Any, path: bytes) -> tuple[int, int]:
    """A file's first content in the log: number of its blob, and the event that named it."""
    sql = (
        "SELECT f.new_blob, f.seq FROM file_change f JOIN path p ON p.number = f.path "
        "WHERE p.path = ? ORDER BY f.seq LIMIT 1"
    )
    found: tuple[int, int] = raw.execute(sql, (path,)).fetchone()
    return found


def swap_blobs(raw: Any, store: Recorded) -> Expected:
    (one, seq), (two, _) = blob_of(raw, b"src/m3.py"), blob_of(raw, b"src/m4.py")
    swap(raw, "blob_content", "content", "blob = ?", (one,), (two,))
    return Expected({("blob.corrupt", seq)})


def swap_names_of_blobs(raw: Any, store: Recorded) -> Expected:
    (one, seq), (two, _) = blob_of(raw, b"src/m3.py"), blob_of(raw, b"src/m4.py")
    swap(raw, "blob", "sha256", "number = ?", (one,), (two,))
    return Expected({("blob.corrupt", seq), ("projection", seq)})


def change_blob_bytes(raw: Any, store: Recorded) -> Expected:
    number, seq = blob_of(raw, b"src/caf\xe9")
    raw.execute("UPDATE blob_content SET content = ? WHERE blob = ?", (b"NON-utf-8 name", number))
    return Expected({("blob.corrupt", seq)})


def delete_blob_bytes(raw: Any, store: Recorded) -> Expected:
    number, seq = blob_of(raw, b"src/caf\xe9")
    raw.execute("DELETE FROM blob_content WHERE blob = ?", (number,))
    return Expected({("blob.corrupt", seq)})


def say_a_blob_was_recorded_by_hash_only(raw: Any, store: Recorded) -> Expected:
    number, seq = blob_of(raw, b"src/caf\xe9")
    raw.execute("UPDATE blob SET encoding = 'absent' WHERE number = ?", (number,))
    return Expected({("blob.missing", seq)})


def delete_a_blob(raw: Any, store: Recorded) -> Expected:
    number, seq = blob_of(raw, b"src/caf\xe9")
    raw.execute("DELETE FROM blob WHERE number = ?", (number,))
    return Expected({("blob.missing", seq)})


def large_file(raw: Any, store: Recorded) -> tuple[Path, int]:
    number, seq = blob_of(raw, b"large.bin")
    [(digest,)] = raw.execute("SELECT sha256 FROM blob WHERE number = ?", (number,)).fetchall()
    return store.path.parent / "blobs" / digest.hex()[:2] / digest.hex()[2:], seq


def change_a_large_file(raw: Any, store: Recorded) -> Expected:
    path, seq = large_file(raw, store)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return Expected({("blob.corrupt", seq)})


def cut_a_large_file(raw: Any, store: Recorded) -> Expected:
    path, seq = large_file(raw, store)
    path.write_bytes(path.read_bytes()[:-100])
    return Expected({("blob.corrupt", seq)})


def delete_a_large_file(raw: Any, store: Recorded) -> Expected:
    path, seq = large_file(raw, store)
    path.unlink()
    return Expected({("blob.corrupt", seq)})


def put_a_pipe_in_place_of_a_large_file(raw: Any, store: Recorded) -> Expected:
    path, seq = large_file(raw, store)
    path.unlink()
    os.mkfifo(path)
    return Expected({("blob.corrupt", seq)})


def put_a_folder_in_place_of_a_large_file(raw: Any, store: Recorded) -> Expected:
    path, seq = large_file(raw, store)
    path.unlink()
    path.mkdir()
    return Expected({("blob.corrupt", seq)})


def put_an_endless_device_in_place_of_a_large_file(raw: Any, store: Recorded) -> Expected:
    path, seq = large_file(raw, store)
    path.unlink()
    path.symlink_to("/dev/zero")
    return Expected({("blob.corrupt", seq)})


def lengthen_a_large_file(raw: Any, store: Recorded) -> Expected:
    path, _ = large_file(raw, store)
    path.write_bytes(path.read_bytes() * 2)
    return Expected({("database", None)})


def edit_a_tree_node(raw: Any, store: Recorded) -> Expected:
    raw.execute("UPDATE tree_node SET hash = zeroblob(32) WHERE level = 8 AND position = 1")
    return Expected({("tree.node", 257)}, quick=True)


def delete_a_tree_node(raw: Any, store: Recorded) -> Expected:
    raw.execute("DELETE FROM tree_node WHERE level = 8 AND position = 1")
    return Expected({("tree.missing", 257)}, quick=True)


def add_a_tree_node(raw: Any, store: Recorded) -> Expected:
    raw.execute("INSERT INTO tree_node VALUES (1, 8, 2, zeroblob(32))")
    return Expected({("tree.extra", None)}, quick=True)


def forge_a_second_finish(raw: Any, store: Recorded) -> Expected:
    seq = find_seq(raw, "call.finished")
    envelope = json.loads(leaf_of(raw, seq))
    fact = CallFinished(envelope["call_id"], envelope["tool"], "write", "error", None)
    return Expected({("call.twice", forge(raw, store, fact, envelope["session"]))})


def forge_a_finish_nobody_requested(raw: Any, store: Recorded) -> Expected:
    fact = CallFinished("never", "t", "write", "ok", None)
    return Expected({("call.twice", forge(raw, store, fact, "session-1"))})


def forge_a_change_that_another_call_intended(raw: Any, store: Recorded) -> Expected:
    intention = find_seq(raw, "change.intended")
    fact = FilesChanged((), "tool", "another", intention=intention)
    return Expected({("event.intention", forge(raw, store, fact, "session-1"))})


def forge_a_second_outcome_of_an_intention(raw: Any, store: Recorded) -> Expected:
    for (seq,) in raw.execute("SELECT seq FROM event WHERE kind = 'files.changed'").fetchall():
        if (intention := intention_of(leaf_of(raw, seq))) is not None:
            envelope = read_envelope(leaf_of(raw, seq))
            break
    fact = FilesChanged((), "tool", envelope["call_id"], intention=intention)
    return Expected({("event.intention", forge(raw, store, fact, envelope["session"]))})


def move_an_event_to_another_log(raw: Any, store: Recorded) -> Expected:
    raw.execute("INSERT INTO log (id) VALUES ('other')")
    raw.execute("UPDATE event SET log = 2 WHERE seq = ?", (WHERE,))
    return Expected({("event.missing", WHERE)}, quick=True)


def rename_the_log(raw: Any, store: Recorded) -> Expected:
    raw.execute("UPDATE log SET id = ?", ("f" * 32,))
    store.log = "f" * 32
    return Expected({("head.log", None), ("event.place", 1)}, quick=True)


ATTACKS: tuple[Attack, ...] = (
    edit_a_leaf,
    edit_a_leaf_and_its_hash,
    edit_a_leaf_its_hash_and_the_tree,
    edit_a_hash,
    make_a_leaf_unreadable,
    delete_an_event,
    delete_an_event_and_close_the_gap,
    delete_many_events,
    insert_an_event,
    reorder_two_events,
    replace_an_event,
    truncate_the_tail,
    truncate_the_tail_over_a_tree_node,
    truncate_the_tail_and_the_tree,
    rewrite_the_suffix,
    rewrite_the_whole_log,
    edit_an_id_column,
    edit_a_kind_column,
    edit_a_kind_column_so_that_the_leaf_holds_it,
    add_an_event_before_the_first,
    add_an_event_far_before_the_first,
    add_an_event_far_behind_the_last,
    add_an_event_whose_seq_is_a_text,
    add_an_event_whose_seq_is_bytes,
    file_an_event_between_two_others,
    add_payloads_before_the_first_event_and_behind_all_numbers,
    swap_payloads_between_events,
    edit_a_payload,
    edit_a_salt,
    delete_a_payload,
    add_a_payload,
    edit_a_key,
    swap_two_contents_of_a_change,
    delete_keys,
    put_a_payload_elsewhere_too,
    swap_blobs,
    swap_names_of_blobs,
    change_blob_bytes,
    delete_blob_bytes,
    say_a_blob_was_recorded_by_hash_only,
    delete_a_blob,
    change_a_large_file,
    cut_a_large_file,
    delete_a_large_file,
    put_a_pipe_in_place_of_a_large_file,
    put_a_folder_in_place_of_a_large_file,
    put_an_endless_device_in_place_of_a_large_file,
    lengthen_a_large_file,
    edit_a_tree_node,
    delete_a_tree_node,
    add_a_tree_node,
    forge_a_second_finish,
    forge_a_finish_nobody_requested,
    forge_a_change_that_another_call_intended,
    forge_a_second_outcome_of_an_intention,
    move_an_event_to_another_log,
    rename_the_log,
)


def codes(found: Verification) -> set[tuple[str, int | None]]:
    exact = {(one.code, one.seq) for one in found.findings}
    return exact | {(one.code, None) for one in found.findings}


@pytest.mark.few(5)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_tampering_is_found_and_located(store: Recorded, attack: Attack) -> None:
    with connect(store) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("BEGIN")
        expected = attack(unguarded(raw), store)
        raw.execute("COMMIT")
    full, quick = store.verify(), store.verify(quick=True)
    assert full.exit_code == 1
    assert codes(full) >= expected.findings
    assert all(one.message for one in full.findings)
    if expected.quick:
        assert quick.exit_code == 1
        assert codes(quick) >= expected.findings
    without = store.verify(heads=[], quick=True)
    if expected.only_with_heads:
        assert without.findings == ()
        assert without.exit_code == 3
        assert without.unanchored == without.size


@pytest.mark.parametrize("leaf", [b"", b"{}", b"[]", b"\xff"])
def test_a_leaf_that_is_not_an_envelope_is_malformed(store: Recorded, leaf: bytes) -> None:
    with connect(store) as raw:
        put_leaf(unguarded(raw), WHERE, leaf)
    assert {("event.malformed", WHERE)} <= codes(store.verify())


def test_an_old_copy_put_back_is_too_short_for_the_heads(
    master: Recorded, store: Recorded, tmp_path: Path
) -> None:
    old = store.copy(tmp_path / "old")
    with closing(store.open()) as database:
        log = database.event_log(store.log)
        log.append([Draft(SessionStarted("x"), "late", "agent:a")])
        store.heads.append(log.tree_head())
    assert store.verify().ok
    shutil.rmtree(store.path.parent)
    shutil.copytree(old.path.parent, store.path.parent)
    found = store.verify()
    assert [(one.code, one.seq) for one in found.findings] == [("log.short", found.size)]
    assert "cut off, or copied while it was written" in found.findings[0].message
    assert found.exit_code == 1
    assert found.exit_code == 1
    assert found.anchored == found.size


def test_a_log_started_over_is_not_the_one_the_heads_are_of(
    store: Recorded, tmp_path: Path
) -> None:
    again = record(tmp_path / "again" / "audit.db", 50)
    found = again.verify(heads=store.heads)
    assert {one.code for one in found.findings} == {"head.log"}
    assert found.exit_code == 1 and found.anchored == 0


PROJECTED = [
    ("file_change", "UPDATE file_change SET new_mode = 33261 WHERE seq = :files"),
    ("file_change", "DELETE FROM file_change WHERE seq = :files"),
    ("file_change", "UPDATE file_change SET path = path + 1 WHERE seq = :files"),
    (
        "file_change",
        "UPDATE path SET path = 'src/other' WHERE number = "
        "(SELECT path FROM file_change WHERE seq = :files)",
    ),
    ("change_set", "UPDATE change_set SET actor = 'agent:b' WHERE seq = :files"),
    ("change_set", "UPDATE change_set SET session = session + 1 WHERE seq = :files"),
    ("change_set", "UPDATE change_set SET requested = requested - 1 WHERE seq = :files"),
    (
        "candidate",
        "INSERT INTO candidate SELECT log, requested, seq FROM change_set WHERE seq = :files",
    ),
    ("call", "UPDATE call SET changed = 2 WHERE finished = :finish"),
    ("session", "UPDATE session SET files = files + 1 WHERE id = 'session-2'"),
    ("lowered", "INSERT INTO lowered VALUES (1, :finish, :finish - 1, 'partial', '[\"x\"]')"),
    ("call", "UPDATE call SET status = 'error' WHERE finished = :finish"),
    ("call", "UPDATE call SET session = session + 1 WHERE finished = :finish"),
    ("call", "DELETE FROM call WHERE finished = :finish"),
    ("session", "UPDATE session SET agent = 'x' WHERE id = 'session-2'"),
    ("tree_entry", "UPDATE tree_entry SET size = size + 1 WHERE path = 9"),
    ("tree_entry", "DELETE FROM tree_entry WHERE path = 9"),
    ("checkpoint", "UPDATE checkpoint SET point = 1"),
    ("revert", "INSERT INTO revert VALUES (1, :finish, 5)"),
    ("spoken", "INSERT INTO spoken VALUES (1, :finish, NULL, 'prompt')"),
    ("workspace", "UPDATE workspace SET root = '/elsewhere'"),
    ("keyframe", "INSERT INTO keyframe (log, seq, latest, listing) VALUES (1, 10, 0, x'00')"),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("table", "sql"), PROJECTED)
def test_an_edited_projection_differs_from_the_log(store: Recorded, table: str, sql: str) -> None:
    with connect(store) as raw:
        unguarded(raw)
        files, finish = find_seq(raw, "files.changed"), find_seq(raw, "call.finished")
        assert raw.execute(sql, {"files": files, "finish": finish}).rowcount > 0
    found = store.verify()
    assert found.exit_code == 1
    assert {one.code for one in found.findings} == {"projection"}
    told = [one for one in found.findings if f"projection {table} " in one.message]
    assert told
    if ":files" in sql:
        assert files in {one.seq for one in told}
    if ":finish" in sql:
        assert any(one.seq is not None and finish - 10 <= one.seq <= finish for one in told)
    assert store.verify(quick=True).ok


# --- bits ---------------------------------------------------------------------------------


def unpacked(value: object) -> object:
    """What a packed row says: one text can be packed in several ways."""
    try:
        return unpack(value, 1 << 20) if isinstance(value, bytes) else value
    except Corrupt:
        return value


def contents_of(path: Path) -> dict[str, str]:
    """A digest of the rows of all tables by which something is shown as recorded.

    These are not the full-text index, SQLite's own, and people's marks, which are not evidence.
    """
    found = {}
    with closing(driver().connect(str(path))) as raw:
        names = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in names:
            if not name.startswith(("search", "sqlite_", "marks")):
                rows = raw.execute(f"SELECT * FROM {name}").fetchall()
                if name in ("event", "payload"):
                    rows = [tuple(map(unpacked, row)) for row in rows]
                found[name] = sha256(repr(sorted(map(repr, rows))).encode()).hexdigest()
    return found


def flip_bits(store: Recorded, seed: str, rounds: int) -> tuple[int, int]:
    """How many single flips were found, and how many changed nothing that is stored."""
    with connect(store) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        raw.execute("PRAGMA journal_mode = DELETE")
    whole = store.path.read_bytes()
    good = contents_of(store.path)
    chance = random.Random(seed)
    found = harmless = 0
    refused: list[AuditError] = []
    for _ in range(rounds):
        at, bit = chance.randrange(len(whole)), chance.randrange(8)
        data = bytearray(whole)
        data[at] ^= 1 << bit
        for side in ("-wal", "-shm"):
            store.path.with_name(store.path.name + side).unlink(missing_ok=True)
        store.path.write_bytes(data)
        try:
            result = store.verify()
        except AuditError as error:
            refused.append(error)
            continue
        if result.findings:
            assert result.exit_code in (1, 4)
            found += 1
        else:
            assert contents_of(store.path) == good, f"seed {seed}: byte {at} bit {bit} not found"
            harmless += 1
    assert all(error.message and error.hint for error in refused)
    return found + len(refused), harmless


@pytest.mark.deep
def test_flipped_bits_that_change_anything_stored_are_found(store: Recorded, seed: str) -> None:
    found, harmless = flip_bits(store, seed, 12)
    # of 60 flips 33 were found: the rest of so small a store is unused
    assert found > harmless / 3


def test_a_schema_with_a_name_that_is_not_utf8_is_damage(store: Recorded) -> None:
    with connect(store) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = store.path.read_bytes()
    assert b"ON event (log, id)" in whole
    store.path.write_bytes(whole.replace(b"ON event (log, id)", b"ON ev\xc3nt (log, id)"))
    with pytest.raises(Corrupt, match="UTF-8") as caught:
        store.verify()
    assert "salvage" in caught.value.hint


def test_a_type_in_the_schema_that_is_not_utf8_is_found(store: Recorded) -> None:
    with connect(store) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = store.path.read_bytes()
    assert b"\n    blob BLOB," in whole
    store.path.write_bytes(whole.replace(b"\n    blob BLOB,", b"\n    blob BL\xcfB,"))
    found = {one.code: one.message for one in store.verify().findings}
    assert "UTF-8" in found["projection.unreadable"]
    assert found["database"] == "the table relisted is not as it was made"


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_five_hundred_flipped_bits_that_change_anything_stored_are_found(
    store: Recorded, seed: str
) -> None:
    found, harmless = flip_bits(store, seed, 500)
    assert found > harmless


def test_a_sample_checks_what_an_event_refers_to(store: Recorded) -> None:
    with connect(store) as raw:
        [(total,)] = raw.execute("SELECT max(seq) FROM event").fetchall()
        unguarded(raw)
        changed = [
            (seq, intention)
            for (seq,) in raw.execute("SELECT seq FROM event WHERE kind = 'files.changed'")
            if (intention := intention_of(leaf_of(raw, seq))) is not None
        ]
        assert store.verify(sample=total).ok
        for _, intention in changed:
            raw.execute("DELETE FROM payload WHERE seq = ? AND role = 'manifest'", (intention,))
    found = store.verify(sample=total)
    missing = {one.seq for one in found.findings if one.code == "payload.missing"}
    assert missing >= {intention for _, intention in changed}
    told = {one.seq for one in found.findings if one.code == "event.intention"}
    assert told == {seq for seq, _ in changed}
