"""What taking back must give, said from what `os` saw, and plans that are held to it."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from loom_audit import Conflict, NotFound
from loom_audit.model.files import BlobId, FileState
from loom_audit.model.plans.planning import TAKEN_BACK, Choice, Note, Plan
from tests.tapes.tape import Look, Point, State, Step, Tape, apart, look

NOBODY_SAW = "nobody saw who did it"
CHOICES: Sequence[Choice] = ("current", "old", "merge")
Tree = Mapping[bytes, State | None]
"""Some paths with what must be there, None for nothing."""


# --- what must be there afterwards --------------------------------------------------------------


def reverted(steps: Sequence[Step], taken: set[int], now: Look) -> Tree:
    """The paths of which it is certain what taking back these calls gives.

    A path that none of them changed stays. One that they alone changed, since the first of them
    did, becomes what it was before. What others changed too depends on contents, and what another
    call moved may be followed: of these nothing is said here, nor of calls before the tape.

    What is taken back already stays so. Where what took it back changed nothing, as it took back
    more than that, or kept it, nothing is said either.
    """
    if not taken <= {call for step in steps for call in step.calls}:
        return {}
    back = taken_back(steps, but=taken)
    left = {path for call in taken & back.keys() for path in _left(steps, call, back[call])}
    taken = taken - back.keys()
    sure: dict[bytes, State | None] = {}
    moved = {path for step in steps if _may_move(step) for path in step.changed}
    for path in _all_paths(steps, now):
        touching = [step for step in steps if path in step.changed]
        first = next((n for n, step in enumerate(touching) if _is_of(step, taken)), None)
        if any(step.kind == "shared" and taken & {*step.calls} for step in touching):
            continue
        if first is None:
            if path not in moved:
                sure[path] = now.tree.get(path)
        elif all(_is_of(step, taken) for step in touching[first:]):
            sure[path] = touching[first].before.tree.get(path)
    sure = {path: state for path, state in sure.items() if path not in left}
    return _without_moved(sure, steps, lambda step: _is_of(step, taken))


def taken_back(steps: Sequence[Step], but: Collection[int] = ()) -> dict[int, Step]:
    """By call the plan that took it back as a whole and stands, without those plans (`but`)."""
    found: dict[int, Step] = {}
    for step in reversed(steps):
        if step.kind == "plan" and not {*step.calls} & (found.keys() | {*but}):
            found = dict.fromkeys(step.reverts, step) | found
    return found


def _left(steps: Sequence[Step], call: int, by: Step) -> set[bytes]:
    """The paths that a call changed, or another one beside it, and what took it back did not."""
    return {path for step in steps if call in step.calls for path in step.changed - by.changed}


def rolled_back(
    steps: Sequence[Step], point: Point, now: Look, *, outside: bool, within: Sequence[str] = ()
) -> Tree:
    """The same for bringing the workspace, or what is `within` these paths, to a point."""
    sure: dict[bytes, State | None] = {}
    later = steps[point.steps :]
    moved = {path for step in later if _may_move(step) for path in step.changed}
    for path in _all_paths(steps, now):
        doers = {step.kind for step in later if path in step.changed}
        if within and not any(is_below(path, os.fsencode(one)) for one in within):
            sure[path] = now.tree.get(path)
        elif outside or "person" not in doers:
            sure[path] = point.tree.get(path)
        elif doers == {"person"} and path not in moved:
            sure[path] = now.tree.get(path)
    return _without_moved(sure, later, lambda step: outside or step.kind != "person")


def _without_moved(
    sure: dict[bytes, State | None], steps: Sequence[Step], is_taken: Callable[[Step], bool]
) -> Tree:
    """Without what was moved when another one then changed it: that goes along."""
    for n, step in enumerate(steps):
        if is_taken(step) and _may_move(step):
            others = (one.changed for one in steps[n + 1 :] if not is_taken(one))
            if not step.changed.isdisjoint(path for changed in others for path in changed):
                for path in step.changed:
                    sure.pop(path, None)
    return sure


def _all_paths(steps: Sequence[Step], now: Look) -> set[bytes]:
    return {path for step in steps for path in step.changed} | now.tree.keys()


def _is_of(step: Step, taken: set[int]) -> bool:
    return step.kind not in ("person", "shared") and {*step.calls} <= taken


def _may_move(step: Step) -> bool:
    """Whether a plan may follow something that this step renamed; of a person's only by choice."""
    return step.kind != "person" and _renames(step)


