"""The floor of a rollback and of a scan: our disk against git and a bare loop, nothing recorded.

`python benchmarks/restore_floor.py [FILES] [ROUNDS]` prints a table and, last, one line of JSON.
Both restore the same files of 5 KB from one version to the other, in turns, so that a noisy
disk slows both.
"""

import hashlib
import io
import json
import os
import shutil
import stat
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from loom_audit.disk.looking.index import DiskChangeIndex
from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.model.scope import Scope
from loom_audit.ports import IndexEntry, Replacement, Stamp

BYTES = 5 * 1024
PER_FOLDER = 25


def content(path: str, version: int) -> bytes:
    seed = hashlib.sha256(f"{path} {version}".encode()).hexdigest().encode()
    return (seed * (BYTES // len(seed) + 1))[:BYTES]


def paths(count: int) -> list[str]:
    return [f"package{n // PER_FOLDER // 40}/d{n // PER_FOLDER}/file{n}.py" for n in range(count)]


def state(data: bytes) -> FileState:
    return FileState("file", BlobId(hashlib.sha256(data).hexdigest()), 0o644, len(data))


def fill(root: Path, names: list[str], version: int) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(name, version))


def git(root: Path, *arguments: str) -> None:
    subprocess.run(
        [
            "git",
            "-c",
            "gc.auto=0",
            "-c",
            "user.name=b",
            "-c",
            "user.email=b@b",
            "-C",
            str(root),
            *arguments,
        ],
        check=True,
        capture_output=True,
    )


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def steps(names: list[str], old: int, new: int) -> list[Replacement]:
    made = []
    for name in names:
        before, data = state(content(name, old)), content(name, new)
        change = FileChange(name, before, state(data))
        made.append(Replacement(change, partial(io.BytesIO, data)))
    return made


def restore(workspace: DiskWorkspace, work: list[Replacement]) -> None:
    """As a rollback does it: replace, compare what was displaced, let it go."""
    for step, displaced in zip(work, workspace.replace_all(work), strict=True):
        if displaced.state != step.change.before:
            raise SystemExit(f"{step.change.path} was not what it should be")
        displaced.discard()


def bare_scan(root: str) -> int:
    """A stack of folders, scandir and stat: what a scan cannot be faster than."""
    waiting, found = [root], 0
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    seen = entry.stat(follow_symlinks=False)
                    found += stat.S_ISREG(seen.st_mode)
    return found


def run(folder: Path, count: int, rounds: int) -> dict[str, list[float]]:
    names = paths(count)
    repository, plain = folder / "git", folder / "plain"
    for root in (repository, plain):
        fill(root, names, 1)
    git(folder, "init", "-q", "git")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "1")
    git(repository, "tag", "v1")
    fill(repository, names, 2)
    git(repository, "commit", "-qam", "2")
    git(repository, "tag", "v2")
    git(repository, "reset", "-q", "--hard", "v1")
    git(repository, "gc", "-q")
    os.sync()
    workspace = DiskWorkspace(str(plain))
    scope = Scope()
    known = dict(workspace.walk(scope, {}))
    index = DiskChangeIndex(folder / "index")
    index.update(
        {p: IndexEntry(s, BlobId("0" * 64)) for p, s in known.items() if isinstance(s, Stamp)},
        head=1,
    )
    times: dict[str, list[float]] = {}

    def take(name: str, work: Callable[[], object]) -> None:
        times.setdefault(name, []).append(timed(work))

    for n in range(rounds):
        old, new = 1 + n % 2, 2 - n % 2
        work = steps(names, old, new)
        os.sync()
        take("git reset --hard", partial(git, repository, "reset", "-q", "--hard", f"v{new}"))
        take("sync after it", os.sync)
        take("replace_all, checked", partial(restore, workspace, work))
        take("scandir + stat", lambda: bare_scan(str(plain)))
        take("walk, all known", lambda: sum(1 for _ in workspace.walk(scope, known)))
        take("walk, nothing known", lambda: sum(1 for _ in workspace.walk(scope, {})))
        take("git status", lambda: git(repository, "status", "--porcelain"))
        take("index load", lambda: DiskChangeIndex(folder / "index").load())
    return times


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    folder = Path(tempfile.mkdtemp(prefix="loom-audit-bench-"))
    try:
        times = run(folder, count, rounds)
    finally:
        shutil.rmtree(folder)
    for name, taken in times.items():
        print(
            f"{name:24}{statistics.median(taken) * 1000:10.1f} ms  (best {min(taken) * 1000:.1f})"
        )
    print(json.dumps({name: statistics.median(taken) for name, taken in times.items()}))


if __name__ == "__main__":
    main()
