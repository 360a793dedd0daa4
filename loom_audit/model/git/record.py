"""The state of a git repository as the log has it, and what changed of it."""

import re
from collections.abc import Iterable, Mapping
from typing import ClassVar

from msgspec import Struct, field

from loom_audit.model.coverage import Origin
from loom_audit.model.files import FileChange, FileState, is_same_identity, is_within
from loom_audit.model.text.display import visible

NOT_TAKEN_BACK = "not taken back of git"
"""How the reason begins why the coverage of a call is partial of whose change of git not all can be
taken back, also when asked for."""

CANNOT_BE_TOLD = "git cannot be told"
"""How the reason begins why the coverage of a call is partial after which git could not be told."""

CHANGED_GIT = frozenset(
    {
        "git is not taken back yet",
        "git's hooks, settings and remotes are not taken back",
        "of git, hooks and settings are taken back only when asked for, remotes never",
    }
)
"""The reasons that earlier records have in the coverage of each call that changed git."""

PUSHED = "pushed"
"""The last word of what is said about a remote branch which a push of ours moved, as its log
tells. After it, and after what is said of one that is gone, stands whose it is where its name does
not tell: a remote can have a slash in its name.
"""

OF_REMOTE = "of remote"
REMOTE_REFS = "refs/remotes/"

_IN_GIT = re.compile(r"(?:(.+?)/)?\.git(?:/(.+))?", re.DOTALL)
"""The folder of a repository, and a path in its git folder."""

INDEX_MTIME = "index mtime"
"""The name of the modification time of the index, in ns since 1970."""

HEAD_COMMIT = "HEAD commit"
"""The name of what HEAD leads to in a linked worktree whose refs are told elsewhere."""

SHARED_REFS = "refs shared"
"""The name of the common folder of a linked worktree, relative where its refs are told there."""

OF_WORKTREE = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")
"""The refs that each worktree has for itself (gitrepository-layout(5))."""

INDEX_ENTRIES = "index entries"
"""The name under which the entries of the index are among the files of the git folder."""

STASH_LOG = "logs/refs/stash"

SPARSE = "info/sparse-checkout"
"""The file that says which files of a worktree are checked out."""

MODULES = "modules"
"""The folder of submodules in a git folder, and how the name of what HEAD or a ref is in one begins
that is not checked out.
"""

SHARED_FILES = ("hooks", "info", "remotes", "branches", "config", "shallow", "logs/refs")
"""What of a common folder is the state of a linked worktree too, but for its refs."""

STATE_FILES = re.compile(
    r"(?!FETCH_HEAD$)(?:HEAD|index|packed-refs|shallow|config|config\.worktree|SQUASH_MSG"
    r"|AUTO_MERGE|commondir|[A-Z_]+_HEAD|MERGE_[A-Z]+|BISECT_[A-Z_]+|sharedindex\.[0-9a-f]+)"
)
"""The names in a git folder that hold its state."""

ALTERNATES = "objects/info/alternates"
"""The file of a git folder that says where else objects are (gitrepository-layout(5))."""

_STATE_FOLDERS = ("logs", "rebase-merge", "rebase-apply", "sequencer")

_ELSEWHERE = re.compile(r"worktrees/([^/]+)/(([^/]+).*)", re.DOTALL)
"""A path in the entry of a linked worktree."""

_RUN_BY_GIT = ("hooks", "info", "remotes", "branches", "config", "config.worktree")

BROKEN = "broken"
"""The value of a HEAD or ref that leads to no commit, as far as git tells."""

OBJECT_ID = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")


class GitName(Struct, frozen=True):
    """Something that a repository names, before and after; None where it is not there.

    It is `HEAD`, a ref, `stashes`, `index`, `index mtime` (of the file, when `index` changed) or
    `worktree FOLDER`. `about` says in words how far it moved.
    """

    name: str
    before: str | None
    after: str | None
    about: str = ""


