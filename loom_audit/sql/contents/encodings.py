"""How contents are encoded: raw, zstd (RFC 8878), or zstd with an earlier content as prefix.

A prefix is what `zstd --patch-from` uses: the earlier content is taken for what came before the new
one, so that what both have in common is copied from there. It is needed again to decode.
"""

from collections.abc import Mapping

from backports.zstd import (
    CompressionParameter,
    DecompressionParameter,
    ZstdCompressor,
    ZstdDecompressor,
    ZstdDict,
    ZstdError,
)

from loom_audit.errors import Corrupt

LEVEL = 3
MAX_DELTA = 8 * 1024 * 1024
"""Longest content, in bytes, that is encoded in memory or against another."""

_MAX_SIZE = 1 << 40
_MAX_WINDOW_LOG = 27
_MIN_WINDOW_LOG = 10
_LONG = 1 << 20


def compressor() -> ZstdCompressor:
    """A compressor for `compress`; keeping one spares its making, half the work on small contents.

    Usable from any thread: each content is one call, and calls wait for each other.
    """
    return ZstdCompressor(level=LEVEL)


def compress(content: bytes, packer: ZstdCompressor | None = None) -> tuple[str, bytes]:
    """The content as (encoding, stored bytes), raw when zstd would not make it shorter."""
    packed = (packer or compressor()).compress(content, ZstdCompressor.FLUSH_FRAME)
    return ("zstd", packed) if len(packed) < len(content) else ("raw", content)


def compress_delta(content: bytes, base: bytes) -> bytes:
    """The content as one zstd frame with a base as its prefix.

    Both must fit into the window together, or nothing could be copied from the base's beginning;
    past 1 MiB matches at long distances are looked for, too.
    """
    window = max(_MIN_WINDOW_LOG, min(_MAX_WINDOW_LOG, (len(content) + len(base)).bit_length()))
    options: Mapping[int, int] = {
        CompressionParameter.compression_level: LEVEL,
        CompressionParameter.window_log: window,
        CompressionParameter.enable_long_distance_matching: 1 if len(base) > _LONG else 0,
    }
    prefix = ZstdDict(base, is_raw=True).as_prefix
    packer = ZstdCompressor(options=dict(options), zstd_dict=prefix)
    return packer.compress(content, ZstdCompressor.FLUSH_FRAME)


def decompress(encoding: str, stored: bytes, size: int, base: bytes | None) -> bytes:
    """The content, which is to be `size` bytes long. Corrupt when these bytes do not give it."""
    if encoding == "raw" and len(stored) == size:
        return stored
    if not isinstance(size, int) or not 0 <= size <= _MAX_SIZE:
        raise Corrupt(f"A content cannot be {size!a} bytes long")
    if encoding == "raw":
        raise Corrupt(f"A stored content of {size} bytes came out as {len(stored)}")
    if encoding not in ("zstd", "zstd-delta"):
        raise Corrupt(f"A content is stored in the unknown encoding {encoding!r}")
    try:
        # a base of less than eight bytes, which none has that we make, is a ValueError
        prefix = None if base is None else ZstdDict(base, is_raw=True).as_prefix
        unpacker = ZstdDecompressor(
            zstd_dict=prefix, options={DecompressionParameter.window_log_max: _MAX_WINDOW_LOG}
        )
        content = unpacker.decompress(stored, max_length=size + 1)
        whole = unpacker.eof or (len(content) == size and unpacker.decompress(b"", 1) == b"")
    except (ZstdError, EOFError, ValueError) as error:
        raise Corrupt(f"A stored content cannot be decompressed: {error}") from error
    if len(content) != size or not whole:
        raise Corrupt(f"A stored content of {size} bytes came out as {len(content)}")
    return content
