"""Questions whether calls may run: which are open, and how they are answered, in one log.

A question and its answer are events of the call. Whoever has the store can answer. Of several
answers to one question the first on record counts.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from time import monotonic, sleep
from typing import Any, Literal

from msgspec import Struct

from loom_audit.errors import Conflict, InvalidArguments, NotFound
from loom_audit.history.ground.attachment import Attachment
from loom_audit.model.coverage import Effect
from loom_audit.model.events import ApprovalRequested, CallDecided, Draft, Event
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter, EventLog

Answer = Literal["allowed", "denied"]
_FOLLOW_UP_SECONDS = 2.0
"""How long `Questions.outcome` waits for what follows an answer."""

_MAX_GAP = 50
"""The answers about calls with fewer events between them are read in one go."""

_OPEN_CALL_EVENTS = 1_000
"""The answer about an open call is looked for in so many events after its request."""

_KINDS = (ApprovalRequested.kind, CallDecided.kind)


class ApprovalRequest(Struct, frozen=True):
    """A question on record that waits for an answer.

    `seq` is that of the question, `requested` that of the call's request. `alive` is False when the
    process that asked has ended: then the call can no longer run.
    """

    seq: int
    requested: int
    at: datetime
    session: str
    actor: str
    effect: Effect
    fact: ApprovalRequested
    alive: bool = True

    @property
    def call_id(self) -> str:
        """The id of the call, which its session has once."""
        return self.fact.call_id

    @property
    def tool(self) -> str:
        """The name of the tool that would run."""
        return self.fact.tool

    @property
    def arguments(self) -> Any:
        """The arguments with which the tool would run."""
        return self.fact.arguments

    @property
    def reason(self) -> str:
        """Why it is asked, for people."""
        return self.fact.reason

    @property
    def preview(self) -> str:
        """What would change, as text: a unified diff for the file tools."""
        return self.fact.preview


class ApprovalState(Struct, frozen=True):
    """The newest question about a call and the first answer to it; None where there is none."""

    question: Event | None = None
    answer: Event | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether there is a question without an answer."""
        return self.question is not None and self.answer is None


def approval_state(log: EventLog, session: str, call_id: str, *, after: int) -> ApprovalState:
    """The newest question about a call and its answer, among the events after the seq `after`.

    Corrupt.
    """
    question: Event | None = None
    answer: Event | None = None
    wanted = EventFilter(after=after, kinds=_KINDS, call_id=call_id)
    for event in log.read(wanted):
        if event.session != session:
            continue
        if isinstance(event.fact, ApprovalRequested):
            question, answer = event, None
        elif isinstance(event.fact, CallDecided) and answer is None:
            answer = event
    return ApprovalState(question, answer)


class NewestAnswer:
    """Follows the answers in a log, so that many who wait for one read the log once.

    `newest` is the seq of the newest answer to any question after the seq `after`, as of the last
    `read`; 0 for none.
    """

    def __init__(self, log: EventLog, *, after: int) -> None:
        self.newest = 0
        self._log = log
        self._seen = after

    def read(self) -> int:
        """Read what was appended since the last reading; the newest answer's seq, 0 for none."""
        head = self._log.head()
        if head > self._seen:
            kinds = (CallDecided.kind,)
            for event in self._log.read(EventFilter(self._seen, head + 1, kinds)):
                self.newest = max(self.newest, event.seq)
            self._seen = head
        return self.newest


def is_waiting(log: EventLog, call: Call) -> bool:
    """Whether an open call waits for an answer, and so has not begun to act. Corrupt."""
    return approval_state(log, call.session, call.call_id, after=call.requested).is_waiting


def last_decisions(log: EventLog, calls: Sequence[Call]) -> Mapping[int, CallDecided]:
    """The last answer about each of these calls, by the call's request; none without an answer."""
    requests = {(call.session, call.call_id): call.requested for call in calls}
    found: dict[int, CallDecided] = {}
    for after, before in _spans(calls):
        for event in log.read(EventFilter(after, before, (CallDecided.kind,))):
            if isinstance(event.fact, CallDecided):
                requested = requests.get((event.session, event.fact.call_id))
                if requested is not None and requested < event.seq:
                    found[requested] = event.fact
    return found


