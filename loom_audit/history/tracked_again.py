"""What was untracked and is again as it was recorded last: back in the tree, nobody's change."""

from collections.abc import Mapping

from loom_audit.history.attachment import Attachment
from loom_audit.history.attribution import OUTSIDE
from loom_audit.history.change_index import update_index
from loom_audit.model.events import Draft, FilesChanged
from loom_audit.model.files import FileChange
from loom_audit.ports import IndexEntry


def came_back(attachment: Attachment, changes: list[FileChange]) -> list[FileChange]:
    """Those of the changes, of paths that were untracked, that lead to what was there before.

    Each in a folder that is in the tree or among them.
    """
    back: dict[str, FileChange] = {}
    for change in sorted(changes, key=lambda one: one.path):
        above = change.path.rpartition("/")[0]
        if change.before is not None or change.after is None:
            continue
        if above and above not in back and attachment.projections.state(above) is None:
            continue
        last = attachment.tables.history(change.path, limit=1)
        if last and last[0].change.after == change.after:
            back[change.path] = change
    return [*back.values()]


def record_back(
    attachment: Attachment, back: list[FileChange], entries: Mapping[str, IndexEntry | None]
) -> None:
    """Put on record what came back, as of no call; the lock is held."""
    if back:
        events = attachment.log.append([Draft(FilesChanged((*back,), "baseline"), "", OUTSIDE)])
        update_index(attachment, entries, events)
