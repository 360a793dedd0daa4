"""Puts on record what a client tells of one session: by its hooks, and again in its transcript.

All of it may be told twice, late, or not at all. What only a hook tells is `heard`; a transcript is
read from its beginning again after a crash, so what it tells counts by its order.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from time import monotonic
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
from loom_audit.history.told.client_hooks import HooksBeside
from loom_audit.history.told.copied import Connected, is_beyond, is_copied
from loom_audit.history.told.foreign import Reporter
from loom_audit.history.told.reported import (
    begun_of,
    joined,
    merged,
    requested,
    safe_id,
    text_fact,
)
from loom_audit.history.told.served_calls import ServedCalls, is_served
from loom_audit.history.told.session_texts import ToldTexts
from loom_audit.history.told.told_calls import is_as_told, told_of_calls, told_path
from loom_audit.history.told.told_late import attribute, report_late
from loom_audit.history.told.unhooked import add_unseen, announce_unseen
from loom_audit.history.told.unnamed_calls import UnnamedCalls
from loom_audit.model.coverage import NOT_FAILED, Status
from loom_audit.model.events import CallRequested, Event, SessionStarted
from loom_audit.model.records import Call
from loom_audit.model.results import told_result

NO_HOOK = "no hook"
NO_WORKSPACE = "no workspace"
NOT_LOOKED_AT = "not looked at after"
"""Of a call whose end no hook told: what it had done was looked at later than that."""
_HOOK_SECONDS = 1.0  # for which a hook after a call is waited for that the transcript tells
NOT_TOLD = {"output": "the client did not tell how this call ended"}


class Ingest:
    """What is told of one session in one workspace, on its way to the log. One caller at a time.

    `within` gives the request of the call of ours that runs the client, if there is one, and
    `connected` says when the client ran our hooks here, where that is known. `is_there` says
    whether the client still waits for the hook that tells something.
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
        self._reporter = Reporter(asking, is_there, self._told)
        self._asked: dict[str, CallBegan] = {}
        """The calls that the transcript tells to be asked for, until they are on record."""
        self._ended: dict[str, CallEnded] = {}
        """The ends that the transcript tells, until they are on record."""
        self._told_at: dict[str, float] = {}
        """When the transcript told an end whose hook may come still, on the monotonic clock."""
        self._requests: dict[str, CallRequested] = {}
        """The open calls that a hook told to begin."""
        self._heard: dict[str, CallEnded] = {}
        """The ends that a hook tells, until it is on record how the calls ended."""
        self._at_hand: set[str] = set()
        """Calls whose end the present hook tells."""
        self._inferred: set[str] = set()
        """Calls whose status nobody told."""
        self._background: dict[str, str] = {}
        """By the client's name of what runs on: the call that started it."""
        self._beyond: set[str] = set()
        """Calls that also name paths of no workspace."""
        self.hooks = HooksBeside(attachment)
        self._unnamed = UnnamedCalls(attachment, session)
        self._served = ServedCalls(attachment, session)
        self._texts = ToldTexts()

    # --- the session ----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the session is on record here and has not ended."""
        found = foreign.find_session(self.attachment.stored, self.session)
        return found is not None and found.ended is None

    def start(self, started: SessionStarted) -> None:
        """Put on record that the session begins or goes on.

        Where another process of the client reports it too, it goes on as it is. Conflict for a
        session of ours.
        """
        try:
            foreign.start_session(self.writer, started)
        except Conflict:
            if self.attachment.lease(self.session) is None:
                raise

    def knows(self, report: CallEnded) -> bool:
        """Whether the call that has ended is one of those told here."""
        call_id = safe_id(report.call_id)
        if not call_id:
            return bool(self._match(report))
        return call_id in self._asked or self._find(call_id) is not None

    def open_call(self, call_id: str) -> Call | None:
        """A call that has begun and not ended; of those without an id the newest."""
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

    def apply(self, report: Report, *, heard: bool) -> None:
        """Take in one report; what a transcript tells of calls waits for `record_ended`.

        A call that is told to change no path at all changes those of no workspace.
        ApprovalDenied for one of a session that is held.
        """
        match report:
            case CallBegan() if heard:
                self._begin(report)
            case CallBegan():
                self._asked[safe_id(report.call_id)] = report
            case CallEnded():
                self._end(report, heard=heard)
            case BackgroundEnded():
                self._end_background(report)
            case PromptTold() | MessageTold():
                fact = text_fact(report)
                self._texts.add(self.writer, fact, report.at, self._connected, heard=heard)
            case TurnEnded():
                self._end_turn(report, heard=heard)
            case SessionOver() if heard:
                self._end_session()

    def note_beyond(self, call_id: str) -> None:
        """That a call also names paths that no workspace holds."""
        self._beyond.add(safe_id(call_id))

    def record_ended(self, *, waits: bool = False) -> None:
        """Put on record what the transcript told of calls that are over; if it `waits`, of most."""
        told = [
            (call_id, ended)
            for call_id, ended in self._ended.items()
            if ended.status is not None or self.open_call(call_id) is None
            if not (waits and ended.status in ("ok", "error") and self._hook_may_come(call_id))
        ]
        # of all before the first is looked at: each may have changed what is found
        for record in (self._record_begin, self._record_end):
            for call_id, ended in told:
                try:
                    record(call_id, ended)
                except (Conflict, InvalidArguments, NotFound):  # of which no other time is another
                    self._ended.pop(call_id, None)
                    raise
        for call_id, _ in told:
            self._ended.pop(call_id, None)  # not before it is on record

    def _hook_may_come(self, call_id: str) -> bool:
        """Whether the hook after a call is waited for, since the look that it brings is in time."""
        if call_id not in self._requests or call_id in self._heard or call_id in self._inferred:
            return False
        told_at = self._told_at.setdefault(call_id, monotonic())
        return monotonic() - told_at < _HOOK_SECONDS

    def _record_begin(self, call_id: str, ended: CallEnded) -> None:
        if self._find(call_id) is None:
            self._add_unhooked(call_id, self._asked.get(call_id) or begun_of(ended), ended)

    def _record_end(self, call_id: str, ended: CallEnded) -> None:
        call = self._find(call_id)
        if call is None:
            self._asked.pop(call_id, None)
        elif call.seq is not None:
            self._report_late(call, ended)
        else:
            if ended.status is None:
                self._inferred.add(call_id)
            known = replace(ended, status=ended.status or "unknown")
            self._finish(call_id, merged(self._heard.get(call_id), known), call)

    def is_asked(self, call_id: str) -> bool:
        """Whether the transcript holds the request of this call."""
        return safe_id(call_id) in self._asked

    def end_unrun(self, call_id: str, status: Status, why: str) -> None:
        """Finish a call that was denied."""
        self._requests.pop(call_id, None)
        record = told_result(status, {"output": why})
        # it did not run: what changed since is not its own
        reporter = replace(self._reporter, told=dict, at_hand=False)
        foreign.end(self.writer, call_id, status, record, look=True, reporter=reporter)

    @property
    def half_told(self) -> bool:
        """Whether calls were told to have ended, and not how."""
        return bool(self._heard)

    def close(self, status: Status = "unknown", *, half_told: bool = False) -> None:
        """Finish the calls of which nobody will tell more, or only those `half_told`.

        Nobody looked when such a call ended, and how it did is inferred.
        """
        for call in self.open_calls:
            part = self._heard.get(call.call_id)
            if part is None and half_told:
                continue
            ended = part or CallEnded(self.session, call.call_id, call.tool, None, NOT_TOLD)
            if ended.status is None:
                self._inferred.add(call.call_id)
            self._finish(call.call_id, replace(ended, status=ended.status or status))

    # --- calls ----------------------------------------------------------------------------

    def _begin(self, report: CallBegan) -> None:
        for ended_id, ended in list(self._heard.items()):
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
        self._requests[call_id] = request

    def _request(self, call_id: str, report: CallBegan) -> CallRequested:
        return requested(report, call_id, report.paths, self._within())

    def _end(self, report: CallEnded, *, heard: bool) -> None:
        if heard and self._served.has(begun_of(report), heard=True):
            return
        call_id = self._id_of(report, heard=heard)
        if call_id != safe_id(report.call_id):
            self._asked.pop(safe_id(report.call_id), None)
        self._background.update(dict.fromkeys(report.background, call_id))
        call = self._find(call_id)
        if report.status is not None:
            self._inferred.discard(call_id)
        if not heard:
            self._ended[call_id] = report
            return
        self._at_hand.add(call_id)
        if call is None:
            began = self._asked.get(call_id) or begun_of(report)
            request = self._request(call_id, replace(began, call_id=call_id))
            foreign.begin(self.writer, request, look=False)
        elif call.seq is not None:
            self._report_late(call, report)
            return
        told = self._ended.pop(call_id, None)
        self._heard[call_id] = report
        if told is not None:
            report = merged(report, told)
        if report.status is not None and report.final:
            self._finish(call_id, report, call)

    def _finish(self, call_id: str, report: CallEnded, call: Call | None = None) -> None:
        call = call or self._find(call_id)
        assert call is not None
        assert report.status is not None
        more: dict[str, Any] = {}
        inferred = call_id in self._inferred
        unheard = inferred and call_id not in self._heard and call.effect in ("write", "execute")
        unseen = self._why_unseen(call)
        request = (
            self._requests.pop(call_id, None) or request_event(self.attachment.stored, call)[1]
        )
        if report.arguments is not UNSET and report.arguments != request.arguments:
            more["arguments"] = report.arguments
        if report.background:
            more["background"] = list(report.background)
        if report.call_id and safe_id(report.call_id) != call_id:
            more["call_id"] = report.call_id
        result = joined(report.result, {"data": more})

        def reasons() -> Sequence[str]:
            """After the look, as a hook beside ours may write until then."""
            shared = any(self._differs(one) for one in report.files)
            beyond = [NO_WORKSPACE] if call_id in self._beyond else []
            unlooked = [NOT_LOOKED_AT] if unheard else []
            return [*([CLIENT_HOOKS] if shared else []), *beyond, *unlooked]

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
            reporter=replace(self._reporter, at_hand=call_id in self._at_hand),
        )
        attribute(self.writer, call_id, report)
        self._heard.pop(call_id, None)
        self._asked.pop(call_id, None)
        self._inferred.discard(call_id)
        self.hooks.wait()

    def _differs(self, file: FileTold) -> bool:
        """Whether a file is known not to be as the client says that it left it."""
        workspace = self.attachment.on_disk.workspace
        path = told_path(workspace, file)
        return path is not None and is_as_told(workspace, path, file) is False

    def _report_late(self, call: Call, report: CallEnded) -> None:
        report_late(self.writer, call, report)
        attribute(self.writer, call.call_id, report)

    def _why_unseen(self, call: Call) -> str:
        """Why nothing at all was seen of a call, which another process may have begun."""
        request = self._requests.get(call.call_id)
        if request is None:
            event, request = request_event(self.attachment.stored, call)
            if event.source == CLIENT_UNSEEN and call.call_id not in self._heard:
                return NO_HOOK
        return NO_WORKSPACE if request.paths == () and call.effect == "write" else ""

    def look_at_ended(self) -> None:
        """Look after the calls at once whose end a hook tells just now, and not how they ended."""
        for call_id in self._at_hand & self._heard.keys():
            goes_on = bool(self._heard[call_id].background)
            foreign.look_at_end(self.writer, call_id, self._reporter, goes_on=goes_on)
        self._at_hand.clear()

    def _told(self) -> Mapping[int, Told]:
        """What is told by now of the session's open calls."""
        return told_of_calls(
            self.attachment.on_disk.workspace,
            self.open_calls,
            self._asked,
            self._heard,
            self._ended,
        )

    def _add_unhooked(self, call_id: str, began: CallBegan, ended: CallEnded | None) -> None:
        """Put on record what is told of a call for which no hook came; it stays open if it ran."""
        if self._served.has(began, heard=False):
            return
        at = began.at or (ended.at if ended else None)
        if is_beyond(self.writer, self._connected, at) or is_copied(self.writer, began):
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

    def _id_of(self, report: CallEnded, *, heard: bool) -> str:
        """The id on record of a call that is told to have ended."""
        call_id = safe_id(report.call_id)
        if heard:
            return call_id or self._match(report) or new_id_made()
        if self._find(call_id) is not None:
            return call_id
        asked = self._asked.get(call_id)
        arguments = report.arguments if asked is None else asked.arguments
        return self._unnamed.pair(call_id, report.tool, arguments)

    def _match(self, report: CallEnded) -> str:
        """The open call without an id of the client's that has ended."""
        mine = {call.call_id for call in self.open_calls} - self._heard.keys()
        return self._unnamed.match(report.tool, report.arguments, mine)

    # --- the rest -------------------------------------------------------------------------

    def _end_background(self, report: BackgroundEnded) -> None:
        call_id = self._background.pop(report.name, None)
        if call_id is None or self._find(call_id) is None:
            return
        if call_id in self._ended:
            self.record_ended()
        writer = replace(self.writer, occurred_at=report.at)
        record = told_result("unknown", {"data": {"background_ended": report.name}})
        with suppress(NotFound):
            foreign.end_background(writer, call_id, record)

    def _end_turn(self, report: TurnEnded, *, heard: bool) -> None:
        status: Status = "cancelled" if report.interrupted else "unknown"
        if heard:
            self.record_ended()
            self.close(status)
            return
        for call in self.open_calls:
            known = self._ended.get(call.call_id)
            # one that was asked for in a later turn is not over with this one
            if call.call_id in self._asked and (known is None or known.status is None):
                told = CallEnded(self.session, call.call_id, call.tool, status, {}, at=report.at)
                self._ended[call.call_id] = told
                self._inferred.add(call.call_id)

    def add_asked(self) -> None:
        """Put what is told of calls on record, also of those that are told only to be asked for."""
        self.record_ended()
        for call_id, began in list(self._asked.items()):
            if self._find(call_id) is None:
                self._add_unhooked(call_id, began, None)
            if self.open_call(call_id) is None:
                self._asked.pop(call_id, None)

    def _end_session(self) -> Event:
        self.add_asked()
        self.close()
        self._asked.clear()
        self.hooks.look(at_once=True)
        return foreign.end_session(self.writer)
