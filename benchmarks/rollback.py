"""Bringing files back to an earlier point, and forward again, against `git reset --hard`.

Ours is the whole of it: a plan, a look whether it still holds, everything durable and checked,
the call on record. git's is not durable when it returns; with a sync it is.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Sizes, interleaved
from benchmarks.places import Repository, fill, new_store
from loom_audit.session import AuditedWorkspace

ROUNDS = 3


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    yield from _versions(folder / "two", 2_000 if sizes.quick else 10_000, 2)
    yield from _versions(folder / "many", 100 if sizes.quick else 1_000, 64)


def _versions(folder: Path, count: int, versions: int) -> Iterator[Figure]:
    """So many versions of each file; from the last to the first and back, in turns with git."""
    work, plain = folder / "work", folder / "plain"
    fill(work, count)
    fill(plain, count)
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
        at = {"ours": 1, "git": 1, "synced": 1}

        def ours() -> None:
            at["ours"] = 1 - at["ours"]
            _roll_back(workspace, points[at["ours"]], count)

        def git() -> None:
            at["git"] = 1 - at["git"]
            repository.run("reset", "-q", "--hard", f"v{at['git']}")

        def synced() -> None:
            git()
            os.sync()

        works = {"ours": ours, "settle": os.sync, "git": git, "settle again": os.sync}
        times = interleaved(ROUNDS, {**works, "git and sync": synced}, warm=1)
    name = f"rollback of {count:,} files, {versions} versions"
    yield Figure(
        "rollback",
        name,
        times["ours"],
        "ms",
        "git reset --hard",
        times["git"],
        1.3 if versions == 2 else None,
    )
    yield Figure("rollback", name, times["ours"], "ms", "… and sync", times["git and sync"])


def _roll_back(workspace: AuditedWorkspace, point: int, count: int) -> None:
    done = workspace.carry_out(workspace.plan_rollback(point))
    if len(done.changed) != count:
        raise SystemExit(f"the rollback changed {len(done.changed)} files, not {count}")
