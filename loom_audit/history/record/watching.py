"""Begins and ends the watch of a workspace, and checks at its end what it has missed.

From the second command of a session on the kernel tells which paths may have changed, and looks are
of these paths only. What the kernel told at the last look and the index has not followed, because
it could not be recorded, is looked at once more. At the session's end one look at everything finds
what the kernel did not tell: any of the calls in between may have done it.
"""

from loom_audit.errors import AuditError, AuditUnavailable
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.process_state import ProcessState
from loom_audit.history.look.attribution import (
    candidates,
    lowered_draft,
    unchecked,
)
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.capture import scan
from loom_audit.history.look.change_index import update_index
from loom_audit.history.look.git.changes import look_at_git
from loom_audit.history.look.git.git_look import git_drafts
from loom_audit.history.look.survivors import Window
from loom_audit.history.record.drift import record_drift
from loom_audit.history.record.fitted import append_batch
from loom_audit.ports import StampedPaths, Watch

WATCHED_FROM = 2
"""The number of the command before which a session's watch begins: most sessions have only one."""


def note_command(attachment: Attachment) -> None:
    """Count a command, and begin the watch before the second; the lock is held."""
    seen = attachment.process.last_seen
    seen.commands += 1
    if seen.commands == WATCHED_FROM and seen.watch is None:
        seen.watch = attachment.on_disk.workspace.watch()


def why_everything(process: ProcessState) -> str:
    """Why the last look was of everything; "" where it was only of what the kernel told."""
    watch = process.last_seen.watch
    if watch is None:
        return "a session's first command is looked at so"
    return watch.why_whole


def note_unchecked(process: ProcessState, requested: int) -> None:
    """Remember a call, by the seq of its request, if the look after it was not of everything."""
    watch = process.last_seen.watch
    if watch is not None and not watch.why_whole:
        process.last_seen.unchecked.add(requested)


def end_watch(attachment: Attachment) -> None:
    """End the watch, after a look at everything if looks were made that were not of everything.

    What the kernel did not tell is put on record as from outside, with the calls since the last
    look at everything as candidates; their coverage is lowered by a later fact, also where that
    look fails. So it is with what git's stamps did not tell. AuditUnavailable where nothing can be
    recorded.
    """
    seen = attachment.process.last_seen
    if any(one.unasked for one in seen.git.repositories.values()):
        with attachment.exclusive():
            _ask_git_once_more(attachment)
    if seen.watch is None:
        return
    with attachment.exclusive():
        seen.commands = 0
        try:
            # first what the kernel tells of since the last look: it was not missed. That look may
            # turn out to be of everything, and then nothing is unchecked any more
            if seen.unchecked:
                record_drift(attachment)
            if seen.unchecked:
                _look_at_everything(attachment)
        except AuditUnavailable:
            raise
        except AuditError as error:
            why = f"not looked at in the end: {error.message}"
            attachment.stored.log.append([lowered_draft(unchecked(attachment), why)])
        finally:
            _stop_watching(attachment.process)


def _ask_git_once_more(attachment: Attachment) -> None:
    """Ask git whatever its stamps say, and record what they had not told as found later."""
    found = [one.as_missed() for one in look_at_git(attachment, anyway=True)]
    drafts = [draft for one in found for draft in git_drafts(one, (), between=not one.missed)]
    drafts += [
        lowered_draft(one.missed, one.why_unseen[0])
        for one in found
        if one.why_unseen and one.missed
    ]
    if drafts:
        attachment.stored.log.append(drafts)


def _stop_watching(process: ProcessState) -> None:
    """Close the watch, and forget what only a watch needs."""
    seen = process.last_seen
    if seen.watch is not None:
        seen.watch.close()
    seen.watch = None
    seen.differing = StampedPaths()
    seen.unchecked.clear()


def _look_at_everything(attachment: Attachment) -> None:
    """Look at everything, and record what the kernel had not told as missed.

    The watch goes on meanwhile, without narrowing the look: what changes now, it still tells of.
    """
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


def _missed(watch: Watch | None, batch: Batch) -> set[str]:
    """The changed paths of which the kernel has told nothing, also not since the look began."""
    if watch is None or not batch.changes:
        return set()
    watch.read()
    return {one.path for one in batch.changes if not watch.happened_at(one.path)}
