"""The watch of a workspace, from a session's second command on, and the look that checks it.

A look with a watch is of what the kernel tells of. What the last one told and the index has not
followed, because it could not be recorded, is looked at once more. At a session's end one look at
everything finds what the kernel did not tell: any of the calls in between may have done it.
"""

from loom_audit.errors import AuditError, AuditUnavailable
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.process_state import ProcessState
from loom_audit.history.look.attribution import candidates, lowered_draft, unchecked
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.capture import scan
from loom_audit.history.look.change_index import update_index
from loom_audit.history.look.survivors import Window
from loom_audit.history.record.drift import record_drift
from loom_audit.history.record.fitted import append_batch
from loom_audit.ports import StampedPaths, Watch

WATCHED_FROM = 2
"""The command of a session before which the watch begins: most have only one."""


def note_command(attachment: Attachment) -> None:
    """Begin to watch before the second command; the lock is held."""
    seen = attachment.process.last_seen
    seen.commands += 1
    if seen.commands == WATCHED_FROM and seen.watch is None:
        seen.watch = attachment.on_disk.workspace.watch()


def why_everything(process: ProcessState) -> str:
    """Why the last look was of everything; "" when it was of what the kernel told of only."""
    watch = process.last_seen.watch
    if watch is None:
        return "a session's first command is looked at so"
    return watch.why_whole


def note_unchecked(process: ProcessState, requested: int) -> None:
    """Keep in mind that the look after a call was not of everything, if it was not."""
    watch = process.last_seen.watch
    if watch is not None and not watch.why_whole:
        process.last_seen.unchecked.add(requested)


def end_watch(attachment: Attachment) -> None:
    """Look at everything, if looks were made that were not of everything, and watch no more.

    What the kernel did not tell is put on record as from outside, with the calls since the last
    look at everything as candidates, and their coverage is lowered; also where that look fails.
    AuditUnavailable.
    """
    seen = attachment.process.last_seen
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
            why = f"not looked at in the end: {error.message}"
            attachment.stored.log.append([lowered_draft(unchecked(attachment), why)])
        finally:
            _stop(attachment.process)


def _stop(process: ProcessState) -> None:
    seen = process.last_seen
    if seen.watch is not None:
        seen.watch.close()
    seen.watch = None
    seen.differing = StampedPaths()
    seen.unchecked.clear()


def _check(attachment: Attachment) -> None:
    """Look at everything, and tell what was missed from what happens meanwhile."""
    watch, attachment.process.last_seen.watch = attachment.process.last_seen.watch, None
    among = candidates(attachment)
    window = Window.begin(attachment)
    try:
        for batch in scan(attachment):
            among_now = window.with_survivors(among)
            batch.missed |= _missed(watch, batch)
            events = append_batch(attachment, batch, among_now)
            update_index(attachment, batch.entries, events)
    finally:
        attachment.process.last_seen.watch = watch
    window.end()


def _missed(watch: Watch | None, found: Batch) -> set[str]:
    """Where something was found of which the kernel has told nothing, not even now."""
    if watch is None or not found.changes:
        return set()
    watch.read()
    return {one.path for one in found.changes if not watch.happened_at(one.path)}
