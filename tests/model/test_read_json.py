"""JSON is read by a quicker library; whatever the bytes, as the standard library reads them."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from loom_audit.model.stored.payloads import parse_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(), inside, max_size=4),
    max_leaves=8,
)
DAMAGE = st.sampled_from(b' \n\x00"\\{}[]:,.-+eE0179aunt\xff\xed')


def by_json_alone(data: bytes) -> Any:
    text = data.decode()
    value, end = json.JSONDecoder().raw_decode(text)
    if end != len(text):
        raise ValueError(f"more at {end}")
    return value


def shown(read: Any, data: bytes) -> str:
    """What is read of the bytes, so that NaN, -0.0, True and 1 differ from each other."""
    try:
        return repr(read(data))
    except ValueError:
        return "malformed"


@given(st.binary(max_size=40) | st.text(max_size=30).map(lambda text: text.encode()))
@example(b"")
@example(b" 1")
@example(b"[1]\n")
@example(b"\xef\xbb\xbf1")
@example(b'{"a":1,"a":2}')
@example(b'["\\ud800","\\udc00\\ud800","\\ud83d\\ude00"]')
@example(b"[NaN,Infinity,-Infinity,1e400,-1e400]")
@example(b"[-0,-0.0,5e-324,1e23,0.30000000000000004,18446744073709551616]")
@example(b"1" * 5000)
@example(b'"\x01"')
@example(b'"\xed\xa0\x80"')
@example(b"[1,]")
@example(b"01")
def test_any_bytes_are_read_or_refused_as_by_the_standard_library(data: bytes) -> None:
    assert shown(parse_json, data) == shown(by_json_alone, data)


@given(JSON, st.booleans(), st.integers(0, 1000), DAMAGE)
def test_json_with_a_damaged_byte_is_read_or_refused_as_by_the_standard_library(
    value: Any, ascii: bool, at: int, put: int
) -> None:
    whole = json.dumps(value, separators=(",", ":"), ensure_ascii=ascii)
    damaged = bytearray(whole.encode("utf-8", "surrogatepass"))
    assert shown(parse_json, bytes(damaged)) == shown(by_json_alone, bytes(damaged))
    damaged[at % len(damaged)] = put
    assert shown(parse_json, bytes(damaged)) == shown(by_json_alone, bytes(damaged))
