"""The transcripts of sessions whose client is gone before they were read to their end."""

from collections.abc import Iterator
from contextlib import suppress

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment


def transcript_name(session: str) -> str:
    """Under which name it is kept which file a session's transcript is."""
    return f"{session}\0transcript"


def unread_transcripts(attachment: Attachment) -> Iterator[str]:
    """The foreign sessions whose client is gone, and whose transcript was not read to its end.

    Also where they were ended by who recovered what the client had left.
    """
    tables = attachment.stored.tables
    ended = (one.id for one in tables.sessions() if one.status == "interrupted")
    for session in dict.fromkeys([*(one.id for one in tables.open_sessions()), *ended]):
        with suppress(AuditError):  # a file that is not as it was written says nothing
            kept = attachment.lease(session) and attachment.on_disk.looks.get(
                transcript_name(session)
            )
            if kept and not attachment.is_session_alive(session):
                yield session
