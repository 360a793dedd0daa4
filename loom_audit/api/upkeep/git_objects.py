"""The versions of a file that a git repository holds, read without running anything of it."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from loom_audit.ports import Command, CommandResult, Runner

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
    """The objects of one repository. Git gets no settings of the user's, runs no hook, filter,
    monitor or pager, fetches nothing, and takes no lock."""

    def __init__(self, root: Path, runner: Runner) -> None:
        self._root = str(root)
        self._runner = runner

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
        done = self._git("cat-file", "blob", version.object, limit=2 * LARGEST)
        return done.stdout if done.exit_code == 0 and not done.truncated else None

    def _lines(self, *words: str, end: str = "\n") -> Iterator[str]:
        done = self._git(*words, limit=16 << 20)
        if done.exit_code == 0 and not done.truncated:
            text = done.stdout.decode("utf-8", "surrogateescape")
            yield from (line for line in text.split(end) if line)

    def _git(self, *words: str, limit: int) -> CommandResult:
        from loom_audit.tools.bundled.git.repository import FIXED, NO_HOOKS

        settings = (*FIXED, NO_HOOKS)
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C.UTF-8",
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CEILING_DIRECTORIES": os.path.dirname(self._root),
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_CONFIG_COUNT": str(len(settings)),
        }
        for n, (key, value) in enumerate(settings):
            environment |= {f"GIT_CONFIG_KEY_{n}": key, f"GIT_CONFIG_VALUE_{n}": value}
        command = Command(
            ("git", "--no-pager", *words), environment=environment, timeout=SECONDS, limit=limit
        )
        return self._runner.run(self._root, command)


def _bits(mode: str) -> int:
    return 0o755 if mode == "100755" else 0o644
