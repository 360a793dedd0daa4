"""Addresses: every recorded name survives the way into a URL, a form and back.

Names are bytes on disk (PEP 383 surrogates in our strings), so they are percent-encoded as bytes
and decoded as bytes, exactly once. An HTML form can only send UTF-8 text: a field that holds such
a name ends in `.q` and carries it percent-encoded a second time.
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from loom_audit.errors import InvalidArguments

Fields = Mapping[str, tuple[str, ...]]
"""Decoded parameters of a query or a form: each name with its values, in order."""

QUOTED = ".q"
MAX_FIELDS = 20_000
_PLAIN = {safe: re.compile(rf"[\w.~@:{safe}-]*", re.ASCII).fullmatch for safe in ("", "/")}
"""By what else is safe: whether a text needs no encoding, as nearly all of them."""


def quoted(text: str, *, safe: str = "") -> str:
    """The text percent-encoded as the bytes it stands for."""
    plain = _PLAIN.get(safe)
    if plain and plain(text):
        return text
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "backslashreplace")
    return quote(raw, safe=safe + "~@:")


def unquoted(text: str) -> str:
    """Decode what `quoted` has encoded."""
    raw = text.encode("utf-8", "surrogateescape")
    return unquote_to_bytes(raw).decode("utf-8", "surrogateescape")


def address(
    *parts: str | int,
    path: str | None = None,
    query: Mapping[str, str | int | None] | Iterable[tuple[str, str | int | None]] = (),
) -> str:
    """`/part/part/path?query`; each part is one segment, `path` a workspace path.

    Query values that are None or "" are left out. Without `path` there is no slash at the end;
    a `path` of "" gives one.
    """
    text = "".join("/" + quoted(str(part)) for part in parts)
    if path is not None:
        text += "/" + quoted(path, safe="/")
    asked = encoded(query.items() if isinstance(query, Mapping) else query)
    return text + ("?" + asked if asked else "")


def encoded(pairs: Iterable[tuple[str, str | int | None]]) -> str:
    """The pairs as a query string; those whose value is None or "" are left out."""
    return "&".join(
        f"{quoted(name)}={quoted(str(value), safe='/')}"
        for name, value in pairs
        if value is not None and value != ""
    )


def fields(raw: bytes) -> Fields:
    """The parameters of a query string or an urlencoded form; `x.q` is read as `x`.

    InvalidArguments for over MAX_FIELDS of them.
    """
    found: dict[str, tuple[str, ...]] = {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii", "backslashreplace"),
            keep_blank_values=True,
            encoding="utf-8",
            errors="surrogateescape",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError:
        raise InvalidArguments(
            f"the request has over {MAX_FIELDS:,} fields", hint="Name folders, not single paths."
        ) from None
    for name, value in pairs:
        if name.endswith(QUOTED):
            name, value = name.removesuffix(QUOTED), unquoted(value)
        found[name] = (*found.get(name, ()), value)
    return found


def first(fields: Fields, name: str) -> str:
    """The first value of a field, stripped of nothing; empty when there is none."""
    return next(iter(fields.get(name, ())), "")
