"""Contents that are stored against contents that go: they are encoded anew, as new lines."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct, field

from loom_audit.model.files import BlobId
from loom_audit.ports import BlobStore
from loom_audit.sql.contents.blobs import INLINE_BYTES, MAX_CHAIN, MIN_BASE, base_version, decodes
from loom_audit.sql.contents.encodings import MAX_DELTA, compress, compress_delta
from loom_audit.sql.contents.large_objects import LargeObjects
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.statements import prepare

_DELTAS = prepare("SELECT number, base FROM blob WHERE base IS NOT NULL ORDER BY version, number")
_DIGEST = prepare("SELECT sha256 FROM blob WHERE number = :number")
_ENCODE = prepare(
    "UPDATE blob SET encoding = :encoding, base = (SELECT number FROM blob WHERE sha256 = :base), "
    "version = :version, stored = :stored, large = :large WHERE number = :number"
)
_PUT = prepare("UPDATE blob_content SET content = :content WHERE blob = :number")
_DROP = prepare("DELETE FROM blob_content WHERE blob = :number")


class ContentLine(Struct):
    """Contents of which each is stored against one before: those that go, and those that stay and
    lean on one that goes, in the order of their versions. All are numbers of rows.
    """

    gone: list[int] = field(default_factory=list)
    staying: list[int] = field(default_factory=list)


class Encoded(Struct, frozen=True):
    """How a content is stored from now on; `content` is None for one in a file."""

    number: int
    encoding: str
    base: bytes | None
    version: int
    stored: int
    content: bytes | None


def lines_of(connection: Connection, gone: Collection[int]) -> Sequence[ContentLine]:
    """The lines that hold contents that go, by the numbers of these contents."""
    line_of: dict[int, ContentLine] = {}
    going = set(gone)
    for number, base in _DELTAS.rows(connection):
        if base not in line_of and base in going:
            line_of[base] = ContentLine([base])
        line = line_of.get(base)
        if number in going:
            line = line or ContentLine()
            line.gone.append(number)
        elif line is not None:
            line.staying.append(number)
        if line is not None:
            line_of[number] = line
    found = {id(line): line for line in line_of.values()}
    alone = [ContentLine([number]) for number in going - line_of.keys()]
    return [*found.values(), *alone]


def encode_anew(
    connection: Connection, blobs: BlobStore, large: LargeObjects, numbers: Sequence[int]
) -> Iterator[Encoded]:
    """How these contents are stored without any other, each against those before it."""
    line: list[bytes] = []
    for number in numbers:
        digest = bytes(_DIGEST.value(connection, number=number))
        content = blobs.get(BlobId(digest.hex()))
        encoding, packed = compress(content)
        version = len(line)
        if version and len(content) >= MIN_BASE and decodes(version) <= MAX_CHAIN:
            base = line[base_version(version)]
            delta = compress_delta(content, blobs.get(BlobId(base.hex())))
            if len(delta) < min(len(packed), INLINE_BYTES + 1):
                line.append(digest)
                yield Encoded(number, "zstd-delta", base, version, len(delta), delta)
                continue
        if MIN_BASE <= len(content) <= MAX_DELTA:
            line = [digest]
        if len(packed) > INLINE_BYTES:
            _, _, stored = large.write(iter([content]))
            yield Encoded(number, "zstd", None, 0, stored, None)
        else:
            yield Encoded(number, encoding, None, 0, len(packed), packed)


def store(connection: Connection, encoded: Sequence[Encoded]) -> None:
    """Store these contents so, within the caller's transaction."""
    for one in encoded:
        row: Mapping[str, object] = {
            "number": one.number,
            "encoding": one.encoding,
            "base": one.base,
            "version": one.version,
            "stored": one.stored,
            "large": int(one.content is None),
        }
        _ENCODE.run(connection, **row)
        if one.content is None:
            _DROP.run(connection, number=one.number)
        else:
            _PUT.run(connection, number=one.number, content=one.content)
