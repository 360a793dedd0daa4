"""A durable `write_file` against what it cannot do without.

The floor is two durable SQLite commits and an atomic, fsynced file write, nothing else.
"""

import asyncio
import os
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Sizes
from benchmarks.projects import content, fill, name, new_store
from loom_audit.api.face import Session
from loom_audit.sql.ground.driver import driver

FILES = 1000


class Floor:
    """The least that must happen: content and intention, the file, the outcome."""

    def __init__(self, folder: Path) -> None:
        self._database: Any = driver().connect(str(folder / "floor.db"), isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute("CREATE TABLE record (id INTEGER PRIMARY KEY, content BLOB)")

    def commit(self, record: bytes) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute("INSERT INTO record (content) VALUES (?)", (record,))
        self._database.execute("COMMIT")

    def write(self, path: Path, data: bytes) -> None:
        self.commit(data)
        temporary = path.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        self.commit(data[:400])


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    work, plain = folder / "work", folder / "plain"
    count = 100 if sizes.quick else 600
    for root in (work, plain):
        fill(root, FILES)
    floor = Floor(folder)
    ours: list[float] = []
    theirs: list[float] = []
    used: list[float] = []
    needed: list[float] = []

    async def calls(session: Session) -> None:
        choice = random.Random(1)
        for step in range(-20, count):
            n = choice.randrange(FILES)
            data = content(n, step + 100)
            arguments = {"path": name(n), "content": data.decode("latin-1")}
            started, first = time.perf_counter(), time.process_time()
            floor.write(plain / name(n), data)
            between, second = time.perf_counter(), time.process_time()
            result = await session.call("write_file", arguments)
            ended, third = time.perf_counter(), time.process_time()
            if not result.ok:
                raise SystemExit(f"write_file failed: {result.output}")
            if step >= 0:
                theirs.append((between - started) * 1000)
                ours.append((ended - between) * 1000)
                used.append((third - second) * 1000)
                needed.append((second - first) * 1000)

    with new_store(folder / "store") as store, store.attach(work).session("benchmark") as session:
        asyncio.run(calls(session))
    yield Figure(
        "write",
        "durable write_file",
        statistics.median(ours),
        "ms",
        "two commits and a file write",
        statistics.median(theirs),
        3.0,
        f"p95 {_p95(ours):.1f} ms against {_p95(theirs):.1f}",
    )
    yield Figure(
        "write",
        "CPU per call, system calls included",
        statistics.median(used) - statistics.median(needed),
        "ms",
        most=3.0,
        note=f"above the {statistics.median(needed):.1f} ms of the floor; lowest {min(used):.1f}",
    )


def _p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]
