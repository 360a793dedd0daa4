"""The changes that a revert names, and the paths that it is limited to."""

from collections.abc import Iterable

from loom_audit.errors import NotFound
from loom_audit.history.ground.attachment import StoredLog
from loom_audit.history.read.timeline import Timeline
from loom_audit.model.files import Move, is_within
from loom_audit.model.plans.lineage import PathStep, events_with_moves
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.text.display import visible_path


def changes_of(
    stored: StoredLog, calls: Iterable[Call], events: Iterable[int]
) -> list[RecordedChange]:
    """All changes of the calls, and of the events that are of no call."""
    found = list(stored.reading.changes(calls=[call.requested for call in calls]))
    for seq in events:
        found += stored.reading.changes(after=seq - 1, until=seq)
    return found


def limited_paths(
    request: PlanRequest,
    stored: StoredLog,
    calls: Iterable[Call],
    events: Iterable[int],
    timeline: Timeline,
) -> tuple[str, ...]:
    """The paths that a request for these calls and events is limited to; none without a limit.

    With each comes where the calls moved what is at it from or to. NotFound for a path at and below
    which they changed nothing.
    """
    if not request.paths or "" in request.paths:
        return ()
    changes = changes_of(stored, calls, events)
    for path in request.paths:
        if not any(is_within(one.change.path, [path]) for one in changes):
            raise NotFound(
                f"nothing that is to be reverted changed {visible_path(path)}",
                hint="Name a file or folder that is on the call's page, or in `loom-audit show`.",
            )
    steps = [PathStep(one.seq, one.change, True, one.number) for one in changes]
    facts = timeline.verified.files_changed(events_with_moves(steps))
    moves = [move for fact in facts.values() for move in fact.moves]
    found = {*request.paths}
    while more := {end for move in moves for end in _ends(move, found)} - found:
        found |= more
    return tuple(sorted(found))


def _ends(move: Move, paths: Iterable[str]) -> tuple[str, ...]:
    """Both ends of a move of which one is at the paths."""
    if is_within(move.source, paths) or is_within(move.target, paths):
        return move.source, move.target
    return ()
