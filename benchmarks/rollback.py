"""Bringing files back to an earlier point, and forward again, against `git reset --hard`.

Ours is the whole of it: a plan, a look whether it still holds, everything durable and checked,
the call on record. git's is not durable when it returns; with a sync of its filesystem it is. The
floor is the least that no file is ever half-written with: new files beside the old, a flush, names
exchanged, the old ones deleted, a flush; nothing planned, read, checked or recorded. `--dir` takes
folders on several filesystems; all is measured on each.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Sizes, interleaved
from benchmarks.projects import Repository, content, filesystem, fill, name, new_store
from loom_audit.api.face import AuditedWorkspace
from loom_audit.disk.access.system import RENAME_EXCHANGE, renameat2, syncfs

ROUNDS = 3


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    yield from _versions(folder / "two", 2_000 if sizes.quick else 10_000, 2)
    yield from _versions(folder / "many", 100 if sizes.quick else 1_000, 64)


def _versions(folder: Path, count: int, versions: int) -> Iterator[Figure]:
    """So many versions of each file; from the last to the first and back, in turns with git."""
    work, plain, bare = folder / "work", folder / "plain", folder / "bare"
    for root in (work, plain, bare):
        fill(root, count)
    repository = Repository(folder / "git", plain)
    repository.commit()
    repository.run("tag", "v0")
    with new_store(folder / "store") as store:
        workspace = store.attach(work)
        points = [workspace.log.head()]
        with workspace.session("benchmark") as session:
            for version in range(2, versions + 1):
                with session.recording("fill"):
                    fill(work, count, version)
        points.append(workspace.log.head())
        fill(plain, count, versions)
        repository.commit()
        repository.run("tag", "v1")
        at = {"ours": 1, "git": 1, "floor": 0}
        disk = os.open(folder, os.O_RDONLY)
        texts = [[content(n, version) for n in range(count)] for version in (1, versions)]

        def ours() -> None:
            at["ours"] = 1 - at["ours"]
            _roll_back(workspace, points[at["ours"]], count)

        def git() -> None:
            at["git"] = 1 - at["git"]
            repository.run("reset", "-q", "--hard", f"v{at['git']}")

        def settle() -> None:
            syncfs(disk)

        def synced() -> None:
            git()
            settle()

        def least() -> None:
            at["floor"] = 1 - at["floor"]
            _exchange(bare, texts[at["floor"]])

        works = {"ours": ours, "settle": settle, "git": git, "settle again": settle}
        works |= {"git and sync": synced, "floor": least, "settle after it": settle}
        times = interleaved(ROUNDS, works, warm=1)
        os.close(disk)
    shown = f"rollback of {count:,} files, {versions} versions, {filesystem(folder)}"
    most = 1.8 if versions == 2 else None
    git_and_sync = "git reset --hard and a sync", times["git and sync"]
    yield Figure("rollback", shown, times["ours"], "ms", *git_and_sync, most)
    yield Figure("rollback", shown, times["ours"], "ms", "… without", times["git"])
    yield Figure("rollback", shown, times["ours"], "ms", "the floor", times["floor"])
    least_of_it = f"the floor of {count:,} files, {filesystem(folder)}"
    yield Figure("rollback", least_of_it, times["floor"], "ms", *git_and_sync)


def _exchange(root: Path, texts: list[bytes]) -> None:
    folder = os.open(root, os.O_RDONLY)
    paths = [os.fsencode(name(n)) for n in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        file = os.open(path + b".new", flags, 0o644, dir_fd=folder)
        os.write(file, text)
        os.close(file)
    syncfs(folder)
    for path in paths:
        renameat2(folder, path + b".new", folder, path, RENAME_EXCHANGE)
    for path in paths:
        os.unlink(path + b".new", dir_fd=folder)
    syncfs(folder)
    os.close(folder)


def _roll_back(workspace: AuditedWorkspace, point: int, count: int) -> None:
    done = workspace.carry_out(workspace.plan_rollback(point))
    if len(done.changed) != count:
        raise SystemExit(f"the rollback changed {len(done.changed)} files, not {count}")
