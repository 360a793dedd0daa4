"""Files traced through the log: each one's recorded steps, across its renames.

A lineage holds a path until a rename takes the file elsewhere; what comes to the path then gets
a lineage of its own. It begins with the first change to be taken back, so what the file was
before that is what is wanted again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import dropwhile, groupby, pairwise, takewhile

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.model.files import FileChange, FileState, Move, Tree, is_directory, is_opaque
from loom_audit.model.text.display import first_few


class PathStep(Struct, frozen=True):
    """One recorded change of one path; `taken` when it is to be taken back.

    `call` is the number of the call that made it, None for outside changes and the baseline.
    `came_in`: what it created existed before, at a place that is not recorded. `earlier`: it was
    made before all that is taken back, and what came later says whether it is in effect.
    """

    seq: int
    change: FileChange
    taken: bool
    call: int | None = None
    came_in: bool = False
    earlier: bool = False


def events_with_opaque(steps: Iterable[PathStep]) -> set[int]:
    """The events in which an opaque entry changed."""
    changes = ((step.seq, step.change) for step in steps)
    return {seq for seq, one in changes if is_opaque(one.before) or is_opaque(one.after)}


def events_with_moves(steps: Iterable[PathStep]) -> set[int]:
    """The events in which what was at one path can be at another one since."""
    left: dict[int, set[str]] = {}
    came: dict[int, set[str]] = {}
    for step in steps:
        if step.change.before is not None:
            left.setdefault(step.seq, set()).add(step.change.path)
        if step.change.after is not None:
            came.setdefault(step.seq, set()).add(step.change.path)
    # a file that another one replaces has left its path as much as one that is gone
    return {seq for seq in left.keys() & came.keys() if len(left[seq] | came[seq]) > 1}


class PathState(Struct, frozen=True):
    """A path and the state of what is there, None when it is absent."""

    path: str
    state: FileState | None


class LineageStep(Struct, frozen=True):
    """One step of a lineage; a rename changes the path, perhaps the content too.

    `arrived` is true when a file without a lineage was renamed to this path. `moved` is the other
    end of a move from outside that the lineage does not follow. `came_in`: what was created existed
    before, at a place that is not recorded. `cancels`: the step is kept, and another one took it
    back, or it took others back, so that nothing in effect is its own.
    """

    before: PathState
    after: PathState
    taken: bool
    call: int | None
    arrived: bool = False
    moved: str = ""
    came_in: bool = False
    cancels: bool = False


class ThreeWay(Struct, frozen=True):
    """A file `before` what is to be taken back of it, right `after` that, and as it is `now`."""

    before: PathState
    after: PathState
    now: PathState


class InEffect(Struct, frozen=True):
    """Whether each of all steps of a lineage is in effect, `now` and `after` a plan.

    `before` says it of the steps before each one that is to be taken back and took others back
    itself, as it was then; by the place of that step.
    """

    now: tuple[bool, ...]
    after: tuple[bool, ...]
    before: Mapping[int, tuple[bool, ...]] = {}


class Lineage(Struct, eq=False):
    """The steps of one file in log order, never empty.

    `earlier` are steps before the first that is taken back, in so far as later ones say whether
    these are in effect. `in_effect` is None where no kept step took others back.
    """

    steps: list[LineageStep] = field(default_factory=list)
    earlier: list[LineageStep] = field(default_factory=list)
    in_effect: InEffect | None = None

    @property
    def start(self) -> PathState:
        """Where the file was, and what it was, before its first step."""
        return self.steps[0].before

    @property
    def current(self) -> PathState:
        """Where the file is, and what it is, after its last step."""
        return self.steps[-1].after

    @property
    def is_taken(self) -> bool:
        """Whether any of the steps is to be taken back."""
        return any(step.taken for step in self.steps)

    def all_steps(self) -> list[LineageStep]:
        """The earlier steps and those from the first on that is taken back."""
        return [*self.earlier, *self.steps]

    def paths(self) -> list[str]:
        """Every path that the file had, the present one first."""
        places = [self.current.path, *(step.before.path for step in self.steps)]
        return list(dict.fromkeys(places))

    def calls(self, *, taken: bool) -> tuple[int, ...]:
        """The numbers of the calls whose steps are taken back, or of those whose steps are kept."""
        return call_numbers(step for step in self.steps if step.taken == taken)

    def sides(self) -> ThreeWay | None:
        """What a conflict here is between; None where no step is to be taken back.

        What is to be taken back too, after a step that is kept, came later as that did.
        """
        since = dropwhile(lambda step: not step.taken, self.steps)
        taken = [*takewhile(lambda step: step.taken, since)]
        return ThreeWay(taken[0].before, taken[-1].after, self.current) if taken else None

    def split_off_older(self) -> "Lineage | None":
        """Keep the steps of the last file at this path, and return those of the file before it.

        A file that was renamed to the path is another one. So is one created after a deletion
        when only one of the two is taken back; otherwise it may be the same file again. None
        when there was one file only.
        """
        pairs = enumerate(pairwise(self.steps), 1)
        born = [
            n
            for n, (old, new) in pairs
            if new.arrived or (not old.after.state and old.taken != new.taken)
        ]
        if not born:
            return None
        older, self.steps = Lineage(self.steps[: born[-1]]), self.steps[born[-1] :]
        first = self.steps[0]
        if first.before.state:
            nothing = PathState(first.before.path, None)
            older.steps.append(replace(first, after=nothing))
            self.steps[0] = replace(first, before=nothing)
        return older


def call_numbers(steps: Iterable[LineageStep]) -> tuple[int, ...]:
    """The numbers of the calls that made the steps, in order, each once.

    Without those that cancel out, where others are left.
    """
    known = [step for step in steps if step.call is not None]
    stand = [step for step in known if not step.cancels] or known
    return tuple(dict.fromkeys(step.call for step in stand if step.call is not None))


def by_calls_text(calls: Sequence[int]) -> str:
    """`by call 7`, `by calls 7, 9`, `by calls 7, 9, 12 and 4 more`; "" without calls."""
    if not calls:
        return ""
    return f"by call{'s' * (len(calls) > 1)} {first_few(calls, 3)}"


class LineageTrace(Struct):
    """All lineages, which of them holds each path now, and what else the steps say.

    `displaced` has the lineages of files whose path another file took by a rename,
    `last_writers` the last call that put something at a path (None: from outside), and
    `folder_modes` the last known mode of a directory.
    """

    lineages: list[Lineage] = field(default_factory=list)
    by_path: dict[str, Lineage] = field(default_factory=dict)
    displaced: dict[str, list[Lineage]] = field(default_factory=dict)
    last_writers: dict[str, int | None] = field(default_factory=dict)
    folder_modes: dict[str, int] = field(default_factory=dict)

    def take_from(self, path: str) -> Lineage:
        """Take the file away from this path and return its lineage; the file before it is back."""
        lineage = self.by_path.pop(path, None)
        if lineage is None:
            lineage = self.start_at(path)
            del self.by_path[path]
        elif older := lineage.split_off_older():
            self.lineages.append(older)
            self.by_path[path] = older
        elif displaced := self.displaced.get(path):
            self.by_path[path] = displaced.pop()
        return lineage

    def put_at(self, lineage: Lineage, path: str) -> None:
        """Let a lineage hold the path it was renamed to, until it is taken away."""
        if (older := self.by_path.get(path)) is not None:
            self.displaced.setdefault(path, []).append(older)
        self.by_path[path] = lineage

    def set_earlier_apart(self) -> None:
        """Let each lineage begin with its first step that is taken, and leave out one of none."""
        for lineage in self.lineages:
            begin = next((n for n, step in enumerate(lineage.steps) if step.taken), None)
            if begin is not None:
                lineage.earlier, lineage.steps = lineage.steps[:begin], lineage.steps[begin:]
        self.lineages = [one for one in self.lineages if one.is_taken]
        self.by_path = {path: one for path, one in self.by_path.items() if one.is_taken}
        for path, displaced in self.displaced.items():
            self.displaced[path] = [one for one in displaced if one.is_taken]

    def start_at(self, path: str) -> Lineage:
        """Begin a lineage, still without steps, of the file that is at this path now."""
        lineage = Lineage()
        self.lineages.append(lineage)
        self.by_path[path] = lineage
        return lineage


def trace_lineages(
    steps: Sequence[PathStep],
    moves: Mapping[int, Iterable[Move]],
    tree: Tree,
    *,
    outside: bool = False,
    chosen: Collection[str] = (),
) -> LineageTrace:
    """The lineages of all paths that a taken step, or with `outside` an outside one, touches.

    `steps` are in log order. Where the tree has another state than the last step left, the
    difference counts as an unrecorded step from outside. A move that was made from outside and is
    not taken back is followed only for a file that is or was at one of the `chosen` paths.
    """
    trace = LineageTrace()
    events = [(seq, list(event)) for seq, event in groupby(steps, key=lambda step: step.seq)]
    followed = _moves_of_chosen(events, moves, chosen) if chosen else frozenset()
    for seq, event in events:
        _trace_event(trace, event, tuple(moves.get(seq, ())), outside, followed)
    if any(step.earlier for step in steps):
        trace.set_earlier_apart()
    for path, lineage in trace.by_path.items():
        found = PathState(path, tree.get(path))
        if found != lineage.current:
            lineage.steps.append(LineageStep(lineage.current, found, False, None))
    return trace


def _moves_of_chosen(
    events: Sequence[tuple[int, Sequence[PathStep]]],
    moves: Mapping[int, Iterable[Move]],
    chosen: Collection[str],
) -> frozenset[tuple[int, str]]:
    """The moves of files that are, were or will be at a chosen path: event and target of each."""
    pairs = {seq: [(m.source, m.target) for m in moves.get(seq, ())] for seq, _ in events}
    found = set()
    names: set[str] = set()
    for seq, steps in reversed(events):
        came = [pair for pair in pairs[seq] if pair[1] in names or pair[1] in chosen]
        names -= {step.change.path for step in steps if step.change.before is None}
        names |= {source for source, _ in came}
        found |= {(seq, target) for _, target in came}
    names.clear()
    for seq, steps in events:
        left = [pair for pair in pairs[seq] if pair[0] in names or pair[0] in chosen]
        names -= {step.change.path for step in steps if step.change.after is None}
        names |= {target for _, target in left}
        found |= {(seq, target) for _, target in left}
    return frozenset(found)


def _trace_event(
    trace: LineageTrace,
    steps: Sequence[PathStep],
    moves: Sequence[Move],
    outside: bool,
    followed: Collection[tuple[int, str]],
) -> None:
    for step in steps:
        _note_directories_and_writers(trace, step)

    def starts(step: PathStep) -> bool:
        return step.taken or step.earlier or (outside and step.call is None)

    pairs = _linked_steps(
        steps, moves, lambda step: starts(step) or step.change.path in trace.by_path
    )
    links = [pair for pair in pairs if _is_followed(*pair, followed)]
    left = [pair for pair in pairs if pair not in links]
    gone_to = {source.change.path: target.change.path for source, target in left}
    came_from = {target: source for source, target in gone_to.items()}
    sources = {source.change.path for source, _ in links}
    targets = {target.change.path for _, target in links}
    arrived = {move.target for move in moves}
    renamed = []
    for source, target in links:
        path = source.change.path
        lineage = trace.take_from(path)
        after = PathState(target.change.path, target.change.after)
        taken = source.taken or target.taken
        joined = LineageStep(PathState(path, source.change.before), after, taken, source.call)
        lineage.steps.append(joined)
        renamed.append((lineage, target))
    for source, _ in links:
        path = source.change.path
        if path not in targets and source.change.after:
            stayed = trace.by_path.get(path)
            if stayed is None and (starts(source) or path in came_from):
                stayed = trace.start_at(path)
            if stayed is not None:
                _extend(stayed, source, None, source.change.after)
    for lineage, target in renamed:
        path = target.change.path
        if path not in sources and target.change.before is not None:
            displaced = trace.by_path.get(path)
            if displaced is None and starts(target):
                displaced = trace.start_at(path)
            if displaced is not None:
                _extend(displaced, target, target.change.before, None)
        trace.put_at(lineage, path)
    for step in steps:
        path = step.change.path
        if path in sources or path in targets:
            continue
        present = trace.by_path.get(path)
        replaced = path in gone_to or path in came_from
        if present is None and starts(step) and (step.change.before is not None or not replaced):
            present = trace.start_at(path)
        if replaced:
            _replace_file(trace, present, step, gone_to.get(path, ""), came_from.get(path, ""))
        elif present is not None:
            _extend(present, step, step.change.before, step.change.after, arrived=path in arrived)


def _replace_file(
    trace: LineageTrace, present: Lineage | None, step: PathStep, gone_to: str, came_from: str
) -> None:
    """End the lineage of the file that was there, and start that of the one that is there now."""
    if present is not None and step.change.before is not None:
        _extend(present, step, step.change.before, None, moved=gone_to)
    if step.change.after is not None:
        lineage = Lineage()
        trace.lineages.append(lineage)
        trace.put_at(lineage, step.change.path)
        _extend(lineage, step, None, step.change.after, arrived=True, moved=came_from)


def _is_followed(source: PathStep, target: PathStep, followed: Collection[tuple[int, str]]) -> bool:
    """Whether a move was made by a call, is taken back, or is chosen."""
    if source.call is not None or (target.seq, target.change.path) in followed:
        return True
    return source.taken and target.taken


def _linked_steps(
    steps: Sequence[PathStep],
    moves: Iterable[Move],
    tracked: Callable[[PathStep], bool],
) -> list[tuple[PathStep, PathStep]]:
    """The moves with both ends among the steps, of which one has or gets a lineage."""
    by_path = {step.change.path: step for step in steps}
    links = []
    used: set[str] = set()
    for move in moves:
        source, target = by_path.get(move.source), by_path.get(move.target)
        if source is None or target is None or source is target:
            continue
        if not (tracked(source) or tracked(target)):
            continue
        old, new = source.change.before, target.change.after
        ends = {f"from {move.source}", f"to {move.target}"}
        together = source.taken == target.taken or source.call is None
        fits = old and new and old.kind == new.kind and together
        # a folder is where files are put: what moved is what is in it
        if fits and not is_directory(old) and not ends & used:
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
    moved: str = "",
) -> None:
    path = step.change.path
    added = LineageStep(
        PathState(path, before),
        PathState(path, after),
        step.taken,
        step.call,
        arrived,
        moved,
        step.came_in,
    )
    lineage.steps.append(added)


def _note_directories_and_writers(trace: LineageTrace, step: PathStep) -> None:
    change = step.change
    for state in (change.before, change.after):
        if state and state.kind == "directory":
            trace.folder_modes[change.path] = state.mode
    if change.after is not None:
        trace.last_writers[change.path] = step.call
