"""A page of the timeline and the tree at a point, as the log grows: both should stay flat."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.events import new_log
from benchmarks.figures import Figure, Sizes, interleaved
from loom_audit.api.face import AuditedWorkspace
from loom_audit.ports import CallFilter

FLAT = 2.0
"""What a point in a long log may cost more than in a short one."""


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    lengths = [10_000, 50_000] if sizes.quick else [10_000, 100_000]
    if sizes.huge:
        lengths.append(1_000_000)
    opened = [new_log(folder / str(length), length) for length in lengths]
    works: dict[str, Callable[[], object]] = {}
    for length, (_, workspace) in zip(lengths, opened, strict=True):
        works |= _works(length, workspace)
    times = interleaved(10, works, warm=2)
    for what in ("newest page", "page in the middle", "tree"):
        first = times[f"{what} {lengths[0]}"]
        for length in lengths[1:]:
            yield Figure(
                "reading",
                f"{what} of {length:,} events",
                times[f"{what} {length}"],
                "ms",
                f"of {lengths[0]:,} events",
                first,
                FLAT,
            )
    for store, _ in opened:
        store.close()


def _works(length: int, workspace: AuditedWorkspace) -> dict[str, Callable[[], object]]:
    choice = random.Random(3)
    timeline = workspace.timeline
    return {
        f"newest page {length}": lambda: timeline.calls(CallFilter(limit=50)),
        f"page in the middle {length}": lambda: timeline.calls(
            CallFilter(limit=50, before=choice.randrange(length // 4, length))
        ),
        f"tree {length}": lambda: timeline.tree(choice.randrange(length // 2, length)),
    }
