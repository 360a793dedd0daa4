"""Rows read as structs."""

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from msgspec import Struct

from loom_audit.sql.ground.packing import unpack_path
from loom_audit.sql.ground.reading import RowReading


class Seen(Struct, frozen=True):
    path: str
    at: datetime
    gone: datetime | None
    kind: Literal["a", "b"]
    size: int | None
    names: tuple[str, ...]


READ = RowReading(
    Seen, "t", packed={"path": unpack_path}, apart=("names",), size="coalesce(t.n, 0)"
)
SECOND = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1)


def test_each_field_is_in_its_column_or_where_an_expression_says() -> None:
    assert READ.columns == "t.path, t.at, t.gone, t.kind, coalesce(t.n, 0)"


def test_a_row_is_read_by_the_types_of_the_fields() -> None:
    row = (b"caf\xe9", 1_000_000, None, "a", None, "behind the columns")
    assert READ.read(row, names=("x",)) == Seen("caf\udce9", SECOND, None, "a", None, ("x",))
    assert READ.read((b"", 1_000_000, 1_000_000, "b", 5), names=()).gone == SECOND


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((b"", "now", None, "a", 1), "'now' is not a number"),
        ((b"", None, None, "a", 1), "None is not a number"),
        ((b"", 1, 1, 7, 1), "7 is not a text"),
        ((b"", 1, 1, "a", b"1"), "b'1' is not a number"),
    ],
)
def test_a_column_of_another_type_is_named(row: tuple[object, ...], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        READ.read(row, names=())
