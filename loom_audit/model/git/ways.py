"""How what a repository names, and each file of its state, went from one change on; and what each
belongs to: HEAD, its branches, the index and what is in progress are one thing for each worktree.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from loom_audit.model.files import FileState
from loom_audit.model.git.record import (
    ALTERNATES,
    HEAD_COMMIT,
    INDEX_ENTRIES,
    INDEX_MTIME,
    OF_WORKTREE,
    STASH_LOG,
    GitChanged,
    is_setting,
    path_elsewhere,
)

Kind = Literal["worktree", "stashes", "ref", "settings", "remote", ""]
"""What a name or a file of a git folder belongs to; "" for what is told and never taken back."""

WORKTREE = "HEAD"
STASHES = "stashes"
SETTINGS = "settings"

_PASSING = ("file", "ORIG_HEAD")
"""What many commands write that move nothing else."""


class GitStep(Struct, frozen=True):
    """A change of a repository on record: whether it is taken back, and whose it is.

    `number` is that of its call, or the seq of its event, which is `seq`. It is `doubtful` where
    others than the calls that are taken back may have made it.
    """

    fact: GitChanged
    taken: bool
    number: int
    doubtful: bool = False
    seq: int = 0


Key = tuple[Literal["name", "file"], str]
Value = str | FileState | None


class Way(Struct):
    """The way of one name or file from the first change of it that is taken back on.

    `expected` is what a taken change led to. `is_over` says that a taken change went on from what
    others had made of it.
    """

    first: Value
    expected: Value
    now: Value
    moved_by: int = 0
    doubtful: int = 0
    taken: int = 0
    is_over: bool = False

    def follow(self, before: Value, after: Value, step: GitStep) -> None:
        """Go on by a change, which a step made."""
        self.now = after
        if not step.taken:
            if step.doubtful and not self.doubtful:
                self.doubtful = step.number
            self.moved_by = self.moved_by or step.number
            return
        if before != self.expected:
            self.is_over = self.is_over or bool(self.moved_by)
        elif not self.is_over:  # what was in between came back to where it was
            self.moved_by = 0
        self.expected, self.taken = after, step.number

    @property
    def is_moved(self) -> bool:
        """Whether others moved it, and that is not over."""
        return bool(self.moved_by) and (self.is_over or self.now != self.expected)

    @property
    def is_wanted(self) -> bool:
        """Whether some of it is taken back, or may have to be."""
        return bool(self.taken or self.doubtful)


def goes_back(fact: GitChanged, *, settings: bool = False) -> bool:
    """Whether something of a change of git can be taken back, also where that is `settings`."""
    if fact.is_first:
        return False
    if fact.is_gone:
        return True
    wanted = {"worktree", "stashes", "ref", *(["settings"] if settings else [])}
    return any(kind in wanted for kind, key in kinds_of(fact) if not is_derived(key))


def kinds_of(fact: GitChanged) -> Iterator[tuple[Kind, Key]]:
    """The names and files that a change of git is of, each with what it belongs to."""
    branches = branches_of([fact])
    return ((thing_of(key, branches)[0], key) for key, _, _ in of_fact(fact))


def ways_of(steps: Sequence[GitStep]) -> dict[Key, Way]:
    """How each name and file went, from the first step on that may be taken back.

    Once HEAD or what goes with it is taken back, all of that is followed: what others did with one
    of these since concerns the others, too.
    """
    head = {steps[-1].fact.head.removeprefix("ref: ")}
    branches = branches_of(step.fact for step in steps)
    ways: dict[Key, Way] = {}
    is_with_head = False
    for step in steps:
        is_wanted, changed = step.taken or step.doubtful, [*of_fact(step.fact)]
        for key, before, after in changed:
            if key not in ways:
                if not (is_wanted or (is_with_head and _goes_with_head(key, head))):
                    continue
                ways[key] = Way(before, before, before)
            ways[key].follow(before, after, step)
        is_with_head |= is_wanted and any(_goes_with_head(key, branches) for key, _, _ in changed)
    return ways


def _goes_with_head(key: Key, branches: Collection[str]) -> bool:
    is_own = thing_of(key, branches) == ("worktree", WORKTREE)
    return is_own and not is_derived(key) and key != _PASSING


def of_fact(fact: GitChanged) -> Iterator[tuple[Key, Value, Value]]:
    """The names and files that a change of git is of, each before and after it."""
    for name in fact.names:
        yield ("name", name.name), name.before, name.after
    for file in fact.changes:
        yield ("file", file.path), file.before, file.after


def branches_of(facts: Iterable[GitChanged]) -> Collection[str]:
    """The branches that HEAD named before or after one of these changes."""
    found: set[str] = set()
    for fact in facts:
        found.add(fact.head)
        found.update(name.before or "" for name in fact.names if name.name == "HEAD")
    return {one.removeprefix("ref: ") for one in found if one.startswith("ref: ")}


def thing_of(key: Key, branches: Collection[str]) -> tuple[Kind, str]:
    """What a name or file belongs to, and the name of that."""
    what, name = key
    if what == "name":
        if name in ("stashes", "refs/stash"):
            return "stashes", STASHES
        if name in branches or name in ("HEAD", HEAD_COMMIT, "index", INDEX_MTIME):
            return "worktree", WORKTREE
        if name.startswith(OF_WORKTREE):
            return "worktree", WORKTREE
        if name.startswith("refs/remotes/"):
            return "remote", name
        return ("ref", name) if name.startswith("refs/") else ("", name)
    if name == STASH_LOG:
        return "stashes", STASHES
    if name.startswith("logs/") or name in ("shallow", ALTERNATES) or path_elsewhere(name):
        return "", name  # that of a branch which comes back is taken along with it
    if is_setting(name):
        return "settings", SETTINGS
    return "worktree", WORKTREE


def is_derived(key: Key) -> bool:
    """Whether it follows from others: git writes an index anew where it only reads."""
    name = key[1]
    return name in (INDEX_MTIME, INDEX_ENTRIES, STASH_LOG) or (
        key[0] == "file" and (name == "index" or name.startswith("sharedindex."))
    )


def is_of_index(key: Key) -> bool:
    """Whether a file or name follows from the index."""
    return is_derived(key) and key[1] != STASH_LOG
