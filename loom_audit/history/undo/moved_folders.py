"""Follows folders that were moved into the scope or out of it: from where to where, by which calls.

A folder is followed by its identity where it was opaque, since nothing says what was in it, and in
scope by the files that moved with it. Pure functions, but for the identity of what is on disk now.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.model.events import FilesChanged
from loom_audit.model.files import (
    FileChange,
    FileState,
    Move,
    is_directory,
    is_opaque,
    is_within,
    opaque_moves,
    paths_inside,
    with_folders_above,
)
from loom_audit.model.plans.lineage import PathStep


class MovedFolder(Struct):
    """A folder that was moved by calls which are now taken back; its identity says that it is one.

    `was` is the path at which it was before, `now` the one at which it is. `brings` are the states
    that were in it on record at `was`; `leaves` those that were in it when its inside came on
    record last, with their paths as if it had been at `now` then. `since` is the seq of that event,
    `first` that of its first move across the scope, `last` that of its last move. `unsettled` is
    a path in it, "" for none, that a call changed which is taken back, and that may have been
    changed again while the inside was not recorded: what to bring back is not known then. `calls`
    are the numbers of the calls that moved it. `places` are its paths, each with the seq from which
    on it was there, `before` those that it had in scope before `first`; `own` are the steps of the
    moves, by seq and path.
    """

    identity: str
    was: str
    now: str
    brings: dict[str, FileState]
    first: int
    last: int
    since: int
    unsettled: str = ""
    leaves: dict[str, FileState] = field(default_factory=dict)
    calls: list[int | None] = field(default_factory=list)
    places: list[tuple[int, str]] = field(default_factory=list)
    before: list[tuple[int, str]] = field(default_factory=list)
    own: dict[tuple[int, str], "OwnStep"] = field(default_factory=dict)

    @property
    def came_back(self) -> bool:
        """Whether its moves led back to the path at which it was before."""
        return self.was == self.now

    @property
    def paths(self) -> set[str]:
        """All paths at which it was."""
        return {self.was, *(path for _, path in (*self.before, *self.places))}

    def rest_of(self, step: PathStep) -> Iterator[PathStep]:
        """The part of a step that is planned apart from this folder: all of it, some, or nothing.

        A step of a move may also be the change of another file, which was where the folder went, or
        is where it was. What changed in a folder that came back is planned at the path where it is.
        """
        own = self.own.get((step.seq, step.change.path))
        after = self.came_back and step.seq > self.since
        to = self.was if step.seq < self.first else self.now if after else ""
        if own is not None:
            yield from own.rest_of(step)
            if to and own.inside:
                yield from own.changed(step, to)
            return
        place = self._place(step.seq)
        if (after and step.seq > self.last) or not is_within(step.change.path, [place]):
            yield step
        elif to:
            path = to + step.change.path.removeprefix(place)
            yield from _changed(step, path, step.change.before, step.change.after)

    def _place(self, seq: int) -> str:
        """The folder's path at an event; before the first known one "/", which holds no path."""
        places = (*self.before, *self.places)
        return next((path for since, path in reversed(places) if since <= seq), "/")

    def earlier(self, steps: Iterable[PathStep]) -> Iterator[PathStep]:
        """The steps in it before its first move."""
        first = self.before[0][0] if self.before else self.first
        return (s for s in steps if s.seq < first and is_within(s.change.path, [self.was]))

    def later(self, steps: Iterable[PathStep]) -> Iterator[PathStep]:
        """The steps in it since its inside came on record last, without those of its moves."""
        for step in steps:
            mine = step.seq > self.since and is_within(step.change.path, [self._place(step.seq)])
            if mine and (step.seq, step.change.path) not in self.own:
                yield step

    @property
    def moved_unrecorded(self) -> bool:
        """Whether the folder was moved after its inside came on record last.

        What is in the folder may have changed with such a move.
        """
        return any(seq > self.since for seq, _ in self.own)

    def comes_back(self) -> dict[str, FileState]:
        """The states that are at `was` and below it once it is renamed back, by path."""
        if any(map(is_opaque, (self.brings[self.was], self.leaves[self.now]))):
            return self.brings
        return {
            self.was + path.removeprefix(self.now): state for path, state in self.leaves.items()
        }

    def taken_back_inside(self, steps: Iterable[PathStep]) -> set[str]:
        """The paths, from its name on, that what is taken back may have changed since then."""
        own = {one.inside for (seq, _), one in self.own.items() if seq > self.since}
        taken = (step for step in self.later(steps) if step.taken)
        return own | {s.change.path.removeprefix(self._place(s.seq)) for s in taken}


