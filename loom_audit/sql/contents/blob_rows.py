"""The rows of contents: how each is stored, inserted and looked up, one by one or many at once."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from loom_audit.sql.ground.conditions import chunks, in_values
from loom_audit.sql.ground.connection import Connection, Row
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.statements import prepare

_SMALL = 32 * 1024
"""Most stored bytes of a row that is read together with others."""

_MAX_LOADED = 8 * 1024 * 1024
"""When so many stored bytes are loaded, further bases are left to be read one by one."""

_MANY_WITH_BASES = 128
"""How many contents are read together."""

_INSERT = prepare(
    "INSERT INTO blob (sha256, size, stored, encoding, base, version, large) VALUES "
    "(:sha256, :size, :stored, :encoding, "
    "(SELECT number FROM blob WHERE sha256 = :base AND encoding <> 'absent'), "
    ":version, :large) ON CONFLICT (sha256) DO UPDATE SET size = excluded.size, "
    "stored = excluded.stored, encoding = excluded.encoding, base = excluded.base, "
    "version = excluded.version, large = excluded.large WHERE blob.encoding = 'absent'"
)
_INSERT_CONTENT = prepare(
    "INSERT INTO blob_content (blob, content) SELECT number, :content FROM blob "
    "WHERE sha256 = :sha256 AND encoding = :encoding AND stored = :stored "
    "AND version = :version AND large = 0 ON CONFLICT (blob) DO NOTHING"
)
INSERT_ABSENT = prepare(
    "INSERT INTO blob (sha256, size, stored, encoding, version, large) "
    "VALUES (:sha256, :size, 0, 'absent', 0, 0) ON CONFLICT (sha256) DO NOTHING"
)
"""Gives a content that is named a row, as absent where it is not in the store."""

_STORED = prepare(
    "SELECT b.number, b.size, b.stored, b.encoding, base.sha256, b.version, b.large "
    "FROM blob b LEFT JOIN blob base ON base.number = b.base WHERE b.sha256 = :sha256"
)
_STORED_WITH_BYTES = (
    "SELECT b.sha256, b.size, b.stored, b.encoding, base.sha256, b.version, b.large, b.number, "
    f"CASE WHEN b.large = 0 AND b.stored <= {_SMALL} THEN CAST(c.content AS BLOB) END "
    "FROM blob b LEFT JOIN blob base ON base.number = b.base "
    "LEFT JOIN blob_content c ON c.blob = b.number "
    "WHERE b.encoding <> 'absent' AND b.sha256 IN ({listed})"
)
_PRESENT = "SELECT sha256 FROM blob WHERE encoding <> 'absent' AND sha256 IN ({listed})"
_CONTENT = prepare("SELECT CAST(content AS BLOB) FROM blob_content WHERE blob = :blob")


class StoredBlob(Struct, frozen=True):
    """The row of one content; `content` are its stored bytes while it is staged, or loaded."""

    sha256: bytes
    size: int
    stored: int
    encoding: str
    base: bytes | None = None
    version: int = 0
    large: bool = False
    number: int | None = None
    content: bytes | None = None


NO_BLOBS: Mapping[bytes, StoredBlob] = {}


def insert(connection: Connection, blobs: Sequence[StoredBlob]) -> None:
    """Insert contents within the caller's transaction; those that are there already stay."""
    rows = [{**asdict(blob), "large": int(blob.large)} for blob in blobs]
    _INSERT.run_many(connection, rows)
    _INSERT_CONTENT.run_many(connection, [row for row in rows if not row["large"]])


def load_stored(connections: Connections, digest: bytes) -> StoredBlob | None:
    """The row of a durable content; None when it is not in the store."""
    rows = connections.rows(_STORED, sha256=digest)
    if not rows or rows[0][3] == "absent":
        return None
    number, size, stored, encoding, base, version, large = rows[0]
    return StoredBlob(digest, size, stored, encoding, base, version, bool(large), number)


def load_with_bases(connections: Connections, digests: Iterable[bytes]) -> dict[bytes, StoredBlob]:
    """The durable ones of these with their bases, and their bytes while these are few."""
    found: dict[bytes, StoredBlob] = {}
    wanted = set(digests)
    loaded = 0
    while wanted and loaded < _MAX_LOADED:
        some = sorted(wanted)[:_MANY_WITH_BASES]
        wanted.difference_update(some)
        for row in _rows_of(connections, _STORED_WITH_BYTES, some):
            sha256, size, stored, encoding, base, version, large, number, content = row
            found[sha256] = StoredBlob(
                sha256, size, stored, encoding, base, version, bool(large), number, content
            )
            loaded += len(content or b"")
            if base is not None and base not in found:
                wanted.add(base)
    return found


def load_content(connections: Connections, number: int | None) -> bytes | None:
    """The stored bytes of a content in a row; None when they are gone."""
    rows = connections.rows(_CONTENT, blob=number)
    return bytes(rows[0][0]) if rows else None


def present(connections: Connections, digests: Sequence[bytes]) -> set[bytes]:
    """The hashes whose content is durable."""
    found: set[bytes] = set()
    for some in chunks(digests):
        found.update(row[0] for row in _rows_of(connections, _PRESENT, some))
    return found


def _rows_of(connections: Connections, sql: str, digests: Sequence[bytes]) -> list[Row]:
    listed, values = in_values("n", digests)
    return connections.rows(prepare(sql.format(listed=listed)), **values)
