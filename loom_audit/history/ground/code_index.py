"""Brings the index for code search up to the log's head: first which files there are, then what is
in them."""

from collections.abc import Iterable

from loom_audit.errors import Corrupt, NotFound
from loom_audit.history.ground.attachment import StoredLog
from loom_audit.model.files import BlobId, FileState
from loom_audit.model.text.code import MAX_BYTES, chunks, definitions, text_of
from loom_audit.ports import CodeIndex, ReadCode

_BATCH = 50
"""Most contents that one call of `read_code` reads."""


def update_code_listing(stored: StoredLog, index: CodeIndex) -> None:
    """Bring the list of files in the index up to the log's head. Corrupt."""
    head = stored.log.head()
    known = index.head()
    if known == head:
        return
    states: Iterable[tuple[str, FileState | None]]
    if 0 < known < head:
        changes = (found.change for found in stored.reading.changes(after=known, until=head))
        states = ((change.path, change.after) for change in changes)
    else:  # an empty index, or one that is ahead of the log, begins anew
        known, states = 0, stored.reading.tree(head).items()
    index.update_listing({path: _content(state) for path, state in states}, after=known, head=head)


def read_code(stored: StoredLog, index: CodeIndex) -> int:
    """Put some contents into the index that are listed and not yet in it; how many still are not.

    Contents are read in small steps, so that a search that must end soon can stop between two.
    """
    contents = []
    for blob, language in index.unindexed(_BATCH):
        try:
            text = text_of(stored.blobs.get(blob)) if stored.blobs.size(blob) <= MAX_BYTES else None
        except (NotFound, Corrupt):
            text = None  # erased, damaged or recorded by its hash only: it cannot be searched
        if text is None:
            contents.append(ReadCode(blob, language))
        else:
            found = [*definitions(text, language)]
            contents.append(ReadCode(blob, language, found, [*chunks(text)]))
    if contents:
        index.add_contents(contents)
    return index.count_unindexed()


def _content(state: FileState | None) -> BlobId | None:
    return state.blob if state is not None and state.kind == "file" else None
