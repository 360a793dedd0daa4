"""What is gathered of a repository: what lies in its folders, and what of it is not told."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.model.git.record import (
    HEAD_COMMIT,
    INDEX_MTIME,
    OF_WORKTREE,
    SHARED_REFS,
    STASH_LOG,
    is_untold,
)
from loom_audit.ports import GitAnswer, GitFile, GitSeen
from loom_audit.sandbox.git.answers import stash_lines, told_logs, untold_logs
from loom_audit.sandbox.git.files import state_files
from loom_audit.sandbox.git.led_to import settings_of_worktrees
from loom_audit.sandbox.git.place import GitPlace

_WORDS = {
    "refs": "the refs",
    "HEAD": "HEAD",
    "index": "the index",
    "worktree": "the linked worktrees",
}
"""What git may not tell, as it is said."""


class GatheredGit(Struct):
    """What is known of a repository until now, as `GitSeen` has it."""

    names: dict[str, str] = field(default_factory=dict)
    files: dict[str, GitFile] = field(default_factory=dict)
    entries: bytes = b""
    unseen: list[str] = field(default_factory=list)
    untold: dict[str, str] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)

    def leave_untold(self, why: Mapping[str, str]) -> None:
        """Note what git does not tell, and leave out what is understood only with that."""
        is_all = {"refs", "HEAD", "index"} <= why.keys() and len({*why.values()}) == 1
        for name, reason in why.items():
            if name in _WORDS:
                said = reason if is_all else f"{_WORDS[name]}: {reason}"
                self.untold[name] = said
        without = {"refs": ("logs", "stashes", HEAD_COMMIT), "HEAD": ("logs/HEAD", HEAD_COMMIT)}
        left = [one for name, others in without.items() if name in why for one in others]
        self.untold.update(dict.fromkeys(left, ""))
        if "index" in why:
            self.names.pop(INDEX_MTIME, None)
            left.append("index")
        self.files = {path: file for path, file in self.files.items() if not is_untold(path, left)}
        if "refs/stash" in self.names:
            if STASH_LOG in self.files:
                if lines := [*stash_lines(self.files[STASH_LOG].content)]:
                    self.names["stashes"] = "\n".join(lines)
            elif is_untold(STASH_LOG, self.untold):
                self.untold["stashes"] = ""

    def as_seen(self) -> GitSeen:
        """All of it, of a repository whose identity is not said."""
        seen = GitSeen(self.names, self.files, self.entries, tuple(self.unseen))
        return replace(seen, untold=self.untold, modules=tuple(self.modules))


def read_files(place: GitPlace, gathered: GatheredGit, more: Sequence[str]) -> None:
    """Read what lies in the git folder, as `state_files`, and at `more` paths in the common one."""
    known = gathered.unseen, gathered.untold
    own = () if place.is_linked else (*more, *settings_of_worktrees(place.git))
    gathered.files.update(state_files(place.git, *known, own))
    if place.is_linked and not place.is_shared_inside:
        gathered.files.update(state_files(place.common, *known, more, shared=True))
    with suppress(FileNotFoundError):
        index = os.stat("index", dir_fd=place.git, follow_symlinks=False)
        gathered.names[INDEX_MTIME] = str(index.st_mtime_ns)


def take_logs(
    done: Mapping[str, GitAnswer], why: Mapping[str, str], place: GitPlace, gathered: GatheredGit
) -> None:
    """Take the reflogs that are in tables, and note those that git does not tell."""
    if "logs" in done:
        gathered.files.update(told_logs(done["logs"].output, place))
    untold = ["logs"] if "logs" in why else []
    for one in [*untold, *untold_logs(gathered.names)]:
        gathered.untold[one] = ""
        gathered.unseen.append(f"git does not tell .git/{one}")


def names_of_linked(names: Mapping[str, str], place: GitPlace) -> dict[str, str]:
    """The names of a linked worktree: of shared refs only those that are told nowhere else."""
    found = {SHARED_REFS: place.shared_with}
    for name, value in names.items():
        if name[:5] != "refs/" or not place.is_shared_inside or name.startswith(OF_WORKTREE):
            found[name] = value
    branch = names.get("HEAD", "").removeprefix("ref: ")
    if place.is_shared_inside and branch in names:
        found[HEAD_COMMIT] = names[branch]
    return found
