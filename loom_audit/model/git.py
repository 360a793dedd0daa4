"""The state of a git repository as the log has it, and what changed of it, also in git's words."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from shlex import quote
from typing import ClassVar

from msgspec import Struct, field

from loom_audit.model.coverage import Origin
from loom_audit.model.files import FileChange, FileState, is_same_identity, is_within
from loom_audit.model.text.display import visible

STAYS = "of git, hooks and settings are taken back only when asked for, remotes never"
"""Why the coverage of a call that changed git is partial."""

CANNOT_BE_TOLD = "git cannot be told"
"""How the reason begins why the coverage of a call is partial after which git could not be told."""

CHANGED_GIT = frozenset(
    {
        "git is not taken back yet",
        "git's hooks, settings and remotes are not taken back",
        STAYS,
    }
)
"""The reasons by which it is known of a call that it changed git, those of earlier records too."""

RUNS_CODE = "it can run code as you"
"""What is said of a changed hook or setting of a repository."""

LONGEST_PATH = 60
"""The number of characters of a path that stand before what is said of it: lists would cut off the
latter after a longer one."""

PUSHED = "pushed"
"""The last word of what is said about a remote branch which a push of ours moved, as its log
tells."""

_PLAIN_REMOTE = re.compile(r"refs/remotes/(\w[\w.-]*)/(.+)", re.ASCII)
_LONGEST_COMMAND = 260
"""Characters of a command that is shown, so that no list cuts it."""

_IN_GIT = re.compile(r"(?:(.+?)/)?\.git(?:/(.+))?", re.DOTALL)
"""The folder of a repository, and a path in its git folder."""

_SHORT = 7
"""How many digits of an object id are shown."""

_IN_PROGRESS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}
_SPACES = {
    "refs/heads/": "branch ",
    "refs/tags/": "tag ",
    "refs/remotes/": "remote branch ",
}
INDEX_MTIME = "index mtime"
"""The name of the modification time of the index, in ns since 1970."""

HEAD_COMMIT = "HEAD commit"
"""The name of what HEAD leads to in a linked worktree whose refs are told elsewhere."""

SHARED_REFS = "refs shared"
"""The name of the common folder of a linked worktree, relative where its refs are told there."""

_TOLD_OTHERWISE = frozenset(
    {"HEAD", HEAD_COMMIT, SHARED_REFS, "stashes", "index", INDEX_MTIME, "refs/stash"}
)
OF_WORKTREE = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")
"""The refs that each worktree has for itself (gitrepository-layout(5))."""

INDEX_ENTRIES = "index entries"
"""The name under which the entries of the index are among the files of the git folder."""

STASH_LOG = "logs/refs/stash"

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
_RUN_BY_GIT = ("hooks", "info", "remotes", "branches", "config", "config.worktree")

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
        head = _branch_of(self)
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


def words_of(facts: Iterable[GitChanged]) -> list[str]:
    """What several events say that changed, in git's words, each line once."""
    return list(dict.fromkeys(text for fact in facts for text in git_words(fact)))


def git_words(fact: GitChanged) -> Iterator[str]:
    """What changed, a line each, in git's words, after the folder where it is not the top."""
    where = f"{_short_folder(fact.folder)}: " if fact.folder else ""
    yield from (where + text for text in _words(fact))


def _words(fact: GitChanged) -> Iterator[str]:
    names = {one.name: one for one in fact.names}
    if fact.is_first or fact.is_gone:
        yield _whole(fact, names)
        return
    # lists show the first lines: what runs code and what is lost stands before the rest
    yield from (f"{_short_path(one)} changed: {RUNS_CODE}" for one in running_code(fact))
    if head := names.get("HEAD"):
        yield f"HEAD {shown_value(head.before)} → {shown_value(head.after)}{_about(head)}"
    elif head := names.get(HEAD_COMMIT):
        branch = _short_name(_branch_of(fact).removeprefix("refs/heads/"))
        yield f"HEAD {branch} {shown_value(head.before)} → {shown_value(head.after)}{_about(head)}"
    stashes = names.get("stashes")
    before = _lines(stashes.before) if stashes else []
    after = _lines(stashes.after) if stashes else []
    yield from _stash_words("dropped", (one for one in before if one not in after))
    for one in sorted(fact.names, key=lambda one: one.after is not None):
        if one.name not in _TOLD_OTHERWISE or (one.name == "refs/stash" and not stashes):
            yield _moved(one, is_head=fact.head == f"ref: {one.name}")
    yield from _reflogs(fact, names)
    yield from _stash_words("made", (one for one in after if one not in before))
    if stashes and sorted(before) == sorted(after):
        yield "stashes in another order"
    if index := names.get("index"):
        yield f"index changed{_about(index)}"
    yield from in_progress(fact.changes)
    known = {"index", INDEX_ENTRIES, "logs", *_IN_PROGRESS}
    rest = sorted(
        {
            path
            for one in fact.changes
            if (path := _short_state(one.path)) not in known
            and not (is_run_by_git(one.path) or is_led_to(one.path))
        }
    )
    if rest:
        yield f"changed in .git: {', '.join(rest)}"


