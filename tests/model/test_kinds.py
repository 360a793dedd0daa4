"""What bytes are by how they begin, and how large a picture says it is."""

import base64
import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model.kinds import BINARY, kind_of, without_encoded

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAIAAAA2iEnWAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5E"
    "rkJggg=="
)
GIF = b"GIF89a" + struct.pack("<HH", 5, 7) + b"\x00" * 10
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00"
    + b"\x00" * 9
    + b"\xff\xc2\x00\x11\x08"
    + struct.pack(">HH", 11, 13)
    + b"\x03"
    + b"\x00" * 9
)
VP8X = (
    b"RIFF\x30\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x10\x00\x00\x00\x12\x00\x00\x16\x00\x00"
    + b"\0" * 9
)
VP8L = (
    b"RIFF\x30\x00\x00\x00WEBPVP8L\x0a\x00\x00\x00\x2f"
    + struct.pack("<I", 18 | 22 << 14)
    + b"\0" * 9
)
VP8 = (
    b"RIFF\x30\x00\x00\x00WEBPVP8 \x0a\x00\x00\x00\x00\x00\x00\x9d\x01\x2a"
    + struct.pack("<HH", 19, 23 | 0x4000)
    + b"\0" * 9
)


@pytest.mark.parametrize(
    ("content", "text", "media"),
    [
        (PNG, "PNG image, 2 × 3", "image/png"),
        (GIF, "GIF image, 5 × 7", "image/gif"),
        (JPEG, "JPEG image, 13 × 11", "image/jpeg"),
        (VP8X, "WebP image, 19 × 23", "image/webp"),
        (VP8L, "WebP image, 19 × 23", "image/webp"),
        (VP8, "WebP image, 19 × 23", "image/webp"),
        (b"\x7fELF\0\1", "ELF program", ""),
        (b"<svg xmlns='http://www.w3.org/2000/svg'>", "binary", ""),
        (b"\x89PNG\r\n\x1a\n<script>", "binary", ""),
        (b"", "binary", ""),
    ],
)
def test_content_is_known_by_its_beginning(content: bytes, text: str, media: str) -> None:
    kind = kind_of(content)
    assert (kind.text, kind.media) == (text, media)


@pytest.mark.parametrize("content", [PNG, GIF, JPEG, VP8X, VP8L, VP8])
def test_a_picture_that_is_cut_is_a_picture_or_not_and_no_error(content: bytes) -> None:
    for length in range(len(content)):
        assert kind_of(content[:length]).name in ("binary", kind_of(content).name)


@given(st.sampled_from([b"\xff\xd8\xff", b"RIFF____WEBPVP8 ", b"GIF89a"]), st.binary(max_size=80))
def test_any_bytes_have_a_kind(begins: bytes, rest: bytes) -> None:
    assert kind_of(begins + rest).name
    assert kind_of(rest) is not None


def test_pictures_that_would_fill_the_memory_are_not_shown() -> None:
    huge = PNG[:16] + struct.pack(">II", 60_000, 60_000) + PNG[24:]
    assert kind_of(huge).media == "image/png"
    assert not kind_of(huge).is_shown(len(huge))
    assert kind_of(PNG).is_shown(len(PNG)) and not kind_of(PNG).is_shown(1 << 24)
    assert not BINARY.is_shown(1)


def test_walls_of_base64_are_what_they_encode() -> None:
    content = PNG + bytes(range(256)) * 2
    text = base64.b64encode(content).decode()
    shown = f"SHA-256 {hashlib.sha256(content).hexdigest()}]"
    for value in (text, base64.encodebytes(content).decode(), f"data:image/png;base64,{text}"):
        found = without_encoded({"a": [value]})["a"][0]
        assert found.startswith("[base64 of ") and found.endswith(shown), found
        assert "PNG image, 2 × 3" in found
    odd = base64.b64encode(b"\0" * 300).decode()
    assert without_encoded({"encoding": "base64", "content": odd})["content"] != odd
    assert without_encoded({"encoding": "utf-8", "content": odd})["content"] == odd
    assert without_encoded(odd) == odd


@pytest.mark.parametrize(
    "text", ["A" + " " * 2_000_000 + "!", "x" * 2_000_000, "data:" + "," * 10**6]
)
def test_other_texts_stay_as_they_are_however_long_they_are(text: str) -> None:
    assert without_encoded({"content": text, "n": 1, "list": [None, True]}) == {
        "content": text,
        "n": 1,
        "list": [None, True],
    }
