"""What every change index promises."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.disk.looking.index import DiskChangeIndex
from loom_audit.model.files import BlobId
from loom_audit.ports import ChangeIndex, IndexEntry, Stamp
from tests.doubles import MemoryChangeIndex

ONE = IndexEntry(Stamp(0o100644, 3, 10, 20, 30), BlobId("ab" * 32), "c0ffee" + "1" * 26)
TWO = IndexEntry(Stamp(0o120777, 2**40, -5, -(2**62), 2**64 - 1), BlobId("cd" * 32))
FOLDER = IndexEntry(Stamp(0o40755, 0, 0, 0, 0), None)


@pytest.fixture(params=["disk", "memory"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> ChangeIndex:
    if request.param == "memory":
        return MemoryChangeIndex()
    return DiskChangeIndex(tmp_path / "index" / "log.db")


def test_a_new_index_knows_nothing(index: ChangeIndex) -> None:
    assert index.load() == {}
    assert index.head() == 0
    assert index.get("a") is None


def test_entries_are_set_replaced_and_deleted(index: ChangeIndex) -> None:
    index.update({"a": ONE, "d": FOLDER, "caf\udce9": TWO}, head=3)
    assert index.load() == {"a": ONE, "d": FOLDER, "caf\udce9": TWO}
    assert index.get("caf\udce9") == TWO
    index.update({"a": TWO, "d": None, "never": None}, head=7)
    assert index.load() == {"a": TWO, "caf\udce9": TWO}
    assert index.get("d") is None
    assert index.head() == 7


def test_the_head_moves_without_entries(index: ChangeIndex) -> None:
    index.update({"a": ONE}, head=1)
    index.update({}, head=2)
    assert (index.load(), index.head()) == ({"a": ONE}, 2)


def test_clearing_forgets_everything(index: ChangeIndex) -> None:
    index.update({"a": ONE}, head=1)
    index.clear()
    assert (index.load(), index.head(), index.get("a")) == ({}, 0, None)
    index.update({"b": TWO}, head=1)
    assert index.load() == {"b": TWO}


def test_what_is_loaded_belongs_to_the_caller(index: ChangeIndex) -> None:
    index.update({"a": ONE}, head=1)
    mine = index.load()
    mine["b"] = TWO
    del mine["a"]
    assert index.load() == {"a": ONE}


def test_an_index_set_aside_is_empty_and_how_far_it_had_followed_is_known(
    index: ChangeIndex,
) -> None:
    index.update({"a": ONE}, head=9)
    index.displace()
    assert (index.load(), index.head(), index.most_seen()) == ({}, 0, 9)
    index.update({"a": ONE}, head=3)
    assert (index.head(), index.most_seen()) == (3, 9)


PATHS = st.sampled_from(["a", "b", "a/b", "caf\udce9", "é", " ", "x\ny"])
ENTRIES = st.one_of(
    st.none(),
    st.builds(
        IndexEntry,
        st.builds(
            Stamp,
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**63 - 1),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(0, 2**64 - 1),
        ),
        st.none() | st.binary(min_size=32, max_size=32).map(lambda b: BlobId(b.hex())),
        st.just("") | st.binary(min_size=16, max_size=16).filter(any).map(bytes.hex),
    ),
)
UPDATES = st.lists(
    st.tuples(st.dictionaries(PATHS, ENTRIES, max_size=4), st.integers(0, 2**63)), max_size=6
)


@given(updates=UPDATES)
def test_any_updates_give_what_a_dict_would(
    tmp_path_factory: pytest.TempPathFactory,
    updates: list[tuple[dict[str, IndexEntry | None], int]],
) -> None:
    file = tmp_path_factory.mktemp("index") / "i"
    indexes: list[ChangeIndex] = [MemoryChangeIndex(), DiskChangeIndex(file), DiskChangeIndex(file)]
    plain: dict[str, IndexEntry] = {}
    for number, (entries, head) in enumerate(updates):
        plain |= {path: entry for path, entry in entries.items() if entry}
        plain = {path: e for path, e in plain.items() if entries.get(path, e) is not None}
        indexes[0].update(entries, head=head)
        indexes[1 + number % 2].update(entries, head=head)
        for each in (*indexes, DiskChangeIndex(file)):
            assert each.load() == plain
            assert each.head() == head
