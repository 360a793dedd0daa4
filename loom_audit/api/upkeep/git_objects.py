"""The versions of a file that a git repository holds, read without running anything of it."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from loom_audit.errors import ExecutionFailed
from loom_audit.wiring.commands import ask_git, check_links, find_git, opened_place

COMMITS = 50
"""How many commits that changed a file are looked at, the newest first."""

LARGEST = 64 << 20
SECONDS = 60.0


class GitVersion(Struct, frozen=True):
    """A version: where it was found, when that was made, its object id and permission bits."""

    where: str
    at: datetime | None
    object: str
    mode: int


class GitObjects:
    """The objects of the repository in a folder of a workspace.

    Nothing is told where git does not tell it, nor of a git folder that a link or a file names and
    that is not this repository's: it could be a victim's.
    """

    def __init__(self, root: Path, workspace: Path) -> None:
        self._root = str(root)
        self._workspace = str(workspace)
        self._below = "" if root == workspace else str(root.relative_to(workspace))

    def versions(self, path: str) -> Iterator[GitVersion]:
        """The versions of a path, relative to the root: that of the index, then by commit."""
        if "\n" in path:
            return  # it cannot be named to `cat-file --batch-check`
        for line in self._lines("ls-files", "-s", "-z", "--", path, end="\0"):
            about, _, name = line.partition("\t")
            mode, found, *_ = [*about.split(" "), "", ""]
            if name == path:
                yield GitVersion("git's index", None, found, _bits(mode))
        commits: dict[str, datetime] = {}
        flags = ("--all", "--reflog", "--full-history", "--timestamp", f"--max-count={COMMITS}")
        for line in self._lines("rev-list", *flags, "--", path):
            seconds, _, commit = line.partition(" ")
            if seconds.isdecimal():
                commits[commit] = datetime.fromtimestamp(int(seconds), UTC)
        for commit, at in commits.items():
            # of a commit that deleted it the one before has it
            for name, where in ((commit, "commit"), (f"{commit}^", "the commit before")):
                for line in self._lines("ls-tree", "-z", name, "--", path, end="\0"):
                    mode, kind, found, *_ = [*line.partition("\t")[0].split(" "), "", "", ""]
                    if kind == "blob" and mode != "120000":
                        yield GitVersion(f"{where} {commit[:12]}", at, found, _bits(mode))

    def content(self, version: GitVersion) -> bytes | None:
        """The bytes of a version as git has them; None for one that is too large or gone."""
        return self._git("cat-file", "blob", version.object, limit=2 * LARGEST)

    def _lines(self, *words: str, end: str = "\n") -> Iterator[str]:
        text = (self._git(*words, limit=16 << 20) or b"").decode("utf-8", "surrogateescape")
        yield from (line for line in text.split(end) if line)

    def _git(self, *words: str, limit: int) -> bytes | None:
        with suppress(ExecutionFailed), opened_place(self._workspace, self._below) as place:
            if place is None:
                return None
            for folder in (place.git, place.common):
                check_links(folder)
            folders = {
                "GIT_DIR": place.path,
                "GIT_COMMON_DIR": place.common_path,
                "GIT_WORK_TREE": place.top,
            }
            git = find_git(self._root)
            [done] = ask_git(git, self._root, folders, words, seconds=SECONDS, limit=limit)
            return done.output if done.code == 0 else None
        return None


def _bits(mode: str) -> int:
    return 0o755 if mode == "100755" else 0o644
