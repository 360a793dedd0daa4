from hypothesis import given
from hypothesis import strategies as st

from loom_audit.sandbox.run import HeadAndTail


@given(st.lists(st.binary(max_size=60), max_size=40), st.integers(0, 50))
def test_a_bounded_stream_is_the_whole_cut_in_its_middle(chunks: list[bytes], limit: int) -> None:
    stream = HeadAndTail(limit)
    for chunk in chunks:
        stream.feed(chunk)
    whole = b"".join(chunks)
    if len(whole) > limit:
        head = limit // 2
        expected = whole[:head] + whole[len(whole) - (limit - head) :]
    else:
        expected = whole
    assert stream.content() == expected
    assert stream.total == len(whole)
    assert stream.truncated == (len(whole) > limit)


@given(st.lists(st.integers(1, 300_000), max_size=12))
def test_large_chunks_do_not_pile_up(sizes: list[int]) -> None:
    stream = HeadAndTail(1000)
    whole = b""
    for n, size in enumerate(sizes):
        chunk = bytes([n]) * size
        whole += chunk
        stream.feed(chunk)
        assert len(stream._tail) <= 2 * 500 + 65536
    assert stream.content() == (whole if len(whole) <= 1000 else whole[:500] + whole[-500:])
