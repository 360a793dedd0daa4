"""What counts as taken back once a plan is carried out: whole calls, and paths of calls."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.undo.selection import UNDO_AND_REDO, Selection
from loom_audit.model.plans.planning import PathStep, Plan
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.records import RecordedChange
from loom_audit.ports import CallFilter


def reverts(
    attachment: Attachment,
    request: PlanRequest,
    selection: Selection,
    candidates: Sequence[RecordedChange],
    selected: Sequence[RecordedChange],
    steps: Sequence[PathStep],
) -> tuple[int, ...]:
    """The numbers of calls and seqs of events that count as taken back as a whole.

    A call of which a path lies beyond what the request is limited to is taken back in part, unless
    that path was taken back before.
    """
    partly = {
        one.number
        for one in candidates
        if one.number is not None
        and not selection.is_asked_for(one.change.path)
        and (one.number, one.change.path) not in selection.taken_back_paths
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
        counted = {one.number for one in selected}
        dealt_with = all(
            one.change.path in kept or (one.number, one.change.path) in selection.taken_back_paths
            for one in candidates
        )
        if request.verb in UNDO_AND_REDO and dealt_with:
            counted |= {call.seq for call in selection.calls}
        calls = sorted(
            c.seq for c in selection.calls if c.seq and (c.seq in counted or not c.changed)
        )
        numbers = (*calls, *(seq for seq in selection.events if seq not in events))
        return tuple(number for number in numbers if number not in partly)
    partly |= {step.call for step in steps if step.call and not step.taken}
    whole = {one.number for one in selected if one.number} - partly
    # of a call requested before the point only what it did since is taken back
    begun = CallFilter(after=selection.since, changed_only=True, limit=None)
    whole &= {call.seq for call in attachment.stored.reading.calls(begun)}
    return tuple(sorted(whole | _undos_without_changes(attachment, request, selection, steps)))


def _undos_without_changes(
    attachment: Attachment,
    request: PlanRequest,
    selection: Selection,
    steps: Iterable[PathStep],
) -> set[int]:
    """Undos after the point that changed no file: what they took back is in effect again."""
    if request.paths:
        return set()
    undos = {by for by in attachment.stored.tables.reverted().values() if by > selection.since}
    return undos - {step.call for step in steps if step.call}


def taken_in_part(
    attachment: Attachment,
    plan: Plan,
    selection: Selection,
    candidates: Iterable[RecordedChange],
    selected: Collection[RecordedChange],
) -> Mapping[int, tuple[str, ...]]:
    """The paths that a plan takes back of calls which it does not take back as a whole.

    By the numbers of the calls, in a rollback of those requested after the point. A path is left
    out of which a change stays, and where something else than the change decides what will be
    there.
    """
    done = {change.path for change in plan.changes} | {*plan.already}
    numbers = {one.number for one in selected}
    reverted = attachment.stored.tables.reverted()
    # one whose taking back is taken back, too, would be in effect again otherwise
    dealt_with = {n for n, by in reverted.items() if by not in numbers} - selection.again
    whole = {*plan.reverts, *dealt_with}
    taken = {id(one) for one in selected}
    stays = {(one.number, one.change.path) for one in candidates if id(one) not in taken}
    found: dict[int, dict[str, None]] = {}
    for one in selected:
        number, path = one.number, one.change.path
        if not number or number in whole or (one.requested or 0) <= selection.since:
            continue
        if path in done and (number, path) not in stays:
            found.setdefault(number, {})[path] = None
    return {number: tuple(paths) for number, paths in sorted(found.items())}


def with_rest(plan: Plan, selection: Selection, candidates: Iterable[RecordedChange]) -> Plan:
    """The plan with the paths that were left of calls which it takes back as a whole.

    Of such calls of which others were taken back before. What took those back can itself be taken
    back later: then they are in effect again, though the call was taken back.
    """
    left: dict[int, dict[str, None]] = {}
    before: set[int] = set()
    for one in candidates:
        if one.number is None or one.number not in plan.reverts:
            continue
        if (one.number, one.change.path) in selection.taken_back_paths:
            before.add(one.number)
        else:
            left.setdefault(one.number, {})[one.change.path] = None
    rest = {number: tuple(paths) for number, paths in sorted(left.items()) if number in before}
    return replace(plan, rest=rest)
