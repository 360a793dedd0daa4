"""Who wrote each line of a long file of many versions: once from nothing, then by what was kept."""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Sizes, timed
from benchmarks.memory import status
from benchmarks.projects import new_store
from loom_audit.api.face import AuditedWorkspace, Session, open_store
from loom_audit.api.lines import lines_of
from loom_audit.ports import Progress

LINES, VERSIONS = 19_500, 500
ONCE, MEMORY = 15_000, 64
"""Milliseconds for all versions, and MiB above the idle process meanwhile."""
CHANGED = 5
"""Lines that a version has instead of others, at a place of its own."""


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    count, versions = (2_000, 50) if sizes.quick else (LINES, VERSIONS)
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "long.txt").write_text(
        "".join(f"line {n} as it was\n" for n in range(count))
    )
    (folder / "work" / "short.txt").write_text("one\n")
    store = new_store(folder / "store")
    workspace = store.attach(folder / "work")
    chance = random.Random(26)
    with workspace.session("benchmark") as session:
        asyncio.run(_edit(session, chance, count, range(1, versions)))
    of = f"{count:,} lines × {versions} versions"
    first = _in_child(store.url, workspace)
    idle = f"above {first['idle']:.0f} MiB of the idle process"
    told = f"{first['reports']:.0f} reports of progress"
    yield Figure("blame", f"{of}, once", first["took"], "ms", most=ONCE, note=told)
    peak = first["peak"] - first["idle"]
    yield Figure("blame", f"{of}, once", peak, "MiB", most=MEMORY, note=idle)
    again = _in_child(store.url, workspace)
    yield Figure("blame", "again, by another process", again["took"], "ms")
    with workspace.session("benchmark") as session:
        asyncio.run(_edit(session, chance, count, range(versions, versions + 1)))
    more = _in_child(store.url, workspace)
    yield Figure("blame", "after one more version", more["took"], "ms")
    store.close()


async def _edit(session: Session, chance: random.Random, count: int, versions: range) -> None:
    """Make versions of the long file, each by a call."""
    file = Path(session.workspace.root, "long.txt")
    for version in versions:
        start = chance.randrange(count - CHANGED)
        old = "\n".join(file.read_text().split("\n")[start : start + CHANGED])
        new = "\n".join(f"line {start + n} of version {version}" for n in range(CHANGED))
        result = await session.call(
            "edit_file", {"path": "long.txt", "old_str": f"{old}\n", "new_str": f"{new}\n"}
        )
        if not result.ok:
            raise SystemExit(result.output)


def _in_child(store: str, workspace: AuditedWorkspace) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.blame", store, workspace.id],
        stdout=subprocess.PIPE,
        check=True,
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told


def _main(url: str, id: str) -> None:
    """Everything is imported and warm when the idle process is looked at."""
    reports: list[Progress] = []
    with open_store(url) as store:
        lines = lines_of(store.workspace(id))
        lines.blame("short.txt")
        idle = status("VmHWM")
        took = timed(
            lambda: lines.window(lines.follow(lines.versions("long.txt"), reports.append), 1, 300)
        )
    told = {"idle": idle, "peak": status("VmHWM"), "took": took * 1000, "reports": len(reports)}
    print(json.dumps(told))


if __name__ == "__main__":
    _main(*sys.argv[1:])
