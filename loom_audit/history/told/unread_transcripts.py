"""Lists the sessions whose client ended before their transcript was read to its end."""

from collections.abc import Iterator
from contextlib import suppress

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment


def transcript_name(session: str) -> str:
    """The name under which it is kept which file the transcript of a session is."""
    return f"{session}\0transcript"


def unread_transcripts(attachment: Attachment) -> Iterator[str]:
    """The foreign sessions whose client has ended, and whose transcript was not read to its end.

    Also sessions that recovery has ended since: what their transcript tells is not on record yet.
    """
    tables = attachment.stored.tables
    ended = (one.id for one in tables.sessions() if one.status == "interrupted")
    for session in dict.fromkeys([*(one.id for one in tables.open_sessions()), *ended]):
        with suppress(AuditError):  # a file that is damaged names no transcript
            kept = attachment.lease(session) and attachment.on_disk.looks.get(
                transcript_name(session)
            )
            if kept and not attachment.is_session_alive(session):
                yield session
