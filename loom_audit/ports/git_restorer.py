"""Brings a git repository back to a state that is on record, under git's own lock."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol

from msgspec import Struct

from loom_audit.model.git.record import GitName
from loom_audit.ports.git import GitFile

Settings = Mapping[str, tuple[GitFile | None, GitFile | None]]
"""Hooks and settings by path in the git folder, each as it is and as it is to be."""


class GitSteps(Struct, frozen=True):
    """What is to become of a repository: each name from what it is to what it will be.

    `names` are `HEAD`, `stashes` and refs that are object ids, none symbolic. `files` are what is
    to be at paths in the git folder, None for nothing; of a log of `refs/stash` the entries are
    made again. `note` is what a log of a ref says of it. `settings` are hooks and settings by path,
    each as it is and as it is to be. `with_head` are the refs that go back with HEAD and the index,
    and `head` what HEAD is now, "" where neither moves.
    """

    names: tuple[GitName, ...]
    files: Mapping[str, GitFile | None]
    note: str
    settings: Settings = {}
    with_head: frozenset[str] = frozenset()
    head: str = ""


class IndexBytes(Struct, frozen=True):
    """A content of the index, None for no index, and its modification time in ns since 1970."""

    content: bytes | None
    mtime: int = 0


class BranchUse(Struct, frozen=True):
    """A branch that a worktree, by its whole path, has checked out, rebases or bisects.

    `by` is `HEAD`, or the path of the file in the worktree's git folder that says it.
    """

    worktree: str
    branch: str
    by: str


class GitRestorer(Protocol):
    """Begins to bring back one repository of a workspace, and tidies up after who was killed."""

    def begin(self, folder: str, identity: str, index: IndexBytes | None) -> "GitRestore":
        """Open the repository in a folder of the workspace, which must be of that identity.

        `index` is what the index becomes; None leaves it. ExecutionFailed with the reason; nothing
        is written.
        """
        ...

    def missing(self, folder: str, identity: str, wanted: Sequence[str]) -> Sequence[str]:
        """The wanted ids that are not in the repository in a folder, or do not lead to all they
        need there; it must be of that identity. ExecutionFailed; nothing is written.
        """
        ...

    def check_settings(self, folder: str, identity: str, settings: Settings) -> None:
        """Conflict where a hook or setting of the repository in a folder is not what its step
        begins with, or cannot be put back, as a folder is in its place; it must be of that
        identity. ExecutionFailed; nothing is written.
        """
        ...

    def used_branches(self, folder: str, identity: str) -> Sequence[BranchUse]:
        """The branches that worktrees of the repository in a folder use, those outside of the
        workspace too; it must be of that identity. ExecutionFailed; nothing is written.
        """
        ...

    def is_there(self, folder: str, identity: str) -> bool:
        """Whether the repository of that identity is in a folder now."""
        ...

    def release(self, folder: str, identity: str, lock: str) -> bool:
        """Remove the `index.lock` of a restore that was killed; whether that was there. Nothing is
        held any more.

        It is known by its identity: another one stays.
        """
        ...


class GitRestore(Protocol):
    """A repository that is being brought back; a context manager, whose end removes its lock."""

    def __enter__(self) -> "GitRestore": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None: ...

    @property
    def lock(self) -> str:
        """The identity of what will be `index.lock`, which has no name before `take_lock`."""
        ...

    def missing(self, wanted: Sequence[str]) -> Sequence[str]:
        """The wanted ids that are not in the repository, or do not lead to all they need there."""
        ...

    def add_objects(self, pack: bytes, *, pinned: bool = False) -> None:
        """Add the objects of a pack, each hashed anew, and let none of them be thrown away until
        this is closed where they are to be `pinned`. ExecutionFailed; objects alone are added.
        """
        ...

    def pin(self, wanted: Sequence[str], *, stashes: bool) -> bool:
        """Let no object that the wanted ids need be thrown away until this is closed, though no ref
        leads to it yet; whether all of them are there still. Where `stashes` move, what these lead
        to is held, too.

        Those of a history that is too long to list are not held. ExecutionFailed; objects alone are
        added.
        """
        ...

    def take_lock(self) -> None:
        """Make `index.lock`; one that is there is waited for a second, then Conflict."""
        ...

    def carry_out(self, steps: GitSteps) -> None:
        """Make the steps: settings, stashes, names that are in the way of others, other refs, then
        HEAD with its refs, and files. The lock is held.

        Conflict where a name or a setting is not what its step begins with: then those before it go
        back to what they were, but for what somebody moved since.
        ExecutionFailed.
        """
        ...

    def finish(self) -> None:
        """Let the index be what it is to become, in one rename, and give the lock up."""
        ...
