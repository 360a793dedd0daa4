"""What a process pays once, before it records: the tree is folded from the log and compared.

The floor reads the same tree from its tables, by one statement, and hashes it, nothing else.
"""

import asyncio
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Sizes
from benchmarks.projects import content, fill, name, new_store
from loom_audit.api.face import open_store
from loom_audit.sql.ground.driver import driver

_TREE = (
    "SELECT p.path, t.mode, t.size, b.sha256 FROM tree_entry t JOIN path p ON p.number = t.path "
    "LEFT JOIN blob b ON b.number = t.blob ORDER BY p.path"
)
_LISTED = "SELECT avg(length(listing)) FROM keyframe WHERE seq > 100"
_BETWEEN = 4
"""Writes after each first one, so that what is folded since a listing is of every length."""


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    for files in (1_000, 5_000) if sizes.quick else (1_000, 10_000, 50_000):
        yield from _at(folder / str(files), files, 20 if sizes.quick else 100)
        shutil.rmtree(folder / str(files))


def _at(folder: Path, files: int, rounds: int) -> Iterator[Figure]:
    work = folder / "work"
    fill(work, files)
    with new_store(folder / "store") as store:
        store.attach(work)
        path, url = str(store.adapters.settings.file), store.url
    firsts: list[float] = []
    later: list[float] = []
    floors: list[float] = []
    for n in range(rounds):
        with open_store(url) as store, store.attach(work).session("benchmark") as session:

            async def write(step: int, session: Any = session) -> float:
                began = time.process_time()
                text = content(step, step + 2).decode("latin-1")
                result = await session.call("write_file", {"path": name(step), "content": text})
                if not result.ok:
                    raise SystemExit(f"write_file failed: {result.output}")
                return (time.process_time() - began) * 1000

            async def writes(start: int) -> list[float]:
                return [await write(start + m) for m in range(1 + _BETWEEN)]

            first, *others = asyncio.run(writes(n * (1 + _BETWEEN)))
        firsts.append(first)
        later += others
        floors.append(_floor(path))
    usual = statistics.median(later)
    started = [one - usual for one in firsts[1:]]  # the first of all loads the modules
    yield Figure(
        "beginning",
        f"once per process, {files:,} files, CPU",
        statistics.median(started),
        "ms",
        "the tree read and hashed",
        statistics.median(floors),
        note=f"most {max(started):.0f} ms; a later write takes {usual:.1f} ms",
    )
    with closing(driver().connect(path)) as raw:
        [(size,)] = raw.execute(_LISTED).fetchall()
    if size is not None:
        yield Figure("beginning", f"a listing of {files:,} files, per path", size / files, "B")


def _floor(path: str) -> float:
    with closing(driver().connect(path)) as raw:
        began = time.process_time()
        digest = sha256()
        for row in raw.execute(_TREE):
            digest.update(repr(row).encode())
        return (time.process_time() - began) * 1000
