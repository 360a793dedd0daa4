"""Files followed through the log: each one's recorded steps, across its renames.

A lineage belongs to a path until a rename takes it elsewhere; then the path starts afresh. It
begins with the first change to be taken back, so what it was then is what is wanted again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from loom_audit.model.files import FileChange, FileState, Move, Tree


@dataclass(frozen=True, slots=True)
class PathStep:
    """One recorded change of one path; `taken` when it is to be taken back.

    `call` is the number of the call that made it, None for the outside and the baseline.
    """

    seq: int
    change: FileChange
    taken: bool
    call: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is and what it is there; the state is None when it is not."""

    path: str
    state: FileState | None


@dataclass(frozen=True, slots=True)
class Leg:
    """One step of a lineage; a rename changes the path, perhaps the content too.

    `arrived` says that a file that is not followed was renamed to here.
    """

    before: Place
    after: Place
    taken: bool
    call: int | None
    arrived: bool = False


@dataclass(slots=True, eq=False)
class Lineage:
    """The steps of one file in log order, never empty."""

    legs: list[Leg] = field(default_factory=list)

    @property
    def start(self) -> Place:
        return self.legs[0].before

    @property
    def now(self) -> Place:
        return self.legs[-1].after

    @property
    def is_taken(self) -> bool:
        return any(leg.taken for leg in self.legs)

    def paths(self) -> list[str]:
        """Every path it had, the present one first."""
        places = [self.now.path, *(leg.before.path for leg in self.legs)]
        return list(dict.fromkeys(places))

    def calls(self, *, taken: bool) -> tuple[int, ...]:
        return numbers(leg for leg in self.legs if leg.taken == taken)

    def split(self) -> "Lineage | None":
        """Keep the last file that was here, and give the steps of what was here before it.

        What was renamed to here is another file, and so is what came where one was gone when
        of going and coming one is taken and the other not; else it may be the same one again.
        """
        pairs = enumerate(pairwise(self.legs), 1)
        born = [
            n
            for n, (old, new) in pairs
            if new.arrived or (not old.after.state and old.taken != new.taken)
        ]
        if not born:
            return None
        older, self.legs = Lineage(self.legs[: born[-1]]), self.legs[born[-1] :]
        first = self.legs[0]
        if first.before.state:
            nothing = Place(first.before.path, None)
            older.legs.append(replace(first, after=nothing))
            self.legs[0] = replace(first, before=nothing)
        return older


def numbers(legs: Iterable[Leg]) -> tuple[int, ...]:
    """The calls behind the legs, in order, each once; the outside has no number."""
    return tuple(dict.fromkeys(leg.call for leg in legs if leg.call is not None))


def by_calls(calls: Sequence[int]) -> str:
    """`by call 7`, `by calls 7, 9`, `by calls 7, 9, 12 and 4 more`; "" when there are none."""
    if not calls:
        return ""
    more = f" and {len(calls) - 3} more" if len(calls) > 3 else ""
    return f"by call{'s' * (len(calls) > 1)} {', '.join(map(str, calls[:3]))}{more}"


@dataclass(slots=True)
class Followed:
    """All lineages, which of them holds each path now, and what else the steps told.

    `waiting` are lineages of files that are gone, whose path another took by a rename,
    `writers` has the last call that put something at a path (None: the outside), and
    `folders` the last known mode of a directory.
    """

    lineages: list[Lineage] = field(default_factory=list)
    holders: dict[str, Lineage] = field(default_factory=dict)
    waiting: dict[str, list[Lineage]] = field(default_factory=dict)
    writers: dict[str, int | None] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)

    def leaving(self, path: str) -> Lineage:
        """The lineage of the file that goes from this path; what was there before it is back."""
        lineage = self.holders.pop(path, None)
        if lineage is None:
            lineage = self.begin(path)
            del self.holders[path]
        elif older := lineage.split():
            self.lineages.append(older)
            self.holders[path] = older
        elif waiting := self.waiting.get(path):
            self.holders[path] = waiting.pop()
        return lineage

    def arriving(self, lineage: Lineage, path: str) -> None:
        """Let a lineage hold the path it was renamed to, until it leaves."""
        if (older := self.holders.get(path)) is not None:
            self.waiting.setdefault(path, []).append(older)
        self.holders[path] = lineage

    def begin(self, path: str) -> Lineage:
        lineage = Lineage()
        self.lineages.append(lineage)
        self.holders[path] = lineage
        return lineage


