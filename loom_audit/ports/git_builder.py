"""Builds a git folder that is gone anew, beside its place, and lets it come there whole."""

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol

from msgspec import Struct

from loom_audit.ports.git import GitFile
from loom_audit.ports.git_restorer import IndexBytes


class GitWhole(Struct, frozen=True):
    """All that a git folder is to hold but objects: `names` and `files` as `GitSeen` has them.

    The index is apart; one of the files is `config`. A ref that is broken is not made.
    """

    names: Mapping[str, str]
    files: Mapping[str, GitFile]
    index: IndexBytes | None = None
    long_ids: bool = False


class GitBuilder(Protocol):
    """Begins to build the git folder of one folder, and tidies up after who was killed."""

    def begin(self, folder: str, over: str = "") -> "GitBuilding":
        """Make an empty folder under a temporary name, beside a `.git` that is not there, or that
        is an empty folder of the identity `over`, in whose place it will come.

        Conflict where something is there; ExecutionFailed.
        """
        ...

    def begin_linked(self, folder: str, common: str, identity: str) -> "GitBuilding":
        """Begin to make the entry of the linked worktree in a folder, whose `.git` is not there, in
        the common folder at a path in the workspace, which must be of that identity. An entry that
        names this very `.git` is left as it is, and only named again.

        Conflict where a `.git` is there; ExecutionFailed.
        """
        ...

    def release(self, folder: str, name: str, identity: str, common: str = "") -> bool:
        """Remove what was built under a temporary name by who was killed; whether it was there.

        It is known by its identity: another folder stays. Of a linked worktree, whose `common`
        folder that is, also the entry while no `.git` is there that could name it.
        """
        ...


class GitBuilding(Protocol):
    """A git folder that is being built; a context manager, whose end removes what is half."""

    def __enter__(self) -> "GitBuilding": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None: ...

    @property
    def name(self) -> str:
        """The temporary name of the folder."""
        ...

    @property
    def identity(self) -> str:
        """The identity of the folder, also once it is `.git`, or the entry of a worktree."""
        ...

    @property
    def becomes(self) -> str:
        """The identity that the repository will be on record with."""
        ...

    def fill(self, whole: GitWhole, pack: bytes) -> None:
        """Write all of it, durably, objects from a pack and each hashed anew, and have git check
        it. ExecutionFailed where git finds it is not whole.
        """
        ...

    def finish(self) -> None:
        """Rename it to `.git`. Conflict where something is there by now, or it was replaced.

        In place of an empty folder it comes in place of any: nothing in one can be lost.
        """
        ...
