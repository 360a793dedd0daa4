"""The mirror of git's objects: copies that outlive what a command does to the repository."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

SHORT_ID, LONG_ID = 40, 64
"""The hex digits of an object's id by SHA-1 and by SHA-256."""


def bare_settings(*, long_ids: bool) -> str:
    """The `config` of a bare repository whose ids are of one length (git-config(1))."""
    settings = f"[core]\n\trepositoryformatversion = {int(long_ids)}\n\tbare = true\n"
    return settings + "[extensions]\n\tobjectFormat = sha256\n" * long_ids


def plain_settings(*, long_ids: bool) -> str:
    """The `config` of a repository with a work tree and no settings of its own."""
    settings = f"[core]\n\trepositoryformatversion = {int(long_ids)}\n\tfilemode = true\n"
    settings += "\tbare = false\n\tlogallrefupdates = true\n"
    return settings + "[extensions]\n\tobjectFormat = sha256\n" * long_ids


class GitPoint(Struct, frozen=True):
    """What a repository named at a point: HEAD, refs and stashes as `GitSeen` has them.

    `shallow` is the content of its file of that name. `long_ids` says that ids are by SHA-256.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    shallow: bytes = b""
    long_ids: bool = False


class GitAnswer(Struct, frozen=True):
    """How a git command ended, and what it said."""

    code: int
    output: bytes
    errors: str


class MissingObjects(Struct, frozen=True):
    """How many objects are not in a mirror, with the ids of some of them."""

    count: int = 0
    some: tuple[str, ...] = ()


class ObjectMirror(Protocol):
    """The copies of a workspace's git objects, which lie outside of the workspace.

    An object is copied once, and checked against its name before it is: what is overwritten in the
    repository later stays whole in the mirror. Nothing is written into the repository. Writers hold
    the workspace lock.
    """

    def take(self, folder: str, git: "MirroredGit") -> Sequence[str]:
        """Copy what is new in `objects` of a git folder, a path in the workspace; durable.

        The index of a pack is made anew by `git`: that of the repository could say of an id that it
        is another object.

        Returns in words what is not in the mirror, and why: what is over its limits, cannot be read
        or is damaged. StorageFailed where the mirror cannot be written; a second take goes on.
        """
        ...

    def left_out(self, folder: str = "") -> Sequence[str]:
        """What the last take of a git folder returned, or the last ones of all."""
        ...

    def size(self) -> int:
        """The bytes that the mirror takes on disk."""
        ...

    def folders(self) -> Sequence[str]:
        """The absolute paths of the mirror's own git folders that are there."""
        ...

    def folder(self, *, long_ids: bool) -> str:
        """The absolute path of the mirror's own git folder for ids of this length, which is made
        where it is not there. StorageFailed.
        """
        ...

    def shallows(self) -> Sequence[bytes]:
        """The contents of files `shallow` under which something was noted; b"" is a whole history.

        What one repository lacks by its own is not missing in it, but may be in another one.
        """
        ...

    def whole(self, shallow: bytes = b"") -> Sequence[str]:
        """The ids of which all was seen in the mirror that can be reached from them under this
        `shallow`, but for what is missing; newest last.
        """
        ...

    def missing(self, shallow: bytes | None = None) -> MissingObjects:
        """What could be reached from `whole` and was not in the mirror, as last noted; without
        `shallow` under all of them.
        """
        ...

    def note(self, whole: Sequence[str], missing: MissingObjects, shallow: bytes = b"") -> None:
        """Add ids to `whole`, and say what was missing then; durable. StorageFailed."""
        ...


class MirroredGit(Protocol):
    """Git, asked in a mirror: it has no settings of others', runs no other program, writes nothing
    outside of temporary folders, and reaches no network.
    """

    def missing(
        self, mirror: str, wanted: Sequence[str], whole: Sequence[str], shallow: bytes
    ) -> Sequence[str]:
        """The wanted ids, and those that they lead to, that are not in a mirror's git folder.

        What can be reached from `whole` is taken to be there. ExecutionFailed where git cannot tell
        it; its message is the reason.
        """
        ...

    def kinds(self, mirror: str, ids: Sequence[str]) -> Mapping[str, str]:
        """The kind of each object: `commit`, `tree`, `blob` or `tag`; of one that is not there
        `missing`. ExecutionFailed.
        """
        ...

    def index(self, mirror: str, pack: str, made: str, seconds: float) -> bool:
        """Write the index of a pack to the path `made`, out of its objects alone.

        Returns whether it is a whole pack. ExecutionFailed where git cannot tell it in so many
        seconds.
        """
        ...

    def pack(self, mirror: str, wanted: Sequence[str], shallow: bytes) -> bytes:
        """A pack of the wanted objects and all that they lead to, out of a mirror's git folder.

        ExecutionFailed where one is not there, or they are more than is read.
        """
        ...

    def refused(
        self, mirror: str, wanted: Sequence[str], shallow: bytes, seconds: float
    ) -> str | None:
        """What git says where a repository would not take the pack of the wanted objects, as one is
        not as git makes it; "" where it would, None where that cannot be told in so many seconds.

        ExecutionFailed, as of `pack`.
        """
        ...

    def damaged(self, mirror: str) -> Sequence[str]:
        """What git says of each object or pack in a mirror that is not what its name says, after
        all were hashed. ExecutionFailed where git cannot tell it in time.
        """
        ...

    def ask(
        self, mirror: str, point: GitPoint, words: Sequence[str], given: bytes = b""
    ) -> GitAnswer:
        """Run a git command in a mirror that has the refs of a point; it reads `given`.

        ExecutionFailed, also where it says too much.
        """
        ...
