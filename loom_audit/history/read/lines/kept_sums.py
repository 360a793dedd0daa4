"""The own net changes of many files, by stored sums where the lines themselves are not needed."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import asdict, replace

from loom_audit.model.authorship.net import FileSteps, NetFile, without_lines
from loom_audit.model.authorship.net_change import Most, changed_files
from loom_audit.model.authorship.net_sums import (
    NetSums,
    decoded_sums,
    encoded_sums,
    sums_name,
    sums_of,
)
from loom_audit.ports import LineMaps

Tell = Callable[[Sequence[FileSteps], int], Sequence[NetFile]]
"""Tells the lines of files, with so much context."""

FEW = 8
"""The number of files up to which no sums are kept: their lines are told as fast."""


def net_by_sums(
    own: Sequence[FileSteps],
    tell: Tell,
    maps: LineMaps,
    named: tuple[int, bytes],
    most: Most,
) -> list[NetFile]:
    """Return the own net change of each file, with its lines where `most` asks for them or no sums
    of it are kept. `named` are the context and the key of the store.

    Where the lines of a file are not what its kept sums say, no sums are believed.
    """
    context, key = named
    if len(own) <= FEW:
        return [*tell(own, context)]
    names = [sums_name(one, context, key) for one in own]
    kept = {
        name: sums
        for name, data in maps.several(names).items()
        if (sums := decoded_sums(data, name, key))
    }
    # of what went from a path and of what came there the lines are told together
    count = Counter(one.versions[-1].path for one in own)
    summed = {
        n: file
        for n, one in enumerate(own)
        if names[n] in kept and count[one.versions[-1].path] == 1
        # a stored sum that says that nothing of a file changed is not believed
        if (file := with_sums(one, kept[names[n]])).is_changed
    }
    untold = [n for n in range(len(own)) if n not in summed]
    files = {**summed, **_told(own, untold, tell, context)}
    by_path = sorted((files[n] for n in range(len(own))), key=lambda one: one.path)
    wanted = most.told(changed_files(by_path))
    shown = [n for n, one in summed.items() if one.path in wanted and one.length]
    files |= _told(own, shown, tell, context)
    if any(sums_of(files[n]) != kept[names[n]] for n in shown):
        for n in summed:
            maps.discard(names[n])
        untold = [*range(len(own))]
        files = {**_told(own, untold, tell, context)}
    counted = {n: files[n] for n in untold if files[n].is_changed and not files[n].reason}
    maps.keep({names[n]: encoded_sums(sums_of(one), names[n], key) for n, one in counted.items()})
    return [files[n] for n in range(len(own))]


def with_sums(steps: FileSteps, sums: NetSums) -> NetFile:
    """Return the own net change of a file by its sums, without lines."""
    return replace(without_lines(steps), omitted=bool(sums.length), **asdict(sums))


def _told(
    own: Sequence[FileSteps], places: Sequence[int], tell: Tell, context: int
) -> Mapping[int, NetFile]:
    return dict(zip(places, tell([own[n] for n in places], context), strict=True))
