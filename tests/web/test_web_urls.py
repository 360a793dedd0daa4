"""Every name that can be on a disk survives URL, form and back."""

from urllib.parse import quote, urlsplit

from hypothesis import example, given
from hypothesis import strategies as st
from markupsafe import escape

from loom_audit.model.text.display import visible
from loom_audit.web.shared.budget import sent
from loom_audit.web.shared.urls import address, encoded, fields, first, quoted, unquoted

names = st.binary(min_size=1, max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


@given(names)
@example("a\udcff%41 #?&=+\n\\..'\"<b>")
@example("%2F..%00")
def test_a_name_survives_quoting(name: str) -> None:
    assert unquoted(quoted(name)) == name
    assert quoted(name).isascii()
    assert "/" not in quoted(name)


@given(names, st.sampled_from(["", "/"]))
@example("src/a-b_c.d~e@f:g", "/")
@example("src/a-b\n", "")
def test_what_needs_no_encoding_is_found_out_rightly(name: str, safe: str) -> None:
    assert quoted(name, safe=safe) == quote(
        name.encode("utf-8", "surrogateescape"), safe=safe + "~@:"
    )


@given(st.text() | names)
@example("a && b < c > \"d\" 'e'\n\t\x1b")
def test_the_weight_of_a_text_is_what_a_page_sends_of_it(text: str) -> None:
    assert sent(text) == len(str(escape(visible(text))).encode())


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
