"""Every name that can be on a disk survives URL, form and back."""

from urllib.parse import urlsplit

from hypothesis import example, given
from hypothesis import strategies as st

from loom_audit.web.shared.urls import address, encoded, fields, first, quoted, unquoted

names = st.binary(min_size=1, max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


@given(names)
@example("a\udcff%41 #?&=+\n\\..'\"<b>")
@example("%2F..%00")
def test_a_name_survives_quoting(name: str) -> None:
    assert unquoted(quoted(name)) == name
    assert quoted(name).isascii()
    assert "/" not in quoted(name)


@given(names, names)
def test_an_address_is_one_path_and_one_query_whatever_the_names(path: str, value: str) -> None:
    where = address("w", "id", "at", "42", path=path, query=[("x", value), ("none", None)])
    parts = urlsplit(where)
    assert parts.path.startswith("/w/id/at/42/")
    assert unquoted(parts.path.removeprefix("/w/id/at/42/")) == path
    assert first(fields(parts.query.encode()), "x") == value
    assert not parts.fragment
    assert not parts.netloc


@given(st.lists(names.filter(bool), min_size=1, max_size=5))
def test_names_survive_a_form_that_only_sends_text(paths: list[str]) -> None:
    sent = encoded([("path.q", quoted(path, safe="/")) for path in paths])
    assert fields(sent.encode())["path"] == tuple(paths)


def test_values_that_say_nothing_are_left_out() -> None:
    assert address("w", "1", "calls", query={"tool": "", "before": None}) == "/w/1/calls"
    assert address("w", "1", path="") == "/w/1/"


def test_a_lone_surrogate_that_is_not_a_byte_is_quoted_all_the_same() -> None:
    assert quoted("\ud800").isascii()
