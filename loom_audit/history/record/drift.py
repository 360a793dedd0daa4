"""Puts on record what changed on disk and was not found by the look of any call."""

from collections.abc import Callable

from msgspec.structs import replace

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import candidates
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.capture import scan
from loom_audit.history.look.change_index import update_index
from loom_audit.history.look.git.changes import look_at_git
from loom_audit.history.look.git.git_look import git_drafts
from loom_audit.history.look.survivors import Window
from loom_audit.history.record.fitted import append_batch
from loom_audit.history.record.interrupted import record_interrupted


def record_drift(
    attachment: Attachment,
    wanted: Callable[[str], bool] | None = None,
    *,
    writer: Writer | None = None,
) -> None:
    """Put on record what others changed on disk since the last scan; the lock is held.

    Where `wanted` is given, only changes at paths for which it is true are recorded; the next scan
    finds the others again. A `writer` is whoever made the changes that no call may have made.
    """
    open_calls = attachment.stored.tables.open_calls()
    record_interrupted(attachment, open_calls)
    # before the scan: a call that begins or ends during it does not count
    among = candidates(attachment, open_calls)
    window = Window.begin(attachment)
    for batch in scan(attachment):
        seen = batch if wanted is None else _at_wanted_paths(batch, wanted)
        events = append_batch(attachment, seen, window.with_survivors(among), writer)
        update_index(attachment, seen.entries, events)
    window.end()


def record_git_drift(attachment: Attachment) -> None:
    """Put on record what others did to git since it was last looked at; the lock is held."""
    among = candidates(attachment, attachment.stored.tables.open_calls())
    for look in look_at_git(attachment):
        if drafts := git_drafts(look, among, between=True):
            attachment.stored.log.append(drafts)


def _at_wanted_paths(batch: Batch, wanted: Callable[[str], bool]) -> Batch:
    """A batch without the other paths; a move has to be wanted at both ends."""
    return replace(
        batch,
        changes=[change for change in batch.changes if wanted(change.path)],
        entries={path: entry for path, entry in batch.entries.items() if wanted(path)},
        moves=tuple(m for m in batch.moves if wanted(m.source) and wanted(m.target)),
        arrived=tuple(path for path in batch.arrived if wanted(path)),
    )
