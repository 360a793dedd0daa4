"""What every store of contents promises, and how the real one keeps them."""

import hashlib
import random
import subprocess
import sys
import threading
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_audit.errors import AuditUnavailable, Corrupt, InvalidArguments, NotFound
from loom_audit.model.events import SessionStarted
from loom_audit.model.files import BlobId
from loom_audit.sql.contents.blobs import INLINE_BYTES, MAX_CHAIN, SqlBlobStore, base_version
from loom_audit.sql.contents.encodings import MAX_DELTA, compress, compress_delta, decompress
from loom_audit.sql.ground.driver import connect
from tests.contracts.stores import Opened, draft, open_sqlite
from tests.doubles import MemoryBlobStore


def settle(opened: Opened) -> None:
    opened.log.append([draft(SessionStarted("a"))])


def again(opened: Opened, folder: Path) -> Opened:
    """The same store, opened anew: nothing is in memory."""
    assert opened.database
    opened.database.close()
    return open_sqlite(folder)


def name(content: bytes) -> BlobId:
    return BlobId(hashlib.sha256(content).hexdigest())


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def words(count: int, seed: int = 0) -> bytes:
    source = random.Random(seed)
    return b" ".join(b"%x" % source.randrange(1 << 24) for _ in range(count))


CONTENTS = {
    "nothing": b"",
    "one byte": b"\x00",
    "text": b"hello\n",
    "compressible": b"ab" * 50_000,
    "incompressible": noise(1000),
    "at the inline limit": noise(INLINE_BYTES),
    "over the inline limit": noise(INLINE_BYTES + 1),
    "large": noise(MAX_DELTA + 1) + b"\x00" * 1_000_000,
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_what_is_put_can_be_read_at_once_and_ever_after(
    opened: Opened, content: bytes, tmp_path: Path
) -> None:
    blob = opened.blobs.put(content)
    assert blob == name(content)
    for _ in range(2):
        assert blob in opened.blobs
        assert opened.blobs.size(blob) == len(content)
        assert opened.blobs.get(blob) == content
        with opened.blobs.open(blob) as stream:
            assert stream.read() == content
        settle(opened)
        assert opened.blobs.pending_bytes() == 0
        assert opened.blobs.put(BytesIO(content)) == blob
        assert opened.blobs.pending_bytes() == 0
    if opened.database:
        fresh = again(opened, tmp_path)
        assert fresh.blobs.get(blob) == content
        assert fresh.database
        fresh.database.close()


def test_what_was_never_put_is_not_found(opened: Opened) -> None:
    blob = name(b"never")
    assert blob not in opened.blobs
    for ask in (opened.blobs.get, opened.blobs.open, opened.blobs.size):
        with pytest.raises(NotFound):
            ask(blob)
    for wrong in ("", "abc", "zz" * 32, "ab" * 33):
        with pytest.raises(InvalidArguments):
            opened.blobs.get(BlobId(wrong))


def test_of_many_contents_those_that_are_missing_are_named(opened: Opened) -> None:
    kept = [opened.blobs.put(b"%d" % n) for n in range(700)]
    settle(opened)
    waiting = opened.blobs.put(b"waiting")
    never = {name(b"never"), name(b"nor this")}
    assert opened.blobs.missing([*kept, waiting, *never]) == never
    assert opened.blobs.missing(kept) == opened.blobs.missing([]) == set()


def test_several_contents_are_read_in_one_go(opened: Opened) -> None:
    lines = words(300).split(b" ")
    contents, previous = {}, None
    for n in range(300):
        lines[n] = b"line %d" % n
        content = b" ".join(lines)
        previous = opened.blobs.put(content, similar_to=previous)
        contents[previous] = content
    long = opened.blobs.put(noise(100_000, 1))
    empty = opened.blobs.put(b"")
    settle(opened)
    contents |= {long: noise(100_000, 1), empty: b""}
    waiting = opened.blobs.put(b"waiting")
    found = opened.blobs.get_many([*contents, waiting, name(b"never")])
    assert found.items() >= contents.items()
    assert found.keys() - contents.keys() <= {waiting}
    assert opened.blobs.get_many([]) == {}
    with pytest.raises(InvalidArguments):
        opened.blobs.get_many([BlobId("zz")])


def test_what_waits_is_counted_until_the_next_append(opened: Opened) -> None:
    assert opened.blobs.pending_bytes() == 0
    opened.blobs.put(noise(1000, 1))
    opened.blobs.put(noise(1000, 1))
    opened.blobs.put(noise(500, 2))
    assert opened.blobs.pending_bytes() == 1500
    settle(opened)
    assert opened.blobs.pending_bytes() == 0


def test_what_waits_is_not_seen_by_others_before_the_append(stored: Opened, tmp_path: Path) -> None:
    other = open_sqlite(tmp_path)
    blob = stored.blobs.put(b"not yet")
    assert blob not in other.blobs
    settle(stored)
    assert other.blobs.get(blob) == b"not yet"
    assert other.database
    other.database.close()


def test_a_long_line_of_versions_is_read_back(opened: Opened, tmp_path: Path) -> None:
    source = random.Random(4)
    lines = words(400).split(b" ")
    versions: list[tuple[BlobId, bytes]] = []
    previous: BlobId | None = None
    for n in range(200):
        lines[source.randrange(len(lines))] = b"version %d" % n
        content = b"\n".join(lines)
        previous = opened.blobs.put(content, similar_to=previous)
        versions.append((previous, content))
        if n % 30 == 29:
            settle(opened)
    settle(opened)
    fresh = again(opened, tmp_path) if opened.database else opened
    source.shuffle(versions)
    for blob, content in versions:
        assert fresh.blobs.get(blob) == content
    if fresh.database:
        raw = connect(fresh.database.connections.path, "ro")
        [(deltas, bytes_kept)] = raw.execute(
            "SELECT count(*), sum(stored) FROM blob WHERE encoding = 'zstd-delta'"
        ).fetchall()
        assert deltas == 199
        assert bytes_kept < 199 * 200
        bases = dict(raw.execute("SELECT number, base FROM blob").fetchall())
        raw.close()
        depths = sorted(depth(bases, number) for number in bases)
        assert depths == sorted(sum(divmod(v, 16)) for v in range(200))
        fresh.database.close()


def depth(bases: dict[int, int | None], number: int | None) -> int:
    steps = -1
    while number is not None:
        number, steps = bases[number], steps + 1
    return steps


def test_a_version_that_comes_back_is_kept_once(stored: Opened) -> None:
    one, two = words(300), words(300) + b" and more"
    first = stored.blobs.put(one)
    second = stored.blobs.put(two, similar_to=first)
    settle(stored)
    assert stored.blobs.put(one, similar_to=second) == first
    third = stored.blobs.put(one + b"!", similar_to=first)
    settle(stored)
    assert [stored.blobs.get(b) for b in (first, second, third)] == [one, two, one + b"!"]


def test_a_delta_that_saves_nothing_is_not_taken(stored: Opened) -> None:
    first = stored.blobs.put(noise(5000, 1))
    stored.blobs.put(noise(5000, 2), similar_to=first)
    stored.blobs.put(b"tiny", similar_to=first)
    stored.blobs.put(words(100), similar_to=name(b"not here"))
    settle(stored)
    assert stored.database
    raw = connect(stored.database.connections.path, "ro")
    kept = {row[0] for row in raw.execute("SELECT encoding FROM blob")}
    raw.close()
    assert kept == {"raw", "zstd"}


def test_threads_that_put_the_same_contents_agree(opened: Opened) -> None:
    contents = [words(200, n % 5) for n in range(40)]
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            own = list(contents)
            random.Random(seed).shuffle(own)
            for content in own:
                blob = opened.blobs.put(content)
                if seed % 2:
                    opened.log.append([draft(SessionStarted("a"))])
                assert opened.blobs.get(blob) == content
        except Exception as error:  # noqa: BLE001 - shown by the main thread
            problems.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_two_processes_that_store_the_same_content_in_different_ways_agree(
    stored: Opened, tmp_path: Path
) -> None:
    other = open_sqlite(tmp_path)
    base, content = words(500), words(500) + b" changed"
    first = stored.blobs.put(base)
    blob = stored.blobs.put(content, similar_to=first)  # a delta here
    assert other.blobs.put(content) == blob  # whole there
    settle(other)
    settle(stored)
    for store in (stored, other):
        assert store.blobs.get(blob) == content
        assert store.blobs.get(first) == base
    assert other.database
    other.database.close()


# --- damage -------------------------------------------------------------------------------


def test_a_damaged_content_is_not_handed_out(opened: Opened, tmp_path: Path) -> None:
    content = words(300)
    blob = opened.blobs.put(content)
    settle(opened)
    if isinstance(opened.blobs, MemoryBlobStore):
        opened.blobs.damage(blob, b"other bytes")
        fresh = opened
    else:
        fresh = again(opened, tmp_path)
        edit(fresh, "UPDATE blob_content SET content = ?", compress(words(300, 9))[1])
    with pytest.raises(Corrupt) as caught:
        fresh.blobs.get(blob)
    assert blob in caught.value.message or not opened.database
    if fresh.database:
        fresh.database.close()


def edit(opened: Opened, statement: str, *values: Any) -> None:
    assert opened.database
    raw = connect(opened.database.connections.path, "rw")
    raw.execute(statement, values)
    raw.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE blob_content SET content = x'00112233'",
        "UPDATE blob_content SET content = substr(content, 1, length(content) - 5)",
        "UPDATE blob SET size = size + 1",
        "UPDATE blob SET size = 1",
        "UPDATE blob SET encoding = 'raw'",
        "UPDATE blob SET encoding = 'rot13'",
        "DELETE FROM blob_content",
    ],
)
def test_each_kind_of_damage_is_corrupt(stored: Opened, tmp_path: Path, statement: str) -> None:
    blob = stored.blobs.put(words(300))
    settle(stored)
    fresh = again(stored, tmp_path)
    edit(fresh, statement)
    assert fresh.blobs.get_many([blob]) == {}
    with pytest.raises(Corrupt):
        fresh.blobs.get(blob)
    assert fresh.database
    fresh.database.close()