def follow(
    steps: Iterable[PathStep],
    moves: Mapping[int, Iterable[Move]],
    tree: Tree,
    *,
    outside: bool = False,
) -> Followed:
    """The lineages of all paths that a taken step touches, or with `outside` one from outside.

    `steps` are in log order. Where the tree has another state than the last step left, the
    difference counts as an unrecorded step from outside.
    """
    followed = Followed()
    for seq, event in groupby(steps, key=lambda step: step.seq):
        _follow_event(followed, list(event), tuple(moves.get(seq, ())), outside)
    for path, lineage in followed.holders.items():
        found = Place(path, tree.get(path))
        if found != lineage.now:
            lineage.legs.append(Leg(lineage.now, found, False, None))
    return followed


def _follow_event(
    followed: Followed, steps: Sequence[PathStep], moves: Sequence[Move], outside: bool
) -> None:
    for step in steps:
        _remember(followed, step)

    def starts(step: PathStep) -> bool:
        return step.taken or (outside and step.call is None)

    links = _links(steps, moves, lambda step: starts(step) or step.change.path in followed.holders)
    sources = {source.change.path for source, _ in links}
    targets = {target.change.path for _, target in links}
    arrived = {move.target for move in moves}
    travelling = []
    for source, target in links:
        path = source.change.path
        lineage = followed.leaving(path)
        after = Place(target.change.path, target.change.after)
        leg = Leg(Place(path, source.change.before), after, source.taken, source.call)
        lineage.legs.append(leg)
        travelling.append((lineage, target))
    for source, _ in links:
        path = source.change.path
        if path not in targets and source.change.after:
            stayed = followed.holders.get(path)
            if stayed is None and starts(source):
                stayed = followed.begin(path)
            if stayed is not None:
                _extend(stayed, source, None, source.change.after)
    for lineage, target in travelling:
        path = target.change.path
        if path not in sources and target.change.before is not None:
            displaced = followed.holders.get(path)
            if displaced is None and starts(target):
                displaced = followed.begin(path)
            if displaced is not None:
                _extend(displaced, target, target.change.before, None)
        followed.arriving(lineage, path)
    for step in steps:
        path = step.change.path
        if path in sources or path in targets:
            continue
        held = followed.holders.get(path)
        if held is None and starts(step):
            held = followed.begin(path)
        if held is not None:
            _extend(held, step, step.change.before, step.change.after, arrived=path in arrived)


def _links(
    steps: Sequence[PathStep], moves: Iterable[Move], tracked: Callable[[PathStep], bool]
) -> list[tuple[PathStep, PathStep]]:
    """The moves whose both ends are among the steps, and whose file is followed."""
    by_path = {step.change.path: step for step in steps}
    links = []
    used: set[str] = set()
    for move in moves:
        source, target = by_path.get(move.source), by_path.get(move.target)
        if source is None or target is None or source is target or not tracked(source):
            continue
        old, new = source.change.before, target.change.after
        ends = {f"from {move.source}", f"to {move.target}"}
        fits = old and new and old.kind == new.kind and source.taken == target.taken
        if fits and not ends & used:
            used |= ends
            links.append((source, target))
    return links


def _extend(
    lineage: Lineage,
    step: PathStep,
    before: FileState | None,
    after: FileState | None,
    *,
    arrived: bool = False,
) -> None:
    path = step.change.path
    leg = Leg(Place(path, before), Place(path, after), step.taken, step.call, arrived)
    lineage.legs.append(leg)


def _remember(followed: Followed, step: PathStep) -> None:
    change = step.change
    for state in (change.before, change.after):
        if state and state.kind == "directory":
            followed.folders[change.path] = state.mode
    if change.after is not None:
        followed.writers[change.path] = step.call
