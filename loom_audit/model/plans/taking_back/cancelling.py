"""Steps of a file that cancel out: those of a kept call, and of the kept undo that took it back."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from loom_audit.model.plans.lineage import Lineage
from loom_audit.model.plans.taking_back.taken_back import TakenBack


def mark_cancelling(lineage: Lineage, back: TakenBack, first: int) -> None:
    """Mark the steps of a lineage that cancel each other out.

    `back` is what calls took back, and `first` the event of the first step of all: what came before
    has no step.
    """
    kept: dict[int, bool] = {}
    for step in lineage.steps:
        if step.call is not None:
            kept[step.call] = kept.get(step.call, True) and not step.taken
    found = {*_cancelled(lineage, kept, back, first)} if len(kept) > 1 else set()
    if found:
        paths = lineage.paths()
        takes = {one for one in kept if any(back.targets(one, path) for path in paths)}
        lineage.steps = [
            replace(step, cancels=step.call in found, takes=step.call in takes)
            for step in lineage.steps
        ]


def _cancelled(
    lineage: Lineage, kept: Mapping[int, bool], back: TakenBack, first: int
) -> Iterator[int]:
    """The numbers of the calls that cancel each other out.

    One that took back something of which there is no step does not.
    """
    paths = lineage.paths()
    done: set[int] = set()
    for number in sorted(kept, reverse=True):
        targets = {target for path in paths for target in back.targets(number, path)}
        if number in done or not targets or not kept[number] or min(targets) < first:
            continue
        group = {number, *(targets & kept.keys())}
        if len(group) > 1 and done.isdisjoint(group) and all(kept[one] for one in group):
            done |= group
            yield from group
