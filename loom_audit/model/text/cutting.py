"""Texts that are too long, cut to their head and tail."""


def cut(text: str, limit: int, way_on: str = "") -> str:
    """Return a text within `limit` bytes of UTF-8: the whole, or head and tail with the cut named.

    `way_on` says at the cut how to see the rest.
    """
    # a character has four bytes of UTF-8 at most, so that most texts need not be encoded
    if len(text) * 4 <= limit:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= limit:
        return text
    each = (limit - 80 - len(way_on.encode())) // 2
    end, begin = ends_of(raw, each, each)
    head, tail = (part.decode("utf-8", "surrogatepass") for part in (raw[:end], raw[begin:]))
    said = f"[… {begin - end} of {len(raw)} bytes left out{way_on} …]\n"
    return f"{head}{said}{tail}" if head.endswith("\n") else f"{head}\n{said}{tail}"


def ends_of(raw: bytes, head: int, tail: int) -> tuple[int, int]:
    """Return where the first `head` bytes or fewer end, and where the last `tail` or fewer begin.

    Both are ends of lines, so that a part of a line does not look like a whole one; where lines are
    long, both lie between characters of UTF-8.
    """
    end, begin = head, len(raw) - tail
    if (at := raw.rfind(b"\n", end - head // 4, end)) >= 0:
        end = at + 1
    else:
        while end and raw[end] & 0xC0 == 0x80:
            end -= 1
    if raw[begin - 1 : begin] != b"\n" and (at := raw.find(b"\n", begin, begin + tail // 4)) >= 0:
        begin = at + 1
    else:
        while begin < len(raw) and raw[begin] & 0xC0 == 0x80:
            begin += 1
    return end, begin