def _spans(calls: Sequence[Call]) -> Sequence[tuple[int, int]]:
    """Between which events these calls ran: one span for calls that nearly follow each other."""
    spans: list[tuple[int, int]] = []
    for call in sorted(calls, key=lambda call: call.requested):
        end = call.seq or call.requested + _OPEN_CALL_EVENTS
        if spans and call.requested < spans[-1][1] + _MAX_GAP:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            spans.append((call.requested, end))
    return spans


def find_lasting_answer(
    log: EventLog, session: str, tool: str, rule: str, reason: str
) -> tuple[int, CallDecided] | None:
    """The newest answer for the whole session to such a question about this tool, with its seq.

    A question is such a one when it has the same rule, or, without a rule, the same reason. None
    where there is no answer.
    """
    asked: dict[str, bool] = {}
    found: tuple[int, CallDecided] | None = None
    for event in log.read(EventFilter(kinds=_KINDS, session=session)):
        fact = event.fact
        if isinstance(fact, ApprovalRequested):
            same = (fact.rule == rule) if rule else (not fact.rule and fact.reason == reason)
            # a repeated question has a longer reason, so the first one's counts
            asked.setdefault(fact.call_id, fact.tool == tool and same)
        elif isinstance(fact, CallDecided) and fact.lasting and asked.get(fact.call_id):
            found = event.seq, fact
    return found


