"""Replacing what is at a path: what is to be done, what is displaced, and under which names."""

from collections.abc import Callable
from typing import BinaryIO, Protocol

from msgspec import Struct

from loom_audit.model.events import OpenedFolder, Temporary
from loom_audit.model.files import FileChange, FileState


class Displaced(Protocol):
    """What a replace displaced, still on disk under a temporary name."""

    @property
    def state(self) -> FileState | None:
        """Kind, mode, size and hash of what was displaced; None when the path was absent."""
        ...

    @property
    def links(self) -> int:
        """How many names the displaced inode had; over 1, a hard link was broken."""
        ...

    def open(self) -> BinaryIO:
        """Its content (a symlink's target), for putting into the blob store."""
        ...

    def discard(self) -> None:
        """Delete it; the replacement stands."""
        ...

    def discard_unchanged(self) -> bool:
        """Delete it if its content is still that of `state`; else nothing, and False.

        Its content is read once more for that, after a short wait for who still writes into it.
        """
        ...

    def put_back(self) -> None:
        """Exchange it with the replacement again and delete the replacement.

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
    """What some changes need on disk: temporaries, most of them made already, and empty."""

    @property
    def temporaries(self) -> tuple[Temporary, ...]:
        """What may be found under these names: the new file, and later the one it displaces."""
        ...

    @property
    def opened(self) -> tuple[OpenedFolder, ...]:
        """The folders of this account whose mode forbids the changes: opened while they are made.

        Folders that are made with such a mode are among them.
        """
        ...

    def release(self) -> None:
        """Delete those that were not used."""
        ...
