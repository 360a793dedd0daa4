"""Notes of plans on whole calls, and on changes that several may have made."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from loom_audit.errors import PermissionDenied
from loom_audit.history.ground.attachment import OnDisk, StoredLog
from loom_audit.history.look.doers import UNKNOWN
from loom_audit.history.look.special_files import displaced_special_files
from loom_audit.history.read.call_detail import git_now, git_of
from loom_audit.history.read.timeline import Timeline
from loom_audit.model.files import FileState
from loom_audit.model.git.record import CHANGED_GIT, NOT_TAKEN_BACK, GitChanged, is_setting
from loom_audit.model.git.words import words_of
from loom_audit.model.plans.planning import MOVED_THERE, TAKEN_BACK, Note, Plan
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.text.display import duration_text, first_few, one_line, visible
from loom_audit.ports import CallFilter, EventLog

KEPT_CONTENT = "`loom-audit ls` and `cat` with `--at` show what is on record of it"

LONG_RUN = 60_000_000
"""Microseconds from which on it is said that others may have worked beside a call."""


def taken_back_notes(
    taken_back_by: Mapping[int, int], selected: Sequence[RecordedChange]
) -> Iterator[Note]:
    """Notes on calls and events of which everything is taken back already."""
    left = {one.seq for one in selected} | {one.number for one in selected}
    for number, by in sorted(taken_back_by.items()):
        if number not in left:
            yield Note("", f"{number} {TAKEN_BACK}, by call {by}", (number,))


def uncaptured_notes(calls: Iterable[Call], back: Collection[str] = ()) -> tuple[Note, ...]:
    """Notes on effects of these calls that were not captured, so that nothing takes them back.

    `back` are paths of git folders that come back all the same.
    """
    notes = []
    known = {*CHANGED_GIT, *(f"not on record: {visible(path)}" for path in back)}
    for call in calls:
        number = call.seq or call.requested
        reasons = [
            one
            for one in call.coverage.reasons
            # the plan says by itself what stays of git
            if not (one in known or one.startswith(NOT_TAKEN_BACK))
        ]
        if call.coverage.level != "full" and (reasons or not call.coverage.reasons):
            why = "; ".join(reasons) or "no reason is on record"
            notes.append(
                Note("", f"what call {number} did that was not captured: {why}", (number,))
            )
        if call.effect == "network":
            notes.append(Note("", f"call {number} reached the network", (number,)))
    return tuple(notes)


def lost_notes(
    timeline: Timeline, on_disk: OnDisk, point: int, is_asked_for: Callable[[str], bool]
) -> Iterator[Note]:
    """Notes on what a rollback to a point does not bring back, as nobody saw how it went.

    It was on record at the point, could not be read later, and is not on disk. Corrupt.
    """
    for path in sorted(filter(is_asked_for, timeline.verified.untracked())):
        if not timeline.state(path, point):
            continue
        with suppress(PermissionDenied):  # then something may be there, which stays
            if on_disk.workspace.stamp(path) is None:
                yield Note(path, f"it could not be read later, and is gone; {KEPT_CONTENT}")


def git_notes(log: EventLog, calls: Sequence[Call]) -> tuple[Note, ...]:
    """Notes on what those of some calls changed of git which did, in git's words. Corrupt."""
    told = git_of(log, calls)
    return tuple(
        Note("", f"call {number} changed git, which stays{how}", (number,))
        for call in calls
        if call.requested in told
        for number in [call.seq or call.requested]
        for how in [_git_text(told[call.requested])]
    )


def _git_text(told: Sequence[GitChanged]) -> str:
    words = [one_line(text, 100) for text in words_of(told)]
    return f": {first_few(words, 5, str)}" if words else ""


def unwritten_notes(log: EventLog, calls: Sequence[Call]) -> Iterator[Note]:
    """Notes on those of some calls, which count as taken back, whose hooks and settings of git are
    as they left them: no undo writes these that was not asked to. Corrupt.
    """
    if not calls:
        return
    told, points = git_of(log, calls), git_now(log)
    for call in calls:
        changed: dict[tuple[str, str], tuple[FileState | None, FileState | None]] = {}
        for fact in told.get(call.requested, ()):
            if fact.is_first or fact.is_gone or fact.folder in points.with_refs_elsewhere:
                continue
            for one in filter(lambda change: is_setting(change.path), fact.changes):
                before, _ = changed.get((fact.folder, one.path), (one.before, None))
                changed[fact.folder, one.path] = before, one.after
        if any(
            before != after == points.states[folder].files.get(path)
            for (folder, path), (before, after) in changed.items()
        ):
            number = call.seq or call.requested
            asked = f"`loom-audit revert {number} --git-config`"
            said = f"{asked} takes back hooks and settings of git that call {number} changed"
            yield Note("", said, (number,))


def displaced_notes(on_disk: OnDisk, plan: Plan) -> Iterator[Note]:
    """Notes on sockets and the like that are renamed where a file comes back in their place."""
    for path, name in displaced_special_files(on_disk, plan.changes):
        yield Note(name, f"what is at {path} is not a file; {MOVED_THERE}")


def long_run_notes(stored: StoredLog, selected: Sequence[RecordedChange]) -> tuple[Note, ...]:
    """Notes on calls that ran for long and whose changes were found by a look at their end.

    What a person or another program changed meanwhile was found by that look, too.
    """
    numbers = tuple({one.number or 0 for one in selected if one.origin == "command"})
    calls = stored.reading.calls(CallFilter(numbers=numbers, newest_first=False, limit=None))
    return tuple(
        Note(
            "",
            f"call {call.seq} ran for {duration_text(call.duration)} from"
            f" {call.at:%Y-%m-%d %H:%M:%S} UTC on: what changed meanwhile and is of no other call"
            " counts as its own, with edits of yours and of other programs",
            (call.seq,),
        )
        for call in calls
        if call.seq and call.effect == "execute" and call.duration >= LONG_RUN
    )


def shared_note(one: RecordedChange, calls: Collection[int], number: Callable[[int], int]) -> Note:
    """A note on why a shared change stays, with the numbers of the calls that may have made it.

    `calls` are those taken back, by the seqs of their requests; none in a rollback. `number` gives
    the number of a call by the seq of its request.
    """
    path = one.change.path
    if one.told_later:
        maybe = (*one.causes, *one.told_later)
        who = [requested for requested in maybe if requested in calls or not calls]
        how = "from outside" if one.origin == "outside" else "as shared"
        reason = f"it is on record {how}, and was told later to be maybe a call's"
    elif UNKNOWN in one.causes:
        who = [requested for requested in one.causes if requested in calls or not calls]
        reason = "nobody saw who did it: it may have been a call, or a person"
    elif one.origin == "outside":
        who = [requested for requested in one.causes if requested in calls or not calls]
        reason = "it came from outside, or from what the call left running"
    else:
        who = [requested for requested in one.causes if requested not in calls]
        reason = "something else ran at the same time and may have done it"
    return Note(path, reason, tuple(map(number, filter(None, who))))