class GitChanged(Struct, frozen=True):
    """The state of a git repository of the workspace changed, or was recorded for the first time.

    `identity` says which git folder it is: of another one than before nothing is compared, and
    everything is from None. `changes` are of files in the git folder, by their paths in it, and of
    no tree. `head` is what HEAD names afterwards. `call_id` and `causes` are as of `files.changed`.
    `folder` is the one in which the repository is, "" for the top of the workspace.
    `led_to` are files of the workspace that changed and to which settings or hooks lead, by their
    paths in it: what is there can run code as the person. They are of no git folder, and their
    changes are recorded with all files. `not_led_to` are the files among `changes` that are no
    state any more since no setting leads to them.
    """

    kind: ClassVar[str] = "git.changed"
    identity: str
    names: tuple[GitName, ...]
    changes: tuple[FileChange, ...]
    origin: Origin
    head: str = ""
    call_id: str | None = None
    causes: tuple[int, ...] = ()
    folder: str = ""
    led_to: tuple[str, ...] = ()
    not_led_to: tuple[str, ...] = ()

    @property
    def is_of_git(self) -> bool:
        """Whether something of the repository itself changed."""
        return bool(self.names or self.changes)

    @property
    def is_first(self) -> bool:
        """Whether it is the whole state of a repository that was not on record before."""
        return any(one.name == "HEAD" and one.before is None for one in self.names)

    @property
    def is_gone(self) -> bool:
        """Whether there is no repository any more."""
        return any(one.name == "HEAD" and one.after is None for one in self.names)

    @property
    def is_of_one_worktree(self) -> bool:
        """Whether nothing changed but what a linked worktree has for itself, and its branch."""
        head = branch_of(self)
        own = {"HEAD", HEAD_COMMIT, SHARED_REFS, "index", INDEX_MTIME, head}
        names = (one.name for one in self.names)
        shared = (one.path for one in self.changes if _is_shared(one.path))
        return all(one in own or one.startswith(OF_WORKTREE) for one in names) and all(
            one == f"logs/{head}" for one in shared
        )

    def is_of(self, identity: str) -> bool:
        """Whether it is of the git folder of that identity, also after a reboot."""
        return is_same_identity(self.identity, identity)

    def is_about(self, name: str) -> bool:
        """Whether something of a name changed: a branch, a tag, or a file by its path.

        `.git` is all of every repository, `FOLDER/.git` all of that one.
        """
        if inside := _IN_GIT.fullmatch(name):
            folder, name = inside[1] or "", inside[2] or ""
            if folder != self.folder or not name:
                return not name and folder in ("", self.folder)
        full = {name, f"refs/heads/{name}", f"refs/tags/{name}"}
        changed = [one.name for one in self.names] + [change.path for change in self.changes]
        return not full.isdisjoint(changed)


class GitIntended(Struct, frozen=True):
    """A repository will be brought back next; what it names and is to name is durable with this.

    `names` and `changes` are as of `git.changed`, from what is to what will be. `lock` is the
    identity of the file that will be git's `index.lock` meanwhile. Of a repository that is gone and
    is built anew it is that of the new folder, which is `beside` its place under that name, and
    comes in place of the empty folder of the identity `over`, "" for none.
    """

    kind: ClassVar[str] = "git.intended"
    call_id: str
    identity: str
    names: tuple[GitName, ...]
    changes: tuple[FileChange, ...]
    lock: str
    folder: str = ""
    beside: str = ""
    over: str = ""

    @property
    def as_change(self) -> GitChanged:
        """It as the change that it will be."""
        return intended_change(self.folder, self.identity, self.names, self.changes)


def intended_change(
    folder: str,
    identity: str,
    names: tuple[GitName, ...],
    files: tuple[FileChange, ...],
    head: str = "",
) -> GitChanged:
    """The change that an undo will make of a repository; `head` is what HEAD is where it stays."""
    after = next((one.after or "" for one in names if one.name == "HEAD"), head)
    return GitChanged(identity, names, files, "undo", after, folder=folder)


