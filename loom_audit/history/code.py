"""The code index brought up to what is on record."""

from loom_audit.errors import Corrupt, NotFound
from loom_audit.history.attachment import Attachment
from loom_audit.model.code import MAX_BYTES, chunks, definitions, text_of
from loom_audit.model.files import BlobId, FileState
from loom_audit.ports import CodeIndex, ReadCode

AT_ONCE = 50


def list_code(attachment: Attachment, index: CodeIndex) -> None:
    """Make the listing that of the log's head, by what changed since the last time."""
    head = attachment.log.head()
    known = index.head()
    if known == head:
        return
    if known == 0 or known > head:
        tree = attachment.projections.tree(head)
        files = {path: blob for path, state in tree.items() if (blob := _content(state))}
        index.list_anew(files, head=head)
        return
    changed: dict[str, BlobId | None] = {}
    for recorded in attachment.projections.changes(after=known, until=head):
        changed[recorded.change.path] = _content(recorded.change.after)
    index.relist(changed, after=known, head=head)


def read_code(attachment: Attachment, index: CodeIndex) -> int:
    """Read some of the contents that are listed and not known yet; how many are left."""
    contents = []
    for blob, language in index.unread(AT_ONCE):
        try:
            text = (
                text_of(attachment.blobs.get(blob))
                if attachment.blobs.size(blob) <= MAX_BYTES
                else None
            )
        except (NotFound, Corrupt):
            text = None  # erased, damaged or recorded by its hash only: not to be searched
        if text is None:
            contents.append(ReadCode(blob, language))
        else:
            found = [*definitions(text, language)]
            contents.append(ReadCode(blob, language, found, [*chunks(text)]))
    if contents:
        index.learn(contents)
    return index.count_unread()


def _content(state: FileState | None) -> BlobId | None:
    return state.blob if state is not None and state.kind == "file" else None
