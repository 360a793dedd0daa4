"""The verifier that knows the stored format only: it agrees with ours, and finds every change."""

import gzip
import hashlib
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from loom_audit import open_store
from loom_audit.disk.machine.heads import head_line
from loom_audit.model.events import (
    CallFinished,
    CallRequested,
    ChangeIntended,
    Draft,
    Fact,
    FilesChanged,
)
from loom_audit.model.stored.merkle import leaf_hash
from loom_audit.sql.ground.packing import DICTIONARIES, pack, unpack
from loom_audit.verify_alone import DICTIONARY_1, DICTIONARY_HASHES
from tests.given.cases import some
from tests.given.demo import run_demo
from tests.integrity.conftest import Recorded, record

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "loom_audit" / "verify_alone.py"
STORES = ROOT / "tests" / "data" / "stores"
RELEASES = sorted(folder.name for folder in STORES.iterdir() if (folder / "audit.db.gz").exists())
HEAD = re.compile(r"^loom-audit-head v1 \S+ \d+ [0-9a-f]{64}$", re.M)


def verified(store: Path, *heads: str, program: Path = PROGRAM) -> tuple[int, str]:
    """The exit code and what was printed."""
    options = [option for head in heads for option in ("--head", head)]
    done = subprocess.run(
        [sys.executable, "-I", str(program), str(store), *options], capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """The store of a release, and the head kept of it."""
    kept = STORES / request.param
    store = tmp_path / "audit.db"
    store.write_bytes(gzip.decompress((kept / "audit.db.gz").read_bytes()))
    return store, (kept / "head").read_text().strip()


def test_the_store_of_a_release_is_as_its_head_says(release: tuple[Path, str]) -> None:
    store, head = release
    code, said = verified(store, head)
    assert code == 0 and HEAD.findall(said) == [head] and "wrong" not in said


def test_a_release_s_store_that_is_written_on_is_checked_whole(release: tuple[Path, str]) -> None:
    store, head = release
    with open_store(str(store)) as opened:
        workspace = opened.workspace(head.split()[2])
        workspace.checkpoint("later")
        now = head_line(workspace.head())
    code, said = verified(store, head, now)
    assert code == 0 and HEAD.findall(said) == [now] != [head] and "wrong" not in said


def test_the_demo_s_store_is_checked_by_a_copy_of_the_file_too(tmp_path: Path, home: Path) -> None:
    with open_store() as store:
        demo = run_demo(store, tmp_path / "demo")
        head = head_line(store.workspace(demo.root).head())
    program = shutil.copy(PROGRAM, tmp_path / "checker.py")
    for one in (PROGRAM, Path(program)):
        code, said = verified(home / "audit.db", head, program=one)
        assert code == 0 and HEAD.findall(said) == [head] and "wrong" not in said


def test_it_imports_nothing_of_ours(release: tuple[Path, str]) -> None:
    for how in ([str(PROGRAM)], ["-m", "loom_audit.verify_alone"]):
        done = subprocess.run(
            [sys.executable, "-I", "-X", "importtime", *how, str(release[0])],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        imported = set(re.findall(r"\|\s+(\S+)$", done.stderr, re.M))
        assert {"sqlite3", "zlib"} <= imported
        ours = {name for name in imported if name.startswith("loom_audit")}
        assert ours == ({"loom_audit"} if "-m" in how else set())


def test_its_dictionary_and_hashes_are_the_published_ones() -> None:
    assert DICTIONARIES[1] == DICTIONARY_1
    published = {n: (ROOT / "docs" / f"dictionary-{n}.bin").read_bytes() for n in DICTIONARIES}
    hashes = {n: hashlib.sha256(words).hexdigest() for n, words in published.items()}
    assert hashes == DICTIONARY_HASHES


# --- what is changed is found -------------------------------------------------------------


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Over 256 events with deltas, a content in a file, one known by its hash, and a long text."""
    made = record(tmp_path_factory.mktemp("master") / "audit.db", 300)
    arguments = {"content": "".join(f"line {n} of many\n" for n in range(1000))}
    facts = (
        CallRequested("c" * 32, "write_file", arguments, "write"),
        CallFinished("c" * 32, "write_file", "write", "ok", {"success": True}),
    )
    with closing(made.open()) as database:
        log = database.event_log(made.log)
        log.append([Draft(fact, "session-1", "agent:a") for fact in facts])
    return made


@pytest.fixture
def store(master: Recorded, tmp_path: Path) -> Recorded:
    return master.copy(tmp_path / "store")


def change(store: Recorded, *statements: str) -> None:
    """Change the database as somebody who knows it; each statement changes a row."""
    with closing(sqlite3.connect(store.path)) as raw, raw:
        raw.create_function("repacked", 3, repacked)
        raw.create_function("hashed", 1, lambda leaf: leaf_hash(unpack(leaf, 1 << 20)))
        raw.create_function("flipped", 1, lambda value: bytes([value[0] ^ 1]) + value[1:])
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("PRAGMA recursive_triggers = OFF")
        for (name,) in raw.execute(
            "SELECT name FROM sqlite_schema WHERE type='trigger'"
        ).fetchall():
            raw.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            assert raw.execute(statement).rowcount > 0, statement


def repacked(stored: bytes, old: str, new: str) -> bytes:
    text = unpack(stored, 1 << 20)
    assert old.encode() in text
    return pack(text.replace(old.encode(), new.encode()))


def last_head(store: Recorded) -> str:
    with closing(store.open()) as database:
        return head_line(database.event_log(store.log).tree_head())


def heads_of(store: Recorded) -> list[str]:
    return [head_line(head) for head in store.heads]


def test_every_head_that_was_kept_of_a_log_is_that_of_its_events(store: Recorded) -> None:
    last = last_head(store)
    code, said = verified(store.path, *heads_of(store), last)
    assert code == 0, said
    assert HEAD.findall(said) == [last] and len(store.heads) > 5
    assert "1 nodes" in said and "wrong" not in said and "erased" not in said


ONE = "log = 1 AND seq = 100"
FINISH = "(SELECT min(seq) FROM event WHERE kind = 'call.finished' AND seq > 20)"
CHANGED = "(SELECT min(seq) FROM event WHERE kind = 'change.intended' AND seq > 20)"
INLINE = "(SELECT blob FROM blob_content ORDER BY length(content) DESC LIMIT 1)"
PACKED = "(SELECT number FROM blob WHERE encoding = 'zstd' AND large = 0 LIMIT 1)"
LEAN = (
    "(SELECT number FROM blob WHERE encoding = 'zstd-delta' ORDER BY 1.0 * stored / size LIMIT 1)"
)

CHANGES: dict[str, tuple[str, ...]] = {
    "a byte of a leaf": (f"UPDATE event SET leaf = flipped(leaf) WHERE {ONE}",),
    "the end of a leaf": (f"UPDATE event SET leaf = substr(leaf, 1, 20) WHERE {ONE}",),
    "a leaf": (f"UPDATE event SET leaf = repacked(leaf, 'agent:a', 'agent:b') WHERE {ONE}",),
    "a leaf and its hash": (
        f"UPDATE event SET leaf = repacked(leaf, 'agent:a', 'agent:b') WHERE {ONE}",
        f"UPDATE event SET leaf_hash = hashed(leaf) WHERE {ONE}",
    ),
    "the hash of a leaf": (f"UPDATE event SET leaf_hash = zeroblob(32) WHERE {ONE}",),
    "a leaf that is not bytes": (f"UPDATE event SET leaf = 'text' WHERE {ONE}",),
    "the kind of an event": (f"UPDATE event SET kind = 'call.decided' WHERE {ONE}",),
    "the id of an event": (f"UPDATE event SET id = x'07' WHERE {ONE}",),
    "an event that goes": (f"DELETE FROM event WHERE {ONE}",),
    "the first event": ("DELETE FROM event WHERE seq = 1",),
    "two events that trade places": (
        "UPDATE event SET seq = -1 WHERE seq = 100",
        "UPDATE event SET seq = 100 WHERE seq = 101",
        "UPDATE event SET seq = 101 WHERE seq = -1",
    ),
    "the last event": ("DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)",),
    "a log of another name": ("UPDATE log SET id = 'other'",),
    "a log that goes": ("DELETE FROM log",),
    "a node": ("UPDATE tree_node SET hash = zeroblob(32)",),
    "a node that goes": ("DELETE FROM tree_node",),
    "a node too many": ("INSERT INTO tree_node VALUES (1, 8, 1, zeroblob(32))",),
    "a payload": (
        "UPDATE payload SET content = repacked(content, 'true', 'null') "
        f"WHERE seq = {FINISH} AND role = 'result'",
    ),
    "the salt of a payload": (
        f"UPDATE payload SET salt = flipped(salt) WHERE seq = {FINISH} AND role = 'result'",
    ),
    "a payload that is another's": (
        "UPDATE payload SET content = (SELECT content FROM payload p WHERE p.role = 'result' "
        f"AND p.seq > {FINISH}) WHERE seq = {FINISH} AND role = 'result'",
    ),
    "a payload too many": (
        f"INSERT INTO payload VALUES (1, {FINISH}, 'fact', 0, zeroblob(16), x'007b7d', NULL)",
    ),
    "a payload of no content": (
        f"UPDATE payload SET content = NULL WHERE seq = {FINISH} AND role = 'result'",
    ),
    "payloads of an event that is not there": (
        "INSERT INTO payload VALUES (1, 99999, 'fact', 0, zeroblob(16), x'007b7d', NULL)",
    ),
    "a manifest": (
        "UPDATE payload SET content = repacked(content, '420', '511') "
        f"WHERE seq = {CHANGED} AND role = 'manifest'",
    ),
    "the keys of a manifest": (
        "UPDATE payload SET content = CAST(x'00' || substr(content, 3) || x'00' AS BLOB) "
        f"WHERE seq = {CHANGED} AND role = 'keys'",
    ),
    "keys too many": (
        "UPDATE payload SET content = CAST(content || x'00' AS BLOB) "
        f"WHERE seq = {CHANGED} AND role = 'keys'",
    ),
    "a content": (
        f"UPDATE blob_content SET content = zeroblob(length(content)) WHERE blob = {INLINE}",
    ),
    "a content that goes": (f"DELETE FROM blob_content WHERE blob = {INLINE}",),
    "the base of a content": (f"UPDATE blob SET base = 1 WHERE number = {LEAN}",),
    "a content that leans on itself": (f"UPDATE blob SET base = number WHERE number = {LEAN}",),
    "the encoding of a content": (f"UPDATE blob SET encoding = 'raw' WHERE number = {PACKED}",),
    "the hash of a content": (f"UPDATE blob SET sha256 = zeroblob(32) WHERE number = {INLINE}",),
    "an encoding that is none": (f"UPDATE blob SET encoding = 'zstdx' WHERE number = {PACKED}",),
    "keys with a salt": (
        f"UPDATE payload SET salt = x'00' WHERE seq = {CHANGED} AND role = 'keys'",
    ),
    "a payload that is in two places": (
        f"UPDATE payload SET blob = {PACKED} WHERE seq = {FINISH} AND role = 'result'",
    ),
    "the size of a content": (f"UPDATE blob SET size = size + 1 WHERE number = {INLINE}",),
    "the row of a content": (f"DELETE FROM blob WHERE number = {INLINE}",),
    "where a content is": ("UPDATE blob SET large = 0 WHERE large = 1",),
    "a dictionary": ("UPDATE dictionary SET words = flipped(words) WHERE number = 2",),
    "a dictionary too many": ("INSERT INTO dictionary VALUES (3, x'00')",),
    "a dictionary that goes": ("DELETE FROM dictionary WHERE number = 2",),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("what", some([*CHANGES], 12))
def test_what_is_changed_in_a_store_is_found(store: Recorded, what: str) -> None:
    change(store, *CHANGES[what])
    code, said = verified(store.path)
    assert code == 1 and re.search(r"^wrong: ", said, re.M), said


def test_what_a_changed_event_is_named_by_is_its_number(store: Recorded) -> None:
    change(store, *CHANGES["a leaf"])
    code, said = verified(store.path)
    assert code == 1 and f"wrong: log {store.log} event 100: its leaf is not what" in said
    assert len(re.findall("^wrong", said, re.M)) < 5


def test_an_intention_of_another_call_or_named_before_is_found(store: Recorded) -> None:
    call, other = "d" * 32, "e" * 32
    with closing(store.open()) as database:
        log = database.event_log(store.log)

        def append(*facts: Fact) -> int:
            return log.append([Draft(fact, "session-9", "agent:a") for fact in facts])[-1].seq

        append(CallRequested(call, "write_file", {}, "write"))
        append(CallRequested(other, "write_file", {}, "write"))
        once, twice = append(ChangeIntended(call, ())), append(ChangeIntended(call, ()))
        append(FilesChanged((), "tool", call, intention=once))
        assert verified(store.path)[0] == 0
        wrong = [
            append(FilesChanged((), "tool", call, intention=once)),
            append(FilesChanged((), "tool", other, intention=twice)),
        ]
    code, said = verified(store.path)
    assert code == 1
    for seq in wrong:
        assert f"wrong: log {store.log} event {seq}: what it says was intended" in said


def without_end(store: Recorded) -> None:
    """The log cut off, and whatever tells of it with it."""
    tables = ("event", "payload")
    change(store, *(f"DELETE FROM {table} WHERE seq > 270" for table in tables))


def rewritten_end(store: Recorded) -> None:
    """The last event another one, its hash with it."""
    last = "seq = (SELECT max(seq) FROM event)"
    change(
        store,
        f"UPDATE event SET leaf = repacked(leaf, 'agent:a', 'agent:b') WHERE {last}",
        f"UPDATE event SET leaf_hash = hashed(leaf) WHERE {last}",
    )


@pytest.mark.parametrize("changed", [without_end, rewritten_end])
def test_a_head_kept_elsewhere_finds_what_the_store_cannot_tell(
    store: Recorded, changed: Callable[[Recorded], None]
) -> None:
    last = last_head(store)
    changed(store)
    assert verified(store.path)[0] == 0
    code, said = verified(store.path, *heads_of(store), last)
    assert code == 1 and "head" in said
    assert ("cut off, or copied while it was written" in said) == (changed is without_end)


@pytest.mark.parametrize("old", ["v1 ", " {size} ", "{root}"])
def test_a_head_that_is_another_is_said(store: Recorded, old: str) -> None:
    head = store.heads[3]
    old = old.format(size=head.size, root=head.root.hex())
    new = {"v": "v1 other", " ": f" {head.size - 1} "}.get(old[0], "0" * 64)
    code, said = verified(store.path, *heads_of(store), head_line(head).replace(old, new))
    assert code == 1 and "wrong" in said


def large_file(store: Recorded) -> Path:
    (found,) = [path for path in (store.path.parent / "blobs").rglob("*") if path.is_file()]
    return found


def flip_middle(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize(
    "damage", [flip_middle, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-9])]
)
def test_a_damaged_file_of_a_large_content_is_found(
    store: Recorded, damage: Callable[[Path], object]
) -> None:
    file = large_file(store)
    digest = file.parent.name + file.name
    damage(file)
    code, said = verified(store.path)
    assert code == 1 and f"wrong: content {digest}" in said


def test_a_database_that_is_cut_off_is_not_as_it_was(store: Recorded) -> None:
    raw = store.path.read_bytes()
    for part in (2, 5):
        store.path.write_bytes(raw[: len(raw) * part // 7])
        assert verified(store.path)[0] in (1, 2)


# --- what was erased, and what is not a store ---------------------------------------------


def test_what_was_erased_is_named_and_is_not_damage(store: Recorded) -> None:
    large = "(SELECT blob FROM payload WHERE role = 'content' AND blob IS NOT NULL LIMIT 1)"
    change(
        store,
        f"DELETE FROM payload WHERE seq = {FINISH} AND role = 'result'",
        "UPDATE payload SET content = zeroblob(length(content)) "
        f"WHERE seq = {CHANGED} AND role = 'keys'",
        f"DELETE FROM blob_content WHERE blob = {large}",
        "UPDATE blob SET encoding = 'absent', base = NULL, version = 0, stored = 0 "
        f"WHERE number = {large}",
    )
    code, said = verified(store.path, *heads_of(store))
    named = re.findall(
        r"^erased: log \S+ event \d+: (payload result|payload content|the content)", said, re.M
    )
    assert {*named} == {"payload result", "payload content", "the content"}, said
    assert "wrong" not in said and code == 0


def empty(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE event (seq)")


@pytest.mark.parametrize(
    "make", [lambda path: None, Path.touch, lambda path: path.write_text("no"), Path.mkdir, empty]
)
def test_what_is_not_a_store_is_said_to_be_none(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    path = tmp_path / "audit.db"
    make(path)
    code, said = verified(path)
    assert code == 2 and "is not a store" in said


# --- the document -------------------------------------------------------------------------


def test_the_document_has_the_tables_that_hold_the_log() -> None:
    document = (ROOT / "docs" / "store-format.md").read_text("utf-8")
    schema = (ROOT / "loom_audit" / "sql" / "schema.sql").read_text("utf-8")
    durable = ("log", "event", "tree_node", "dictionary", "payload", "blob", "blob_content")
    for table in durable:
        (made,) = re.findall(rf"^CREATE TABLE {table} \(.*?;$", schema, re.M | re.S)
        assert made in document, table


def test_the_document_has_the_hashes_of_the_dictionaries() -> None:
    document = (ROOT / "docs" / "store-format.md").read_text("utf-8")
    assert all(hashed in document for hashed in DICTIONARY_HASHES.values())
