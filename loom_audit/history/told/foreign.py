"""Calls of other programs: begun by a report, ended by another, maybe in another process.

Nothing is held between the two. While a call is open its session's lease says who ends it.
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
    UNDO_TOOLS,
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
from loom_audit.history.record.recovery import (
    WORKSPACE_GONE,
    close_calls,
    decision_needed,
    recover,
)
from loom_audit.history.record.watching import note_command
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
ENDED_BY_HAND = "the session was ended before the end of this call was reported"


class Reporter(Struct, frozen=True):
    """The client that reports of its calls, as far as looks at the workspace have to know of it.

    `asking` gives the ids of the processes that only report. `is_there` says whether the client
    still waits until its report is taken in; for a report that is not `at_hand`, which is one of a
    transcript, no client waits. `told` gives what was told of the ends of calls by now, by their
    requests; it counts where the client may have gone on.
    """

    asking: Callable[[], Collection[int]] = tuple
    is_there: Callable[[], bool] = lambda: True
    told: Callable[[], Mapping[int, Told]] = dict
    at_hand: bool = True

    def waits(self) -> bool:
        """Whether the client does nothing until its report is taken in."""
        return self.at_hand and self.is_there()


_ITSELF = Reporter()
"""A program that reports by calling us, and waits for it."""


def start_session(writer: Writer, started: SessionStarted) -> None:
    """Put a session with a lease on record, or that it goes on under another lease.

    Calls that another process of it left open are closed when that one has ended. Conflict for
    a session of ours, and for one that is open and whose process runs and is another.
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
        keep_hold_for_hooks(attachment, session)  # one that began in a session that is held


def _check_free(attachment: Attachment, known: Session, started: SessionStarted) -> None:
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
    reporter: Reporter = _ITSELF,
) -> Event:
    """Put a call on record as requested, with a look at what others changed before it.

    No look is taken where the client does not wait: the call may have begun. Where the workspace is
    `watched` this process stays, and the kernel tells it from the second look on where to look.

    The event of its request, again when it was begun like this before. Conflict when it was begun
    otherwise, or the session is not open; NotFound without a session. InvalidArguments when
    `within` is not the request of a call. ApprovalDenied, with the reason, while the session is
    held: the call is then on record as denied, and has that answer also when it is told again.
    """
    attachment = writer.attachment
    if request.tool in UNDO_TOOLS and request.effect == "write":
        request = replace(request, effect="execute")  # it is not taken for ours
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
        if not (gone := not reporter.waits()):  # else the client may run it, and tells what it did
            deny_if_on_hold(replace(writer, source=CLIENT), request)
        looks = look and request.effect in ("write", "execute") and not gone
        source = CLIENT if looks or request.effect in ("read", "network") else CLIENT_UNSEEN
        call = OpenCall.from_request(replace(writer, source=source), request)
        if looks:
            if watched:
                note_command(attachment)
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
    reporter: Reporter = _ITSELF,
) -> Event:
    """Finish a call with what it changed, as a look finds it where the workspace is not gone.

    A report of a call that is finished becomes a `call.reported`, once; its status takes the place
    of one that was `inferred`. `duration` is in microseconds, by default from the begin to now.
    `reasons` are asked for after the look and lower the coverage; `unseen` is why nothing of the
    call was seen. A call that `goes_on` left something running, whatever its status. The event.
    NotFound for a call that was not begun; Conflict for one that no other program reports.
    """
    attachment = writer.attachment
    writer = replace(writer, source=CLIENT)
    with suppress(NoWorkspace):  # the calls of others are closed when it is back
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
                # it did not run: what is found is not its doing, however late it is found, and
                # what was started meanwhile is the client's own
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
    """Look again, once a call may run that had to wait: until now it changed nothing."""
    if call.effect not in ("write", "execute"):
        return
    attachment = writer.attachment
    with exclusive(attachment):
        record = OpenCall.resumed(writer, call).record
        look_before(record)
        Running(attachment).keep_look(*record.key)


def end_background(writer: Writer, call_id: str, result: Mapping[str, Any]) -> Event:
    """Put on record that what a call left running has ended, once. NotFound, Conflict."""
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

    The event; the one on record when it has ended already. Conflict while a process of ours is
    recording it. NotFound.
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
    """Look at what a call changed that has ended, where its client tells later how it did."""
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
    """Record what a call changed, how far that is known, and what the call left running."""
    running = Running(ending.record.attachment)
    left = running.left_running_by_client(call, reporter.asking, goes_on=goes_on)
    _look(ending, call, reporter, look=look)
    running.add_hooks(call.requested, left.hooks)
    note_left_running(ending.record, left)
    if goes_on and not left.tasks:
        running.add_client(call.requested)


def _look(ending: OpenCall, call: Call, reporter: Reporter, *, look: bool) -> None:
    """Record what a call changed, and how far that is known."""
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
    except NoWorkspace:
        record.lower_coverage(WORKSPACE_GONE, level="none")


def _report(writer: Writer, call: Call, status: Status, result: Mapping[str, Any]) -> Event:
    """Put on record what was reported about a finished call, unless it is there already."""
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
            if (fact.status, _as_told(said)) == (status, _as_told(result)):
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
    # a denial that the client never had, as its hook was ended: nobody looked
    lowered = CoverageLowered((call.seq,), Coverage("none", (RAN_DENIED,)))
    return writer.record(report, lowered)[0]


def _has_run(status: Status, result: Mapping[str, Any]) -> bool:
    """Whether what is told of a call leaves no doubt that it ran."""
    data = result.get("data")
    exited = isinstance(data, Mapping) and "exit_code" in data
    return exited or status in ("ok", "running", "timeout")


def _as_told(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """A result without what we add to it."""
    return {name: value for name, value in result.items() if name != "files_changed"}


def _begun_before(stored: StoredLog, call: Call, request: CallRequested) -> Event:
    event, fact = request_event(stored, call)
    if replace(fact, names=None) != replace(request, names=None):
        raise Conflict(
            f"call {request.call_id} was begun with something else before",
            hint="Give every call an id of its own.",
            details={"requested": call.requested},
        )
    return event


def _check_foreign(attachment: Attachment, call: Call) -> None:
    """Conflict for a call that we make: also an undo, on record in the session it takes back."""
    if is_undo(call) or attachment.lease(call.session) is None:
        raise Conflict(
            f"call {call.call_id} is not one that another program reports",
            hint="Give the program's call an id of its own.",
        )


def check_session_open(attachment: Attachment, session: str) -> None:
    """Conflict for a session of ours, and for one that has ended."""
    found = attachment.stored.reading.session(session)
    if attachment.lease(session) is None:
        raise Conflict(
            f"session {session} is not one that another program reports",
            hint="Start a session of its own for the program.",
        )
    if found.ended is not None:
        raise Conflict(f"session {session} has ended", hint="Start it again to go on with it.")


def _check_container(stored: StoredLog, request: CallRequested) -> None:
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
