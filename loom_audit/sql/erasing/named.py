"""Which contents a log names: those of its files, and payloads that are too large for a row."""

from collections.abc import Iterator

from loom_audit.errors import Corrupt
from loom_audit.model.files import BlobId
from loom_audit.model.stored.codec import read_envelope
from loom_audit.model.stored.format_1 import salt_bytes_of
from loom_audit.ports import BlobStore
from loom_audit.sql.events.event_rows import MAX_INLINE_PAYLOAD, read_leaf
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.packing import unpack
from loom_audit.sql.ground.statements import prepare

_DIGEST = 32
_NAMING = prepare(
    "SELECT p.seq, p.content, b.sha256, p.role = 'keys', e.leaf, e.leaf_hash FROM payload p "
    "JOIN event e ON e.log = p.log AND e.seq = p.seq LEFT JOIN blob b ON b.number = p.blob "
    "WHERE p.log = :log AND p.seq > :after AND p.seq <= :until AND (p.role = 'keys' OR p.blob > 0)"
)
_COUNT = prepare("SELECT count(*) FROM event WHERE log = :log AND seq > :after AND seq <= :until")


def check_complete(connection: Connection, log: int, after: int, until: int) -> None:
    """Corrupt unless all events with `after < seq <= until` are there, whatever they name."""
    found = _COUNT.value(connection, log=log, after=after, until=until)
    if found != until - after:
        raise Corrupt(f"of {until - after} events behind event {after} there are {found}")


def contents_named(
    connection: Connection, blobs: BlobStore, log: int, after: int, until: int
) -> Iterator[bytes]:
    """The SHA-256 of each content that the events with `after < seq <= until` name; some again.

    Corrupt where that cannot be read.
    """
    for seq, packed, digest, is_keys, leaf, hashed in _NAMING.each(
        connection, log=log, after=after, until=until
    ):
        if digest is not None:
            yield digest
        if is_keys:
            keys = (
                blobs.get(BlobId(digest.hex()))
                if packed is None
                else unpack(packed, MAX_INLINE_PAYLOAD)
            )
            salt = salt_bytes_of(read_envelope(read_leaf(seq, leaf, hashed)))
            if len(keys) % (salt + _DIGEST):
                raise Corrupt(f"the keys of event {seq} cannot be read", details={"seq": seq})
            for at in range(salt, len(keys), salt + _DIGEST):
                yield keys[at : at + _DIGEST]
