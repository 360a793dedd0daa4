"""Puts the sessions of other programs on record: a report begins a call, another one ends it.

The two may come to different processes, so everything that the end needs is in the log or kept
beside the index. While a call is open, the lease of its session says by which process it lives:
recovery ends it once that process is gone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import Conflict, InvalidArguments, NotFound, NoWorkspace
from loom_audit.history.ground.attachment import (
    CLIENT,
    CLIENT_UNSEEN,
    Attachment,
    StoredLog,
    is_undo,
    session_lock,
)
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import changes_by_itself, request_event
from loom_audit.history.look.doers import Told
from loom_audit.history.look.survivors import Running
from loom_audit.history.look.timing import keep_clock
from loom_audit.history.record.call import OpenCall, exclusive
from loom_audit.history.record.call_record import NOT_SEEN_BEFORE
from loom_audit.history.record.hold import (
    check_not_denied,
    denial,
    deny_if_on_hold,
    keep_hold_for_hooks,
)
from loom_audit.history.record.looks import look_after, look_before, note_left_running
from loom_audit.history.record.out_of_scope import changed_reasons, contents_before
from loom_audit.history.record.recovery import (
    WORKSPACE_GONE,
    close_calls,
    decision_needed,
    recover,
)
from loom_audit.history.record.watching import note_command
from loom_audit.model.calls import takes_back
from loom_audit.model.coverage import Coverage, Status
from loom_audit.model.events import (
    CallFinished,
    CallReported,
    CallRequested,
    CoverageLowered,
    Event,
    SessionEnded,
    SessionStarted,
)
from loom_audit.model.records import Call, Session
from loom_audit.ports import EventFilter

RAN_DENIED = "ran though it was denied"
"""The reason of the coverage of a call whose client never had the denial: its hook was ended."""

ENDED_BY_HAND = "the session was ended before the end of this call was reported"
"""The reason of the coverage of a call that was open when somebody ended its session."""


class Reporter(Struct, frozen=True):
    """What a look at the workspace has to know of the client that reports a call.

    `asking` gives the ids of the processes that only report: a call did not start them. `is_there`
    says whether the client still waits for our answer to its hook; a report is `at_hand` when that
    hook tells it, and not a transcript. `told` gives what the client told of the ends of calls by
    now, by the seqs of their requests: who made a change is decided by it where the client may have
    gone on before the look.
    """

    asking: Callable[[], Collection[int]] = tuple
    is_there: Callable[[], bool] = lambda: True
    told: Callable[[], Mapping[int, Told]] = dict
    at_hand: bool = True

    def waits(self) -> bool:
        """Whether the client does nothing until its report is on record: then a look is in time."""
        return self.at_hand and self.is_there()


_CALLER = Reporter()
"""A program that reports by calling our Python functions, and waits until they return."""


def start_session(writer: Writer, started: SessionStarted) -> None:
    """Put on record that a session with a lease begins, or that it goes on under another lease.

    A session that is open under this lease stays as it is. Calls that another process of the
    client left open are closed once that process has ended. Conflict for a session of ours, and for
    one that is open and whose process is another one that still runs.
    """
    attachment, session = writer.attachment, writer.session
    same = attachment.lease(session) == started.lease
    recover(attachment, sparing=session if same else "")
    with attachment.exclusive():
        known = find_session(attachment.stored, session)
        if known is not None:
            _check_free(attachment, known, started)
        if known is None or known.ended is not None or attachment.lease(session) != started.lease:
            writer.record(started)
        keep_clock(attachment.on_disk, session)
        keep_hold_for_hooks(attachment, session)  # it may have begun within a session that is held


def _check_free(attachment: Attachment, known: Session, started: SessionStarted) -> None:
    """Conflict for a session of ours, and for one that another running process reports."""
    lease = attachment.lease(known.id)
    if lease is None:
        raise Conflict(
            f"session {known.id} is not one that another program reports",
            hint="Give the session an id of its own.",
        )
    assert started.lease is not None
    same_process = replace(lease, seconds=0) == replace(started.lease, seconds=0)
    if known.ended is None and not same_process and attachment.on_disk.processes.is_alive(lease):
        raise Conflict(
            f"session {known.id} is open, and process {lease.pid} that reports it runs",
            hint="Give the session an id of its own, or end that process or "
            f"`loom-audit session end {known.id}` first.",
        )


def begin(
    writer: Writer,
    request: CallRequested,
    *,
    look: bool,
    watched: bool = False,
    reporter: Reporter = _CALLER,
) -> Event:
    """Put the request of a call on record, after a `look` at what others changed before it.

    Only a call that may change files by itself is looked at (`write`, `execute`), and only while
    the client waits: else the call may have begun already. Of its `paths` those out of scope are
    kept as they are, where no look goes. `watched` says that this process stays:
    the kernel then tells it, from the second look on, which folders it has to look at.

    Returns the event of the request; the one on record when the call was begun with the same
    before. Conflict when it was begun with something else, or the session is not an open one of
    another program; NotFound without a session. InvalidArguments when `within` is not the request
    of a call. ApprovalDenied, with the reason, while the session is held: the call is then on
    record as denied, and gets that answer also when it is told again.
    """
    attachment = writer.attachment
    if takes_back(request.tool, request.effect):
        # a call of such a name that writes is taken for our own undo, so it must not write
        request = replace(request, effect="execute")
    recover(attachment, sparing=writer.session)
    with exclusive(attachment):
        known = find_call(attachment.stored, writer.session, request.call_id)
        if known is not None:
            _check_foreign(attachment, known)
            event = _begun_before(attachment.stored, known, request)
            check_not_denied(attachment.stored, known)
            return event
        check_session_open(attachment, writer.session)
        _check_container(attachment.stored, request)
        # a client that waits no more may run the call whatever is denied, and tells what it did
        if not (gone := not reporter.waits()):
            deny_if_on_hold(replace(writer, source=CLIENT), request)
        looks = look and request.effect in ("write", "execute") and not gone
        source = CLIENT if looks or request.effect in ("read", "network") else CLIENT_UNSEEN
        call = OpenCall.from_request(replace(writer, source=source), request)
        if looks:
            if watched:
                note_command(attachment)
            for fact in contents_before(attachment, call.call_id, request.paths or ()):
                call.record.add(fact)
            look_before(call.record, within=request.within)
            Running(attachment).keep_look(*call.record.key, late=not reporter.waits())
        else:
            call.announce()
        begun = attachment.stored.reading.call(writer.session, request.call_id)
        return request_event(attachment.stored, begun)[0]


def end(
    writer: Writer,
    call_id: str,
    status: Status,
    result: Mapping[str, Any],
    *,
    look: bool,
    duration: int | None = None,
    reasons: Callable[[], Sequence[str]] = tuple,
    unseen: str = "",
    goes_on: bool = False,
    inferred: bool = False,
    reporter: Reporter = _CALLER,
) -> Event:
    """Put the finish of a call on record, after a `look` at what it changed.

    Of a call that has its finish already a `call.reported` is put on record, once; its status takes
    the place of one that was `inferred`, which means that nobody had told it. `duration` is in
    microseconds, by default from the begin to now. `reasons` lower the coverage, and are asked for
    after the look, since they compare with what is on disk then; `unseen` is why nothing at all was
    seen of the call. A call that `goes_on` left something running, whatever its status.

    Returns the event of the finish or of the report. NotFound for a call that was not begun;
    Conflict for one that no other program reports.
    """
    attachment = writer.attachment
    writer = replace(writer, source=CLIENT)
    with suppress(NoWorkspace):  # calls of processes that are gone are closed once it is back
        recover(attachment, sparing=writer.session)
    with exclusive(attachment):
        call = find_call(attachment.stored, writer.session, call_id)
        if call is None:
            raise NotFound(
                f"session {writer.session} has no call {call_id}",
                hint="Begin it before it is ended.",
            )
        _check_foreign(attachment, call)
        if call.seq is not None:
            return _report(writer, call, status, result)
        event, _ = request_event(attachment.stored, call)
        began = event.occurred_at or event.at
        if duration is not None:
            at = writer.occurred_at or attachment.stored.clock.now()
            writer, began = replace(writer, occurred_at=at), at - timedelta(microseconds=duration)
        ending = OpenCall.resumed(writer, call, began=began)
        if (seen := attachment.process.ended_calls.pop(ending.record.key, None)) is not None:
            ending.record.coverage, files = seen
            ending.record.add_changed_paths(files)
        elif changes_by_itself(attachment.stored, call):
            if status == "denied":
                # it did not run: what the look finds is not its doing, however late the look is,
                # and what was started meanwhile is the client's own
                before = ending.record.coverage
                _look(ending, call, reporter, look=look)
                ending.record.coverage = before
            else:
                goes_on = goes_on or status == "running"
                _look_at_end(ending, call, reporter, goes_on=goes_on, look=look)
        ending.record.lower_coverage(*reasons())
        if unseen:
            ending.record.coverage = Coverage("none", (unseen,))
        if call.effect == "network":
            ending.record.lower_coverage("outside the workspace: network")
        body = {**result, "files_changed": [*ending.files_changed]}
        finished = ending.finish(status, body, inferred=inferred)
    Running(attachment).discard_look(call)
    return finished


def let_run(writer: Writer, call: Call) -> None:
    """Look at the workspace once more, since a call that had to wait for an answer may run now.

    What changed while it waited is then on record as that of others.
    """
    if call.effect not in ("write", "execute"):
        return
    attachment = writer.attachment
    with exclusive(attachment):
        record = OpenCall.resumed(writer, call).record
        look_before(record)
        Running(attachment).keep_look(*record.key)


def end_background(writer: Writer, call_id: str, result: Mapping[str, Any]) -> Event:
    """Put on record, once, that what a call left running has ended; the event.

    `result` is told by the client. NotFound for a call that is not on record or has not ended.
    """
    call = find_call(writer.attachment.stored, writer.session, call_id)
    if call is None or call.seq is None:
        raise NotFound(
            f"session {writer.session} has no call {call_id} that has ended",
            hint="Tell the end of the call first.",
        )
    with exclusive(writer.attachment):
        return _report(replace(writer, source=CLIENT), call, "unknown", result)


def end_session(writer: Writer) -> Event:
    """Put the end of a session on record, and close the calls that are open in it.

    Returns the event of the end; the one on record when the session has ended already. Conflict
    while a process of ours records the session, and while an undo in it waits to be finished or
    left; NotFound for a session that is not on record.
    """
    attachment = writer.attachment
    with exclusive(attachment):
        session = attachment.stored.reading.session(writer.session)
        if session.ended is not None:
            wanted = EventFilter.only(session.ended)
            [event] = attachment.stored.log.read(wanted)
            return event
        if attachment.stored.lock.is_held(session_lock(session.id)):
            raise Conflict(
                f"session {session.id} belongs to a process that is running",
                hint="End that process.",
            )
        open_calls = attachment.stored.tables.open_calls()
        mine = [call for call in open_calls if call.session == session.id]
        for call in mine:
            if is_undo(call):
                raise decision_needed(call)
        close_calls(attachment, mine, ENDED_BY_HAND)
        [event] = writer.record(SessionEnded("interrupted" if mine else "completed"))
        return event


def look_at_end(writer: Writer, call_id: str, reporter: Reporter, *, goes_on: bool) -> None:
    """Record what a call changed that has ended, of which the client tells later how it ended.

    The look must not wait for that: whatever others change meanwhile would be taken for the call's.
    Its coverage is kept in this process until the finish. Nothing is done for a call that changes
    no files by itself, or was looked at before.
    """
    attachment = writer.attachment
    with exclusive(attachment):
        call = find_call(attachment.stored, writer.session, call_id)
        if call is None or call.seq is not None or not changes_by_itself(attachment.stored, call):
            return
        ending = OpenCall.resumed(replace(writer, source=CLIENT), call)
        if ending.record.key not in attachment.process.ended_calls:
            _look_at_end(ending, call, reporter, goes_on=goes_on)
            ending.record.commit_and_index()
            files = tuple(ending.files_changed)
            attachment.process.ended_calls[ending.record.key] = ending.record.coverage, files


def _look_at_end(
    ending: OpenCall, call: Call, reporter: Reporter, *, goes_on: bool, look: bool = True
) -> None:
    """Record what a call changed, how completely that is known, and what the call left running.

    What it left running is asked for before the look, since a process may end during the look.
    """
    running = Running(ending.record.attachment)
    left = running.left_running_by_client(call, reporter.asking, goes_on=goes_on)
    _look(ending, call, reporter, look=look)
    running.add_hooks(call.requested, left.hooks)
    note_left_running(ending.record, left)
    if goes_on and not left.tasks:
        running.add_client(call.requested)


def _look(ending: OpenCall, call: Call, reporter: Reporter, *, look: bool) -> None:
    """Record what a call changed, and how completely that is known."""
    record, attachment = ending.record, ending.record.attachment
    running = Running(attachment)
    running.recall_looks([call])
    event, _ = request_event(attachment.stored, call)
    seen = event.source == CLIENT and not running.was_late(call)
    if not look:
        record.lower_coverage("not looked at after it", level="none")
        return
    if not seen:
        record.lower_coverage(NOT_SEEN_BEFORE)
    try:
        ends = {} if seen and reporter.waits() else reporter.told()
        look_after(
            record,
            late=lambda: not (seen and reporter.waits()),
            heard=reporter.is_there,
            told=ends,
        )
        record.lower_coverage(*changed_reasons(attachment, call))
    except NoWorkspace:
        record.lower_coverage(WORKSPACE_GONE, level="none")


def _report(writer: Writer, call: Call, status: Status, result: Mapping[str, Any]) -> Event:
    """Put a report of a finished call on record, unless its finish or a report says the same.

    The report takes the place of the status of the finish where nobody had told that status, or
    where the client proves that a call ran which was denied.
    """
    assert call.seq is not None
    if status != "running":
        Running(writer.attachment).end_client(call.requested)
    kinds = (CallFinished.kind, CallReported.kind)
    told = EventFilter(after=call.seq - 1, kinds=kinds, session=call.session)
    inferred = ""
    for event in writer.attachment.stored.log.read(told):
        fact = event.fact
        if isinstance(fact, CallFinished | CallReported) and fact.call_id == call.call_id:
            said = fact.result if isinstance(fact.result, Mapping) else {}
            if (fact.status, _without_our_fields(said)) == (status, _without_our_fields(result)):
                return event
            if isinstance(fact, CallFinished):
                denied = (
                    fact.status == "denied" and denial(writer.attachment.stored, call) is not None
                )
                inferred = fact.status if fact.inferred or denied else ""
            elif fact.replaces is not None:
                inferred = ""
    report = CallReported(call.call_id, call.tool, status, dict(result))
    if not inferred or status == "unknown":
        return writer.record(report)[0]
    report = replace(report, replaces=call.seq, inferred=inferred)
    if inferred != "denied":
        return writer.record(report)[0]
    if not _has_run(status, result):
        return writer.record(replace(report, replaces=None, inferred=""))[0]
    # the client never had the denial, since its hook was ended: nobody looked at what the call did
    lowered = CoverageLowered((call.seq,), Coverage("none", (RAN_DENIED,)))
    return writer.record(report, lowered)[0]


def _has_run(status: Status, result: Mapping[str, Any]) -> bool:
    """Whether what the client tells of a call leaves no doubt that it ran."""
    data = result.get("data")
    exited = isinstance(data, Mapping) and "exit_code" in data
    return exited or status in ("ok", "running", "timeout")


def _without_our_fields(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """A result as the client told it, without the changed files that we add to it."""
    return {name: value for name, value in result.items() if name != "files_changed"}


def _begun_before(stored: StoredLog, call: Call, request: CallRequested) -> Event:
    """The event of the request of a call that is on record; Conflict where it differs from this.

    Without `names`: no program tells them, they are read from the text of the command here.
    """
    event, fact = request_event(stored, call)
    if replace(fact, names=None) != replace(request, names=None):
        raise Conflict(
            f"call {request.call_id} was begun with something else before",
            hint="Give every call an id of its own.",
            details={"requested": call.requested},
        )
    return event


def _check_foreign(attachment: Attachment, call: Call) -> None:
    """Conflict for a call of ours, also for an undo in a session of another program."""
    if is_undo(call) or attachment.lease(call.session) is None:
        raise Conflict(
            f"call {call.call_id} is not one that another program reports",
            hint="Give the program's call an id of its own.",
        )


def check_session_open(attachment: Attachment, session: str) -> None:
    """Conflict for a session of ours, and for one that has ended; NotFound without a session."""
    found = attachment.stored.reading.session(session)
    if attachment.lease(session) is None:
        raise Conflict(
            f"session {session} is not one that another program reports",
            hint="Start a session of its own for the program.",
        )
    if found.ended is not None:
        raise Conflict(f"session {session} has ended", hint="Start it again to go on with it.")


def _check_container(stored: StoredLog, request: CallRequested) -> None:
    """InvalidArguments where `within` is not the seq of the request of a call."""
    if request.within is None:
        return
    with suppress(NotFound):
        if stored.reading.call_at(request.within).requested == request.within:
            return
    raise InvalidArguments(
        f"event {request.within} is not the request of a call",
        hint="`within` is the seq of the request of the call that contains this one.",
    )


def find_call(stored: StoredLog, session: str, call_id: str) -> Call | None:
    """A call on record; None where there is none."""
    with suppress(NotFound):
        return stored.reading.call(session, call_id)
    return None


def find_session(stored: StoredLog, session: str) -> Session | None:
    """A session on record; None where there is none."""
    with suppress(NotFound):
        return stored.reading.session(session)
    return None
