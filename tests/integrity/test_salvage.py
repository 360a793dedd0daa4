"""What salvage gets out of stores that cannot be opened, read or trusted any more."""

import json
import os
import random
import re
import stat
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from loom_audit.errors import Conflict, StorageFailed
from loom_audit.model.files import BlobId, FileState
from loom_audit.model.stored.merkle import leaf_hash, root
from loom_audit.sql.ground.driver import BUSY_MS, driver
from loom_audit.sql.salvage.salvage import salvage, write_tree
from tests.integrity.conftest import LIMIT, Recorded

PAGE = 4096


def bytes_below(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file of a folder as it lies, but for locks and SQLite's shared memory."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", ".ballast"))
    }


def expected_tree(store: Recorded) -> dict[str, FileState]:
    with closing(store.open()) as database:
        return database.projections(store.log).tree()


def settle(store: Recorded) -> None:
    """Fold the write-ahead log in, so that damage to the file is damage to the store."""
    with closing(driver().connect(str(store.path))) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def lines(folder: Path, log: str) -> list[dict[str, Any]]:
    text = (folder / "events" / f"{log}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def assert_tree(
    folder: Path, log: str, tree: dict[str, FileState], missing: Collection[str] = frozenset()
) -> None:
    root = os.fsencode(folder / "trees" / log)
    for path, state in tree.items():
        target = os.path.join(root, os.fsencode(path))
        if path in missing:
            assert not os.path.lexists(target)
        elif state.kind == "directory":
            assert os.path.isdir(target)
        elif state.kind == "symlink":
            assert sha256(os.readlink(target)).hexdigest() == state.blob
        else:
            content = Path(os.fsdecode(target)).read_bytes()
            assert sha256(content).hexdigest() == state.blob
            assert stat.S_IMODE(os.stat(target).st_mode) == state.mode


def test_a_sound_store_comes_out_whole_and_is_not_touched(store: Recorded, tmp_path: Path) -> None:
    tree, to = expected_tree(store), tmp_path / "out"
    before = bytes_below(store.path.parent)
    found = salvage(str(store.path), str(to))
    assert bytes_below(store.path.parent) == before
    assert found.notice == ""
    assert found.events == store.heads[-1].size
    assert found.failures == (f"log {store.log}: the file 'huge.bin': No such file or directory",)
    assert_tree(to, store.log, tree, missing={"huge.bin"})
    assert found.files == len(tree) - 1
    for blob in (to / "blobs").iterdir():
        assert sha256(blob.read_bytes()).hexdigest() == blob.name
    assert len(list((to / "blobs").iterdir())) == found.contents
    assert sorted(path.name for path in to.iterdir()) == [
        "blobs",
        "events",
        "failures.txt",
        "trees",
    ]
    assert stat.S_IMODE(to.stat().st_mode) == 0o700


def test_every_event_can_be_proven_from_its_line(store: Recorded, tmp_path: Path) -> None:
    salvage(str(store.path), str(tmp_path / "out"))
    hashes = []
    for line in lines(tmp_path / "out", store.log):
        leaf = line["leaf"].encode()
        assert line["intact"] and leaf_hash(leaf).hex() == line["leaf_hash"]
        commits = {(p["role"], p["n"]): p["commit"] for p in json.loads(leaf).get("payloads", ())}
        for part in line["payloads"]:
            if "text" in part or "base64" in part:
                data = part["text"].encode() if "text" in part else b64decode(part["base64"])
            else:
                data = (tmp_path / "out" / "blobs" / part["sha256"]).read_bytes()
            assert sha256(data).hexdigest() == part["sha256"]
            if part["role"] != "keys":
                salt = bytes.fromhex(part["salt"])
                digest = sha256(data).digest()
                opened = sha256(salt + part["role"].encode() + digest).digest()
                assert urlsafe_b64encode(opened).decode().rstrip("=") == commits.pop(
                    (part["role"], part["n"])
                )
        assert not commits
        hashes.append(leaf_hash(leaf))
    assert root(hashes) == store.heads[-1].root


@pytest.mark.parametrize("taken", ["file", "folder with something"])
def test_a_target_that_is_not_empty_is_refused(store: Recorded, tmp_path: Path, taken: str) -> None:
    to = tmp_path / "out"
    if taken == "file":
        to.write_text("mine")
    else:
        to.mkdir()
        (to / "mine").write_text("mine")
    with pytest.raises(Conflict):
        salvage(str(store.path), str(to))
    assert (to if taken == "file" else to / "mine").read_text() == "mine"


