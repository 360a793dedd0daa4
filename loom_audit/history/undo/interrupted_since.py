"""Refuses an undo that would pass over an interrupted call, and take back an older one instead."""

from collections.abc import Collection, Iterable
from contextlib import suppress

from loom_audit.errors import Conflict, PermissionDenied
from loom_audit.history.ground.attachment import Attachment, is_undo
from loom_audit.history.look.attribution import contains_calls
from loom_audit.history.record.open_calls import open_call_error
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.model.plans.planning import Note, how_to_choose
from loom_audit.model.records import Call
from loom_audit.model.text.display import first_few, visible


def check_interrupted_since(
    attachment: Attachment, session: str | None, older: Call, passed_over: Iterable[Note]
) -> None:
    """Conflict where a later call than `older` was interrupted, and what it changed may stand.

    Of one session, or of any for None. `passed_over` are the notes on what later calls may have
    changed. An interrupted undo is none of these calls: it takes back and waits for a decision.
    """
    open_calls = attachment.stored.tables.open_calls()
    if gone := [
        call
        for call in open_calls
        if call.requested > older.requested
        and session in (None, call.session)
        and call.effect != "read"
        and not is_undo(call)
        and not attachment.is_alive(call)
        and not contains_calls(attachment.stored, call)
    ]:
        raise open_call_error(attachment, gone)
    notes = [*passed_over]
    reading = attachment.stored.reading
    numbers = sorted({number for note in notes for number in note.calls}, reverse=True)
    for call in map(reading.call_at, numbers):
        if call.status != "interrupted" or is_undo(call):
            continue
        own = [note for note in notes if call.seq in note.calls]
        if kept := [note for note in own if _stands(attachment, note.path, call.requested)]:
            raise _passed_over_error(call, older, kept)


def _stands(attachment: Attachment, path: str, requested: int) -> bool:
    """Whether what is at a path is as a change left it that a call may have made."""
    [newest] = attachment.stored.tables.history(path, limit=1)
    if requested not in (*newest.causes, *newest.told_later):
        return False
    now = Preconditions(attachment, keep=False)
    with suppress(PermissionDenied):  # nobody can tell
        now.look(path)
    return not now.drift


def _passed_over_error(call: Call, older: Call, kept: Collection[Note]) -> Conflict:
    named = first_few([*kept], 3, lambda note: visible(note.path))
    return Conflict(
        f"call {call.seq} ({call.tool}) was interrupted, and may have changed what is on record "
        f"as from outside since: {named}",
        hint=f"{how_to_choose([Note('', '', (call.seq or 0,))])}; `loom-audit revert {older.seq}` "
        f"takes back the older call {older.seq} ({older.tool}).",
        details={
            "calls": [call.seq],
            "paths": [note.path for note in kept][:100],
            "older": older.seq,
        },
    )