class Questions:
    """The questions in one workspace's log. The `actor` answers, unless another one is named.

    Reading raises Corrupt where an event is damaged; answering raises AuditUnavailable where the
    log cannot be written.
    """

    def __init__(self, attachment: Attachment, actor: str = "") -> None:
        self.attachment = attachment
        self.log = attachment.stored.log
        self.actor = actor

    def pending(self) -> Sequence[ApprovalRequest]:
        """The questions that wait for an answer, oldest first."""
        return [
            request
            for call in self.attachment.stored.tables.open_calls()
            if (request := self.about(call)) is not None
        ]

    def about(self, call: Call) -> ApprovalRequest | None:
        """The question about a call, where it waits for an answer; else None."""
        found = approval_state(self.log, call.session, call.call_id, after=call.requested)
        question = found.question
        if question is None or found.answer or not isinstance(question.fact, ApprovalRequested):
            return None
        return ApprovalRequest(
            question.seq,
            call.requested,
            question.at,
            call.session,
            question.actor,
            call.effect,
            question.fact,
            self.attachment.is_alive(call),
        )

    def find(self, name: str) -> ApprovalRequest:
        """The pending question about a call.

        `name` is the seq of the request or of the question, or the start of the call's id.
        NotFound; Conflict when it fits several calls.
        """
        waiting = self.pending()
        fitting = [one for one in waiting if name in (str(one.requested), str(one.seq))]
        # ids are random or chosen by an agent: a number up to the head is always taken as a seq
        numbered = name.isascii() and name.isdigit() and 0 < int(name[:20]) <= self.log.head()
        if not numbered:
            fitting += [one for one in waiting if one.call_id == name]
            fitting = fitting or [one for one in waiting if name and one.call_id.startswith(name)]
        if len({one.seq for one in fitting}) > 1:
            raise Conflict(
                f"{name} fits {len(fitting)} calls that wait", hint="Give more of the call's id."
            )
        if fitting:
            return fitting[0]
        if numbered:
            call = self.attachment.stored.reading.call_at(int(name))
            found = approval_state(self.log, call.session, call.call_id, after=call.requested)
            if found.answer is not None:
                raise _already_answered(found.answer)
            raise NotFound(
                f"call {name} does not wait for an answer", hint="`loom-audit approvals` lists all."
            )
        raise NotFound(
            f"no call {name} waits for an answer", hint="`loom-audit approvals` lists what waits."
        )

    def answer(
        self,
        request: ApprovalRequest,
        decision: Answer,
        actor: str | None = None,
        *,
        label: str = "",
        reason: str = "",
        arguments: Any = None,
        lasting: bool = False,
    ) -> Event:
        """Put an answer to a question on record, as the actor's; the event of the answer.

        `label` is a name that people give beside the actor; it proves nothing. `arguments` replace
        the caller's. A `lasting` answer holds for the whole session and cannot replace arguments:
        InvalidArguments. Conflict when the question was answered already (the error says by whom
        and how), when it was asked again since, or when its call has ended.
        """
        if lasting and arguments is not None:
            raise InvalidArguments(
                "an answer for the whole session cannot change the arguments",
                hint="Answer for this call alone.",
            )
        call = self.attachment.stored.reading.call(request.session, request.call_id)
        found = approval_state(self.log, request.session, request.call_id, after=request.requested)
        if found.question is not None and found.question.seq != request.seq:
            raise Conflict(
                f"{request.tool} has been asked about again since",
                hint="Look at the question as it is now.",
                details={"call_id": request.call_id},
            )
        if found.answer is not None:
            raise _already_answered(found.answer)
        if call.seq is not None or not self.attachment.is_alive(call):
            raise _call_ended(request)
        actor = actor or self.actor
        by = f"{actor} ({label})" if label else actor
        fact = CallDecided(request.call_id, request.tool, decision, by, reason, arguments, lasting)
        draft = self._draft(request, fact, actor)
        [event] = self.log.append([draft])
        if event.occurred_at != draft.occurred_at or event.fact != fact:
            # the log kept an answer of another process, which has the same id
            raise _already_answered(event)
        ended = self.attachment.stored.reading.call(request.session, request.call_id).seq
        if ended is not None and ended < event.seq:
            raise _call_ended(request)
        return event

    def outcome(self, request: ApprovalRequest, answered: Event) -> ApprovalRequest | Call:
        """What follows an answer: the next question about the call, or else the call as it is then.

        It waits for at most two seconds. A call that is returned open still runs, or has not begun.
        """
        until = monotonic() + _FOLLOW_UP_SECONDS
        while True:
            call = self.attachment.stored.reading.call(request.session, request.call_id)
            following = self.about(call) if call.seq is None else None
            if following is not None and following.seq > answered.seq:
                return following
            if call.seq is not None or monotonic() >= until:
                return call
            sleep(0.05)

    def record(self, request: ApprovalRequest, fact: CallDecided) -> CallDecided:
        """Put an answer on record; the answer that counts, which may be an earlier one."""
        [event] = self.log.append([self._draft(request, fact, fact.by)])
        return event.fact if isinstance(event.fact, CallDecided) else fact

    def answer_to(self, request: ApprovalRequest, *, after: int) -> CallDecided | None:
        """The answer to a question, if it is on record after the seq `after`; else None."""
        found = approval_state(self.log, request.session, request.call_id, after=after).answer
        return found.fact if found is not None and isinstance(found.fact, CallDecided) else None

    def _draft(self, request: ApprovalRequest, fact: CallDecided, actor: str) -> Draft:
        """The answer as a draft. All answers to a question have one id: the log keeps the first."""
        number = str(request.fact.number)
        names = (self.log.id, request.session, request.call_id, number)
        key = sha256("\0".join(("approval", *names)).encode("utf-8", "surrogatepass")).hexdigest()
        return Draft(
            fact,
            request.session,
            actor,
            id=key[:32],
            occurred_at=self.attachment.stored.clock.now(),
        )


def _already_answered(event: Event) -> Conflict:
    fact = event.fact
    assert isinstance(fact, CallDecided)
    return Conflict(
        f"{fact.tool} was {fact.decision} by {fact.by} already",
        hint="The first answer counts.",
        details={"call_id": fact.call_id, "by": fact.by, "decision": fact.decision},
    )


def _call_ended(request: ApprovalRequest) -> Conflict:
    return Conflict(
        f"nobody waits for this answer any more: the call of {request.tool} has ended",
        hint="Nothing ran. `loom-audit recover` closes what a process left open.",
        details={"call_id": request.call_id},
    )