def test_a_delta_of_what_is_too_short_for_one_is_corrupt(stored: Opened, tmp_path: Path) -> None:
    short, base = stored.blobs.put(b"short"), stored.blobs.put(words(300))
    blob = stored.blobs.put(words(301), similar_to=base)
    settle(stored)
    fresh = again(stored, tmp_path)
    number = "(SELECT number FROM blob WHERE sha256 = ?)"
    edit(fresh, f"UPDATE blob SET base = {number} WHERE base IS NOT NULL", bytes.fromhex(short))
    assert fresh.blobs.get_many([blob]) == {}
    with pytest.raises(Corrupt):
        fresh.blobs.get(blob)
    assert fresh.database
    fresh.database.close()


@pytest.mark.parametrize(
    "statement", ["UPDATE blob SET size = size - 1", "UPDATE blob SET size = 'two'"]
)
def test_a_content_that_is_stored_as_it_is_has_the_size_on_record(
    stored: Opened, tmp_path: Path, statement: str
) -> None:
    blob = stored.blobs.put(b"few")
    settle(stored)
    fresh = again(stored, tmp_path)
    assert fresh.blobs.get(blob) == b"few"
    fresh = again(stored, tmp_path)
    edit(fresh, statement)
    with pytest.raises(Corrupt):
        fresh.blobs.get(blob)
    assert fresh.database
    fresh.database.close()


