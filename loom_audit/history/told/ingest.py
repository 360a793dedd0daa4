"""Puts the reports of one session on record: those of a client's hooks and those of its transcript.

A hook tells a thing when it happens, and its client waits meanwhile, so that a look at the
workspace is in time. A transcript is written a moment later and may be read late; it is read from
its beginning again after a crash, so what it tells is compared with what is on record.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from loom_audit.clients.reports import (
    BackgroundEnded,
    CallBegan,
    CallEnded,
    FileTold,
    MessageTold,
    PromptTold,
    Report,
    SessionOver,
    TurnEnded,
)
from loom_audit.errors import Conflict, InvalidArguments, NotFound
from loom_audit.history.ground.attachment import CLIENT_UNSEEN, Attachment
from loom_audit.history.ground.client_ids import new_id_made
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import CLIENT_HOOKS, request_event
from loom_audit.history.look.doers import Told
from loom_audit.history.record.hold import deny_if_on_hold
from loom_audit.history.told import foreign
from loom_audit.history.told.calls_without_hook import add_unseen, announce_unseen
from loom_audit.history.told.client_hooks import OtherHooks
from loom_audit.history.told.copied_reports import Connected, is_copied, was_without_hooks
from loom_audit.history.told.file_comparison import is_as_told, reported_path, told_of_calls
from loom_audit.history.told.foreign import Reporter
from loom_audit.history.told.late_reports import attribute, report_late
from loom_audit.history.told.pending_calls import PendingCalls
from loom_audit.history.told.reported import (
    begin_from_end,
    merged_end,
    merged_result,
    requested,
    safe_id,
    text_fact,
)
from loom_audit.history.told.served_calls import ServedCalls, is_served
from loom_audit.history.told.session_texts import ReportedTexts
from loom_audit.history.told.unnamed_calls import UnnamedCalls
from loom_audit.model.coverage import NOT_FAILED, Status
from loom_audit.model.events import CallRequested, Event, SessionStarted
from loom_audit.model.records import Call
from loom_audit.model.results import told_result

NO_HOOK = "no hook"
"""The reason of the coverage of a call that only the transcript told."""

NO_WORKSPACE = "no workspace"
"""The reason of the coverage of a call that names paths which no workspace holds."""

NOT_LOOKED_AT = "not looked at after"
"""The reason of the coverage of a call whose end no hook told, so that the look came later."""

NOT_TOLD = {"output": "the client did not tell how this call ended"}


class Ingest:
    """What is told of one session in one workspace, on its way to the log. One caller at a time.

    `asking` gives the ids of the processes that only report, `within` the seq of the request of the
    call of ours that runs the client, None for none. `connected` says when the client ran our hooks
    here, where that is known. `is_there` says whether the client still waits for our answer to the
    hook that tells something.
    """

    def __init__(
        self,
        attachment: Attachment,
        session: str,
        agent: str,
        asking: Callable[[], Collection[int]] = tuple,
        within: Callable[[], int | None] = lambda: None,
        connected: Connected = lambda _, __: None,
        is_there: Callable[[], bool] = lambda: True,
    ) -> None:
        self.attachment = attachment
        self.session = session
        self.agent = agent
        self.writer = Writer(attachment, session, f"agent:{agent}")
        self._within = within
        self._connected = connected
        self._reporter = Reporter(asking, is_there, self._told_of_open_calls)
        self._pending = PendingCalls()
        self.other_hooks = OtherHooks(attachment)
        self._unnamed = UnnamedCalls(attachment, session)
        self._served = ServedCalls(attachment, session)
        self._texts = ReportedTexts()

    # --- the session ----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the session is on record here and has not ended."""
        found = foreign.find_session(self.attachment.stored, self.session)
        return found is not None and found.ended is None

    def start(self, started: SessionStarted) -> None:
        """Put on record that the session begins or goes on.

        It stays as it is where another running process of the client reports it too. Conflict for
        a session of ours.
        """
        try:
            foreign.start_session(self.writer, started)
        except Conflict:
            if self.attachment.lease(self.session) is None:
                raise

    def knows(self, report: CallEnded) -> bool:
        """Whether the call that has ended is on record here, or told by the transcript."""
        call_id = safe_id(report.call_id)
        if not call_id:
            return bool(self._match(report))
        return call_id in self._pending.transcript_begins or self._find(call_id) is not None

    def open_call(self, call_id: str) -> Call | None:
        """The open call of the client's id, for "" the newest open one; None for none."""
        if not call_id:
            return next(reversed(self.open_calls), None)
        call = self._find(safe_id(call_id))
        return call if call and call.seq is None else None

    @property
    def open_calls(self) -> Sequence[Call]:
        """The calls of the session that have not ended, oldest first."""
        calls = self.attachment.stored.tables.open_calls()
        return [call for call in calls if call.session == self.session]

    # --- what is told ---------------------------------------------------------------------

    def apply(self, report: Report, *, by_hook: bool) -> None:
        """Put one report on record; `by_hook` says that a hook tells it, else the transcript.

        What the transcript tells of calls waits for `record_ended`, since a hook may tell it too. A
        call that can change no path of this workspace has `paths` (). ApprovalDenied for a call of
        a session that is held.
        """
        match report:
            case CallBegan() if by_hook:
                self._begin(report)
            case CallBegan():
                self._pending.transcript_begins[safe_id(report.call_id)] = report
            case CallEnded():
                self._end(report, by_hook=by_hook)
            case BackgroundEnded():
                self._end_background(report)
            case PromptTold() | MessageTold():
                fact = text_fact(report)
                self._texts.add(self.writer, fact, report.at, self._connected, by_hook=by_hook)
            case TurnEnded():
                self._end_turn(report, by_hook=by_hook)
            case SessionOver() if by_hook:
                self._end_session()

    def note_elsewhere(self, call_id: str) -> None:
        """Note that a call also names paths which no workspace holds; its coverage says so."""
        self._pending.naming_elsewhere.add(safe_id(call_id))

    def record_ended(self, *, waits: bool = False) -> None:
        """Put the ends on record that the transcript told; of open calls those with a status.

        With `waits` not those after which a hook may come still: the look that a hook brings is in
        time. Conflict, InvalidArguments and NotFound of the first call that cannot be put on
        record.
        """
        ready = [
            (call_id, ended)
            for call_id, ended in self._pending.transcript_ends.items()
            if ended.status is not None or self.open_call(call_id) is None
            if not (
                waits and ended.status in ("ok", "error") and self._pending.hook_may_come(call_id)
            )
        ]
        # all requests come before the first look: each call may have made what it finds
        for record in (self._record_begin, self._record_end):
            for call_id, ended in ready:
                try:
                    record(call_id, ended)
                except (Conflict, InvalidArguments, NotFound):  # and it would fail so every time
                    self._pending.transcript_ends.pop(call_id, None)
                    raise
        for call_id, _ in ready:
            self._pending.transcript_ends.pop(call_id, None)  # not before it is on record

    def _record_begin(self, call_id: str, ended: CallEnded) -> None:
        """Put the request of a call on record whose end the transcript told, unless it is there."""
        if self._find(call_id) is None:
            self._add_without_hook(
                call_id,
                self._pending.transcript_begins.get(call_id) or begin_from_end(ended),
                ended,
            )

    def _record_end(self, call_id: str, ended: CallEnded) -> None:
        """Put the end of a call on record that the transcript told: its finish, or a report."""
        call = self._find(call_id)
        if call is None:
            self._pending.transcript_begins.pop(call_id, None)
        elif call.seq is not None:
            self._report_late(call, ended)
        else:
            if ended.status is None:
                self._pending.inferred.add(call_id)
            known = replace(ended, status=ended.status or "unknown")
            self._finish(call_id, merged_end(self._pending.hook_ends.get(call_id), known), call)

    def has_request(self, call_id: str) -> bool:
        """Whether the transcript has told the request of this call, which has no finish yet."""
        return safe_id(call_id) in self._pending.transcript_begins

    @property
    def awaits_ends(self) -> bool:
        """Whether the transcript has told requests of calls of which nothing else is known."""
        return any(self._find(call_id) is None for call_id in self._pending.transcript_begins)

    def end_unrun(self, call_id: str, status: Status, why: str) -> None:
        """Finish a call that did not run, since it was denied for the reason `why`."""
        self._pending.hook_requests.pop(call_id, None)
        record = told_result(status, {"output": why})
        # it did not run: what changed since is not its own
        reporter = replace(self._reporter, told=dict, at_hand=False)
        foreign.end(self.writer, call_id, status, record, look=True, reporter=reporter)

    @property
    def awaits_outcomes(self) -> bool:
        """Whether a hook told of calls that they have ended, and nobody yet how."""
        return bool(self._pending.hook_ends)

    def close(self, status: Status = "unknown", *, ended_only: bool = False) -> None:
        """Finish the open calls, of which nobody tells more; `status` is for those without one.

        With `ended_only` only those of which a hook told the end. A status that was not told is on
        record as inferred, so that a later report takes its place.
        """
        for call in self.open_calls:
            by_hook = self._pending.hook_ends.get(call.call_id)
            if by_hook is None and ended_only:
                continue
            ended = by_hook or CallEnded(self.session, call.call_id, call.tool, None, NOT_TOLD)
            if ended.status is None:
                self._pending.inferred.add(call.call_id)
            self._finish(call.call_id, replace(ended, status=ended.status or status))

    # --- calls ----------------------------------------------------------------------------

    def _begin(self, report: CallBegan) -> None:
        """Put the request of a call on record that a hook told, with a look before the call runs.

        The ends that were kept go on record first: the client goes on, so their calls are over. A
        call of our own server is on record there, but refused here while the session is held.
        """
        for ended_id, ended in list(self._pending.hook_ends.items()):
            if ended.status is not None:
                self._finish(ended_id, ended)
        writer = replace(self.writer, occurred_at=report.at)
        if is_served(report.tool):
            deny_if_on_hold(writer, self._request(safe_id(report.call_id) or new_id_made(), report))
            return
        call_id = safe_id(report.call_id) or self._unnamed.add(report.tool, report.arguments)
        if self._find(call_id) is not None:
            return
        request = self._request(call_id, report)
        foreign.begin(writer, request, look=True, watched=True, reporter=self._reporter)
        self._pending.hook_requests[call_id] = request

    def _request(self, call_id: str, report: CallBegan) -> CallRequested:
        return requested(report, call_id, report.paths, self._within())

    def _end(self, report: CallEnded, *, by_hook: bool) -> None:
        """Take the end of a call: keep it, or put it on record where a hook told how it ended.

        A call whose begin nobody told is put on record as begun first.
        """
        if by_hook and self._served.has(begin_from_end(report), by_hook=True):
            return
        call_id = self._id_of(report, by_hook=by_hook)
        if call_id != safe_id(report.call_id):
            self._pending.transcript_begins.pop(safe_id(report.call_id), None)
        self._pending.background.update(dict.fromkeys(report.background, call_id))
        call = self._find(call_id)
        if report.status is not None:
            self._pending.inferred.discard(call_id)
        if not by_hook:
            self._pending.transcript_ends[call_id] = report
            return
        self._pending.present_ends.add(call_id)
        if call is None:
            began = self._pending.transcript_begins.get(call_id) or begin_from_end(report)
            request = self._request(call_id, replace(began, call_id=call_id))
            foreign.begin(self.writer, request, look=False)
        elif call.seq is not None:
            self._report_late(call, report)
            return
        by_transcript = self._pending.transcript_ends.pop(call_id, None)
        self._pending.hook_ends[call_id] = report
        if by_transcript is not None:
            report = merged_end(report, by_transcript)
        if report.status is not None and report.final:
            self._finish(call_id, report, call)

    def _finish(self, call_id: str, report: CallEnded, call: Call | None = None) -> None:
        """Put the finish of a call on record, with what a look finds that it changed.

        What the end tells otherwise than the begin (arguments, the client's own id) is in the data
        of the result, since an event does not change.
        """
        call = call or self._find(call_id)
        assert call is not None
        assert report.status is not None
        more: dict[str, Any] = {}
        inferred = call_id in self._pending.inferred
        not_looked_at = (
            inferred
            and call_id not in self._pending.hook_ends
            and call.effect in ("write", "execute")
        )
        unseen = self._why_unseen(call)
        request = (
            self._pending.hook_requests.pop(call_id, None)
            or request_event(self.attachment.stored, call)[1]
        )
        if report.arguments is not UNSET and report.arguments != request.arguments:
            more["arguments"] = report.arguments
        if report.background:
            more["background"] = list(report.background)
        if report.call_id and safe_id(report.call_id) != call_id:
            more["call_id"] = report.call_id
        result = merged_result(report.result, {"data": more})

        def reasons() -> Sequence[str]:
            """Asked for after the look, since another hook of the client may write until then."""
            shared = any(self._differs(one) for one in report.files)
            elsewhere = [NO_WORKSPACE] if call_id in self._pending.naming_elsewhere else []
            unlooked = [NOT_LOOKED_AT] if not_looked_at else []
            return [*([CLIENT_HOOKS] if shared else []), *elsewhere, *unlooked]

        foreign.end(
            replace(self.writer, occurred_at=report.at),
            call_id,
            report.status,
            told_result(report.status, result),
            look=True,
            duration=report.duration,
            reasons=reasons,
            unseen=unseen,
            goes_on=bool(report.background),
            inferred=inferred,
            reporter=replace(self._reporter, at_hand=call_id in self._pending.present_ends),
        )
        attribute(self.writer, call_id, report)
        self._pending.hook_ends.pop(call_id, None)
        self._pending.transcript_begins.pop(call_id, None)
        self._pending.inferred.discard(call_id)
        self.other_hooks.wait()

    def _differs(self, file: FileTold) -> bool:
        """Whether a file is known not to be as the client says that the call left it."""
        workspace = self.attachment.on_disk.workspace
        path = reported_path(workspace, file)
        return path is not None and is_as_told(workspace, path, file) is False

    def _report_late(self, call: Call, report: CallEnded) -> None:
        """Put on record what is told of a call that has its finish already."""
        report_late(self.writer, call, report)
        attribute(self.writer, call.call_id, report)

    def _why_unseen(self, call: Call) -> str:
        """Why nothing at all was seen of a call, "" where something was.

        Asked of the log where no hook told the begin here: another process may have begun it.
        """
        request = self._pending.hook_requests.get(call.call_id)
        if request is None:
            event, request = request_event(self.attachment.stored, call)
            if event.source == CLIENT_UNSEEN and call.call_id not in self._pending.hook_ends:
                return NO_HOOK
        return NO_WORKSPACE if request.paths == () and call.effect == "write" else ""

    def look_at_ended(self) -> None:
        """Look at what calls changed whose end the present hook tells, and not how they ended.

        The look is taken at once, before the client goes on; the finish waits for the status.
        """
        for call_id in self._pending.present_ends & self._pending.hook_ends.keys():
            goes_on = bool(self._pending.hook_ends[call_id].background)
            foreign.look_at_end(self.writer, call_id, self._reporter, goes_on=goes_on)
        self._pending.present_ends.clear()

    def _told_of_open_calls(self) -> Mapping[int, Told]:
        """What is told by now of the open calls of the session, by the seqs of their requests."""
        return told_of_calls(self.attachment.on_disk.workspace, self.open_calls, self._pending)

    def _add_without_hook(self, call_id: str, began: CallBegan, ended: CallEnded | None) -> None:
        """Put a call on record for which no hook came.

        One that ran and may have changed files stays open until `_record_end`, so that a look finds
        it among the candidates. Left out are calls that our own server has put on record, copies of
        calls of another session, and calls of a time when the client did not run our hooks.
        """
        if self._served.has(began, by_hook=False):
            return
        at = began.at or (ended.at if ended else None)
        if was_without_hooks(self.writer, self._connected, at) or is_copied(self.writer, began):
            return
        status: Status = (ended.status if ended else None) or "unknown"
        writer = replace(self.writer, occurred_at=began.at)
        request = self._request(call_id or new_id_made(), began)
        ran = ended is None or ended.ran
        if call_id and ran and began.effect in ("write", "execute") and status in NOT_FAILED:
            announce_unseen(writer, request)
            return
        result = ended.result if ended else NOT_TOLD
        add_unseen(
            writer,
            request,
            status,
            told_result(status, result),
            NO_HOOK if ran else "",
            ended=ended.at if ended else None,
            inferred=ended is None or ended.status is None,
        )

    def _find(self, call_id: str) -> Call | None:
        return foreign.find_call(self.attachment.stored, self.session, call_id)

    def _id_of(self, report: CallEnded, *, by_hook: bool) -> str:
        """The id on record of a call that has ended: the client's, or one that was made here."""
        call_id = safe_id(report.call_id)
        if by_hook:
            return call_id or self._match(report) or new_id_made()
        if self._find(call_id) is not None:
            return call_id
        asked = self._pending.transcript_begins.get(call_id)
        arguments = report.arguments if asked is None else asked.arguments
        return self._unnamed.pair(call_id, report.tool, arguments)

    def _match(self, report: CallEnded) -> str:
        """The id on record of the open call that has ended, for a client without ids; or ""."""
        mine = {call.call_id for call in self.open_calls} - self._pending.hook_ends.keys()
        return self._unnamed.match(report.tool, report.arguments, mine)

    # --- the rest -------------------------------------------------------------------------

    def _end_background(self, report: BackgroundEnded) -> None:
        """Put on record that what a call left running has ended; nothing for an unknown name."""
        call_id = self._pending.background.pop(report.name, None)
        if call_id is None or self._find(call_id) is None:
            return
        if call_id in self._pending.transcript_ends:
            self.record_ended()
        writer = replace(self.writer, occurred_at=report.at)
        record = told_result("unknown", {"data": {"background_ended": report.name}})
        with suppress(NotFound):
            foreign.end_background(writer, call_id, record)

    def _end_turn(self, report: TurnEnded, *, by_hook: bool) -> None:
        """Close the calls of a turn that has ended: nobody will tell their ends any more."""
        status: Status = "cancelled" if report.interrupted else "unknown"
        if by_hook:
            self.record_ended()
            self.close(status)
            return
        for call in self.open_calls:
            known = self._pending.transcript_ends.get(call.call_id)
            # a transcript may be read late: a call that it has not told yet is of a later turn
            if call.call_id in self._pending.transcript_begins and (
                known is None or known.status is None
            ):
                over = CallEnded(self.session, call.call_id, call.tool, status, {}, at=report.at)
                self._pending.transcript_ends[call.call_id] = over
                self._pending.inferred.add(call.call_id)

    def record_transcript(self) -> None:
        """Put all calls on record that the transcript told, also those of which it told no end."""
        self.record_ended()
        for call_id, began in list(self._pending.transcript_begins.items()):
            if self._find(call_id) is None:
                self._add_without_hook(call_id, began, None)
            if self.open_call(call_id) is None:
                self._pending.transcript_begins.pop(call_id, None)

    def _end_session(self) -> Event:
        """Put the end of the session on record, after all that is known of its calls."""
        self.record_transcript()
        self.close()
        self._pending.transcript_begins.clear()
        self.other_hooks.look(at_once=True)
        return foreign.end_session(self.writer)
