"""What the entries of linked worktrees hold that are outside of the workspace: no look is there."""

from collections.abc import Iterator, Mapping, Sequence

from loom_audit.errors import ExecutionFailed
from loom_audit.model.git.record import INDEX_ENTRIES
from loom_audit.ports import GitAnswer, GitFile
from loom_audit.sandbox.git.answers import index_entries
from loom_audit.sandbox.git.files import is_link, links_in, opened_below, read_text, state_files
from loom_audit.sandbox.git.gathered import GatheredGit
from loom_audit.sandbox.git.place import GitPlace, path_below, worktree_folders

MOST_ELSEWHERE = 20
"""The number of linked worktrees outside of the workspace that are looked at."""

_TOO_MANY = f"more than {MOST_ELSEWHERE} linked worktrees outside of the workspace"
_AS_WRITTEN = ("-c", "sparse.expectFilesOutsideOfPatterns=true")
"""Keeps git from looking for the files of a worktree, which are not here."""


def read_elsewhere(root: str, place: GitPlace, gathered: GatheredGit) -> Sequence[str]:
    """Read what lies in the entries of linked worktrees outside of the workspace, by their paths
    in the git folder; the entries that have an index.
    """
    found: list[str] = []
    for n, linked in enumerate(_linked(root, place)):
        if n >= MOST_ELSEWHERE:
            gathered.untold[linked] = _TOO_MANY
            continue
        untold: dict[str, str] = {}
        unseen: list[str] = []
        try:
            with opened_below(place.git, linked) as opened:
                for link in links_in(opened):
                    raise is_link(f"{linked}/{link}")
                files = dict(state_files(opened, unseen, untold))
        except ExecutionFailed as error:
            gathered.untold[linked] = error.message
            continue
        except OSError as error:
            gathered.untold[linked] = f".git/{linked} cannot be read: {error.strerror}"
            continue
        inside = f".git/{linked}/"
        gathered.files.update((f"{linked}/{path}", file) for path, file in files.items())
        gathered.unseen += (one.replace(".git/", inside) for one in unseen)
        for path, why in untold.items():
            gathered.untold[f"{linked}/{path}"] = why.replace(".git/", inside)
        if "index" in files:
            found.append(linked)
        elif "index" not in untold:
            gathered.files[f"{linked}/{INDEX_ENTRIES}"] = GitFile("file", 0, b"")
    return found


def ask_of_index(place: GitPlace, linked: str, words: Sequence[str]) -> Sequence[str]:
    """The command that asks git for the index of the linked worktree of an entry."""
    return (f"--git-dir={place.path}/{linked}", *_AS_WRITTEN, *words)


def take_elsewhere(
    elsewhere: Sequence[str],
    done: Mapping[str, GitAnswer],
    why: Mapping[str, str],
    gathered: GatheredGit,
) -> None:
    """Take what git tells of the index in each entry, and leave out one that it does not tell."""
    for linked in elsewhere:
        told = why.get(linked, "")
        try:
            listed = b"" if told else index_entries(done[linked].output)
        except ExecutionFailed as error:
            told = error.message
        if told:
            gathered.untold[f"{linked}/index"] = f"the index in {linked}: {told}"
            gathered.untold[f"{linked}/{INDEX_ENTRIES}"] = ""
            del gathered.files[f"{linked}/index"]
        else:
            gathered.files[f"{linked}/{INDEX_ENTRIES}"] = GitFile("file", 0, listed)


def _linked(root: str, place: GitPlace) -> Iterator[str]:
    """The paths of the entries of linked worktrees that are in no folder of the workspace."""
    for name, folder in worktree_folders(place.git, place.path):
        is_inside = folder == root or path_below(root, folder)
        if not is_inside or read_text(place.git, f"worktrees/{name}/gitdir") is None:
            yield f"worktrees/{name}"