def test_a_store_that_somebody_keeps_locked_is_read_from_a_copy(
    store: Recorded, tmp_path: Path
) -> None:
    with closing(driver().connect(str(store.path), isolation_level=None)) as raw:
        raw.execute("PRAGMA locking_mode = EXCLUSIVE")
        raw.execute("BEGIN EXCLUSIVE")
        raw.execute("SELECT count(*) FROM event").fetchone()
        began = time.monotonic()
        found = salvage(str(store.path), str(tmp_path / "out"))
        assert time.monotonic() - began < BUSY_MS / 1000, "it waits as long as a recorder does"
        raw.execute("ROLLBACK")
    assert "copy" in found.notice and "locked" in found.notice
    assert found.events == store.heads[-1].size
    assert found.notice in (tmp_path / "out" / "failures.txt").read_text()


def test_a_read_only_folder_is_read_with_what_is_in_the_write_ahead_log(
    store: Recorded, tmp_path: Path
) -> None:
    """As root the folder can be written all the same; then it is simply read in place."""
    raw = driver().connect(str(store.path))
    raw.execute("PRAGMA wal_autocheckpoint = 0")
    raw.execute("INSERT INTO log (id) VALUES ('only-in-the-wal')")
    raw.commit()
    folder = store.path.parent
    copy = tmp_path / "readonly"
    copy.mkdir()
    for name in (store.path.name, store.path.name + "-wal"):
        (copy / name).write_bytes((folder / name).read_bytes())
        (copy / name).chmod(0o400)
    raw.close()
    copy.chmod(0o500)
    try:
        found = salvage(str(copy / store.path.name), str(tmp_path / "out"))
        names = sorted(path.name for path in copy.iterdir())
    finally:
        copy.chmod(0o700)
    assert found.logs == 2
    assert (tmp_path / "out" / "events" / "only-in-the-wal.jsonl").exists()
    if os.geteuid() != 0:
        assert "copy" in found.notice
        assert names == [store.path.name, store.path.name + "-wal"]


def pages_of(store: Recorded, table: str) -> list[int]:
    """The leaf pages of a table's tree, in order (SQLite file format, section 1.6)."""
    with closing(driver().connect(str(store.path))) as raw:
        sql = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        [(root_page,)] = raw.execute(sql, (table,)).fetchall()
    data = store.path.read_bytes()

    def leaves(page: int) -> list[int]:
        start = (page - 1) * PAGE
        if data[start] not in (2, 5):
            return [page]
        cells = int.from_bytes(data[start + 3 : start + 5], "big")
        at = [int.from_bytes(data[start + 12 + 2 * n :][:2], "big") for n in range(cells)]
        below = [int.from_bytes(data[start + cell :][:4], "big") for cell in at]
        below.append(int.from_bytes(data[start + 8 : start + 12], "big"))
        return [leaf for child in below for leaf in leaves(child)]

    return leaves(root_page)


def wipe(store: Recorded, pages: list[int]) -> None:
    data = bytearray(store.path.read_bytes())
    for page in pages:
        data[(page - 1) * PAGE : page * PAGE] = random.Random(page).randbytes(PAGE)
    store.path.write_bytes(data)


def gaps(failures: Iterable[str]) -> set[int]:
    """The events that are listed as not found."""
    spans = [
        re.fullmatch(r"log \w+: event (\d+)(?: to (\d+))?: not found", line) for line in failures
    ]
    return {
        seq
        for found in spans
        if found is not None
        for seq in range(int(found[1]), int(found[2] or found[1]) + 1)
    }


def test_events_around_a_damaged_page_come_out(store: Recorded, tmp_path: Path) -> None:
    settle(store)
    pages = pages_of(store, "event")
    assert len(pages) > 20
    wipe(store, [pages[3], *pages[10:12]])
    found = salvage(str(store.path), str(tmp_path / "out"))
    seqs = [line["seq"] for line in lines(tmp_path / "out", store.log)]
    assert seqs == sorted(set(seqs))
    size = store.heads[-1].size
    assert seqs[0] == 1 and seqs[-1] == size
    assert size * 0.8 < len(seqs) < size
    assert gaps(found.failures) == set(range(1, size + 1)) - set(seqs)


