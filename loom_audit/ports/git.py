"""What a git repository is asked for: its state, and stamps that tell when to ask again."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from loom_audit.model.files import Kind

NO_HOOKS = ("core.hooksPath", "/dev/null")
RUNS_NOTHING = (
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.askPass", ""),
    ("core.alternateRefsCommand", ":"),
    ("log.showSignature", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
)
"""What every command of ours is told, so that a repository's own settings run nothing by it."""

SETTLED = 20_000_000
"""Nanoseconds after a change, after which a later one surely has another stamp: two long ticks."""

ON_HOSTILE_GROUND = {
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
}
"""What every command of ours has in its environment."""

Moved = tuple[str | None, str | None]
"""The object ids of a name before and after; None where the name was, or is, not there."""


class GitFile(Struct, frozen=True):
    """A file in the git folder: `file` or `symlink`, permission bits, and bytes (the target)."""

    kind: Kind
    mode: int
    content: bytes


class GitStamps(Struct, frozen=True):
    """The stamps of what a repository's state is kept in, as one text that is equal while they are.

    "" where there is no repository. `newest` is when the last of it changed, in ns since 1970.
    `contents` is a hash of the bytes of what changed since a moment, which can change again and
    have the same stamps; None where not all of it could be read.
    """

    text: str = ""
    newest: int = 0
    contents: str | None = None


class GitSeen(Struct, frozen=True):
    """The state of a repository as git tells it.

    `names` are `HEAD`, refs, `stashes`, `index`, `index mtime` and `worktree FOLDER`, each with a
    text: an object id, `ref: NAME`, a line of id, time and message for each stash, the hash of the
    index's entries, ns since 1970, and what HEAD is in a linked worktree. `files` are
    by path in the git folder; `entries` are the index's, one a line. `unseen` says what could not
    be looked at, and why. `identity` says which repository it is, also after a reboot but for the
    first digits; "" where that is not known. In a linked worktree `refs shared` names the common
    folder; where that is in the `.git` of a folder of the workspace, the refs are told there, and
    `HEAD commit` is what HEAD leads to here. `holds_objects` is the path in the workspace of the
    git folder that has the objects, "" where that is elsewhere. `untold` is what may be as it was
    though it is not among these: names and files, folders of them, and words that names begin with,
    each with the reason, "" where that of another, or `unseen`, says it. Of a submodule that is not
    checked out `modules/NAME HEAD` and `modules/NAME refs/…` are among the names; `modules` are the
    paths in the workspace of their git folders.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, GitFile] = field(default_factory=dict)
    entries: bytes = b""
    unseen: tuple[str, ...] = ()
    identity: str = ""
    holds_objects: str = ""
    untold: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()


class Git(Protocol):
    """The git repository in one folder of a workspace, at first in its top: the `.git` there.

    Nothing is discovered, nothing of the repository is run or followed, and nothing is written.
    """

    def nested(self, folder: str) -> "Git":
        """The repository in another folder of the same workspace."""
        ...

    def stamps(self, since: int) -> GitStamps:
        """The stamps now, and the contents of what changed since a moment, in ns since 1970.

        Where they are equal later, the state is too, but for a ref's file that was written in place
        where there are many.
        """
        ...

    def seen(self, *, anyway: bool = False) -> GitSeen:
        """The state now, without any name where the folder is not a repository. ExecutionFailed
        where it is not looked at, or is not all of the same one; its message is the reason. What
        git cannot tell alone is `untold`.

        Refs whose stamps are those of last time are told as then, but `anyway`.
        """
        ...

    def led_to(self) -> Sequence[str]:
        """The paths in the workspace to which settings and hooks lead: what is there can run code
        as the person. One that ends in a slash stands for all below it.

        None of a repository that is not there, or not read through.
        """
        ...

    def changed_at(self, paths: Sequence[str]) -> Mapping[str, int]:
        """When files of the git folder were changed last, in ns since 1970 by the clock of files;
        those that are not there are left out.
        """
        ...

    def distances(self, moved: Sequence[Moved]) -> Sequence[str]:
        """How far names moved, in words, "" where git cannot tell: `1 commit back`.

        Of a name that is gone: how many commits were on it and are on no ref.
        """
        ...


def setting_variables(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The variables that give git these settings, over what any file says (git-config(1))."""
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for n, (key, value) in enumerate(settings):
        variables |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value}
    return variables