def pushed_back(one: GitName) -> str:
    """The command by which a person may put a branch of a remote back from where a push moved it;
    "" where no push is known to have done that, or it cannot be typed as it is shown.

    It does nothing where the remote's branch was moved since. Of a branch that is gone no log is
    left: a push may have deleted it, or a fetch found that somebody had.
    """
    named = _PLAIN_REMOTE.fullmatch(one.name)
    values = [value for value in (one.before, one.after) if value is not None]
    by_push = one.after is None or one.about.split("; ")[-1] == PUSHED
    if not (named and by_push and all(map(OBJECT_ID.fullmatch, values))):
        return ""
    remote, branch = named.groups()
    lease = f"--force-with-lease={branch}:{one.after or ''}"
    words = ("git", "push", lease, remote, f"{one.before or ''}:refs/heads/{branch}")
    command = " ".join(map(quote, words))
    return command if command == visible(command) and len(command) <= _LONGEST_COMMAND else ""


def push_words(fact: GitChanged) -> Iterator[str]:
    """Which commands put branches of remotes back to where pushes moved them from, a line each."""
    where = f"in {_short_folder(fact.folder)} " if fact.folder else ""
    for one in fact.names if not (fact.is_first or fact.is_gone) else ():
        if command := pushed_back(one):
            what = "if a push deleted" if one.after is None else "the push of"
            yield f"{what} {shown_name(one.name)}: {where}`{command}` takes that back there"


def _stash_words(verb: str, stashes: Iterable[str]) -> Iterator[str]:
    """What became of stashes: those of one message are counted, which is mostly git's own."""
    for message, count in Counter(map(stash_message, stashes)).items():
        what = "stash" if count == 1 else f"{count} stashes"
        yield f'{what} {verb}: "{message}"'


def _reflogs(fact: GitChanged, names: Mapping[str, GitName]) -> Iterator[str]:
    """What only reflogs tell: a name that came back to where it was, and entries that went."""
    for change in fact.changes:
        name = change.path.removeprefix("logs/")
        moved = names.get(name)
        if name == change.path or (moved and moved.after is None):
            continue
        before, after = change.before, change.after
        if before and (after is None or after.size < before.size):
            yield f"reflog of {shown_name(name)} {'cut short' if after else 'deleted'}"
        elif (
            before
            and not moved
            and not (name == "HEAD" and {_branch_of(fact), HEAD_COMMIT} & names.keys())
        ):
            yield f"{shown_name(name)} moved and came back, as its reflog tells"


def _branch_of(fact: GitChanged) -> str:
    return fact.head.removeprefix("ref: ")


def in_progress(changes: Iterable[FileChange]) -> Iterator[str]:
    """What was begun, goes on or has ended: `rebase in progress`."""
    found: dict[str, list[FileChange]] = {}
    for change in changes:
        if what := _IN_PROGRESS.get(change.path.partition("/")[0]):
            found.setdefault(what, []).append(change)
    for what, of_it in found.items():
        if all(change.before is None for change in of_it):
            yield f"{what} in progress"
        else:
            yield f"{what} {'goes on' if any(change.after for change in of_it) else 'ended'}"


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


def runs_code(text: str) -> bool:
    """Whether what `git_words` says is of a hook or a setting, which can run code as the person."""
    return text.endswith(RUNS_CODE)