@pytest.mark.parametrize("table", ["payload", "blob", "blob_content"])
def test_what_does_not_lie_on_a_damaged_page_comes_out(
    store: Recorded, tmp_path: Path, table: str
) -> None:
    settle(store)
    pages = pages_of(store, table)
    wipe(store, pages[1:2])
    found = salvage(str(store.path), str(tmp_path / "out"))
    assert found.events == store.heads[-1].size
    assert len(found.failures) > 1
    for blob in (tmp_path / "out" / "blobs").iterdir():
        assert sha256(blob.read_bytes()).hexdigest() == blob.name


def root_of(store: Recorded, table: str) -> tuple[int, int]:
    """The root page of a table, and how many rows lie on it."""
    with closing(driver().connect(str(store.path))) as raw:
        sql = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        [(page,)] = raw.execute(sql, (table,)).fetchall()
    header = store.path.read_bytes()[(page - 1) * PAGE :][:5]
    return page, 0 if header[0] == 5 else int.from_bytes(header[3:], "big")


def exported(folder: Path, log: str) -> tuple[dict[int, dict[str, Any]], dict[str, bytes]]:
    by_seq = {line["seq"]: line for line in lines(folder, log)}
    return by_seq, {path.name: path.read_bytes() for path in (folder / "blobs").iterdir()}


@pytest.mark.few(2)
@pytest.mark.parametrize("table", ["log", "event", "payload", "blob", "blob_content"])
def test_only_what_lies_on_the_root_page_of_a_table_is_lost_with_it(
    store: Recorded, tmp_path: Path, table: str
) -> None:
    settle(store)
    salvage(str(store.path), str(tmp_path / "sound"))
    events, contents = exported(tmp_path / "sound", store.log)
    page, rows = root_of(store, table)
    wipe(store, [page])
    found = salvage(str(store.path), str(tmp_path / "out"))
    assert "page by page" in found.notice
    left, files = exported(tmp_path / "out", store.log)
    assert files == contents
    assert len(left) == len(events) - (rows if table == "event" else 0)
    assert gaps(found.failures) == events.keys() - left.keys()
    lost = 0
    for seq, line in left.items():
        parts = [part for part in events[seq]["payloads"] if part not in line["payloads"]]
        assert {**line, "payloads": []} == {**events[seq], "payloads": []}
        assert all(part in events[seq]["payloads"] for part in line["payloads"])
        lost += len(parts)
        for part in parts:
            assert any(
                f"event {seq}: payload {part['role']} {part['n']} is not stored" in text
                for text in found.failures
            )
    assert lost == (rows if table == "payload" else 0)


def test_a_damaged_store_is_read_with_what_is_in_the_write_ahead_log(
    store: Recorded, tmp_path: Path
) -> None:
    settle(store)
    page, rows = root_of(store, "event")
    raw = driver().connect(str(store.path))
    raw.execute("PRAGMA wal_autocheckpoint = 0")
    raw.execute("INSERT INTO log (id) VALUES ('only-in-the-wal')")
    raw.commit()
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in (store.path.name, store.path.name + "-wal"):
        (copy / name).write_bytes((store.path.parent / name).read_bytes())
    raw.close()
    wipe(Recorded(copy / store.path.name, store.log, []), [page])
    found = salvage(str(copy / store.path.name), str(tmp_path / "out"))
    assert found.logs == 2
    assert found.events == store.heads[-1].size - rows


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE event SET leaf_hash = 'text' WHERE seq = 7",
        "UPDATE event SET seq = 'text' WHERE seq = 7",
        "UPDATE event SET id = 7, kind = x'ff' WHERE seq = 7",
        "UPDATE payload SET salt = 'text' WHERE seq = 7",
        "UPDATE payload SET content = 'text', blob = 'text' WHERE seq = 7",
        "UPDATE blob SET sha256 = 'text' WHERE number = 7",
        "UPDATE blob SET size = 'text', base = 'text', encoding = 'zstd-delta' WHERE number = 7",
        "UPDATE blob_content SET content = 'text' WHERE blob = 7",
        "UPDATE log SET id = x'ff'",
    ],
)
def test_values_of_other_types_cost_only_themselves(
    store: Recorded, tmp_path: Path, sql: str
) -> None:
    with closing(driver().connect(str(store.path), isolation_level=None)) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        raw.execute("DROP TRIGGER event_no_update")
        raw.execute("DROP TRIGGER log_no_update")
        assert raw.execute(sql).rowcount > 0
    found = salvage(str(store.path), str(tmp_path / "out"))
    assert found.events >= store.heads[-1].size - 1
    assert found.contents > 170
    assert len(found.failures) > 1 or "log" in sql or "id = 7" in sql


