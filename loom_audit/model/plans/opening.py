"""Folders that nobody can look into until a plan has opened them."""

from collections.abc import Iterable

from loom_audit.model.files import FileChange, FileState, is_directory, parents

UNREADABLE = "it cannot be read, so what is there is not known"
_SEARCHED = 0o100


def seen_when_opened(changes: Iterable[FileChange]) -> set[str]:
    """The paths that changes make in folders that they open: what is there is seen only then."""
    by_path = {change.path: change for change in changes}
    opened = {
        path
        for path, change in by_path.items()
        if not _is_searchable(change.before) and _is_searchable(change.after)
    }
    return {
        path
        for path, change in by_path.items()
        if change.before is None and _is_in(parents(path), opened, by_path.keys())
    }


def _is_in(above: list[str], opened: set[str], changed: Iterable[str]) -> bool:
    """Whether one of the folders is opened, and all that are in it are made, too."""
    first = next((n for n, folder in enumerate(above) if folder in opened), None)
    return first is not None and {*above[first:]} <= {*changed}


def _is_searchable(state: FileState | None) -> bool:
    """Whether a folder can be searched by its owner."""
    return state is not None and is_directory(state) and bool(state.mode & _SEARCHED)
