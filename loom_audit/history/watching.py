"""The watch of a workspace, from a session's second command on, and the look that checks it.

A look with a watch is of what the kernel tells of. What the last one told and the index has not
followed, because it could not be recorded, is looked at once more. At a session's end one look at
everything finds what the kernel did not tell: any of the calls in between may have done it.
"""

from collections.abc import Sequence

from loom_audit.errors import AuditError, AuditUnavailable
from loom_audit.history.attachment import Attachment
from loom_audit.history.attribution import (
    OUTSIDE,
    attributed_drafts,
    candidates,
    outside_draft,
)
from loom_audit.history.capture import ScanResult, scan
from loom_audit.history.change_index import update_index
from loom_audit.history.doers import Candidate
from loom_audit.history.drift import record_drift
from loom_audit.history.fitted import append_found
from loom_audit.history.survivors import Window
from loom_audit.model.coverage import Coverage
from loom_audit.model.display import visible_path
from loom_audit.model.events import CoverageLowered, Draft
from loom_audit.model.files import FileChange
from loom_audit.model.records import Call
from loom_audit.ports import Watch

WATCHED_FROM = 2
"""The command of a session before which the watch begins: most have only one."""

_NAMED = 5


def note_command(attachment: Attachment) -> None:
    """Begin to watch before the second command; the lock is held."""
    seen = attachment.last_seen
    seen.commands += 1
    if seen.commands == WATCHED_FROM and seen.watch is None:
        seen.watch = attachment.workspace.watch()


def why_everything(attachment: Attachment) -> str:
    """Why the last look was of everything; "" when it was of what the kernel told of only."""
    watch = attachment.last_seen.watch
    if watch is None:
        return "a session's first command is looked at so"
    return watch.why_whole


def note_unchecked(attachment: Attachment, requested: int) -> None:
    """Keep in mind that the look after a call was not of everything, if it was not."""
    watch = attachment.last_seen.watch
    if watch is not None and not watch.why_whole:
        attachment.last_seen.unchecked.add(requested)


def end_watch(attachment: Attachment) -> None:
    """Look at everything, if looks were made that were not of everything, and watch no more.

    What the kernel did not tell is put on record as from outside, with the calls since the last
    look at everything as candidates, and their coverage is lowered; also where that look fails.
    AuditUnavailable.
    """
    seen = attachment.last_seen
    if seen.watch is None:
        return
    with attachment.exclusive():
        seen.commands = 0
        try:
            if seen.unchecked:
                record_drift(attachment)
            if seen.unchecked:
                _check(attachment)
        except AuditUnavailable:
            raise
        except AuditError as error:
            lowered = _lowered(_unchecked(attachment), f"not looked at in the end: {error.message}")
            attachment.log.append([lowered])
        finally:
            _stop(attachment)


def _stop(attachment: Attachment) -> None:
    seen = attachment.last_seen
    if seen.watch is not None:
        seen.watch.close()
    seen.watch = None
    seen.told.clear()
    seen.unchecked.clear()


def _check(attachment: Attachment) -> None:
    """Look at everything, and tell what was missed from what happens meanwhile."""
    watch, attachment.last_seen.watch = attachment.last_seen.watch, None
    among = candidates(attachment)
    window = Window.begin(attachment)
    calls = _unchecked(attachment)
    watched = [
        Candidate(one.requested, one.call_id, one.session, one.actor, ended=True, outlived=True)
        for one in calls
    ]

    def flush(found: ScanResult) -> None:
        missed = _missed(watch, found)
        known = {one.path for one in missed}
        now = [one for one in found.changes if one.path not in known]
        drafts = attributed_drafts(
            attachment, now, window.with_survivors(among), found.moves, found.arrived
        )
        if missed:
            drafts.append(outside_draft(missed, found.moves, found.arrived, watched))
            drafts.append(_lowered(calls, _found_later(missed)))
        events = append_found(attachment, drafts, found.entries, among)
        update_index(attachment, found.entries, events)

    try:
        flush(scan(attachment, flush))
    finally:
        attachment.last_seen.watch = watch
    window.end()


def _unchecked(attachment: Attachment) -> list[Call]:
    return [attachment.projections.call_at(one) for one in sorted(attachment.last_seen.unchecked)]


def _lowered(calls: Sequence[Call], why: str) -> Draft:
    numbers = tuple(one.seq for one in calls if one.seq is not None)
    return Draft(CoverageLowered(numbers, Coverage("partial", (why,))), "", OUTSIDE)


def _missed(watch: Watch | None, found: ScanResult) -> list[FileChange]:
    """What was found of which the kernel has told nothing, not even now."""
    if watch is None or not found.changes:
        return []
    watch.read()
    return [one for one in found.changes if not watch.happened_at(one.path)]


def _found_later(changes: list[FileChange]) -> str:
    shown = ", ".join(visible_path(one.path) for one in changes[:_NAMED])
    more = len(changes) - _NAMED
    return f"found later: {shown}" + (f" and {more} more" if more > 0 else "")
