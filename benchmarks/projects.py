"""Workspaces of made-up projects, stores for them, and git beside them."""

import os
import random
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from loom_audit import open_store
from loom_audit.api.face import AuditStore

PER_FOLDER = 25
_MEAN_BYTES = 5 * 1024
_MOST_BYTES = 64 * 1024


@cache
def prose() -> bytes:
    """Some megabytes of real source text: the standard library's."""
    parts = []
    size = 0
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        parts.append(path.read_bytes())
        size += len(parts[-1])
        if size > 4 << 20:
            break
    return b"".join(parts)


def content(n: int, version: int = 1) -> bytes:
    """The text of file n, some 5 KB of source; versions differ in two lines."""
    choice = random.Random(n)
    size = min(int(choice.expovariate(1 / _MEAN_BYTES)) + 64, _MOST_BYTES)
    start = choice.randrange(len(prose()) - size)
    lines = prose()[start : start + size].split(b"\n")
    lines[0] = b"# %d %d" % (n, version)
    lines[len(lines) // 2] = b"value = %d  # %d" % (n * version, version)
    return b"\n".join(lines)


def name(n: int) -> str:
    return f"package{n // PER_FOLDER // 40}/d{n // PER_FOLDER}/file{n}.py"


def fill(root: Path, count: int, version: int = 1) -> None:
    """Write the files of a project of so many."""
    for n in range(count):
        path = root / name(n)
        if n % PER_FOLDER == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(n, version))


def new_store(folder: Path) -> AuditStore:
    """A new store in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return open_store(str(folder / "audit.db"))


class Repository:
    """A git repository, by default beside the files it is about (a shadow repository)."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder = folder
        self.work = work
        self.run("init", "-q")

    def run(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        settings = (
            "gc.auto=0",
            "maintenance.auto=0",
            "user.name=b",
            "user.email=b@example.org",
            "core.autocrlf=false",
        )
        flags = [part for setting in settings for part in ("-c", setting)]
        done = subprocess.run(
            ["git", *flags, f"--git-dir={self.folder}", f"--work-tree={self.work}", *arguments],
            capture_output=True,
            input=stdin,
        )
        if done.returncode:
            raise SystemExit(f"git {arguments[0]}: {done.stderr.decode(errors='replace')}")
        return done.stdout

    def commit(self) -> None:
        """What a shadow repository does after each call."""
        self.run("add", "-A")
        self.run("commit", "-q", "--allow-empty", "-m", "call")


def files(root: Path) -> Iterator[os.stat_result]:
    """The stat of every file below."""
    for folder, _, names in os.walk(root):
        for each in names:
            yield os.lstat(os.path.join(folder, each))


def on_disk(*roots: Path) -> int:
    """Bytes that files take on disk, as their filesystem counts them."""
    return sum(seen.st_blocks * 512 for root in roots for seen in files(root))


def filesystem(folder: Path) -> str:
    """The kind of filesystem that a folder lies on: `ext4`, `tmpfs`, …"""
    real = f"{folder.resolve()}/"
    rows = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    above = [
        (point, kind) for _, point, kind, *_ in rows if real.startswith(f"{point.rstrip('/')}/")
    ]
    return max(above, key=lambda one: len(one[0]))[1]
