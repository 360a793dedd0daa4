"""The change index as a file: damage is an empty index, and nothing more than needed is written."""

import os
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.disk.looking import index as index_file
from loom_audit.disk.looking.index import MAGIC, DiskChangeIndex
from loom_audit.errors import AuditError
from loom_audit.model.files import BlobId
from loom_audit.ports import IndexEntry, Stamp


def entry(n: int) -> IndexEntry:
    return IndexEntry(Stamp(0o100644, n, n, n, n), BlobId(f"{n:064x}"), f"{n:032x}" if n else "")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "index" / "log.db"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        b"SQLite format 3\0" + bytes(100),
        MAGIC,
        MAGIC[:-4],
        MAGIC + b"1234567",
        MAGIC + bytes(500),
        random.Random(1).randbytes(3000),
    ],
)
def test_a_file_that_is_not_an_index_is_an_empty_one(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    index = DiskChangeIndex(file)
    assert (index.load(), index.head(), index.get("a")) == ({}, 0, None)
    index.update({"a": entry(1)}, head=4)
    for each in (index, DiskChangeIndex(file)):
        assert (each.load(), each.head()) == ({"a": entry(1)}, 4)


@given(data=st.data())
def test_damage_leaves_what_was_true_at_some_head(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("damage") / "i"
    index = DiskChangeIndex(file)
    states: dict[int, dict[str, IndexEntry]] = {0: {}}
    for n in range(1, 6):
        index.update({f"p{n}": entry(n), "same": entry(n)}, head=n)
        states[n] = index.load()
    raw = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw[at] ^= data.draw(st.integers(1, 255))
    else:
        del raw[at:]
    file.write_bytes(raw)
    for again in (DiskChangeIndex(file), index):
        assert again.load() == states[again.head()]
    again = DiskChangeIndex(file)
    known = again.load()
    again.update({"new": entry(9)}, head=9)
    assert DiskChangeIndex(file).load() == known | {"new": entry(9)}


def test_a_no_op_writes_nothing_and_one_path_writes_little(file: Path) -> None:
    index = DiskChangeIndex(file)
    many = {f"some/folder/{n}": entry(n) for n in range(5000)}
    index.update(many, head=1)
    before = file.stat()
    index.update(many, head=1)
    index.update({"never": None}, head=1)
    after = file.stat()
    assert (after.st_mtime_ns, after.st_ino, after.st_size) == (
        before.st_mtime_ns,
        before.st_ino,
        before.st_size,
    )
    index.update({"some/folder/1": entry(7)}, head=2)
    assert file.stat().st_size - before.st_size < 200


def test_a_file_that_is_mostly_outdated_is_written_anew(file: Path) -> None:
    one, other = DiskChangeIndex(file), DiskChangeIndex(file)
    paths = [f"{n}/{'long' * 900}" for n in range(20)]
    sizes = []
    for n in range(100):
        (one, other)[n % 2].update({path: entry(n) for path in paths}, head=n)
        sizes.append(file.stat().st_size)
    assert sum(size < before for before, size in pairwise(sizes)) > 2 and max(sizes) < 1_300_000
    assert one.load() == other.load() == DiskChangeIndex(file).load()
    assert one.load() == dict.fromkeys(paths, entry(99))
    assert os.listdir(file.parent) == [file.name]


def test_processes_see_what_others_wrote_and_cleared(file: Path) -> None:
    one, other = DiskChangeIndex(file), DiskChangeIndex(file)
    one.update({"a": entry(1)}, head=1)
    assert other.get("a") == entry(1)
    other.update({"a": None, "b": entry(2)}, head=2)
    assert (one.get("a"), one.get("b"), one.head()) == (None, entry(2), 2)
    one.clear()
    assert (other.load(), other.head()) == ({}, 0)
    other.update({"c": entry(3)}, head=3)
    file.unlink()
    assert (one.load(), other.load()) == ({}, {})
    one.update({"d": entry(4)}, head=4)
    assert other.load() == {"d": entry(4)}


def test_the_file_is_for_its_owner_alone(file: Path) -> None:
    DiskChangeIndex(file).update({"a": entry(1)}, head=1)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_written_is_an_error_of_ours(as_ordinary_user: Path) -> None:
    as_ordinary_user.chmod(0o500)
    index = DiskChangeIndex(as_ordinary_user / "i")
    assert index.load() == {}
    with pytest.raises(AuditError):
        index.update({"a": entry(1)}, head=1)


NAMES = st.sampled_from(["", "a", "aa", "a/a", "b", "ä", "\udcff", "a\udcff"])
ENTRIES = st.dictionaries(NAMES, st.none() | st.integers(0, 9).map(entry), max_size=4)


@given(batches=st.lists(ENTRIES, max_size=5), asked=st.lists(NAMES, max_size=50), more=ENTRIES)
def test_a_path_that_is_looked_up_in_the_file_has_the_entry_that_was_written_last(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[dict[str, IndexEntry | None]],
    asked: list[str],
    more: dict[str, IndexEntry | None],
) -> None:
    file = tmp_path_factory.mktemp("looked_up") / "i"
    writer = DiskChangeIndex(file)
    expected: dict[str, IndexEntry | None] = {}
    for head, batch in enumerate(batches, 1):
        writer.update(batch, head=head)
        expected |= batch
    reader = DiskChangeIndex(file)
    assert [reader.get(path) for path in asked] == [expected.get(path) for path in asked]
    reader.update(more, head=9)
    expected |= more
    for each in (reader, writer, DiskChangeIndex(file)):
        assert [each.get(path) for path in asked] == [expected.get(path) for path in asked]
        assert each.load() == {path: one for path, one in expected.items() if one is not None}
        assert each.head() == 9


def test_a_process_that_looks_up_few_paths_reads_no_others(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DiskChangeIndex(file).update({f"p{n}": entry(n) for n in range(1000)}, head=1)
    decode, read = index_file._decode, []

    def noted(body: memoryview) -> tuple[dict[str, IndexEntry | None], int]:
        found = decode(body)
        read.append(len(found[0]))
        return found

    monkeypatch.setattr(index_file, "_decode", noted)
    index = DiskChangeIndex(file)
    assert (index.head(), index.get("p7"), index.get("q")) == (1, entry(7), None)
    index.update({"p8": entry(0)}, head=2)
    assert index.get("p8") == entry(0)
    assert sum(read) <= 4
