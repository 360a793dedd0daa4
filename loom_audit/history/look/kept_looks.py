"""What was seen when a foreign call began, kept until it ends, maybe in another process."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment
from loom_audit.model.records import Call


def keep_look(attachment: Attachment, session: str, call_id: str, *, late: bool = False) -> None:
    """Keep what runs, when the workspace was looked at, and which files were left out then.

    It was `late` where the call may have begun meanwhile.
    """
    seen = attachment.last_seen
    with suppress(AuditError):  # then nothing is known to be left running or to have arrived
        running = sorted(attachment.processes.running())
        left_out = [[*key, *counted] for key, counted in seen.left_out.items()]
        looked = {"looked": seen.looked, "left_out": left_out, "running": running, "late": late}
        attachment.looks.keep(_look_name(session, call_id), looked)


def running_at(attachment: Attachment, call: Call) -> Sequence[int]:
    """The pids there were when a call began; none where that is not known."""
    kept = attachment.looks.get(_look_name(call.session, call.call_id))
    return kept.get("running", ()) if isinstance(kept, dict) else ()


def was_late(attachment: Attachment, call: Call) -> bool:
    """Whether it is known that the look before a call came too late."""
    with suppress(AuditError):  # a file that is not as it was written says nothing
        kept = attachment.looks.get(_look_name(call.session, call.call_id))
        return isinstance(kept, dict) and bool(kept.get("late"))
    return False


def recall_looks(attachment: Attachment, calls: Iterable[Call]) -> None:
    """Let the newest look before these calls be the last one, unless this process made a later."""
    seen = attachment.last_seen
    for call in calls:
        # a file that is not as it was written says nothing
        with suppress(AuditError, KeyError, TypeError, ValueError):
            kept = attachment.looks.get(_look_name(call.session, call.call_id))
            if kept is None or kept["looked"] <= (seen.looked or 0):
                continue
            counted = {
                (folder, why): (files, size) for folder, why, files, size in kept["left_out"]
            }
            seen.looked, seen.left_out, seen.created = kept["looked"], counted, set()


def discard_look(attachment: Attachment, call: Call) -> None:
    """Forget what was kept for the end of a foreign call."""
    with suppress(AuditError):  # a file that stays is written over or does no harm
        attachment.looks.discard(_look_name(call.session, call.call_id))


def transcript_name(session: str) -> str:
    """Under which name it is kept which file a session's transcript is."""
    return f"{session}\0transcript"


def unread_transcripts(attachment: Attachment) -> Iterator[str]:
    """The foreign sessions whose client is gone, and whose transcript was not read to its end.

    Also where they were ended by who recovered what the client had left.
    """
    projections = attachment.projections
    ended = (one.id for one in projections.sessions() if one.status == "interrupted")
    for session in dict.fromkeys([*(one.id for one in projections.open_sessions()), *ended]):
        with suppress(AuditError):  # a file that is not as it was written says nothing
            kept = attachment.lease(session) and attachment.looks.get(transcript_name(session))
            if kept and not attachment.is_session_alive(session):
                yield session


def _look_name(session: str, call_id: str) -> str:
    return f"{session}\0{call_id}"
