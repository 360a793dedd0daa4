"""Putting on record what is on disk and was not found by the look of any call."""

from collections.abc import Callable

from msgspec.structs import replace

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.attribution import candidates
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.capture import scan
from loom_audit.history.look.change_index import update_index
from loom_audit.history.look.survivors import Window
from loom_audit.history.record.fitted import append_batch
from loom_audit.history.record.interrupted import record_interrupted


def record_drift(attachment: Attachment, wanted: Callable[[str], bool] | None = None) -> None:
    """Put on record what others changed on disk since the last scan; the lock is held.

    Only at `wanted` paths: what is elsewhere is found again by the next scan.
    """
    open_calls = attachment.stored.tables.open_calls()
    record_interrupted(attachment, open_calls)
    among = candidates(attachment, open_calls)  # of before the scan
    window = Window.begin(attachment)
    for batch in scan(attachment):
        found = batch if wanted is None else _only(batch, wanted)
        events = append_batch(attachment, found, window.with_survivors(among))
        update_index(attachment, found.entries, events)
    window.end()


def _only(found: Batch, wanted: Callable[[str], bool]) -> Batch:
    return replace(
        found,
        changes=[change for change in found.changes if wanted(change.path)],
        entries={path: entry for path, entry in found.entries.items() if wanted(path)},
        moves=tuple(m for m in found.moves if wanted(m.source) and wanted(m.target)),
        arrived=tuple(path for path in found.arrived if wanted(path)),
    )
