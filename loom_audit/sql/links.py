"""How contents are stored: rows that lean on rows, looked up one by one or many at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loom_audit.sql.engine import Connections
from loom_audit.sql.statements import prepare

SMALL = 32 * 1024
"""Most stored bytes of a row that is read together with others."""

HELD_BYTES = 8 * 1024 * 1024
"""When so many stored bytes are held, what they lean on is left to be read one by one."""

_MANY = 128
_NAMES = tuple(f"n{n}" for n in range(_MANY))
_ENTRIES = prepare(
    "SELECT b.sha256, b.size, b.stored, b.encoding, base.sha256, b.version, b.large, b.number, "
    f"CASE WHEN b.large = 0 AND b.stored <= {SMALL} THEN CAST(c.content AS BLOB) END "
    "FROM blob b LEFT JOIN blob base ON base.number = b.base "
    "LEFT JOIN blob_content c ON c.blob = b.number "
    f"WHERE b.sha256 IN (:{', :'.join(_NAMES)}) AND b.encoding <> 'absent'"
)


@dataclass(frozen=True, slots=True)
class BlobEntry:
    """How one content is stored; `content` are its stored bytes while it is staged."""

    sha256: bytes
    size: int
    stored: int
    encoding: str
    base: bytes | None = None
    version: int = 0
    large: bool = False
    number: int | None = None
    content: bytes | None = None


NO_ENTRIES: Mapping[bytes, BlobEntry] = {}


def load_with_bases(connections: Connections, digests: Iterable[bytes]) -> dict[bytes, BlobEntry]:
    """The durable ones of these and what they lean on, with their stored bytes while few."""
    found: dict[bytes, BlobEntry] = {}
    wanted = set(digests)
    held = 0
    while wanted and held < HELD_BYTES:
        some = sorted(wanted)[:_MANY]
        wanted.difference_update(some)
        some += some[-1:] * (_MANY - len(some))  # always the same statement
        for row in connections.rows(_ENTRIES, **dict(zip(_NAMES, some, strict=True))):
            sha256, size, stored, encoding, base, version, large, number, content = row
            found[sha256] = BlobEntry(
                sha256, size, stored, encoding, base, version, bool(large), number, content
            )
            held += len(content or b"")
            if base is not None and base not in found:
                wanted.add(base)
    return found
