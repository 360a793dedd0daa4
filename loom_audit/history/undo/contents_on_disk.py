"""Reads the contents that a plan asks for: from the store, or from files not on record yet."""

from collections.abc import Iterable
from hashlib import sha256

from loom_audit.errors import Conflict
from loom_audit.history.ground.attachment import Attachment
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.model.text.display import visible


class ContentsOnDisk:
    """The blobs of the store, and the contents of files that differ from what is on record.

    A plan may only be looked at, so nothing is stored to make it. What it rests on is put on record
    before it is carried out.
    """

    def __init__(self, attachment: Attachment, drift: Iterable[FileChange]) -> None:
        self._attachment = attachment
        most = attachment.scope.max_file_bytes
        self._places: dict[BlobId, tuple[str, FileState]] = {
            change.after.blob: (change.path, change.after)
            for change in drift
            if change.after and change.after.blob and change.after.size <= most
        }

    def get(self, blob: BlobId) -> bytes:
        """The bytes of a blob; NotFound where neither has it.

        Conflict when the file that had it has changed since the workspace was looked at.
        """
        if blob not in self._places or blob in self._attachment.stored.blobs:
            return self._attachment.stored.blobs.get(blob)
        path, state = self._places[blob]
        disk = self._attachment.on_disk.workspace
        link = state.kind == "symlink"
        content = disk.read_link(path) if link else disk.read(path, state.size + 1)
        if sha256(content).hexdigest() != blob:
            raise Conflict(
                f"{visible(path)} changed while it was looked at",
                hint="Make the plan again.",
                details={"path": path},
            )
        return content

    def __contains__(self, blob: BlobId) -> bool:
        return blob in self._places or blob in self._attachment.stored.blobs

    def missing(self, blobs: Iterable[BlobId]) -> set[BlobId]:
        """The contents, of these, that are neither in the store nor on disk."""
        return self._attachment.stored.blobs.missing(b for b in blobs if b not in self._places)
