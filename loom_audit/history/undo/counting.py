"""What counts as taken back once a plan is carried out: whole calls, and paths of calls."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.read.timeline import Timeline
from loom_audit.history.undo.dealt_with import ChangedPaths, changes_by, paths_reached
from loom_audit.history.undo.limits import MovedSince, all_names, is_below_any
from loom_audit.history.undo.selection import UNDO_AND_REDO, Selection
from loom_audit.model.plans.planning import PathStep, Plan
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.plans.taking_back.taken_back import TakingBack
from loom_audit.model.plans.verdicts import Note
from loom_audit.model.records import RecordedChange
from loom_audit.ports import CallFilter

MISCOUNTED = (
    "it would count as taken back, and nothing here takes it back: revert the call by itself first"
)


def reverts(
    attachment: Attachment,
    timeline: Timeline,
    request: PlanRequest,
    selection: Selection,
    selected: Sequence[RecordedChange],
    steps: Sequence[PathStep],
) -> tuple[int, ...]:
    """The numbers of calls and seqs of events that count as taken back as a whole.

    A call of which a path lies beyond what the request is limited to is taken back in part, unless
    that path was taken back before.
    """
    candidates = selection.changes
    partly = {
        one.number
        for one in candidates
        if one.number is not None
        and not selection.is_asked_for(one.change.path)
        and (one.number, one.change.path) not in selection.before.paths
    }
    if not selection.rollback:
        kept = {path for path, choice in request.choices.items() if choice == "current"}
        events = {
            one.seq
            for one in candidates
            if one.change.path in kept or not selection.is_asked_for(one.change.path)
        }
        # a call of which no change is taken back is not taken back (its changes are shared, or
        # undone already), unless a person chose to keep all of them
        overtaken = selection.before.overtaken
        counted = {one.number for one in selected} | {number for number, _ in overtaken}
        dealt_with = all(
            one.change.path in kept or selection.is_dealt_with(one) for one in candidates
        )
        if request.verb in UNDO_AND_REDO and dealt_with:
            counted |= {call.seq for call in selection.calls}
        if not selection.paths:  # what changed nothing changed none of these
            counted |= {call.seq for call in selection.calls if not call.changed}
        calls = sorted(call.seq for call in selection.calls if call.seq in counted and call.seq)
        numbers = (*calls, *(seq for seq in selection.events if seq not in events))
        return tuple(number for number in numbers if number not in partly)
    partly |= {step.call for step in steps if step.call and not step.taken}
    whole = {one.number for one in selected if one.number} - partly
    # of a call requested before the point only what it did since is taken back
    begun = CallFilter(after=selection.since, changed_only=True, limit=None)
    whole &= {call.seq for call in attachment.stored.reading.calls(begun)}
    return tuple(sorted(whole | _undos_without_changes(attachment.stored, timeline, selection)))


def _undos_without_changes(stored: StoredLog, timeline: Timeline, selection: Selection) -> set[int]:
    """Undos after the point that changed no file: what they took back is in effect again.

    Also those that later ones took back, which are not in effect any more either. In a rollback of
    some paths those that took nothing back elsewhere, or nothing that stands.
    """
    back = selection.back
    undos = {one.number for one in back.doings if one.number > selection.since}
    undos -= {one.number for one in selection.changes}
    if not (undos and selection.paths):
        return undos
    names = MovedSince(timeline, min(back.below(undos)) - 1).all_names(selection.paths)
    changed = ChangedPaths(stored)
    changed.of_each(back.below(undos))
    reached = {number: paths_reached(changed, back, number) for number in undos}
    return {
        number
        for number, paths in reached.items()
        if paths
        and all(is_below_any(tuple(names), path) or number in back.at(path) for path in paths)
    }


def taken_in_part(
    stored: StoredLog,
    timeline: Timeline,
    plan: Plan,
    selection: Selection,
    candidates: Sequence[RecordedChange],
    selected: Collection[RecordedChange],
) -> Mapping[int, tuple[str, ...]]:
    """The paths that a plan takes back of calls which it does not take back as a whole.

    By the numbers of the calls, in a rollback of those requested after the point. A path is left
    out of which a change stays, and where something else than the change decides what will be
    there.
    """
    taken = {id(one) for one in selected}
    stays = {(one.number, one.change.path) for one in candidates if id(one) not in taken}
    at_path: dict[str, set[int]] = {}
    for one in selected:
        at_path.setdefault(one.change.path, set()).add(one.number or 0)
    found: dict[int, set[str]] = {}
    for path in plan.settled(at_path):
        numbers = at_path[path]
        # one whose taking back is taken back, too, would be in effect again otherwise
        before = selection.back.without(numbers).at(path)
        for number in numbers - before.keys():
            if (number, path) not in stays:
                found.setdefault(number, set()).add(path)
    for number, path in selection.before.overtaken:
        if selection.is_asked_for(path):
            found.setdefault(number, set()).add(path)
    if selection.rollback and selection.paths:
        for number, path in _taken_unchanged(stored, selection, candidates):
            found.setdefault(number, set()).add(path)
    for number in found.keys() - {0}:
        found[number] |= _names_before(stored, timeline, selection, number, found[number])
    early = {one.number for one in candidates if (one.requested or 0) <= selection.since}
    wanted = found.keys() - {0, *plan.reverts, *early}
    return {number: tuple(sorted(found[number])) for number in sorted(wanted)}


def _taken_unchanged(
    stored: StoredLog, selection: Selection, candidates: Iterable[RecordedChange]
) -> Iterator[tuple[int, str]]:
    """What calls after the point took back at the paths of a rollback, where they changed nothing.

    What one took back there had been taken back, and that was taken back by the same call.
    """
    changes = {(one.number, one.change.path) for one in candidates}
    back = selection.back
    numbers = {one.number for one in back.doings if one.number > selection.since}
    changed = ChangedPaths(stored).of_each(back.below(numbers)) if numbers else {}
    paths = {path for own in changed.values() for path in own if selection.is_asked_for(path)}
    for path in paths:
        before = back.at(path)
        there = {number for number, own in changed.items() if path in own}
        for number in sorted(numbers - before.keys()):
            if (number, path) not in changes and not there.isdisjoint(back.targets(number, path)):
                yield number, path


def _names_before(
    stored: StoredLog, timeline: Timeline, selection: Selection, number: int, paths: Collection[str]
) -> set[str]:
    """The other names of the files at paths of a call at which it took something back.

    They had these when that was done: the call changed nothing there.
    """
    back = selection.back
    older = back.below((number,)) - {number}
    if not older:
        return set()
    by_each = changes_by(stored, {*older, number})
    own = {one.change.path for one in by_each[number]}
    changes = [change for one in sorted(older) for change in by_each[one]]
    moved = MovedSince(timeline, min(older))
    there = all_names(paths, timeline, changes)
    names = {name for path in there for name in moved.names(path, number)}
    names &= {one.change.path for one in changes}
    return {path for path in names - own if number not in back.at(path)}


def with_rest(
    stored: StoredLog, plan: Plan, selection: Selection, candidates: Sequence[RecordedChange]
) -> Plan:
    """The plan with the paths that were left of calls which it takes back as a whole.

    Of such calls of which others were taken back before. What took those back can itself be taken
    back later: then they are in effect again, though the call was taken back. And of those of files
    that have another name since: what takes them back changes no file at the paths of the call.
    """
    left: dict[int, dict[str, None]] = {}
    before: set[int] = set()
    for one in candidates:
        if one.number is None or one.number not in plan.reverts:
            continue
        if (one.number, one.change.path) in selection.before.paths:
            before.add(one.number)
        else:
            left.setdefault(one.number, {})[one.change.path] = None
    took = {one.number for one in selection.back.doings}
    for number, paths in left.items():
        moved = not plan.followed.keys().isdisjoint(paths)
        if moved and len(plan.settled(paths)) == len(paths):
            before.add(number)
    unchanged = {*plan.reverts} - {one.number for one in candidates}
    for number in selection.back.by_path(unchanged & took):
        before.add(number)
        left[number] = {}
    stays = selection.back.without(plan.reverts)
    changed, wanted = ChangedPaths(stored), before & took & left.keys()
    changed.of_each(selection.back.below(wanted))
    for number in wanted:
        # what took others back did so at paths, too, that it did not change
        each = changed.of_each(selection.back.below((number,)))
        there = sorted({path for own in each.values() for path in own})
        left[number] |= {path: None for path in there if number not in stays.at(path)}
    rest = {number: tuple(paths) for number, paths in sorted(left.items()) if number in before}
    return replace(plan, rest=rest)


def with_miscounts_blocked(
    stored: StoredLog,
    timeline: Timeline,
    selection: Selection,
    plan: Plan,
    selected: Iterable[RecordedChange],
) -> Plan:
    """The plan, blocked where a file would not be as it counts. Corrupt."""
    found = tuple(_miscounted(stored, timeline, selection, plan, selected))
    paths = {note.path for note in found}  # each has one verdict
    kept, blocked, irreversible = (
        tuple(note for note in notes if note.path not in paths)
        for notes in (plan.kept, plan.blocked, plan.irreversible)
    )
    already = tuple(path for path in plan.already if path not in paths)
    return replace(
        plan,
        kept=kept,
        blocked=(*blocked, *found),
        irreversible=irreversible,
        already=already,
    )


def _miscounted(
    stored: StoredLog,
    timeline: Timeline,
    selection: Selection,
    plan: Plan,
    selected: Iterable[RecordedChange],
) -> Iterator[Note]:
    """Notes on files that a plan leaves alone, though it counts something in them as taken back.

    So can one that takes back what took others back, for what it changed itself. `selected` are
    the changes that the plan takes back; what is kept by choice is left alone, and so is what
    counts again as it did before all that is taken back, if no call changed it since. Corrupt.
    """
    more, back = takings(plan), selection.back
    took = {one.number for one in back.doings}
    numbers = back.below({one.target for one in more}) - took
    if selection.rollback or not numbers or took.isdisjoint(one.target for one in more):
        return
    after, at = back.and_then(more), {one.change.path for one in selected}
    at |= {*plan.request.choices} | {change.path for change in plan.changes}
    found: dict[str, list[int]] = {}
    for number, paths in ChangedPaths(stored).of_each(numbers).items():
        for path in {*paths} - at:
            if number in after.at(path) and number not in back.at(path):
                found.setdefault(path, []).append(number)
    if not found:
        return
    at |= MovedSince(timeline, min(numbers) - 1).all_names(at)
    first = min(one.target for one in more if one.target in took)
    [call] = stored.reading.calls(CallFilter(numbers=(first,), limit=1))
    since = stored.reading.changes(after=call.requested, paths=sorted(found))
    changed = {one.change.path for one in since if one.number is not None}
    before = back.before(first)
    for path in sorted(found.keys() - at):
        counted = before.at(path) if path not in changed else {}
        if calls := tuple(number for number in found[path] if number not in counted):
            yield Note(path, MISCOUNTED, calls)


def without_kept(plan: Plan, selected: Iterable[RecordedChange]) -> Plan:
    """The plan in which a call does not count as taken back of which all is kept, unless somebody
    chose to keep it, and no git goes back: it can be taken back later.
    """
    changed: dict[int, set[str]] = {}
    for one in selected:
        changed.setdefault(one.number or 0, set()).add(one.change.path)
    kept = {number for number, paths in changed.items() if paths <= {*plan.kept_unasked}}
    if plan.git or plan.verb == "rollback" or kept.isdisjoint(plan.reverts):
        return plan
    rest = {number: paths for number, paths in plan.rest.items() if number not in kept}
    return replace(plan, reverts=tuple(one for one in plan.reverts if one not in kept), rest=rest)


def takings(plan: Plan) -> Sequence[TakingBack]:
    """What counts as taken back once the plan is carried out, by the event after its head."""
    parts = {**plan.partly, **plan.rest}
    wholes = {number: TakingBack(plan.head + 1, number) for number in plan.reverts}
    return [
        *(one for number, one in wholes.items() if number not in parts),
        *(
            TakingBack(plan.head + 1, number, number in wholes, frozenset(paths))
            for number, paths in parts.items()
        ),
    ]
