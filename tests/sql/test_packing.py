"""Packed rows come back exactly, are refused when they are damaged, and are documented."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_audit.errors import Corrupt
from loom_audit.sql.ground.packing import DICTIONARIES, pack, pack_id, unpack, unpack_id

DOCS = Path(__file__).parents[2] / "docs"
LIMIT = 1 << 20

digits = st.text("0123456789abcdef", min_size=15, max_size=33)
base64 = st.text("ABCXYZabcxyz0189-_", min_size=42, max_size=44)
times = st.datetimes().map(lambda moment: moment.isoformat(timespec="microseconds") + "Z")
values = st.one_of(digits, base64, times, st.text(max_size=20), st.integers())


@given(st.dictionaries(st.text(max_size=10), st.lists(values, max_size=5), max_size=5))
@example({"at": ["0000-01-01T00:00:00.000000Z", "2026-02-31T00:00:00.000000Z"]})
@example({"at": ["2026-11-22T24:00:00.000000Z", "2026-11-22T23:59:60.000000Z"]})
@example({"at": ["1969-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"]})
@example({"commit": ["A" * 42 + "B", "A" * 43], "log": ["f" * 32, "F" * 32]})
def test_any_json_comes_back_exactly(value: object) -> None:
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    packed = pack(data)
    assert unpack(packed, LIMIT) == data
    assert len(packed) <= len(data) + 1


@given(st.binary(max_size=200))
@example(b'"\x01"')
@example(b'"\x03" "' + b"0" * 32 + b'"')
def test_any_bytes_come_back_exactly(data: bytes) -> None:
    assert unpack(pack(data), LIMIT) == data


LEAF = b'{"at":"2026-11-22T14:40:14.044813Z","log":"01a203b353827e8ab7d2f0c1983841fb"}'


def test_hashes_and_times_are_put_aside() -> None:
    assert pack(LEAF)[0] == 2
    assert pack(LEAF).endswith(bytes.fromhex("01a203b353827e8ab7d2f0c1983841fb"))


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x02",
        b"\x03" + pack(LEAF)[1:],
        b"\x01" + pack(LEAF)[1:],
        pack(LEAF)[:-1],
        pack(LEAF) + b"\x00",
        pack(LEAF)[:-24] + b"\xff" * 24,
        None,
        7,
    ],
)
def test_a_damaged_row_is_corrupt_or_other_bytes_and_never_another_error(damaged: object) -> None:
    with pytest.raises(Corrupt):
        if unpack(damaged, LIMIT) != LEAF:  # type: ignore[arg-type] # what a row may hold
            raise Corrupt("its hash tells")


def test_a_row_that_unpacks_to_more_than_is_allowed_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="more than 10 bytes"):
        unpack(pack(b" " * 11), 10)


@given(st.text(max_size=40) | digits)
@example("ff" * 8)
@example("0f" * 8)
@example("x" * 15)
@example("x" * 7)
def test_any_id_comes_back_exactly(id: str) -> None:
    assert unpack_id(pack_id(id)) == id


def test_the_dictionaries_are_published_with_the_format() -> None:
    published = {n: (DOCS / f"dictionary-{n}.bin").read_bytes() for n in DICTIONARIES}
    assert published == DICTIONARIES
