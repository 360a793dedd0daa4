"""What arrived from a place that is not recorded, followed through the moves since."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from msgspec.structs import replace

from loom_audit.model.files import Move, parents
from loom_audit.model.plans.lineage import PathStep


def followed_arrivals(
    steps: Iterable[PathStep], moves: Mapping[int, Sequence[Move]]
) -> Iterator[PathStep]:
    """The steps in log order; one to whose path something moved that had arrived `came_in` too."""
    here: set[str] = set()
    for seq, event in groupby(steps, key=lambda step: step.seq):
        origins = _origins(moves.get(seq, ()))
        listed = list(event)
        came = {step.change.path for step in listed if step.came_in}
        if here and origins:
            made = (step.change.path for step in listed if step.change.after is not None)
            came |= {path for path in made if _origin(path, origins) in here}
            here -= origins.keys() - came
        here -= {step.change.path for step in listed if step.change.after is None}
        here |= came
        for step in listed:
            carried = step.change.path in came and not step.came_in
            yield replace(step, came_in=True) if carried else step


def _origins(moves: Iterable[Move]) -> dict[str, str]:
    """By path from where it was moved: the files, and the folders that were renamed with them."""
    found: dict[str, str] = {}
    for move in moves:
        source, target = move.source, move.target
        found[target] = source
        while "/" in source and "/" in target and _name(source) == _name(target):
            source, target = source.rpartition("/")[0], target.rpartition("/")[0]
            found.setdefault(target, source)
    return found


def _origin(path: str, origins: Mapping[str, str]) -> str:
    """From where a path was moved, by itself or in a folder; "" when it was not."""
    if path in origins:
        return origins[path]
    for above in reversed(parents(path)):
        if above in origins:
            return origins[above] + path[len(above) :]
    return ""


def _name(path: str) -> str:
    return path.rpartition("/")[2]