def _renames(step: Step) -> bool:
    old, new = step.before.tree.keys(), step.after.tree.keys()
    return bool(old - new) and bool(new - old)


def is_below(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder + b"/")


# --- plans that are carried out -----------------------------------------------------------------


def carry_out(tape: Tape, plan: Plan, sure: Tree) -> bool:
    """Carry a plan out and hold it to what it says and to what is sure; whether it could be."""
    workspace, before = tape.workspace, look(tape.root)
    check_verdicts(plan)
    if plan.blocked:
        try:
            workspace.carry_out(plan)
        except Conflict:
            assert look(tape.root).tree == before.tree
            return False
        raise AssertionError(f"a blocked plan was carried out: {plan.blocked}")
    check_said_of_calls(tape, plan)
    if plan.is_empty:
        check_sure(tape, plan, sure, before, before)
        return False
    head, marks = workspace.log.head(), set(tape.marks)
    workspace.carry_out(plan)
    tape.add(f"{plan.verb} {plan.target}", head, before, plan)
    after = tape.steps[-1].after
    said = {os.fsencode(change.path): change for change in plan.changes}
    for path in before.tree.keys() | after.tree.keys() | said.keys():
        was, now = before.tree.get(path), after.tree.get(path)
        if path in said:
            assert was == state_of(said[path].before), (plan.verb, path, "not as planned before")
            assert now == state_of(said[path].after), (plan.verb, path, "not as planned after")
        else:
            assert now == was, (plan.verb, path, "not named", was, now)
        if was and was[2] and (now is None or now[2] != was[2]):
            assert BlobId(was[2]) in workspace.blobs, (plan.verb, path, "lost")
    there = after.hidden | {state[2] for state in after.tree.values()}
    assert before.hidden <= there, (plan.verb, "what is not on record is gone")
    request = plan.request
    if not request.outside and not request.choices:
        assert marks <= after.marks, (plan.verb, marks - after.marks, "of the person is gone")
    check_sure(tape, plan, sure, before, after)
    return True


def check_sure(tape: Tape, plan: Plan, sure: Tree, before: Look, after: Look) -> None:
    """What is sure is so, but for paths of which the plan says why they are not."""
    notes = [*plan.kept, *plan.irreversible]
    notes += [note for note in plan.merged if _is_of_nobody(tape, note)]
    noted = {os.fsencode(note.path) for note in notes if note.path}
    wrong = {
        path: (state, after.tree.get(path))
        for path, state in sure.items()
        if after.tree.get(path) != state
        and path not in before.linked  # names of one file change together
        and "opaque" not in (state or after.tree[path])
        and not _is_excused(path, state, noted, after)
    }
    assert not wrong, (plan.verb, plan.target, plan.calls, plan.request.choices, wrong)


def _is_of_nobody(tape: Tape, note: Note) -> bool:
    """Whether a change is kept as a person may have made it, and calls were at it at once."""
    path = os.fsencode(note.path)
    shared = [one for one in tape.steps if one.kind == "shared" and path in one.changed]
    return NOBODY_SAW in note.reason and any({*note.calls} & {*one.calls} for one in shared)