def test_nothing_new_leans_on_a_damaged_content(stored: Opened, tmp_path: Path) -> None:
    first = stored.blobs.put(words(300))
    settle(stored)
    fresh = again(stored, tmp_path)
    other = words(300, 7)[: len(words(300))].ljust(len(words(300)))
    edit(fresh, "UPDATE blob_content SET content = ?", compress(other)[1])
    second = fresh.blobs.put(words(300) + b"x", similar_to=first)
    settle(fresh)
    last = again(fresh, tmp_path)
    assert last.blobs.get(second) == words(300) + b"x"
    assert last.database
    last.database.close()


def test_deltas_in_a_circle_are_corrupt(stored: Opened, tmp_path: Path) -> None:
    first = stored.blobs.put(words(300))
    second = stored.blobs.put(words(300) + b"x", similar_to=first)
    settle(stored)
    fresh = again(stored, tmp_path)
    edit(fresh, "UPDATE blob SET base = 2, encoding = 'zstd-delta' WHERE number = 1")
    with pytest.raises(Corrupt):
        fresh.blobs.get(second)
    assert fresh.database
    fresh.database.close()


# --- large objects ------------------------------------------------------------------------


def large_file(folder: Path, blob: BlobId) -> Path:
    return folder / "store" / "blobs" / blob[:2] / blob[2:]


def test_a_large_content_is_a_private_file_that_is_there_before_the_append(
    stored: Opened, tmp_path: Path
) -> None:
    content = noise(INLINE_BYTES + 100)
    blob = stored.blobs.put(content)
    file = large_file(tmp_path, blob)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert stored.blobs.pending_bytes() == 0
    settle(stored)
    assert not list((tmp_path / "store" / "blobs").glob("tmp-*"))
    fresh = again(stored, tmp_path)
    assert fresh.blobs.get(blob) == content
    assert fresh.database
    fresh.database.close()


def test_a_large_file_that_is_damaged_or_gone_is_named(stored: Opened, tmp_path: Path) -> None:
    content = noise(MAX_DELTA + 10)
    blob = stored.blobs.put(BytesIO(content))
    settle(stored)
    file = large_file(tmp_path, blob)
    whole = file.read_bytes()
    other = SqlBlobStore(stored.database.connections, str(tmp_path / "elsewhere"))
    other.put(noise(MAX_DELTA + 10, 5))
    swapped = next(p for p in (tmp_path / "elsewhere").rglob("*") if p.is_file())
    for damaged in (whole[:-3], whole[:100], b"", b"x" * 100, swapped.read_bytes(), whole + whole):
        file.write_bytes(damaged)
        if damaged == whole + whole:
            assert stored.blobs.get(blob) == content  # what follows the frame is not read
            continue
        with pytest.raises(Corrupt):
            stored.blobs.get(blob)
        with pytest.raises(Corrupt), stored.blobs.open(blob) as stream:
            while stream.read(1 << 20):
                pass
    file.unlink()
    with pytest.raises(Corrupt):
        stored.blobs.get(blob)


