"""What changes displaced: deleted once it is on record that they happened.

Until then it keeps its temporary name, which the intention has on record, so that a program that
still writes into it, through a descriptor from before, loses nothing.
"""

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.ground.writer import Writer
from loom_audit.model.events import OUTSIDE, ContentFound, Draft
from loom_audit.ports import Displaced

LATE = "written into the file after it had been replaced or deleted"


def let_go(writer: Writer, call_id: str, displaced: Sequence[tuple[str, Displaced]]) -> None:
    """Delete what the call displaced from these paths; the lock is held.

    What somebody wrote into it since it was looked at is put on record first. What cannot be read,
    recorded or deleted keeps its temporary name and is listed as a leftover: this never raises,
    since the changes are on record.
    """
    for path, one in displaced:
        with suppress(AuditError):
            if not one.discard_unchanged():
                _record(writer, call_id, path, one)
                one.discard()


def _record(writer: Writer, call_id: str, path: str, displaced: Displaced) -> None:
    was, blobs = displaced.state, writer.attachment.blobs
    if was is None:
        return
    with displaced.open() as stream:
        blob = blobs.put(stream, similar_to=was.blob)
    found = replace(was, blob=blob, size=blobs.size(blob))
    fact = ContentFound(path, found, LATE, call_id)
    writer.attachment.log.append([Draft(fact, writer.session, OUTSIDE)])