def check_said_of_calls(tape: Tape, plan: Plan) -> None:
    """What a plan calls taken back already was so, by plans that were carried out.

    Of an event of no call, and of what was taken back in parts, the steps tell which plans were.
    """
    back = taken_back(tape.steps, but=plan.calls)
    plans = {number for step in tape.steps if step.kind == "plan" for number in step.calls}
    for note in plan.irreversible:
        if TAKEN_BACK in note.reason:
            [number] = note.calls
            known = back[number].calls if number in back else plans
            assert int(note.reason.rpartition(" ")[2]) in known, (note, known)


def _is_excused(path: bytes, state: State | None, noted: set[bytes], after: Look) -> bool:
    """A path that is listed with a reason, or a folder that something else which stays needs."""
    there = after.tree.get(path)
    needed = state is None and there is not None and there[0] == "directory"
    return any(is_below(note, path) for note in noted) or (
        needed and any(one != path and is_below(one, path) for one in after.tree)
    )


def check_verdicts(plan: Plan) -> None:
    """Each path has one verdict, and what is said beside it is said of a change."""
    lists = (plan.kept, plan.blocked, plan.irreversible)
    verdicts = Counter([change.path for change in plan.changes])
    verdicts.update([*plan.already, *(note.path for notes in lists for note in notes if note.path)])
    assert verdicts.total() == len(verdicts), verdicts.most_common(3)
    changed = {change.path for change in plan.changes}
    assert {note.path for note in (*plan.merged, *plan.inexact) if note.path} <= changed


def state_of(state: FileState | None) -> State | None:
    if state is None:
        return None
    mode = 0 if state.kind == "symlink" else state.mode
    return state.kind, mode, state.blob or ""


# --- plans that are drawn -----------------------------------------------------------------------


def take_back_something(tape: Tape) -> bool:
    """Carry out a plan at random, with choices at random; whether there was one to carry out."""
    draw = tape.chosen.choice((undo_one, redo_one, revert_some, revert_some, go_to_a_point))
    return draw(tape)


def undo_one(tape: Tape) -> bool:
    session = tape.chosen.choice([None, *(one.id for one in tape.agents.sessions)])
    try:
        return decide(
            tape, lambda choices: tape.workspace.plan_undo(session=session, choices=choices)
        )
    except Conflict as refused:
        check_passes_over_interrupted(tape, refused)
        return False


def check_passes_over_interrupted(tape: Tape, refused: Conflict) -> None:
    """An undo is refused only where it would pass over a later call that was interrupted."""
    if "older" not in refused.details:
        raise refused
    passed = [tape.workspace.timeline.call(number).call for number in refused.details["calls"]]
    older = tape.workspace.timeline.call(refused.details["older"]).call
    assert passed, refused
    for call in passed:
        assert (call.status, call.requested > older.requested) == ("interrupted", True), refused


def redo_one(tape: Tape) -> bool:
    return decide(tape, lambda choices: tape.workspace.plan_redo(choices=choices))


def revert_some(tape: Tape) -> bool:
    numbers = [number for step in tape.steps for number in step.calls]
    some = tape.chosen.sample(numbers, min(len(numbers), tape.chosen.choice((1, 1, 2, 3, 6))))
    if not some:
        return False
    return decide(tape, lambda choices: tape.workspace.plan_revert(sorted(some), choices=choices))


def go_to_a_point(tape: Tape) -> bool:
    """A rollback to a point that was seen, of all or of some paths, or with what is outside."""
    if not tape.points:
        return False
    point = tape.chosen.choice(tape.points)
    outside = tape.chosen.random() < 0.4
    paths: list[str] = []
    if point.tree and tape.chosen.random() < 0.3:
        paths = [os.fsdecode(tape.chosen.choice(sorted(point.tree)))]
    return decide(
        tape,
        lambda choices: tape.workspace.plan_rollback(
            point.seq, paths=paths, choices=choices, outside=outside
        ),
        point,
    )


