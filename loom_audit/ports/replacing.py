"""Replacing what is at a path: the steps, what each displaces, and the names of temporaries."""

from collections.abc import Callable
from typing import BinaryIO, Protocol

from msgspec import Struct

from loom_audit.model.events import OpenedFolder, Temporary
from loom_audit.model.files import FileChange, FileState


class Displaced(Protocol):
    """What a replacement displaced, still on disk under a temporary name."""

    @property
    def state(self) -> FileState | None:
        """Kind, mode, size and hash of what was displaced; None when the path was absent."""
        ...

    @property
    def links(self) -> int:
        """How many names the displaced inode had; over 1, a hard link was broken."""
        ...

    def open(self) -> BinaryIO:
        """The displaced content (of a symlink its target), for putting into the blob store.

        FileNotFound when what was displaced has no content.
        """
        ...

    def discard(self) -> None:
        """Delete what was displaced; the replacement stands."""
        ...

    def discard_unchanged(self) -> bool:
        """Delete what was displaced if its content is still that of `state`; False when it is not.

        The content is read once more for that, after a short wait for who still writes into it.
        """
        ...

    def put_back(self) -> None:
        """Exchange what was displaced with the replacement again, and delete the replacement.

        Conflict, with nothing changed, when the replacement has been changed or replaced
        itself; what was displaced can still be read by `open`.
        """
        ...


class Replacement(Struct, frozen=True):
    """One step of `replace_all`: the change of a path and how to open the new content.

    `content` opens the bytes (a symlink's target); None for directories and deletions. The
    attributes of a file are those of what it replaces, or of the path `attributes_of`. With `link`
    the path becomes another name of the file that is at that one then, which has the content.
    """

    change: FileChange
    content: Callable[[], BinaryIO] | None = None
    attributes_of: str | None = None
    link: str | None = None


class Reservation(Protocol):
    """The temporaries that some changes need on disk, most of them made already, and empty."""

    @property
    def temporaries(self) -> tuple[Temporary, ...]:
        """The names of the temporaries, with the new file and later the one that it displaces."""
        ...

    @property
    def opened(self) -> tuple[OpenedFolder, ...]:
        """The folders of this account whose mode forbids the changes: opened while they are made.

        Folders that are made with such a mode are among them.
        """
        ...

    def release(self) -> None:
        """Delete the temporaries that were not used."""
        ...
