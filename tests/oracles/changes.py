"""What must hold of the changes in every log."""

from collections.abc import Iterable

from loom_audit.model.events import Event, FilesChanged
from loom_audit.model.files import FileState


def check_each_change_once(events: Iterable[Event]) -> None:
    """Every change begins with what the one before it at its path has left."""
    state: dict[str, FileState | None] = {}
    for event in events:
        for change in event.fact.changes if isinstance(event.fact, FilesChanged) else ():
            assert change.before == state.get(change.path), "a change is on record twice"
            state[change.path] = change.after
