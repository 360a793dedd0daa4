"""The first listing of a directory against the first `git add -A` of the same files."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, Sizes, timed
from benchmarks.projects import Repository, fill, new_store


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    for count, rounds in ((10_000, 1),) if sizes.quick else ((10_000, 3), (100_000, 1)):
        work = folder / f"work{count}"
        fill(work, count)
        os.sync()
        ours, theirs = [], []
        for n in range(rounds):
            repository = Repository(folder / f"git{n}", work)
            store = new_store(folder / f"store{n}")
            theirs.append(timed(partial(repository.run, "add", "-A")) * 1000)
            ours.append(timed(partial(store.attach, work)) * 1000)
            store.close()
            shutil.rmtree(folder / f"git{n}")
            shutil.rmtree(folder / f"store{n}")
        shutil.rmtree(work)
        yield Figure(
            "baseline",
            f"baseline of {count:,} files",
            sorted(ours)[rounds // 2],
            "ms",
            "git add -A",
            sorted(theirs)[rounds // 2],
            1.5,
        )
