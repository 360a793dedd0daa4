"""Which steps of a file are in effect, now and once a plan is carried out."""

from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from loom_audit.model.plans.lineage import InEffect, Lineage, LineageStep
from loom_audit.model.plans.taking_back.taken_back import TakenBack, TakingBack


def mark_in_effect(lineage: Lineage, back: TakenBack, reverts: Collection[int], head: int) -> None:
    """Mark the steps of a lineage that are in effect, where a kept one took others back.

    `back` is what calls took back, `reverts` what a plan takes back as a whole, besides the steps
    of the lineage that it takes, and `head` the event after which it would be carried out. What
    took others back counts by what is in effect for it, not by what it changed itself.
    """
    steps = lineage.all_steps()
    paths = {path for step in steps for path in (step.before.path, step.after.path)}
    numbers = {step.call for step in steps if step.call is not None}
    undos = {one for one in numbers if any(back.targets(one, path) for path in paths)}
    if not undos:
        return
    taken = {step.call for step in lineage.steps if step.taken and step.call is not None}
    then = back.and_then(TakingBack(head + 1, one) for one in sorted(taken | {*reverts}))
    now = tuple(_in_effect(steps, back, undos))
    after = tuple(
        stands and not step.taken
        for stands, step in zip(_in_effect(steps, then, undos), steps, strict=True)
    )
    before: dict[int, tuple[bool, ...]] = {}
    for call in taken & undos:
        n = next(n for n, step in enumerate(steps) if step.call == call)
        before[n] = tuple(_in_effect(steps[:n], back.before(call), undos))
    lineage.in_effect = InEffect(now, after, before)
    since = len(lineage.earlier)
    lineage.steps = [
        replace(step, cancels=not (step.taken or now[n] or after[n]))
        for n, step in enumerate(lineage.steps, since)
    ]


def _in_effect(
    steps: Iterable[LineageStep], back: TakenBack, undos: Collection[int]
) -> Iterator[bool]:
    for step in steps:
        yield step.call is None or not (step.call in undos or _is_taken_back(step, back))


def _is_taken_back(step: LineageStep, back: TakenBack) -> bool:
    return any(step.call in back.at(path) for path in {step.before.path, step.after.path})
