"""Finishing an undo that was interrupted: what is left of it is done, on record as its own."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from loom_audit.errors import NotFound
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import request_event
from loom_audit.history.read.timeline import Timeline
from loom_audit.history.record.call import OpenCall
from loom_audit.history.record.call_record import CallRecord
from loom_audit.history.record.interrupted import (
    Comparison,
    add_outcome,
    close_opened,
    compare_with_disk,
    intended,
    intentions,
    writer_of,
)
from loom_audit.history.record.recovery import RecoveredCall, close_calls
from loom_audit.history.record.temporaries import remove_temporaries
from loom_audit.history.undo.left_alone import left_alone
from loom_audit.model.files import FileChange, Move, is_directory, moves_among
from loom_audit.model.plans.lineage import PathStep, events_with_moves, trace_lineages
from loom_audit.model.plans.planning import Note
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.text.display import count_text, first_few, visible_path

NAMED = 8
"""Of the paths that stay as they are, in what is said of the call; its result lists them all."""


def finish(attachment: Attachment, timeline: Timeline, call: Call, actor: str) -> RecoveredCall:
    """Do what is left of an interrupted undo; close one that had not begun.

    What somebody changed since stays as it is, and what cannot be done without it; `kept` names
    it. A call of which nothing is taken back then is not taken back.
    """
    with attachment.exclusive():
        remove_temporaries(attachment, [call], everywhere=True)
        if not any(True for _ in intentions(attachment.stored, call)):
            return close_calls(attachment, [call])[0]
        close_opened(attachment, call)
        found = compare_with_disk(attachment, call)
        stays = left_alone(attachment, call, found)
        record = CallRecord(writer_of(attachment, call), call.call_id)
        add_outcome(record, call, found)
        record.commit_and_index()
    kept = _do_rest(attachment, timeline, call, actor, record.writer, found, stays)
    finished = attachment.stored.reading.call(call.session, call.call_id)
    return RecoveredCall(finished, tuple(found.outcomes.items()), kept=kept)


def _do_rest(
    attachment: Attachment,
    timeline: Timeline,
    call: Call,
    actor: str,
    writer: Writer,
    found: Comparison,
    notes: Sequence[Note],
) -> tuple[Note, ...]:
    """Carry out what is left but what stays, and finish the call; what is kept."""
    stays = {note.path for note in notes}
    kept = (*notes, *_taken_away(attachment, call, found, stays))
    left = [change for change in found.remaining if change.path not in stays]
    _, moves = intended(attachment.stored, call)
    *_, last = begun = [*intentions(attachment.stored, call, first=True)]
    said = [f"continued by {actor} after an interruption"]
    stages = _stages(request_event(attachment.stored, call)[1].arguments)
    if len(begun) < stages:
        said.append(f"{len(begun)} of {stages} stages are done, plan again for the rest")
    with OpenCall.resumed(writer, call) as resumed:
        if kept:
            resumed.result["data"] = {"kept": [[note.path, note.reason] for note in kept]}
            named = first_few(kept, NAMED, lambda one: f"{visible_path(one.path)}: {one.reason}")
            said.append(f"{count_text(len(kept), 'path')} kept: {named}")
        resumed.result["output"] = "; ".join(said)
        if not left and "happened" not in found.outcomes.values():
            message = f"nothing was taken back; {said[-1]}"
            error = {"code": "CONFLICT", "message": message, "hint": "Plan again."}
            resumed.finish("error", {**resumed.result, "success": False, "error": error})
            return kept
        # what a stage before the last takes back is not taken back before that
        reverts = last.reverts
        if stays:
            reverts = _counted(attachment, timeline, call, last.reverts, stays)
        resumed.apply(left, moves=moves_among(left, moves), reverts=reverts, final=True)
    return kept


def _stages(arguments: object) -> int:
    """In how many stages an undo of these arguments is carried out, each with an intention."""
    return arguments.get("stages", 1) if isinstance(arguments, dict) else 1


def _taken_away(
    attachment: Attachment, call: Call, found: Comparison, stays: Collection[str]
) -> Iterator[Note]:
    """Notes on what was taken away for a place that is somebody else's now, so that it is at none.

    Or it came there, and was changed since: that cannot be told.
    """
    changes, moves = intended(attachment.stored, call)
    by_path: dict[str, FileChange] = {change.path: change for change in changes}
    for move in moves:
        source, target = by_path.get(move.source), by_path.get(move.target)
        if source is None or target is None or is_directory(source.before):
            continue
        gone = source.after is None and found.outcomes[move.source] == "happened"
        if gone and move.target in stays:
            yield _note_taken_away(move)


def _note_taken_away(move: Move) -> Note:
    target = visible_path(move.target)
    why = f"it was to become {target}, which was changed since; what it held is on record"
    return Note(move.source, why)


def _counted(
    attachment: Attachment,
    timeline: Timeline,
    call: Call,
    reverts: Sequence[int],
    stays: Collection[str],
) -> tuple[int, ...]:
    """Those of the numbers that are taken back: not one of which all that was to be done stays."""
    intended_paths = {change.path for change in intended(attachment.stored, call)[0]}
    steps = []
    for one in _changes_of(attachment.stored, call, reverts):
        taken = one.number in reverts or one.seq in reverts
        number = one.seq if taken and one.number is None else one.number
        steps.append(PathStep(one.seq, one.change, taken, number))
    facts = timeline.verified.files_changed(events_with_moves(steps))
    trace = trace_lineages(steps, {seq: fact.moves for seq, fact in facts.items()}, {})
    left: set[int] = set()
    done: set[int] = set()
    for lineage in trace.lineages:
        if paths := intended_paths.intersection(lineage.paths()):
            (left if paths <= {*stays} else done).update(lineage.calls(taken=True))
    return tuple(number for number in reverts if number not in left or number in done)


def _changes_of(
    stored: StoredLog, call: Call, reverts: Collection[int]
) -> Iterator[RecordedChange]:
    """All changes from the first of those taken back on to the undo, in log order."""
    began = [*reverts]
    for number in reverts:
        with suppress(NotFound):  # an event of no call
            began.append(stored.reading.call_at(number).requested)
    if began:
        yield from stored.reading.changes(after=min(began) - 1, until=call.requested)
