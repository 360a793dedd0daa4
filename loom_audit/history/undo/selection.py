"""Selects what a request takes back: calls, single events, or everything after a point."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from loom_audit.errors import Conflict, InvalidArguments, NotFound
from loom_audit.history.ground.attachment import Attachment, StoredLog, is_undo
from loom_audit.history.look.attribution import candidates, request_event
from loom_audit.history.look.doers import UNKNOWN, Candidate, by_doers
from loom_audit.history.look.survivor_changes import SurvivorChanges
from loom_audit.history.look.survivors import Window
from loom_audit.history.look.timing import look_between
from loom_audit.history.read.call_detail import changed_git_alone, git_of
from loom_audit.history.read.timeline import Timeline
from loom_audit.history.record.listings.baseline import baseline_end
from loom_audit.history.record.open_calls import open_call_error
from loom_audit.history.undo.dealt_with import DealtWith, dealt_with, dealt_with_elsewhere
from loom_audit.history.undo.interrupted_since import check_interrupted_since
from loom_audit.history.undo.limits import (
    all_names,
    changes_of,
    is_below_any,
    moved_with,
    paths_with_moves,
)
from loom_audit.history.undo.notes import git_notes, unwritten_notes
from loom_audit.history.undo.passed_over import calls_changing_git, may_have_done
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import FilesChanged
from loom_audit.model.files import FileChange
from loom_audit.model.plans.planning import Note, how_to_choose
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.plans.taking_back.taken_back import TakenBack
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.text.display import count_text
from loom_audit.ports import CallFilter, EventFilter


class Selection(Struct, frozen=True):
    """What a request takes back: whole calls and single events, or in a rollback all after a point.

    `target` says it in words, `events` are the seqs of events that are of no call, and `since` is
    the seq of the point. `back` is what calls took back, and `before` what there is nothing left to
    do about. `running` are the seqs of the requests of open calls whose shared changes a
    rollback takes back too. `changes` are those of the calls and events, or all after the point, of
    which a plan takes some back.
    """

    target: str
    back: TakenBack
    changes: Sequence[RecordedChange]
    calls: tuple[Call, ...] = ()
    events: tuple[int, ...] = ()
    since: int = 0
    rollback: bool = False
    running: frozenset[int] = frozenset()
    before: DealtWith = DealtWith()
    paths: tuple[str, ...] = ()
    """What a request is limited to, with what moved from or to there; () without a limit."""
    passed_over: tuple[Note, ...] = ()
    """Notes on what later calls may have done, or did to git, than the one an undo takes back."""

    def is_asked_for(self, path: str) -> bool:
        """Whether a path is one that the request is limited to, or below one; True without."""
        return is_below_any(self.paths, path)

    def is_dealt_with(self, one: RecordedChange) -> bool:
        """Whether there is nothing left to do about a change."""
        names = {(one.seq, one.change.path), (one.number, one.change.path)}
        return not names.isdisjoint(self.before.paths | self.before.overtaken)

    def predicate(
        self, request: PlanRequest, survivor_changes: SurvivorChanges
    ) -> Callable[[RecordedChange], bool]:
        """A function that tells whether a recorded change is to be taken back.

        What may be somebody else's work is kept, unless a person chose to take it back.
        `survivor_changes` says which ended call a change is of that was found later.
        """
        if self.rollback:
            return partial(self._is_taken_by_rollback, request, survivor_changes)
        calls = frozenset(call.requested for call in self.calls)
        return partial(self._is_taken_with_calls, request, survivor_changes, calls)

    def _is_taken_by_rollback(
        self, request: PlanRequest, survivor_changes: SurvivorChanges, one: RecordedChange
    ) -> bool:
        """Whether a rollback takes a change back: that of a call after the point.

        One from outside, or of which nobody saw who made it, where a call is known to own it, where
        it is chosen, or where the rollback takes back what open calls may have done.
        """
        path = one.change.path
        if one.seq <= self.since or not self.is_asked_for(path):
            return False
        if one.origin == "outside" or UNKNOWN in one.causes:
            running = one.origin != "outside" and not self.running.isdisjoint(one.causes)
            chosen = request.outside or request.choices.get(path) == "old"
            return chosen or running or bool(_owners(one, survivor_changes))
        return one.origin != "baseline"

    def _is_taken_with_calls(
        self,
        request: PlanRequest,
        survivor_changes: SurvivorChanges,
        calls: frozenset[int],
        one: RecordedChange,
    ) -> bool:
        """Whether a change is taken back with the selected events, or with these calls.

        A shared one only where all calls that may have made it are taken back, or where the old
        state of its path is chosen.
        """
        path = one.change.path
        old = request.choices.get(path) == "old"
        if not self.is_asked_for(path):
            return False
        if not old and self.is_dealt_with(one):
            return False
        if one.seq in self.events:
            return True
        if one.causes or one.told_later:
            if calls.isdisjoint((one.requested, *one.causes, *one.told_later)):
                return False
            if old:
                return True
            # a candidate that is not taken back may have made the change, as may a person
            owners = _owners(one, survivor_changes)
            return bool(owners) and calls.issuperset(owners)
        return one.requested in calls


def _owners(one: RecordedChange, survivor_changes: SurvivorChanges) -> Collection[int]:
    """The calls whose taking back takes a change back; none where only a choice does."""
    if UNKNOWN in one.causes or one.told_later:
        return ()
    if one.origin == "outside":
        return survivor_changes.owners(one.change, one.causes)
    is_own = one.requested is not None and one.requested not in one.causes
    return [one.requested] if is_own and one.requested else one.causes


def select(request: PlanRequest, attachment: Attachment, timeline: Timeline) -> Selection:
    """Select what a request names, or for an undo and a redo the newest call that can be meant.

    NotFound where there is none, or the point lies before the end of the baseline; InvalidArguments
    for a target that is not a number, session or point; Conflict for a call that is open, and where
    the newest call was interrupted and what it may have changed stands.
    """
    stored, session = attachment.stored, request.session
    back = stored.tables.taken_back()
    if request.verb == "undo":
        call = _named_or_newest(request, attachment)
        passed_over = may_have_done(stored, session, call.requested)
        if not request.targets:
            check_interrupted_since(attachment, session, call, passed_over)
        changes = changes_of(stored, [call], ())
        done = dealt_with(stored, timeline, back, changes)
        if not request.targets:
            later = calls_changing_git(stored, session, call.requested)
            passed_over = (*passed_over, *git_notes(stored.log, later))
            if request.git_config:
                undone = calls_changing_git(stored, session, call.requested, taken_back=True)
                passed_over = (*passed_over, *unwritten_notes(stored.log, undone))
        return Selection(_label(call), back, changes, (call,), passed_over=passed_over, before=done)
    if request.verb == "redo":
        call = newest_undo(attachment, session)
        calls = (call, *_begun_redos(stored, call))
        changes = changes_of(stored, calls, ())
        done = dealt_with(stored, timeline, back, changes)
        return Selection(_label(call), back, changes, calls, before=done)
    if request.verb == "rollback":
        return _select_after_point(request, attachment, timeline, back)
    return _select_named(request, attachment, timeline, back)


def _select_named(
    request: PlanRequest, attachment: Attachment, timeline: Timeline, back: TakenBack
) -> Selection:
    """Select the calls and events that a revert names."""
    if not request.targets:
        raise InvalidArguments(
            "revert needs at least one call, event or session",
            hint="`loom-audit log` lists the calls with their numbers.",
        )
    calls: dict[tuple[str, str], Call] = {}
    events: list[int] = []
    for target in request.targets:
        for one in _find_named(target, attachment):
            if isinstance(one, int):
                events.append(one)
            else:
                calls[one.session, one.call_id] = one
    if still_open := [call for call in calls.values() if call.seq is None]:
        raise open_call_error(attachment, still_open)
    listed = ", ".join(str(target) for target in request.targets)
    asked = tuple(calls.values())
    changes = changes_of(attachment.stored, asked, events)
    numbers = {*events, *(call.seq for call in asked if call.seq)}
    paths = paths_with_moves(request.paths, timeline, changes)
    done = dealt_with(attachment.stored, timeline, back, changes, numbers, paths)
    old = [path for path, choice in request.choices.items() if choice == "old"]
    # a move is taken back at both ends
    chosen = moved_with(old, timeline, changes)
    return Selection(
        listed,
        back,
        changes,
        asked,
        tuple(events),
        before=done.without(chosen),
        paths=paths,
    )


def _find_named(target: int | str, attachment: Attachment) -> Iterable[Call | int]:
    """The calls that a target names, or the seq of an event that is of no call."""
    text = str(target)
    if text.startswith("session:"):
        id = text.removeprefix("session:")
        attachment.stored.reading.session(id)
        filter = CallFilter(session=id, changed_only=True, limit=None, newest_first=False)
        return attachment.stored.reading.calls(filter)
    if not re.fullmatch("[0-9]{1,100}", text):
        raise InvalidArguments(
            f"{text[:100]!r} is not the number of a call",
            hint="Name a call by its number, or session:ID.",
        )
    seq = int(text)
    for event in attachment.stored.log.read(EventFilter.only(seq)):
        if isinstance(event.fact, FilesChanged) and event.fact.call_id is None:
            if event.fact.origin == "baseline":
                raise InvalidArguments(
                    f"event {seq} is the baseline; it cannot be reverted",
                    hint="Name a later call: `loom-audit log` lists them.",
                )
            return [seq]
    return [attachment.stored.reading.call_at(seq)]


def _select_after_point(
    request: PlanRequest, attachment: Attachment, timeline: Timeline, back: TakenBack
) -> Selection:
    """Select everything after the one point that a rollback names."""
    if len(request.targets) != 1:
        raise InvalidArguments(
            "rollback needs one point",
            hint="Name a call's number, a time, @checkpoint or session:ID.",
        )
    point = timeline.exact_point(request.targets[0])
    first = baseline_end(attachment.stored)
    if not first or point < first:
        raise NotFound(
            f"point {point} is before the baseline was complete",
            hint=f"The earliest is {first}." if first else "`loom-audit init` completes it.",
        )
    for path in request.paths:
        seen = not path or attachment.stored.tables.history(path, below=True, limit=1)
        if not seen and attachment.on_disk.workspace.stamp(path) is None:
            hint = "Name a file or folder that `loom-audit ls --at POINT` lists."
            raise NotFound(f"{path} is not on disk and was never on record", hint=hint)
    calls = attachment.stored.tables.open_calls() if request.running else ()
    running = frozenset(call.requested for call in calls)
    changes = [*attachment.stored.reading.changes(after=point)]
    paths = all_names(request.paths, timeline, changes)
    return Selection(
        f"point {point}",
        back,
        changes,
        since=point,
        rollback=True,
        running=running,
        before=dealt_with_elsewhere(back, changes, paths, point),
        paths=paths,
    )


def as_recorded(
    attachment: Attachment, changes: Sequence[FileChange], among: Sequence[Candidate]
) -> list[RecordedChange]:
    """Changes on disk that are not on record yet, as they will be recorded.

    They get the seq that the next event will have. A change is listed under the first of the
    candidates that may have made it; from outside where only ended calls may have made it, with
    those as its causes.
    """
    found = []
    head, now = attachment.stored.log.head(), attachment.stored.clock.now()
    for doers, part in by_doers(changes, among, look_between(attachment, among)).items():
        whose = None if doers.outside else doers.among[0]
        for change in part:
            one = RecordedChange(
                head + 1,
                now,
                whose.session if whose else "",
                whose.actor if whose else OUTSIDE,
                "command" if whose else "outside",
                whose.call_id if whose else None,
                doers.causes,
                change,
                requested=whose.requested if whose else None,
            )
            found.append(one)
    return found


def may_be_changing(attachment: Attachment) -> Sequence[Candidate]:
    """The open calls that may be changing files, and the ended ones that left something running."""
    return Window.begin(attachment).with_survivors(candidates(attachment))


def _label(call: Call) -> str:
    return f"call {call.seq} ({call.tool})"


UNDO_AND_REDO = frozenset({"undo", "redo"})


def _named_or_newest(request: PlanRequest, attachment: Attachment) -> Call:
    """The call that an undo names, else the newest that can be taken back.

    NotFound, also for one of another session; Conflict for one that is open, took back others, is
    taken back already or changed nothing.
    """
    if not request.targets:
        settings = request.git_config
        return newest_undoable(attachment, request.session, not request.no_git, settings=settings)
    [number] = request.targets
    nothing = NotFound(f"this session has no call {number}", hint=_WHERE_CALLS)
    try:
        call = attachment.stored.reading.call_at(int(number))
    except NotFound as error:
        raise nothing from error
    if call.session != request.session:
        raise nothing
    if call.seq is None:
        raise open_call_error(attachment, [call])
    why = (
        "took back others"
        if is_undo(call) and _is_whole(call)
        else f"is taken back already, by call {call.undone_by}"
        if call.undone_by is not None
        else ""
        if call.changed or (not request.no_git and changed_git_alone(attachment.stored.log, call))
        else "changed only git, which stays"
        if git_of(attachment.stored.log, [call])
        else "changed nothing that is on record"
    )
    if why:
        raise Conflict(f"call {call.seq} ({call.tool}) {why}", hint=_WHERE_CALLS)
    return call


_WHERE_CALLS = "`history` without a path lists the calls of this session."


def newest_undoable(
    attachment: Attachment, session: str | None, with_git: bool = False, *, settings: bool = False
) -> Call:
    """The newest call with changes that is not taken back, of one session or of any; NotFound.

    One that changed only git is one `with_git`, and only hooks and settings of it with `settings`.

    Undos and redos are passed over, since undoing twice must go two calls back. One that did not
    come to its end is a call like any other: it took no call back as a whole.
    """

    def is_wanted(call: Call) -> bool:
        return not (_is_undo_by(call, *UNDO_AND_REDO) and _is_whole(call))

    return _newest(attachment, session, is_wanted, "undo", with_git=with_git, settings=settings)


def newest_undo(attachment: Attachment, session: str | None) -> Call:
    """The newest undo that came to its end and is not taken back; NotFound where there is none.

    Of one session, or of any for None.
    """

    def is_wanted(call: Call) -> bool:
        return _is_undo_by(call, "undo") and _is_whole(call)

    return _newest(attachment, session, is_wanted, "redo")


def _begun_redos(stored: StoredLog, undo: Call) -> Iterator[Call]:
    """The redos of an undo that did not come to their end and are not taken back.

    A new redo takes back the undo and these together.
    """
    wanted = CallFilter(after=undo.requested, tool="redo", changed_only=True, limit=None)
    for call in stored.reading.calls(wanted):
        begun = _is_undo_by(call, "redo") and call.seq and not _is_whole(call)
        if begun and call.undone_by is None:
            asked = request_event(stored, call)[1].arguments
            if isinstance(asked, dict) and asked.get("target") == _label(undo):
                yield call


def _newest(
    attachment: Attachment,
    session: str | None,
    wanted: Callable[[Call], bool],
    verb: str,
    *,
    with_git: bool = False,
    settings: bool = False,
) -> Call:
    """The newest call that is wanted, changed something and is not taken back; NotFound."""
    stored = attachment.stored
    before: int | None = None
    size = 10  # one is wanted, mostly among the newest; each page is twice as long as the last
    while page := stored.reading.calls(CallFilter(session=session, before=before, limit=size)):
        changing = git_of(stored.log, page) if with_git else {}
        for call in page:
            acted = call.changed > 0 or (call.status == "ok" and call.reverts and is_undo(call))
            if not acted and call.requested in changing:
                acted = changed_git_alone(stored.log, call, settings=settings)
            if call.seq and acted and call.undone_by is None and wanted(call):
                return call
        before, size = page[-1].requested, min(2 * size, 500)
    where = f"in session {session}" if session else "in any session"
    hint, details = "`loom-audit log` lists the calls, and by which each was taken back.", {}
    if verb == "undo" and (left := may_have_done(stored, session)):
        calls = sorted({number for note in left for number in note.calls}, reverse=True)
        hint = (
            f"{how_to_choose(left)}; `loom-audit show {calls[0]}` names what it may have changed."
        )
        details = {"calls": calls, "paths": [note.path for note in left[:NAMED]]}
    elif verb == "undo" and (calls_of_git := calls_changing_git(stored, session)):
        notes = git_notes(stored.log, calls_of_git[:NAMED])
        more = count_text(len(notes) - 1, "earlier call")
        hint = f"{notes[0].reason}{f'; {more} did too' if notes[1:] else ''}. {hint}"
        details = {"calls": [number for note in notes for number in note.calls]}
    undone = calls_changing_git(stored, session, taken_back=True) if settings else ()
    for note in [*unwritten_notes(stored.log, undone)][:1]:
        hint = f"{note.reason}. {hint}"
    raise NotFound(f"nothing to {verb} {where}", hint=hint, details=details)


NAMED = 100
"""Paths that the details of an error list."""


def _is_undo_by(call: Call, *verbs: str) -> bool:
    return is_undo(call) and call.tool in verbs


def _is_whole(call: Call) -> bool:
    """Whether an undo or redo came to its end; else it took back no call as a whole."""
    return call.status == "ok"
