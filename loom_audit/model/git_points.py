"""The git repositories of a workspace at a point, and what of them differs between two points."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from loom_audit.model.events import Event
from loom_audit.model.git.record import (
    HEAD_COMMIT,
    SHARED_REFS,
    GitChanged,
    GitState,
    changed_files,
    changed_names,
)
from loom_audit.model.git.words import in_progress
from loom_audit.model.text.display import visible

_SHORT = 7
_SPACES = {"refs/heads/": "branch", "refs/tags/": "tag", "refs/remotes/": "remote branch"}


class GitSummary(Struct, frozen=True):
    """What a repository named at a point: what HEAD is, the commit that it leads to ("" for none),
    how many branches, tags, remote branches and other refs there are, the messages of the stashes,
    and what is in progress. `shared_with` is the common folder of a linked worktree.
    """

    head: str
    commit: str = ""
    branches: int = 0
    tags: int = 0
    remote_branches: int = 0
    other_refs: int = 0
    stashes: tuple[str, ...] = ()
    in_progress: tuple[str, ...] = ()
    shared_with: str = ""

    @property
    def text(self) -> str:
        """This state in git's words: `HEAD main 1a2b3c4, 3 branches, 1 stash`."""
        return ", ".join(self._said())

    def _said(self) -> Iterator[str]:
        commit = self.commit[:_SHORT] or "without a commit"
        yield f"HEAD {visible(self.head)} {commit}" if self.head else f"HEAD {commit}"
        counts = {
            "branch": self.branches,
            "tag": self.tags,
            "remote branch": self.remote_branches,
            "other ref": self.other_refs,
            "stash": len(self.stashes),
        }
        for what, count in counts.items():
            if count:
                plural = f"{what}es" if what.endswith("h") else f"{what}s"
                yield f"{count:,} {what if count == 1 else plural}"
        yield from self.in_progress
        if self.shared_with:
            yield f"refs shared with {visible(self.shared_with)}"


class GitPoints(Struct):
    """The repositories after some events, by their folders; folded from `git.changed`."""

    states: dict[str, GitState] = field(default_factory=dict)

    @property
    def with_refs_elsewhere(self) -> frozenset[str]:
        """The folders of linked worktrees of a repository that is not in this workspace."""
        return frozenset(
            folder
            for folder, state in self.states.items()
            if state.names.get(SHARED_REFS, "").startswith("/")
        )

    def follow(self, events: Iterable[Event]) -> None:
        """Take over what events say."""
        for event in events:
            if isinstance(event.fact, GitChanged):
                folder = event.fact.folder
                self.states[folder] = self.states.get(folder, GitState()).after(event.fact)
            elif event.kind == GitChanged.kind:  # what it said was erased
                self.states = {}


def git_summary(state: GitState) -> GitSummary | None:
    """What a repository named; None where there was none."""
    names = state.names
    if not names:
        return None
    head = names.get("HEAD", "")
    branch = head.removeprefix("ref: ")
    spaces = Counter(
        next((what for space, what in _SPACES.items() if name.startswith(space)), "")
        for name in names
        if name.startswith("refs/") and name != "refs/stash"
    )
    stashes = names["stashes"].split("\n") if "stashes" in names else []
    found = names.get(HEAD_COMMIT) or names.get(branch, "")
    return GitSummary(
        head=branch.removeprefix("refs/heads/") if branch != head else "",
        commit=found.rpartition(" ")[2] if branch != head else head,
        branches=spaces["branch"],
        tags=spaces["tag"],
        remote_branches=spaces["remote branch"],
        other_refs=spaces[""],
        stashes=tuple(one.split(" ", 2)[-1] for one in stashes),
        in_progress=tuple(in_progress(changed_files({}, state.files))),
        shared_with=names.get(SHARED_REFS, ""),
    )


def git_differences(
    before: Mapping[str, GitState], after: Mapping[str, GitState]
) -> Iterator[GitChanged]:
    """What differs of each repository between two points, as a change from one to the other."""
    for folder in sorted({*before, *after}):
        old, new = before.get(folder, GitState()), after.get(folder, GitState())
        if new.names and not old.is_of(new.identity):
            old = GitState()
        names, files = changed_names(old.names, new.names), changed_files(old.files, new.files)
        if names or files:
            identity, head = new.identity or old.identity, new.names.get("HEAD", "")
            yield GitChanged(identity, names, files, "outside", head, folder=folder)


def git_path(folder: str) -> str:
    """The path of the `.git` of the repository in a folder, "" for the workspace's own."""
    return f"{folder}/.git" if folder else ".git"


def git_folder(path: str) -> str | None:
    """The folder of the repository whose `.git` a path is; None for any other path."""
    above, _, name = path.rpartition("/")
    return above if name == ".git" else None
