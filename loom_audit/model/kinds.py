"""What bytes are, by how they begin; of pictures that every browser shows, their size."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from loom_audit.model.text.display import size_text

MOST_BYTES = 8 * 1024 * 1024
MOST_PIXELS = 32 * 1024 * 1024
"""Bytes of the file and pixels of a picture that is shown: a browser takes four bytes a pixel."""

LEAST_ENCODED = 200
"""Characters; shorter texts are shown as they are, whatever they encode."""

_BEGINNINGS = (
    (b"\x7fELF", "ELF program"),
    (b"\x1f\x8b", "gzip archive"),
    (b"PK\x03\x04", "zip archive"),
    (b"\x28\xb5\x2f\xfd", "zstd archive"),
    (b"\xfd7zXZ\x00", "xz archive"),
    (b"BZh", "bzip2 archive"),
    (b"%PDF-", "PDF document"),
    (b"SQLite format 3\x00", "SQLite database"),
    (b"\x00asm", "WebAssembly module"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"wOF2", "WOFF2 font"),
)


class Kind(Struct, frozen=True):
    """What the bytes are; `media` is the type of a picture that can be shown, else ""."""

    name: str
    media: str = ""
    width: int = 0
    height: int = 0

    @property
    def text(self) -> str:
        """The kind in words, of a picture with its size in pixels."""
        return f"{self.name}, {self.width} × {self.height}" if self.media else self.name

    def is_shown(self, size: int) -> bool:
        """Return whether a browser is given such a picture of `size` bytes."""
        small = size <= MOST_BYTES and self.width * self.height <= MOST_PIXELS
        return bool(self.media) and small


BINARY = Kind("binary")


def kind_of(content: bytes) -> Kind:
    """Return the kind of bytes by their beginning, whatever the name of the file; else BINARY."""
    for name, media, size in (
        ("PNG image", "image/png", _png(content)),
        ("GIF image", "image/gif", _gif(content)),
        ("JPEG image", "image/jpeg", _jpeg(content)),
        ("WebP image", "image/webp", _webp(content)),
    ):
        if size is not None and all(size):
            return Kind(name, media, *size)
    return next((Kind(name) for begins, name in _BEGINNINGS if content.startswith(begins)), BINARY)


def without_encoded(value: Any, *, said: bool = False) -> Any:
    """Return a JSON value in which base64 is replaced by kind, size and hash of what it encodes.

    A text counts as base64 when the value says so beside it (`encoding`, a media type), when it is
    the address of data, or when what it encodes begins as a known kind does.
    """
    if isinstance(value, str):
        return _described(value, said)
    if isinstance(value, Mapping):
        said = value.get("encoding") == "base64" or isinstance(value.get("mimeType"), str)
        return {name: without_encoded(one, said=said) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_encoded(one, said=said) for one in value]
    return value


def _described(text: str, said: bool) -> str:
    if len(text) < LEAST_ENCODED:
        return text
    is_address = text.startswith("data:") and ";base64," in text[:LEAST_ENCODED]
    encoded = text.partition(",")[2] if is_address else text
    try:
        content = base64.b64decode("".join(encoded.split()), validate=True)
    except ValueError:
        return text
    kind = kind_of(content)
    if kind == BINARY and not (said or is_address):
        return text
    digest = hashlib.sha256(content).hexdigest()
    return f"[base64 of {size_text(len(content))}: {kind.text}, SHA-256 {digest}]"


def _png(content: bytes) -> tuple[int, int] | None:
    if content[:8] != b"\x89PNG\r\n\x1a\n" or content[12:16] != b"IHDR" or len(content) < 24:
        return None
    return int.from_bytes(content[16:20]), int.from_bytes(content[20:24])


def _gif(content: bytes) -> tuple[int, int] | None:
    if content[:6] not in (b"GIF87a", b"GIF89a") or len(content) < 10:
        return None
    return int.from_bytes(content[6:8], "little"), int.from_bytes(content[8:10], "little")


def _jpeg(content: bytes) -> tuple[int, int] | None:
    """The size in the first frame header (ITU T.81, B.2.2), behind segments of known lengths."""
    if content[:3] != b"\xff\xd8\xff":
        return None
    at = 2
    while at + 9 <= len(content) and content[at] == 0xFF:
        marker = content[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = content[at + 5 : at + 7], content[at + 7 : at + 9]
            return int.from_bytes(width), int.from_bytes(height)
        at += 1 if marker == 0xFF else 2 + int.from_bytes(content[at + 2 : at + 4])
    return None


def _webp(content: bytes) -> tuple[int, int] | None:
    """The size in the first chunk (RFC 9649, 2.5 to 2.7)."""
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP" or len(content) < 30:
        return None
    match content[12:16]:
        case b"VP8X":
            width, height = content[24:27], content[27:30]
            return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
        case b"VP8L" if content[20] == 0x2F:
            bits = int.from_bytes(content[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 " if content[23:26] == b"\x9d\x01\x2a":
            width, height = content[26:28], content[28:30]
            masked = 0x3FFF
            return (
                int.from_bytes(width, "little") & masked,
                int.from_bytes(height, "little") & masked,
            )
    return None