def test_a_new_version_of_a_large_content_does_not_lean_on_it(
    stored: Opened, tmp_path: Path
) -> None:
    base = words(1_300_000)
    assert len(base) > MAX_DELTA
    first = stored.blobs.put(BytesIO(base))
    small = base[: MAX_DELTA // 2]
    second = stored.blobs.put(small, similar_to=first)
    settle(stored)
    fresh = again(stored, tmp_path)
    assert fresh.blobs.get(second) == small
    assert fresh.database
    fresh.database.close()


def test_a_middling_content_in_a_file_can_be_leaned_on(stored: Opened, tmp_path: Path) -> None:
    base = noise(INLINE_BYTES * 2)
    first = stored.blobs.put(base)
    second = stored.blobs.put(base[:-1] + b"!", similar_to=first)
    settle(stored)
    assert large_file(tmp_path, first).exists() and not large_file(tmp_path, second).exists()
    fresh = again(stored, tmp_path)
    assert fresh.blobs.get(second) == base[:-1] + b"!"
    assert fresh.database
    fresh.database.close()


def test_a_large_content_that_cannot_be_written_is_refused_and_leaves_nothing(
    stored: Opened, tmp_path: Path
) -> None:
    (tmp_path / "store" / "blobs").write_bytes(b"a file where the folder should be")
    with pytest.raises(AuditUnavailable):
        stored.blobs.put(noise(INLINE_BYTES + 1))
    stored.blobs.put(b"small ones are not affected")
    settle(stored)


BOUNDED = """
import resource, sys
from pathlib import Path
from tests.contracts.stores import open_sqlite, draft
from loom_audit.model.events import SessionStarted

class Endless:
    def __init__(self, size):
        self.left, self.n = size, 0
    def read(self, count=-1):
        count = min(count, self.left)
        self.left -= count
        self.n += 1
        block = (b"%016d" % self.n) * (count // 16 + 1)
        return block[:count]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

opened = open_sqlite(Path(sys.argv[1]))
opened.blobs.get(opened.blobs.put(b"warm up"))
before = peak()
size = int(sys.argv[2])
blob = opened.blobs.put(Endless(size))
opened.log.append([draft(SessionStarted("a"))])
read = 0
with opened.blobs.open(blob) as stream:
    while chunk := stream.read(1 << 20):
        read += len(chunk)
assert read == opened.blobs.size(blob) == size
print((peak() - before) // 1024)
opened.database.close()
"""


def peak_mib(folder: Path, size: int) -> int:
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, str(folder), str(size)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return int(done.stdout)


def test_memory_stays_bounded_whatever_the_size(tmp_path: Path) -> None:
    assert peak_mib(tmp_path, 200 << 20) <= 64


@pytest.mark.deep
def test_two_gibibytes_go_in_and_out_in_bounded_memory(tmp_path: Path) -> None:
    assert peak_mib(tmp_path, 2 << 30) <= 64


@given(st.integers(1, 70_000))
def test_a_version_leans_on_one_that_the_version_before_can_reach(version: int) -> None:
    base = base_version(version)
    assert 0 <= base < version
    reached = version - 1
    while reached > base:
        reached = base_version(reached)
    assert reached == base


def test_any_version_is_read_by_few_decodes() -> None:
    depths = [0]
    for version in range(1, 65_536):
        depths.append(depths[base_version(version)] + 1)
    assert max(depths) == 60 <= MAX_CHAIN


# --- encodings ----------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.binary(max_size=3000))
def test_whatever_is_compressed_comes_back(content: bytes) -> None:
    encoding, packed = compress(content)
    assert decompress(encoding, packed, len(content), None) == content
    assert len(packed) <= len(content)


@settings(max_examples=60)
@given(st.binary(min_size=64, max_size=3000), st.lists(st.tuples(st.floats(0, 1), st.binary())))
def test_a_delta_comes_back_against_its_base_only(base: bytes, cuts: list[Any]) -> None:
    content = base
    for place, piece in cuts:
        at = int(place * len(content))
        content = content[:at] + piece + content[at + len(piece) // 2 :]
    packed = compress_delta(content, base)
    assert decompress("zstd-delta", packed, len(content), base) == content


def test_deltas_reach_over_the_whole_of_what_they_may() -> None:
    base = noise(MAX_DELTA)
    content = base[MAX_DELTA // 2 :] + base[: MAX_DELTA // 2]
    packed = compress_delta(content, base)
    assert len(packed) < 100_000
    assert decompress("zstd-delta", packed, len(content), base) == content
