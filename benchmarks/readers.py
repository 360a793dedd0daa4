"""A session that records while people read the dashboard, in turns with and without them.

The session makes its calls at a rate: each is due at its time, and begins then or when the one
before has ended. The readers look at the newest calls, one of them, the first page, the files and
what changed.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Sizes
from benchmarks.projects import content, fill, name, new_store
from benchmarks.serving import Readers, serving
from loom_audit.api.face import AuditedWorkspace, Session
from loom_audit.ports import CallFilter

FILES = 300
BEFORE = 500
"""Calls on record before anything is measured."""
RATE = 20
READERS = 20
PAUSE = 1.0
MOST = 1.1


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    pairs, seconds = (2, 4) if sizes.quick else (8, 8)
    fill(folder / "work", FILES)
    with new_store(folder / "store") as store:
        workspace = store.attach(folder / "work")
        with workspace.session("benchmark") as session, serving(store.url) as (url, cookie):
            asyncio.run(_calls(session, BEFORE, 0))
            for pause in (PAUSE, 0.0):
                yield _compared(session, workspace, (url, cookie), pause, pairs, seconds)


def _compared(
    session: Session,
    workspace: AuditedWorkspace,
    server: tuple[str, str],
    pause: float,
    pairs: int,
    seconds: int,
) -> Figure:
    alone: list[float] = []
    watched: list[float] = []
    ratios: list[float] = []
    pages = 0
    for n in range(pairs):
        for which in ("alone", "watched") if n % 2 else ("watched", "alone"):
            readers = (
                Readers(*server, READERS, pause, _paths(workspace)) if which != "alone" else None
            )
            took = asyncio.run(_calls(session, RATE * seconds, RATE))
            (watched if readers else alone).extend(took)
            pages += readers.end()[0] if readers else 0
        half = RATE * seconds
        ratios.append(statistics.median(watched[-half:]) / statistics.median(alone[-half:]))
    p95 = [statistics.quantiles(took, n=20)[-1] * 1000 for took in (watched, alone)]
    every = f"a page every {pause:g} s each" if pause else "pages without a pause"
    return Figure(
        "readers",
        f"write_file, {RATE} a second, {READERS} readers",
        statistics.median(watched) * 1000,
        "ms",
        "without readers",
        statistics.median(alone) * 1000,
        MOST if pause else None,
        f"{every}, {pages / pairs / seconds:.0f} pages a second, no error; p95 {p95[0]:.1f} ms "
        f"against {p95[1]:.1f}; pairs {min(ratios):.2f} to {max(ratios):.2f}",
    )


async def _calls(session: Session, count: int, rate: int) -> list[float]:
    """So many writes, so many a second or, with 0, as they come; how long each took."""
    choice = random.Random(count)
    took = []
    begun = time.perf_counter()
    for step in range(count):
        n = choice.randrange(FILES)
        data = content(n, choice.randrange(1 << 30)).decode("latin-1")
        if rate:
            await asyncio.sleep(max(0.0, begun + step / rate - time.perf_counter()))
        started = time.perf_counter()
        result = await session.call("write_file", {"path": name(n), "content": data})
        took.append(time.perf_counter() - started)
        if not result.ok:
            raise SystemExit(f"write_file failed: {result.output}")
    return took


def _paths(workspace: AuditedWorkspace) -> tuple[str, ...]:
    home = f"/w/{workspace.id}"
    call = workspace.timeline.calls(CallFilter(limit=50))[-1]
    return (
        f"{home}/",
        f"{home}/calls",
        f"{home}/c/{call.seq}",
        f"{home}/at/head/",
        f"{home}/compare/{call.seq}..head",
    )
