"""Folders that were moved across the border of the scope: each from where to where, and by whom."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from loom_audit.model.events import FilesChanged
from loom_audit.model.files import FileState, Move, border_moves, is_opaque, is_within
from loom_audit.model.lineage import PathStep


class MovedFolder(Struct):
    """A folder of one identity that taken calls moved: where it was before and where it is since.

    `brings` are the states it had on record where it was, `leaves` those that it had where it is
    when it had just been moved. `first` and `last` are the events of its moves, `own` the steps
    that are the moves themselves, by event and path.
    """

    identity: str
    was: str
    now: str
    brings: dict[str, FileState]
    first: int
    last: int
    leaves: dict[str, FileState] = field(default_factory=dict)
    calls: list[int | None] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    own: set[tuple[int, str]] = field(default_factory=set)

    @property
    def came_back(self) -> bool:
        return self.was == self.now

    def takes(self, step: PathStep) -> bool:
        """Whether the folder's own plan has to do with a step, so that no other has."""
        if not is_within(step.change.path, self.paths) or step.seq < self.first:
            return False
        return not self.came_back or step.seq <= self.last or self._is_own(step)

    def _is_own(self, step: PathStep) -> bool:
        return (step.seq, step.change.path) in self.own

    def earlier(self, steps: Iterable[PathStep]) -> Iterator[PathStep]:
        """What changed in it before it was moved first."""
        return (s for s in steps if s.seq < self.first and is_within(s.change.path, [self.was]))

    def between(self, steps: Iterable[PathStep]) -> Iterator[PathStep]:
        """What changed in it between two of its moves."""
        return (
            s
            for s in steps
            if self.first < s.seq < self.last
            and is_within(s.change.path, self.paths)
            and not self._is_own(s)
        )

    def later(self, steps: Iterable[PathStep]) -> Iterator[PathStep]:
        """What changed in it since it was moved last."""
        return (
            s
            for s in steps
            if s.seq > self.last and is_within(s.change.path, [self.now]) and not self._is_own(s)
        )


def moved_folders(
    steps: Sequence[PathStep], facts: Mapping[int, FilesChanged], drift: FilesChanged
) -> list[MovedFolder]:
    """The folders that taken steps moved, each once however often."""
    if not facts and not drift.moves:
        return []
    ends_of = {(step.seq, step.change.path): step for step in steps}
    found: dict[str, MovedFolder] = {}
    last = max((step.seq for step in steps), default=0)
    for seq, fact in (*sorted(facts.items()), (last, drift)):
        by_path = {change.path: change for change in fact.changes}
        for move in border_moves(fact.changes, fact.moves):
            step = ends_of.get((seq, move.source)) or ends_of.get((seq, move.target))
            ends = by_path[move.source].before, by_path[move.target].after
            identity = next((s.identity for s in ends if is_opaque(s)), "")
            if step is None or not identity:
                continue
            own = [one for one in steps if _belongs(one, step, move)]
            one = found.get(identity)
            if one is None and step.taken:
                brings = _first_states(own, move.source)
                for path in brings.keys() & by_path.keys():
                    brings[path] = by_path[path].before or brings[path]  # with its identity
                one = MovedFolder(identity, move.source, move.target, brings, seq, seq)
                found[identity] = one
            if one is None or not (step.taken or move.target == one.now):
                continue  # not taken, but to where it is: by an undo and a redo
            one.leaves, one.last = _last_states(own, move.target), seq
            one.own |= {(s.seq, s.change.path) for s in own}
            if step.taken:
                one.now = move.target
                one.calls.append(step.call)
                one.paths |= {move.source, move.target}
    return list(found.values())


def _belongs(one: PathStep, step: PathStep, move: Move) -> bool:
    """Whether a step is of a move that an event has, or of what a later part of its scan found."""
    if one.seq <= step.seq or step.call is None or one.call != step.call:
        return one.seq == step.seq
    gone = one.change.after is None and is_within(one.change.path, [move.source])
    return gone or (one.came_in and is_within(one.change.path, [move.target]))


def _first_states(steps: Iterable[PathStep], folder: str) -> dict[str, FileState]:
    states: dict[str, FileState | None] = {}
    for step in steps:
        if is_within(step.change.path, [folder]):
            states.setdefault(step.change.path, step.change.before)
    return {path: state for path, state in states.items() if state is not None}


def _last_states(steps: Iterable[PathStep], folder: str) -> dict[str, FileState]:
    states = {s.change.path: s.change.after for s in steps if is_within(s.change.path, [folder])}
    return {path: state for path, state in states.items() if state is not None}