class OwnStep(Struct, frozen=True):
    """A step that belongs to the move of a folder.

    `inside` is its path from the folder's name on; `is_target` says on which end of the move it is.
    At the target, `before` is the state that the path had at the source. At the source, `deleted`
    says that the path did not come to the target.
    """

    inside: str
    is_target: bool
    before: FileState | None = None
    deleted: bool = False

    def rest_of(self, step: PathStep) -> Iterator[PathStep]:
        """The change of another file in this step: at the target before, or at the source after."""
        path, before, after = step.change.path, step.change.before, step.change.after
        if self.is_target:
            yield from _changed(step, path, before, None)
        else:
            yield from _changed(step, path, None, after)

    def changed(self, step: PathStep, folder: str) -> Iterator[PathStep]:
        """The change within the folder that this step is, at the path that it has in `folder`."""
        path = folder + self.inside
        if self.is_target:
            yield from _changed(step, path, self.before, step.change.after)
        elif self.deleted:
            yield from _changed(step, path, step.change.before, None)


def _changed(
    step: PathStep, path: str, before: FileState | None, after: FileState | None
) -> Iterator[PathStep]:
    """The step with this change in place of its own; nothing where the two states are the same."""
    if before != after:
        yield replace(step, change=FileChange(path, before, after))


def moved_folders(
    steps: Sequence[PathStep],
    facts: Mapping[int, FilesChanged],
    moves: Mapping[int, Sequence[Move]],
    drift: FilesChanged,
    identity_of: Callable[[str], str],
) -> list[MovedFolder]:
    """The folders that taken steps moved into the scope or out of it, each once.

    `facts` are of the events in which an opaque entry changed, `moves` those of all events, both by
    seq; `drift` is what is not on record yet. `identity_of` gives the identity of the folder that
    is at a path now, "" for none.
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
            _add_opaque_moves(found, seq, facts[seq], steps, moves, ends_of)
    _add_opaque_moves(found, last, drift, steps, moves, ends_of)
    for one in found.values():
        _find_by_identity(one, events, identity_of, steps)
    return list(found.values())


def _follow(
    one: MovedFolder, event: Sequence[PathStep], moves: Iterable[Move], steps: Sequence[PathStep]
) -> None:
    """Follow a folder within the scope through one event, by the files that moved with it.

    Only a step that is taken back is followed.
    """
    left = next((s for s in event if _removes_folder(s, one.now)), None)
    if left is None or not left.taken:
        return
    made = _made(event)
    for move in with_folders_above(moves):
        if move.source == one.now and move.target in made:
            _move_on(one, left, move, steps)
            return
    alike = _alike(one.now, event, made)
    if alike:
        _move_on(one, left, Move(one.now, alike), steps)


def _made(event: Iterable[PathStep]) -> set[str]:
    """The folders that an event created."""
    changes = [step.change for step in event]
    return {one.path for one in changes if one.before is None and is_directory(one.after)}


def _alike(folder: str, event: Sequence[PathStep], others: Iterable[str]) -> str:
    """The only one of the folders in which the same paths changed as in this one, "" for none.

    That is a guess, for a folder of which no file is on record as moved. Whether it is the same
    folder is proven by its identity before anything is renamed.
    """
    paths = sorted({step.change.path for step in event})
    changed = paths_inside(folder, paths)
    found = [path for path in others if path != folder and paths_inside(path, paths) == changed]
    return found[0] if len(found) == 1 else ""


def _find_by_identity(
    one: MovedFolder,
    events: Mapping[int, Sequence[PathStep]],
    identity_of: Callable[[str], str],
    steps: Sequence[PathStep],
) -> None:
    """Find a folder that is no more where it was known to be last, among the folders made since."""
    later = [s for seq, event in events.items() if seq > one.last for s in event if s.taken]
    if not any(s.change.path == one.now and not is_directory(s.change.after) for s in later):
        return
    for step in reversed(later):
        change = step.change
        made = change.before is None and is_directory(change.after) and change.path != one.now
        if made and identity_of(change.path) == one.identity:
            _arrive(one, step, Move(one.now, change.path), steps)
            return


def _move_on(one: MovedFolder, step: PathStep, move: Move, steps: Sequence[PathStep]) -> None:
    """Note that a folder was moved within the scope, so that its inside stayed on record."""
    one.leaves = {
        move.target + path.removeprefix(move.source): state for path, state in one.leaves.items()
    }
    _note_move(one, step, move, [s for s in steps if _belongs(s, step, move)])


def _arrive(one: MovedFolder, step: PathStep, move: Move, steps: Sequence[PathStep]) -> None:
    """Note that a folder was moved into the scope or out of it.

    What came on record of its inside by that is what is in it from then on.
    """
    own = [s for s in steps if _belongs(s, step, move)]
    inside = one.taken_back_inside(s for s in steps if s.seq < step.seq)
    changed = {one.now + path for path in inside}
    if step.taken and move.source == one.now:
        left = _first_states(own, move.source)
        changed = {path for path in changed if left.get(path) != one.leaves.get(path)}
    one.unsettled = one.unsettled or min(changed, default="")
    one.leaves, one.since = _last_states(own, move.target), step.seq
    _note_move(one, step, move, own)


def _note_move(one: MovedFolder, step: PathStep, move: Move, own: Sequence[PathStep]) -> None:
    """Note a move with the steps that it consists of."""
    _note_own(one, move, own)
    one.last = step.seq
    if step.taken:
        one.now = move.target
        one.calls.append(step.call)
        one.places.append((step.seq, move.target))


def _note_own(one: MovedFolder, move: Move, own: Sequence[PathStep]) -> None:
    """Note which steps at either end of a move are of the folder."""
    left, came = _first_states(own, move.source), _last_states(own, move.target)
    for s in own:
        path, key = s.change.path, (s.seq, s.change.path)
        if is_within(path, [move.target]):
            inside = path.removeprefix(move.target)
            one.own[key] = OwnStep(inside, True, left.get(move.source + inside))
        elif is_within(path, [move.source]):
            inside = path.removeprefix(move.source)
            one.own[key] = OwnStep(inside, False, deleted=move.target + inside not in came)


def _removes_folder(step: PathStep, path: str) -> bool:
    """Whether a step took away the recorded folder at a path."""
    gone = is_directory(step.change.before) and not is_directory(step.change.after)
    return step.change.path == path and gone


def _add_opaque_moves(
    folders: dict[str, MovedFolder],
    seq: int,
    fact: FilesChanged,
    steps: Sequence[PathStep],
    moves: Mapping[int, Sequence[Move]],
    ends_of: Mapping[tuple[int, str], PathStep],
) -> None:
    """Add the folders that an event moved into the scope or out of it, or note one more move.

    `folders` are those known by now, by identity.
    """
    by_path = {change.path: change for change in fact.changes}
    for move in opaque_moves(fact.changes, fact.moves):
        step = ends_of.get((seq, move.source)) or ends_of.get((seq, move.target))
        ends = by_path[move.source].before, by_path[move.target].after
        identity = next((s.identity for s in ends if is_opaque(s)), "")
        if step is None or not identity or _goes_along(move, seq, folders.values()):
            continue
        one = folders.get(identity)
        if one is None and step.taken:
            brings = _first_states((s for s in steps if _belongs(s, step, move)), move.source)
            for path in brings.keys() & by_path.keys():
                brings[path] = by_path[path].before or brings[path]  # with its identity
            one = MovedFolder(identity, move.source, move.target, brings, seq, seq, seq)
            _trace_back(one, steps, moves)
            folders[identity] = one
        # a move that is not taken counts where it leads to where the folder is: as of a redo
        if one is None or not (step.taken or move.target == one.now):
            continue
        _arrive(one, step, move, steps)


def _trace_back(
    one: MovedFolder, steps: Sequence[PathStep], moves: Mapping[int, Sequence[Move]]
) -> None:
    """Follow a folder that was in scope back to where it was before it was renamed there."""
    for step in [s for s in reversed(steps) if s.seq < one.first]:
        made = is_directory(step.change.after) and not is_directory(step.change.before)
        if not (made and step.taken and step.change.path == one.was):
            continue
        event = [s for s in steps if s.seq == step.seq]
        left = {s.change.path for s in event if s.taken and _removes_folder(s, s.change.path)}
        renames = with_folders_above(moves.get(step.seq, ()))
        sources = (m.source for m in renames if m.target == one.was and m.source in left)
        source = next(sources, "") or _alike(one.was, event, left)
        if not source:
            return
        _note_own(one, Move(source, one.was), event)
        one.calls.append(step.call)
        one.before.insert(0, (step.seq, one.was))
        one.brings = {source + p.removeprefix(one.was): state for p, state in one.brings.items()}
        one.was = source


def _goes_along(move: Move, seq: int, folders: Iterable[MovedFolder]) -> bool:
    """Whether what a move is of was in a folder that the same event moved, and still is."""
    for one in folders:
        inside = move.target.removeprefix(one.now + "/")
        was = {f"{path}/{inside}" for path in one.paths - {one.now}}
        if one.last == seq and one.first < seq and inside != move.target and move.source in was:
            return True
    return False


def _belongs(one: PathStep, step: PathStep, move: Move) -> bool:
    """Whether a step is of the move of another step: of its event, or of a later one of its scan.

    A scan of much is recorded in several events, and both ends of a move may be in different ones.
    """
    if one.seq <= step.seq or step.call is None or one.call != step.call:
        return one.seq == step.seq
    gone = one.change.after is None and is_within(one.change.path, [move.source])
    return gone or (one.came_in and is_within(one.change.path, [move.target]))


def _first_states(steps: Iterable[PathStep], folder: str) -> dict[str, FileState]:
    """The states in a folder before the first of the steps at each path."""
    states: dict[str, FileState | None] = {}
    for step in steps:
        if is_within(step.change.path, [folder]):
            states.setdefault(step.change.path, step.change.before)
    return {path: state for path, state in states.items() if state is not None}


def _last_states(steps: Iterable[PathStep], folder: str) -> dict[str, FileState]:
    """The states in a folder after the last of the steps at each path."""
    states = {s.change.path: s.change.after for s in steps if is_within(s.change.path, [folder])}
    return {path: state for path, state in states.items() if state is not None}
