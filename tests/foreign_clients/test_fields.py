"""Values of other programs' JSON that are not what they should be."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from loom_audit.clients import fields


@pytest.mark.parametrize(
    "odd",
    [
        *(None, True, [], {}, "", "yesterday", "2026-11-22T09:00:00", 1e300, float("nan"), 2**80),
        *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", -(10**15), 10**17),
    ],
)
def test_what_is_not_a_time_is_none(odd: Any) -> None:
    assert fields.time(odd) is None


def test_times_are_read_in_any_zone_and_as_milliseconds() -> None:
    nine = datetime(2026, 11, 22, 9, tzinfo=UTC)
    assert fields.time("2026-11-22T09:00:00.000Z") == nine
    assert fields.time("2026-11-22T14:30:00+05:30") == nine
    assert fields.time(nine.timestamp() * 1000) == nine


def test_numbers_without_end_are_texts() -> None:
    assert fields.decode(b'{"a": 1e999, "b": [-1e999, NaN]}') == {"a": "inf", "b": ["-inf", "NaN"]}


@pytest.mark.parametrize("odd", [b"", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"\xff"])
def test_what_is_not_json_is_told_as_one_error(odd: bytes) -> None:
    with pytest.raises(ValueError):
        fields.decode(odd)


@pytest.mark.parametrize(
    ("value", "took"),
    [(3, 3_000), (2.6, 2_000), (0, 0), (-1, None), (2**70, None), (1e308, None), ("3", None)],
)
def test_a_time_that_no_call_can_have_taken_is_not_taken(value: object, took: int | None) -> None:
    assert fields.microseconds(value, 1000) == took


def test_of_kinds_without_end_the_first_are_named_and_the_others_counted() -> None:
    unread = Counter[str]()
    for number in range(2 * fields.KINDS):
        unread[fields.label("record", f"new-{number}")] += 1
        fields.line_of(b"{", unread)
        fields.line_of(b"[]", unread)
    named = fields.KINDS - 2
    assert (unread[fields.TORN], unread[fields.STRANGE]) == (2 * fields.KINDS, 2 * fields.KINDS)
    assert len(unread) <= fields.KINDS + 3 and unread[f"record new-{named - 1}"] == 1
    assert unread.total() == 6 * fields.KINDS
    assert fields.KINDS <= unread[fields.OTHERS] <= fields.KINDS + 2
