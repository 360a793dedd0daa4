"""Finishes an undo that was interrupted: does what was not done yet, on record as that undo's."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from loom_audit.errors import NotFound
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import request_event
from loom_audit.history.read.timeline import Timeline
from loom_audit.history.record.call import OpenCall
from loom_audit.history.record.call_record import CallRecord
from loom_audit.history.record.git.unfinished import (
    close_restores,
    continue_restores,
    git_intentions,
)
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
from loom_audit.history.undo.kept_when_finished import kept_when_finished
from loom_audit.model.calls import IN_PART
from loom_audit.model.files import FileChange, Move, is_directory, moves_among
from loom_audit.model.plans.lineage import PathStep, events_with_moves, trace_lineages
from loom_audit.model.plans.planning import Note
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.text.display import count_text, first_few, visible

GIT_AFTER = "git_after"
"""Where the arguments of an undo have the folders whose repositories it builds after the files."""

NAMED = 8
"""Kept paths that the output of the call names; the data of its result lists all of them."""


def finish(attachment: Attachment, timeline: Timeline, call: Call, actor: str) -> RecoveredCall:
    """Do what an interrupted undo did not do yet; close one that had changed nothing.

    What somebody changed since the interruption stays as it is, and so does what cannot be done
    without changing that: `kept` of the result names each path with its reason. A call of which all
    changes are kept so is not on record as taken back. `actor` is who decided to go on.
    """
    with attachment.exclusive():
        remove_temporaries(attachment, [call], everywhere=True)
        if not any(True for _ in intentions(attachment.stored, call)):
            close_restores(attachment, [call])  # nothing of git was begun either
            return close_calls(attachment, [call])[0]
        continue_restores(attachment, call)
        close_opened(attachment, call)
        comparison = compare_with_disk(attachment, call)
        kept = kept_when_finished(attachment, call, comparison)
        record = CallRecord(writer_of(attachment, call), call.call_id)
        add_outcome(record, call, comparison)
        record.commit_and_index()
    kept = _do_rest(attachment, timeline, call, actor, record.writer, comparison, kept)
    finished = attachment.stored.reading.call(call.session, call.call_id)
    return RecoveredCall(finished, tuple(comparison.outcomes.items()), kept=kept)


def _do_rest(
    attachment: Attachment,
    timeline: Timeline,
    call: Call,
    actor: str,
    writer: Writer,
    comparison: Comparison,
    notes: Sequence[Note],
) -> tuple[Note, ...]:
    """Make the changes that are not made yet, but at the paths of the notes, and finish the call.

    Returns the notes on all that is kept.
    """
    kept_paths = {note.path for note in notes}
    kept = (*notes, *_taken_away(attachment, call, comparison, kept_paths))
    left = [change for change in comparison.remaining if change.path not in kept_paths]
    _, moves = intended(attachment.stored, call)
    *_, last = begun = [*intentions(attachment.stored, call, first=True)]
    said = [f"continued by {actor} after an interruption"]
    arguments = request_event(attachment.stored, call)[1].arguments
    stages = _stages(arguments)
    if len(begun) < stages:
        said.append(f"{len(begun)} of {stages} stages are done, plan again for the rest")
    with OpenCall.resumed(writer, call) as resumed:
        if kept:
            resumed.result["data"] = {"kept": [[note.path, note.reason] for note in kept]}
            named = first_few(kept, NAMED, lambda one: f"{visible(one.path)}: {one.reason}")
            said.append(f"{count_text(len(kept), 'path')} kept: {named}")
        restored = {one.folder for one in git_intentions(attachment.stored, call)}
        unbuilt = [one for one in _built_late(arguments) if one not in restored]
        if unbuilt:
            named = first_few(unbuilt, NAMED, visible)
            said.append(f"git is not brought back, plan again for it: {named}")
        resumed.result["output"] = "; ".join(said)
        of_git = bool(restored)
        if not (left or of_git or "happened" in comparison.outcomes.values()):
            message = f"nothing was taken back; {said[-1]}"
            error = {"code": "CONFLICT", "message": message, "hint": "Plan again."}
            resumed.finish("error", {**resumed.result, "success": False, "error": error})
            return kept
        whole = len(begun) == stages and not unbuilt
        if whole and (parts := _in_part(arguments, kept_paths)):
            resumed.result[IN_PART] = parts
        # only the last stage takes calls back: before it no call is taken back as a whole
        reverts = () if unbuilt else last.reverts
        if kept_paths and reverts:
            reverts = _without_kept_calls(attachment, timeline, call, last.reverts, kept_paths)
        resumed.apply(left, moves=moves_among(left, moves), reverts=reverts, final=True)
    return kept


def _built_late(arguments: object) -> Sequence[str]:
    """The folders whose repositories an undo of these arguments builds after the files."""
    return arguments.get(GIT_AFTER, ()) if isinstance(arguments, dict) else ()


def _stages(arguments: object) -> int:
    """The number of stages in which an undo of these arguments is done, each with an intention."""
    return arguments.get("stages", 1) if isinstance(arguments, dict) else 1


def _in_part(arguments: object, kept_paths: Collection[str]) -> dict[str, list[str]]:
    """The paths of calls taken back in part, as an undo of these arguments was to: without kept."""
    parts = arguments.get(IN_PART) if isinstance(arguments, dict) else None
    return {n: [p for p in paths if p not in kept_paths] for n, paths in (parts or {}).items()}


def _taken_away(
    attachment: Attachment, call: Call, comparison: Comparison, kept_paths: Collection[str]
) -> Iterator[Note]:
    """Notes on the sources of moves that are gone, and whose target somebody changed since.

    Either the move never came to its target, so that the file is at neither path, or it came there
    and was changed since. Which of the two cannot be told from what is on disk.
    """
    changes, moves = intended(attachment.stored, call)
    by_path: dict[str, FileChange] = {change.path: change for change in changes}
    for move in moves:
        source, target = by_path.get(move.source), by_path.get(move.target)
        if source is None or target is None or is_directory(source.before):
            continue
        gone = source.after is None and comparison.outcomes[move.source] == "happened"
        if gone and move.target in kept_paths:
            yield _note_taken_away(move)


def _note_taken_away(move: Move) -> Note:
    target = visible(move.target)
    why = f"it was to become {target}, which was changed since; what it held is on record"
    return Note(move.source, why)


def _without_kept_calls(
    attachment: Attachment,
    timeline: Timeline,
    call: Call,
    reverts: Sequence[int],
    kept_paths: Collection[str],
) -> tuple[int, ...]:
    """The numbers of calls that are taken back: without those of which all changes are kept.

    A change of a call is followed through moves to the paths that the undo was to change.
    """
    intended_paths = {change.path for change in intended(attachment.stored, call)[0]}
    steps = []
    for one in _changes_of(attachment.stored, call, reverts):
        taken = one.number in reverts or one.seq in reverts
        number = one.seq if taken and one.number is None else one.number
        steps.append(PathStep(one.seq, one.change, taken, number))
    facts = timeline.verified.files_changed(events_with_moves(steps))
    trace = trace_lineages(steps, {seq: fact.moves for seq, fact in facts.items()}, {})
    kept: set[int] = set()
    done: set[int] = set()
    for lineage in trace.lineages:
        if paths := intended_paths.intersection(lineage.paths()):
            (kept if paths <= {*kept_paths} else done).update(lineage.calls(taken=True))
    return tuple(number for number in reverts if number not in kept or number in done)


def _changes_of(
    stored: StoredLog, call: Call, reverts: Collection[int]
) -> Iterator[RecordedChange]:
    """The changes on record from the first one that is taken back up to the undo, in log order."""
    began = [*reverts]
    for number in reverts:
        with suppress(NotFound):  # an event of no call
            began.append(stored.reading.call_at(number).requested)
    if began:
        yield from stored.reading.changes(after=min(began) - 1, until=call.requested)