def running_code(fact: GitChanged) -> tuple[str, ...]:
    """The changed hooks and settings of the repository, which can run code as the person."""
    if fact.is_first and fact.origin == "baseline":
        return ()
    paths = (one.path for one in fact.changes)
    return tuple(one for one in paths if is_run_by_git(one) or is_led_to(one))


def _short_path(path: str) -> str:
    return path if len(path) <= LONGEST_PATH else f"{path[:LONGEST_PATH]}…"


def _short_folder(folder: str) -> str:
    shown = visible(folder)
    return shown if len(shown) <= LONGEST_PATH else f"…{shown[-LONGEST_PATH:]}"


def is_run_by_git(path: str) -> bool:
    """Whether a file of the git folder is a hook or a setting, which can run code as the person."""
    return path.partition("/")[0] in _RUN_BY_GIT


def is_led_to(path: str) -> bool:
    """Whether a file of the git folder is on record since a setting leads to it: it is included,
    or can run code as the person.
    """
    first = path.partition("/")[0]
    known = first in _RUN_BY_GIT or first in _STATE_FOLDERS or STATE_FILES.fullmatch(first)
    return not known and path not in (INDEX_ENTRIES, ALTERNATES)


def _short_state(path: str) -> str:
    return path if path == ALTERNATES else path.partition("/")[0]


def _is_shared(path: str) -> bool:
    """Whether a file of the git folder is one that linked worktrees share."""
    return is_within(path, SHARED_FILES)


def _whole(fact: GitChanged, names: Mapping[str, GitName]) -> str:
    refs = sum(name.startswith("refs/") and name not in _TOLD_OTHERWISE for name in names)
    listed = names.get("stashes", GitName("stashes", None, None))
    stashes = len(_lines(listed.before if fact.is_gone else listed.after))
    counted = [
        f"HEAD {shown_value(names['HEAD'].before if fact.is_gone else fact.head)}",
        f"{refs} ref{'' if refs == 1 else 's'}",
    ]
    if stashes:
        counted.append(f"{stashes} stash{'' if stashes == 1 else 'es'}")
    first = {"baseline": "recorded", "undo": "comes back"}.get(fact.origin, "new or replaced")
    what = "git repository"
    if one := names.get(SHARED_REFS):
        what, common = "linked worktree", visible(one.after or one.before or "")
        told_here = counted[1:] if common.startswith("/") else []
        counted = [counted[0], *told_here, f"refs shared with {common}"]
    moved = f"{names['HEAD'].about}, " if names["HEAD"].about else ""
    return f"{what} {'gone' if fact.is_gone else first}: {moved}{', '.join(counted)}"


def _moved(one: GitName, *, is_head: bool) -> str:
    what = shown_name(one.name)
    if one.after is None:
        about = f"; {one.about}" if one.about else ""
        return f"{what} deleted (was {shown_value(one.before)}{about})"
    if one.before is None:
        return f"{what} created at {shown_value(one.after)}"
    if is_head:
        what = f"HEAD {_short_name(one.name.removeprefix('refs/heads/'))}"
    return f"{what} {shown_value(one.before)} → {shown_value(one.after)}{_about(one)}"


def shown_name(name: str) -> str:
    """A ref in words, `branch feat`, without its middle where it is long."""
    for space, what in _SPACES.items():
        if name.startswith(space):
            return what + _short_name(name.removeprefix(space))
    return _short_name(name)


def _short_name(name: str) -> str:
    """A name without its middle where it is long: what became of it stands behind."""
    half = LONGEST_PATH // 2
    return name if len(name) <= LONGEST_PATH else f"{name[:half]}…{name[-half:]}"


def shown_value(value: str | None) -> str:
    """An object id, shortened, or what a symbolic ref names."""
    if value is None:
        return "nothing"
    if value.startswith("ref: "):
        return _short_name(value.split(" ")[1].removeprefix("refs/heads/"))
    return value[:_SHORT]


def _about(one: GitName) -> str:
    return f" ({one.about})" if one.about else ""


def _lines(text: str | None) -> list[str]:
    return text.split("\n") if text else []


def stash_message(stash: str) -> str:
    """The message in the line of a stash."""
    return stash.split(" ", 2)[-1]