class GitState(Struct):
    """The state of a repository after an event, folded from `git.changed`."""

    identity: str = ""
    names: dict[str, str] = field(default_factory=dict)
    files: dict[str, FileState] = field(default_factory=dict)

    def is_of(self, identity: str) -> bool:
        """Whether this is the state of the git folder of that identity, also after a reboot."""
        return is_same_identity(self.identity, identity)

    def after(self, fact: GitChanged) -> "GitState":
        """The state after a fact, which this one is not changed by."""
        state = GitState(self.identity, {**self.names}, {**self.files})
        state.follow(fact)
        return state

    def follow(self, fact: GitChanged) -> None:
        """Take over what a fact says."""
        if fact.is_first:
            self.names.clear()
            self.files.clear()
        self.identity = fact.identity
        for one in fact.names:
            if one.after is None:
                self.names.pop(one.name, None)
            else:
                self.names[one.name] = one.after
        for change in fact.changes:
            if change.after is None:
                self.files.pop(change.path, None)
            else:
                self.files[change.path] = change.after


def changed_names(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[GitName, ...]:
    """The names that differ, sorted."""
    names = sorted({name for name, _ in before.items() ^ after.items()})
    return tuple(GitName(name, before.get(name), after.get(name)) for name in names)


def changed_files(
    before: Mapping[str, FileState], after: Mapping[str, FileState]
) -> tuple[FileChange, ...]:
    """The files of the git folder that differ, sorted by path."""
    paths = sorted({*before, *after})
    return tuple(
        FileChange(path, before.get(path), after.get(path))
        for path in paths
        if before.get(path) != after.get(path)
    )


def common_of(names: Iterable[GitName]) -> str:
    """The common folder that a linked worktree is to have, by what becomes of its names; "" of
    any other repository.
    """
    return next((one.after or "" for one in names if one.name == SHARED_REFS), "")


def branch_of(fact: GitChanged) -> str:
    """The branch that HEAD names after the change; "" where that is not told."""
    return fact.head.removeprefix("ref: ")


def untold_reason(folder: str, why: str) -> str:
    """Why the coverage of a call is partial after which git could not be told, or not all of it.

    `folder` is that of the repository, "" for the top of the workspace.
    """
    return f"{CANNOT_BE_TOLD} in {visible(folder)}: {why}" if folder else f"{CANNOT_BE_TOLD}: {why}"


def is_untold(name: str, untold: Iterable[str]) -> bool:
    """Whether something of a repository, or a file in its git folder, is among what is not told:
    it, all that its words begin with, or a folder of it.
    """
    return any(name == one or name.startswith((f"{one}/", f"{one} ")) for one in untold)


def is_run_by_git(path: str) -> bool:
    """Whether a file of the git folder is a hook or a setting, which can run code as the person."""
    return path.partition("/")[0] in _RUN_BY_GIT


def is_led_to(path: str) -> bool:
    """Whether a file of the git folder is on record since a setting leads to it: it is included,
    or can run code as the person.
    """
    first = path.partition("/")[0]
    known = first in _RUN_BY_GIT or first in _STATE_FOLDERS or STATE_FILES.fullmatch(first)
    return not (known or path in (INDEX_ENTRIES, ALTERNATES) or path_elsewhere(path))


def path_elsewhere(path: str) -> tuple[str, str] | None:
    """The linked worktree whose state a file of the git folder is, by the name of its entry, and
    the path of the file there; None for any other, also for its settings.
    """
    found = _ELSEWHERE.fullmatch(path)
    if found is None:
        return None
    name, inside, first = found.groups()
    is_state = first in _STATE_FOLDERS or (
        STATE_FILES.fullmatch(first) is not None and first not in _RUN_BY_GIT
    )
    return (name, inside) if is_state or inside in (INDEX_ENTRIES, SPARSE) else None


def is_of_module(name: str) -> bool:
    """Whether a name is one of a submodule that is not checked out."""
    return name.startswith(f"{MODULES}/")


def is_beside(path: str) -> bool:
    """Whether a file of a git folder is on record and no part of a repository that is built."""
    return is_led_to(path) or path_elsewhere(path) is not None


def is_setting(path: str) -> bool:
    """Whether a file of the git folder is a hook or a setting, or what a setting leads to."""
    return is_run_by_git(path) or is_led_to(path)


def _is_shared(path: str) -> bool:
    """Whether a file of the git folder is one that linked worktrees share."""
    return is_within(path, SHARED_FILES)