def test_a_payload_that_is_not_the_one_on_record_is_listed_and_no_tree_is_made_of_it(
    store: Recorded, tmp_path: Path
) -> None:
    with closing(driver().connect(str(store.path), isolation_level=None)) as raw:
        sql = "SELECT seq FROM payload WHERE role = 'manifest' AND content IS NOT NULL"
        seqs = [seq for (seq,) in raw.execute(sql + " ORDER BY seq DESC LIMIT 2")]
        raw.execute(
            "UPDATE payload SET salt = zeroblob(32) WHERE seq = ? AND role = 'manifest'", seqs[:1]
        )
    found = salvage(str(store.path), str(tmp_path / "out"))
    assert f"log {store.log}: event {seqs[0]}: the tree goes on without it" in found.failures
    assert any(f"event {seqs[0]}: payload manifest 0 is not" in line for line in found.failures)


def test_a_store_without_its_first_page_comes_out_whole(store: Recorded, tmp_path: Path) -> None:
    tree = expected_tree(store)
    settle(store)
    wipe(store, [1])
    found = salvage(str(store.path), str(tmp_path / "out"))
    assert "page by page" in found.notice
    assert found.events == store.heads[-1].size
    assert_tree(tmp_path / "out", store.log, tree, missing={"huge.bin"})


@pytest.mark.parametrize("content", [b"", b"not a database" * 1000, None])
def test_a_file_that_is_not_a_store_is_named_as_such(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "audit.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StorageFailed) as caught:
        salvage(str(path), str(tmp_path / "out"))
    assert caught.value.hint
    assert content is None or path.read_bytes() == content


def test_a_tampered_event_is_marked_and_a_damaged_large_file_is_listed(
    store: Recorded, tmp_path: Path
) -> None:
    with closing(driver().connect(str(store.path), isolation_level=None)) as raw:
        raw.execute("DROP TRIGGER event_no_update")
        raw.execute("UPDATE event SET leaf_hash = zeroblob(32) WHERE seq = 5")
    for path in (store.path.parent / "blobs").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-5])
    found = salvage(str(store.path), str(tmp_path / "out"))
    assert [line["seq"] for line in lines(tmp_path / "out", store.log) if not line["intact"]] == [5]
    assert any(f"log {store.log}: event 5: its leaf does not" in line for line in found.failures)
    assert "event 5: its leaf does not" in (tmp_path / "out" / "failures.txt").read_text()
    assert any("large.bin" in line for line in found.failures)
    assert any(line.startswith("content ") for line in found.failures)


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a/../../b", "a//b", ".", "a/.", "x\0y", ""])
def test_no_path_of_a_damaged_tree_leads_outside(tmp_path: Path, path: str) -> None:
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    name = BlobId(sha256(b"x").hexdigest())
    (blobs / name).write_bytes(b"x")
    failed: list[str] = []
    tree = {
        path: FileState("file", name, 0o644, 1),
        "ok": FileState("file", name, 0o600, 1),
    }
    assert write_tree(tree, str(tmp_path / "tree"), str(blobs), failed.append) == 1
    assert len(failed) == 1
    assert sorted(p.name for p in tmp_path.rglob("*")) == sorted(["blobs", name, "ok", "tree"])


def test_no_file_is_written_through_a_symlink_of_the_tree(tmp_path: Path) -> None:
    blobs, outside = tmp_path / "blobs", tmp_path / "outside"
    blobs.mkdir()
    outside.mkdir()
    link = BlobId(sha256(os.fsencode(outside)).hexdigest())
    name = BlobId(sha256(b"x").hexdigest())
    (blobs / link).write_bytes(os.fsencode(outside))
    (blobs / name).write_bytes(b"x")
    tree = {
        "a": FileState("symlink", link, 0o777, 5),
        "a/b": FileState("file", name, 0o644, 1),
    }
    failed: list[str] = []
    assert write_tree(tree, str(tmp_path / "tree"), str(blobs), failed.append) == 1
    assert len(failed) == 1 and list(outside.iterdir()) == []


def test_files_recorded_by_hash_only_are_listed_as_missing(store: Recorded, tmp_path: Path) -> None:
    tree = expected_tree(store)
    assert tree["huge.bin"].size > LIMIT
    found = salvage(str(store.path), str(tmp_path / "out"))
    assert any("huge.bin" in line for line in found.failures)
