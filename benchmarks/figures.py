"""One measured figure: ours, what it is compared with, and how far apart they may be."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Unit = Literal["µs", "ms", "B", "MiB"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured; `quick` is for a first look, in less than three minutes."""

    quick: bool = False
    huge: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """`most` is the largest ratio of ours to theirs (or of ours alone, where theirs is None)."""

    benchmark: str
    name: str
    ours: float
    unit: Unit
    against: str = ""
    theirs: float | None = None
    most: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.ours / self.theirs if self.theirs else None

    @property
    def meets(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.most is None:
            return None
        ratio = self.ratio
        return (self.ours if ratio is None else ratio) <= self.most

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "meets": self.meets}


def timed(work: Callable[[], object]) -> float:
    """Seconds that the work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interleaved(
    rounds: int, works: Mapping[str, Callable[[], object]], *, warm: int = 0
) -> dict[str, float]:
    """The median of each in milliseconds, all measured in every round, in turns.

    A busy machine slows all of them alike; `warm` rounds are not counted.
    """
    taken: dict[str, list[float]] = {name: [] for name in works}
    names = [*works]
    for n in range(-warm, rounds):
        for name in names[n % len(names) :] + names[: n % len(names)]:
            seconds = timed(works[name])
            if n >= 0:
                taken[name].append(seconds * 1000)
    return {name: statistics.median(times) for name, times in taken.items()}