def decide(
    tape: Tape, make: Callable[[Mapping[str, Choice]], Plan], point: Point | None = None
) -> bool:
    """Make a plan, choose for what it offers, and carry it out; whether that could be done."""
    choices: dict[str, Choice] = {}
    try:
        plan = make(choices)
    except NotFound:
        return False
    offered = sorted({change.path for change in plan.changes} | {note.path for note in plan.kept})
    if offered and tape.chosen.random() < 0.3:
        choices[tape.chosen.choice(offered)] = tape.chosen.choice(CHOICES)
        plan = make(choices)
    for ways in (CHOICES, CHOICES, ("current",)):
        for note in plan.blocked:
            choices[note.path] = tape.chosen.choice(ways)
        if plan.blocked:
            plan = make(choices)
    return carry_out(tape, plan, expected(tape, plan, point))


def expected(tape: Tape, plan: Plan, point: Point | None) -> Tree:
    """What is sure of a plan; of chosen paths and what hangs together with them only that."""
    now, request = look(tape.root), plan.request
    if point is None:
        sure = dict(reverted(tape.steps, {*plan.calls}, now))
    else:
        asked = request.outside, request.paths
        sure = dict(rolled_back(tape.steps, point, now, outside=asked[0], within=asked[1]))
        if request.paths:
            for path in _moved_with(tape.steps[point.steps :], request.paths):
                sure.pop(path, None)
    moved = {path for step in tape.steps if _renames(step) for path in step.changed}
    if request.choices:
        chosen = [os.fsencode(path) for path in request.choices]
        for path in [*sure]:
            related = any(is_below(path, one) or is_below(one, path) for one in chosen)
            if related or path in moved or path in now.linked:
                del sure[path]
        kept = {os.fsencode(p) for p, choice in request.choices.items() if choice == "current"}
        sure.update({path: now.tree.get(path) for path in kept})
    return sure


def _moved_with(steps: Sequence[Step], paths: Sequence[str]) -> set[bytes]:
    """Where what is at these paths may have been moved from or to, and so on from there: a move is
    taken back at both ends, with what was made at the other one since.
    """
    asked, found = [os.fsencode(path) for path in paths], set[bytes]()

    def is_asked(path: bytes) -> bool:
        return path in found or any(is_below(path, one) for one in asked)

    known = -1
    while known < len(found):
        known = len(found)
        for step in steps:
            gone = {path for path in step.changed if path not in step.after.tree}
            left, came = any(map(is_asked, gone)), any(map(is_asked, step.changed - gone))
            found |= (step.changed - gone if left else set()) | (gone if came else set())
    return found


def undo_and_redo(tape: Tape, most: int) -> int:
    """Undo so many calls or until one is blocked, then redo all of them; how many."""
    seen: list[dict[bytes, State]] = []
    while len(seen) < most:
        now = look(tape.root)
        try:
            plan = tape.workspace.plan_undo()
        except Conflict as refused:
            check_passes_over_interrupted(tape, refused)
            break
        if not plan.reverts:
            break  # all that the call changed is shared with others and stays
        if not carry_out(tape, plan, reverted(tape.steps, {*plan.calls}, now)):
            break
        seen.append(now.tree)
    for wanted in reversed(seen):
        plan = tape.workspace.plan_redo()
        assert carry_out(tape, plan, {})
        now = look(tape.root)
        assert now.tree == wanted, apart(now.tree, wanted)
    return len(seen)


def there_and_back(tape: Tape, point: Point) -> bool:
    """Roll everything back to a point and to where it was; whether nothing blocked it."""
    before = look(tape.root)
    plan = tape.workspace.plan_rollback(point.seq, outside=True)
    wanted = rolled_back(tape.steps, point, before, outside=True)
    if not carry_out(tape, plan, wanted):
        return False
    if tape.steps[-1].changed:
        back = tape.workspace.plan_undo()
        assert back.calls == tape.steps[-1].calls
        carry_out(tape, back, {path: before.tree.get(path) for path in before.tree | point.tree})
    return True
