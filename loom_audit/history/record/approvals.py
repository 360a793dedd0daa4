"""Questions about calls: asking, answering, and listing those that wait for an answer.

Question and answer are events of the call. Whoever has the store can answer; of several
answers to one question the first on record counts.
"""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from loom_audit.errors import Conflict, InvalidArguments, NotFound
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.questions import approval_state
from loom_audit.model.coverage import Effect
from loom_audit.model.events import ApprovalRequested, CallDecided, Draft, Event
from loom_audit.model.records import Call

if TYPE_CHECKING:
    from loom_audit.history.record.call import OpenCall

Answer = Literal["allowed", "denied"]
_FOLLOW_UP_SECONDS = 2.0


class ApprovalRequest(Struct, frozen=True):
    """A question on record that waits for an answer.

    `seq` is the seq of the question, `requested` that of the call's request. `alive` is False
    when the process that asked has ended: the call can then no longer run.
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
        return self.fact.call_id

    @property
    def tool(self) -> str:
        return self.fact.tool

    @property
    def arguments(self) -> Any:
        return self.fact.arguments

    @property
    def reason(self) -> str:
        return self.fact.reason

    @property
    def preview(self) -> str:
        """What would change, as text: a unified diff for the file tools."""
        return self.fact.preview


def ask(call: "OpenCall", fact: ApprovalRequested, *, requested: int) -> ApprovalRequest:
    """Put the call and a question about it on record, durably.

    `requested` is the seq of the call's request when that is on record already, else 0.
    """
    events = call.ask(fact)
    asked = events[-1]
    return ApprovalRequest(
        asked.seq,
        requested or events[0].seq,
        asked.at,
        asked.session,
        asked.actor,
        call.effect,
        fact,
    )


def pending(attachment: Attachment) -> Sequence[ApprovalRequest]:
    """The questions that wait for an answer, oldest first."""
    return [
        request
        for call in attachment.projections.open_calls()
        if (request := pending_about(attachment, call)) is not None
    ]


def pending_about(attachment: Attachment, call: Call) -> ApprovalRequest | None:
    """The question about a call that waits for an answer, or None."""
    found = approval_state(attachment.log, call.session, call.call_id, after=call.requested)
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
        attachment.is_alive(call),
    )


def find(attachment: Attachment, name: str) -> ApprovalRequest:
    """The pending question about a call.

    `name` is the seq of the request or of the question, or the start of the call's id.
    NotFound; Conflict when it fits several calls.
    """
    waiting = pending(attachment)
    fitting = [one for one in waiting if name in (str(one.requested), str(one.seq))]
    # ids are random or chosen by an agent: a number up to the head is always taken as a seq
    numbered = name.isascii() and name.isdigit() and 0 < int(name[:20]) <= attachment.log.head()
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
        call = attachment.projections.call_at(int(name))
        found = approval_state(attachment.log, call.session, call.call_id, after=call.requested)
        if found.answer is not None:
            raise _already_answered(found.answer)
        raise NotFound(
            f"call {name} does not wait for an answer", hint="`loom-audit approvals` lists all."
        )
    raise NotFound(
        f"no call {name} waits for an answer", hint="`loom-audit approvals` lists what waits."
    )


def answer(
    attachment: Attachment,
    request: ApprovalRequest,
    decision: Answer,
    actor: str,
    *,
    label: str = "",
    reason: str = "",
    arguments: Any = None,
    lasting: bool = False,
) -> Event:
    """Answer a question; who answered is the actor, and beside it a label that proves nothing.

    `arguments` replace the caller's. A `lasting` answer holds for the whole session and cannot
    replace arguments (InvalidArguments). Conflict when the question was answered already (the
    error says by whom and how), was asked again since, or its call has ended.
    """
    if lasting and arguments is not None:
        raise InvalidArguments(
            "an answer for the whole session cannot change the arguments",
            hint="Answer for this call alone.",
        )
    call = attachment.projections.call(request.session, request.call_id)
    found = approval_state(
        attachment.log, request.session, request.call_id, after=request.requested
    )
    if found.question is not None and found.question.seq != request.seq:
        raise Conflict(
            f"{request.tool} has been asked about again since",
            hint="Look at the question as it is now.",
            details={"call_id": request.call_id},
        )
    if found.answer is not None:
        raise _already_answered(found.answer)
    if call.seq is not None or not attachment.is_alive(call):
        raise _call_ended(request)
    by = f"{actor} ({label})" if label else actor
    fact = CallDecided(request.call_id, request.tool, decision, by, reason, arguments, lasting)
    draft = _draft(attachment, request, fact, actor)
    [event] = attachment.log.append([draft])
    if event.occurred_at != draft.occurred_at or event.fact != fact:
        raise _already_answered(event)
    ended = attachment.projections.call(request.session, request.call_id).seq
    if ended is not None and ended < event.seq:
        raise _call_ended(request)
    return event


def wait_after_answer(
    attachment: Attachment, request: ApprovalRequest, answered: Event
) -> ApprovalRequest | Call:
    """What follows an answer within two seconds: the next question about the call, or the call.

    A call that is returned open still runs or has not begun yet.
    """
    until = monotonic() + _FOLLOW_UP_SECONDS
    while True:
        call = attachment.projections.call(request.session, request.call_id)
        following = pending_about(attachment, call) if call.seq is None else None
        if following is not None and following.seq > answered.seq:
            return following
        if call.seq is not None or monotonic() >= until:
            return call
        sleep(0.05)


def record_answer(
    attachment: Attachment, request: ApprovalRequest, fact: CallDecided
) -> CallDecided:
    """Put the answer on record and return the one that counts, which may be an earlier one."""
    [event] = attachment.log.append([_draft(attachment, request, fact, fact.by)])
    return event.fact if isinstance(event.fact, CallDecided) else fact


def find_answer(
    attachment: Attachment, request: ApprovalRequest, *, after: int
) -> CallDecided | None:
    """The answer that is on record after the seq `after`, or None."""
    found = approval_state(attachment.log, request.session, request.call_id, after=after).answer
    return found.fact if found is not None and isinstance(found.fact, CallDecided) else None


def _draft(
    attachment: Attachment, request: ApprovalRequest, fact: CallDecided, actor: str
) -> Draft:
    """The answer as a draft; all answers to a question have one id, so the log keeps the first."""
    parts = (attachment.log.id, request.session, request.call_id, str(request.fact.number))
    key = sha256("\0".join(("approval", *parts)).encode("utf-8", "surrogatepass")).hexdigest()
    return Draft(fact, request.session, actor, id=key[:32], occurred_at=attachment.clock.now())


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
