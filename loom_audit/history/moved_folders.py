"""Folders that were moved across the border of the scope: each from where to where, and by whom."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
    steps: Sequence[PathStep],
    facts: Mapping[int, FilesChanged],
    moves: Mapping[int, Sequence[Move]],
    drift: FilesChanged,
    identity_of: Callable[[str], str],
) -> list[MovedFolder]:
    """The folders that taken steps moved, each once however often.

    `facts` are of the events in which an opaque entry changed, `moves` those of all events, by seq;
    `identity_of` says which folder is at a path now.
    """
    if not facts and not drift.moves:
        return []
    ends_of = {(step.seq, step.change.path): step for step in steps}
    found: dict[str, MovedFolder] = {}
    last = max((step.seq for step in steps), default=0)
    events: dict[int, list[PathStep]] = {}
    for step in steps:
        events.setdefault(step.seq, []).append(step)
    for seq in sorted({*facts, *moves}):
        for one in [*found.values()]:
            _follow(one, events.get(seq, ()), moves.get(seq, ()), steps)
        if seq in facts:
            _add_border_moves(found, seq, facts[seq], steps, ends_of)
    _add_border_moves(found, last, drift, steps, ends_of)
    for one in found.values():
        _find(one, events, identity_of, steps)
    return list(found.values())


def _follow(
    one: MovedFolder, event: Sequence[PathStep], moves: Iterable[Move], steps: Sequence[PathStep]
) -> None:
    """Follow a folder that is in scope, and was renamed there, by the files that moved with it."""
    left = next((s for s in event if s.change.path == one.now and s.change.after is None), None)
    if left is None or not left.taken or is_opaque(left.change.before):
        return
    made = {s.change.path for s in event if s.change.before is None and _is_folder(s.change.after)}
    for move in moves:
        inside = move.source.removeprefix(one.now + "/")
        to = move.target.removesuffix("/" + inside)
        if inside != move.source and to in made:
            _move_on(one, left, Move(one.now, to), steps)
            return


def _find(
    one: MovedFolder,
    events: Mapping[int, Sequence[PathStep]],
    identity_of: Callable[[str], str],
    steps: Sequence[PathStep],
) -> None:
    """Find where a folder is now, that is not where it was last known to be, by its identity."""
    later = [s for seq, event in events.items() if seq > one.last for s in event if s.taken]
    if not any(s.change.path == one.now and s.change.after is None for s in later):
        return
    for step in reversed(later):
        change = step.change
        made = change.before is None and _is_folder(change.after) and change.path != one.now
        if made and identity_of(change.path) == one.identity:
            _move_on(one, step, Move(one.now, change.path), steps)
            return


def _move_on(one: MovedFolder, step: PathStep, move: Move, steps: Sequence[PathStep]) -> None:
    own = [s for s in steps if _belongs(s, step, move)]
    one.leaves, one.last, one.now = _last_states(own, move.target), step.seq, move.target
    one.own |= {(s.seq, s.change.path) for s in own}
    one.calls.append(step.call)
    one.paths |= {move.source, move.target}


def _is_folder(state: FileState | None) -> bool:
    return state is not None and state.kind == "directory"


def _add_border_moves(
    found: dict[str, MovedFolder],
    seq: int,
    fact: FilesChanged,
    steps: Sequence[PathStep],
    ends_of: Mapping[tuple[int, str], PathStep],
) -> None:
    """Add the folders that an event moved across the border of the scope, or move them on."""
    by_path = {change.path: change for change in fact.changes}
    for move in border_moves(fact.changes, fact.moves):
        step = ends_of.get((seq, move.source)) or ends_of.get((seq, move.target))
        ends = by_path[move.source].before, by_path[move.target].after
        identity = next((s.identity for s in ends if is_opaque(s)), "")
        if step is None or not identity or _goes_along(move, seq, found.values()):
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


def _goes_along(move: Move, seq: int, folders: Iterable[MovedFolder]) -> bool:
    """Whether what moved is in a folder that the same event moved, and was."""
    for one in folders:
        inside = move.target.removeprefix(one.now + "/")
        was = {f"{path}/{inside}" for path in one.paths - {one.now}}
        if one.last == seq and one.first < seq and inside != move.target and move.source in was:
            return True
    return False


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
