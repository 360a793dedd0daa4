"""Folders that a plan renames as a whole, so that each stays the folder that it is.

The plan says what is at each path afterwards. Here it is found out which of that a rename of a
folder does, and what is left to do before and after it. Pure functions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.model.files import (
    FileChange,
    FileState,
    Move,
    Tree,
    apply,
    diff,
    folder_renames,
    follow,
    goes_along,
    is_directory,
    is_opaque,
    is_within,
    parents,
)
from loom_audit.model.plans.links import without_group
from loom_audit.model.plans.planning import Plan, one_change_each

Changes = tuple[FileChange, ...]
Rename = tuple[Move, Changes]
"""A rename of a folder, with the changes that it makes."""


class Work(Struct, frozen=True):
    """What a plan does: changes in folders before they are renamed, renames, and the others."""

    inside: Changes
    renames: tuple[Rename, ...]
    others: Changes

    def stages(self) -> tuple[Changes, ...]:
        """All changes in the order in which they can be made, in one stage where that is any."""
        renamed = tuple(change for _, changes in self.renames for change in changes)
        ends = [end for move, _ in self.renames for end in (move.source, move.target)]
        again = any(is_within(change.path, ends) for change in self.others)
        nested = any(is_within(end, ends[:n] + ends[n + 1 :]) for n, end in enumerate(ends))
        if not (self.inside or again or nested):
            return ((*self.others, *renamed),)
        above = {path for move, _ in self.renames for path in parents(move.target)}
        made = [one for one in self.others if one.path in above and one.before is None]
        rest = tuple(one for one in self.others if one not in made)
        stages = ((*made, *self.inside), *(changes for _, changes in self.renames), rest)
        return tuple(stage for stage in stages if stage)


def with_whole_folders(
    work: Work, tree: Tree, whole: Mapping[Move, str]
) -> tuple[Work, tuple[Move, ...]]:
    """The work in which these folders are renamed as a whole, and which of them can be.

    `tree` is what is on disk; `whole` says of each rename which folder it is.
    """
    final = apply(tree, one_change_each(work.stages()))
    apart = [move for move, _ in work.renames if not any(goes_along(move, one) for one in whole)]
    left = [move for move in whole if not _meets(move, apart, work.inside)]
    while left:
        ordered = _in_order(left, tree, final)
        if ordered == left:
            found = _renamed(work, tree, final, {move: whole[move] for move in ordered})
            if found is not None:
                return found, tuple(ordered)
            left = left[1:]
        else:
            left = ordered
    return work, ()


def whole_renames(plan: Plan) -> list[Move]:
    """The renames of folders in a plan that are in scope before and after them."""
    found = []
    for stage in plan.stages or (plan.changes,):
        by_path = {change.path: change for change in stage}
        for move in folder_renames(stage, plan.moves):
            ends = by_path[move.source].before, by_path[move.target].after
            found += [move] if all(map(is_directory, ends)) else []
    return found


def _meets(move: Move, apart: Iterable[Move], inside: Iterable[FileChange]) -> bool:
    """Whether something else of the work is done in the folder, or to one that holds it."""
    ends = (move.source, move.target)
    others = [end for one in apart for end in (one.source, one.target)]
    return (
        any(is_within(end, ends) for end in others)
        or any(is_within(end, others) for end in ends)
        or any(is_within(change.path, ends) for change in inside)
    )


def _in_order(moves: Sequence[Move], tree: Tree, final: Tree) -> list[Move]:
    """The moves that can be made, each after those that have to be made before it."""
    targets = {move.target for move in moves}
    waiting = [m for m in moves if m.source in targets or not is_directory(final.get(m.source))]
    found: list[Move] = []
    while True:
        free = {move.source for move in found}
        ready = (
            move
            for move in waiting
            if (move.target in free or not is_directory(tree.get(move.target)))
            and not any(_is_before(other, move) for other in waiting if other != move)
        )
        move = next(ready, None)
        if move is None:
            return found
        found.append(move)
        waiting.remove(move)


def _is_before(other: Move, move: Move) -> bool:
    """Whether another folder is in the one that is moved, or is to hold it."""
    return is_within(other.source, [move.source]) or is_within(move.target, [other.target])


def _renamed(work: Work, tree: Tree, final: Tree, whole: Mapping[Move, str]) -> Work | None:
    """The work with these folders renamed first; None where that leaves what cannot be done."""
    apart = tuple(one for one in work.renames if not any(goes_along(one[0], w) for w in whole))
    along = {c.path: c.before for move, changes in work.renames for c in changes if c.before}
    now = dict(tree)
    targets = [move.target for move in whole]
    above = {path for target in targets for path in parents(target)}
    made = [
        one
        for one in work.others
        if one.path in above and one.before is None and not is_within(one.path, targets)
    ]
    follow(now, made)
    cleared = tuple(
        FileChange(path, state, None)
        for path, state in now.items()
        if path in targets and not is_directory(state)
    )
    follow(now, cleared)
    for _, changes in apart:
        follow(now, changes)
    renames: list[Rename] = []
    for move, identity in whole.items():
        if any(not is_directory(now.get(path)) for path in parents(move.target)):
            return None
        changes = tuple(_rename(move, identity, now, along))
        follow(now, changes)
        renames.append((move, changes))
    touched = {c.path for c in work.others} | {c.path for _, cs in renames for c in cs}
    touched |= {c.path for _, cs in work.renames for c in cs}
    rest = diff(_part(now, touched), _part(final, touched))
    if any(_is_impossible(change) for change in rest):
        return None
    return Work((*work.inside, *cleared), (*apart, *renames), (*made, *rest))


def _rename(
    move: Move, identity: str, tree: Tree, along: Mapping[str, FileState]
) -> Iterator[FileChange]:
    """What the rename of a folder changes."""
    inside = {p: state for p, state in sorted(tree.items()) if is_within(p, [move.source])}
    for path, state in inside.items():
        if is_opaque(state):
            inside[path] = along.get(path, state)  # with its identity
    inside[move.source] = replace(inside[move.source], identity=identity)
    yield from (FileChange(path, state, None) for path, state in inside.items())
    for path, state in inside.items():
        yield FileChange(move.target + path.removeprefix(move.source), None, state)


def _part(tree: Tree, paths: Iterable[str]) -> Tree:
    return {path: tree[path] for path in paths if path in tree}


def _is_impossible(change: FileChange) -> bool:
    """Whether a change cannot be made by writing a path, or would change nothing that is seen."""
    opaque = is_opaque(change.before) or is_opaque(change.after)
    return opaque or without_group(change.before) == without_group(change.after)
