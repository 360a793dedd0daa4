"""What is shown of recorded text can neither steer a terminal nor mislead a reader."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model.text.display import (
    duration_text,
    moment,
    one_line,
    size_text,
    visible,
    visible_bytes,
)

HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
anything = st.text(st.characters())
printable = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Cn", "Zl", "Zp", "Mn"]))


def test_no_hidden_character_of_all_of_unicode_gets_through() -> None:
    passed = [
        code
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in HIDDEN and chr(code) in visible(chr(code))
    ]
    assert passed == []


def test_letters_digits_signs_and_emoji_of_all_of_unicode_stay() -> None:
    changed = [
        hex(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code))[0] in "LNPS" and visible(chr(code)) != chr(code)
    ]
    assert changed == ["0x115f", "0x1160", "0x3164", "0xffa0"]  # letters that draw nothing


@given(anything, st.booleans())
def test_what_is_shown_holds_no_control_or_format_character(text: str, multiline: bool) -> None:
    shown = visible(text, multiline=multiline)
    allowed = "\n\t" if multiline else ""
    assert [c for c in shown if unicodedata.category(c) in HIDDEN and c not in allowed] == []


@given(printable.filter(lambda t: not set(t) & set("\u115f\u1160\u3164\uffa0")))
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(st.binary())
def test_any_bytes_can_be_shown_and_encoded(content: bytes) -> None:
    visible_bytes(content).encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]8;;http://evil\x07", "\\x1b]8;;http://evil\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\u202eb\u2066c\u200ed\u061ce", "a\\u202eb\\u2066c\\u200ed\\u061ce"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("hidden ☺\ufe0f\ufe0f\ufe0e", "hidden ☺\ufe0f\\ufe0f\\ufe0e"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\ud800", "\\ud800"),
        ("Zoë ☺\ufe0f 日本", "Zoë ☺\ufe0f 日本"),
    ],
)
def test_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_newlines_and_tabs_stay_in_text_of_many_lines() -> None:
    assert visible("a\tb\r\nc\x00", multiline=True) == "a\tb\\r\nc\\x00"


def test_a_name_that_is_not_utf8_shows_its_bytes() -> None:
    assert visible(b"caf\xe9/\n".decode("utf-8", "surrogateescape")) == "caf\\xe9/\\n"


def test_one_line_joins_lines_and_cuts_long_text() -> None:
    assert one_line("  a\n\tb \x1b c\n") == "a b \\x1b c"
    assert one_line("x" * 50, 10) == "x" * 9 + "…"
    assert one_line("x" * 10, 10) == "x" * 10
    assert one_line("a" + " " * 1000 + "b", 10) == "a…"
    assert one_line("abc", 0) == ""


@given(anything, st.integers(0, 30))
def test_one_line_never_exceeds_its_limit(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert "\n" not in line


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1024 * 1024 - 1, "1 MiB"),
        (20 * 1024**2, "20 MiB"),
        (3 * 1024**4, "3 TiB"),
        (1024**6, "1024 PiB"),
    ],
)
def test_sizes(n: int, text: str) -> None:
    assert size_text(n) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 µs"),
        (850, "850 µs"),
        (12_999, "12 ms"),
        (3_450_000, "3.4 s"),
        (59_999_999, "59.9 s"),
        (125_000_000, "2 min 5 s"),
        (10_920_000_000, "3 h 2 min"),
    ],
)
def test_durations(us: int, text: str) -> None:
    assert duration_text(us) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (1_700_000_000_123_456_789, "2023-11-14T22:13:20.123456+00:00"),
        (-1_000_000_000, "1969-12-31T23:59:59+00:00"),
        (2**63 - 1, "2262-04-11T23:47:16.854775+00:00"),
        (10**21, "9999-12-31T23:59:59.999999+00:00"),
        (-(10**21), "0001-01-01T00:00:00+00:00"),
    ],
)
def test_a_time_no_calendar_has_is_shown_as_the_nearest(ns: int, text: str) -> None:
    assert moment(ns).isoformat() == text
