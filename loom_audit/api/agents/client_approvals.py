"""Whether a client's call may run, as `approvals.toml` and whoever is asked say."""

from collections.abc import Callable
from time import monotonic, sleep

from msgspec import UNSET, Struct

from loom_audit.api.ground.gates import policy_of
from loom_audit.clients.reports import CallBegan, Verdict
from loom_audit.config import Settings
from loom_audit.errors import AuditError
from loom_audit.history.ground.questions import (
    Answer,
    ApprovalRequest,
    NewestAnswer,
    Questions,
    approval_state,
    find_lasting_answer,
)
from loom_audit.history.record.call import OpenCall
from loom_audit.history.told.foreign import let_run
from loom_audit.history.told.ingest import Ingest
from loom_audit.model.events import ApprovalRequested, CallDecided
from loom_audit.model.records import Call
from loom_audit.tools.approvals.decision import Ruling, ruling
from loom_audit.tools.approvals.policy import Policy, subject_of

POLL = 0.1
SHARE = 0.75
"""The share of a hook's time after which a question that nobody answered is a denial."""

NOBODY = "nobody answered in time"
WITHDRAWN = "who asked went away"


class OpenQuestion(Struct, frozen=True):
    """A question about a call that waits, and the rule that asks it; "" for the default."""

    ingest: Ingest
    call: Call
    request: ApprovalRequest
    seconds: float


def decide_call(
    ingest: Ingest,
    told: CallBegan,
    settings: Settings,
    is_there: Callable[[], bool] = lambda: True,
) -> Verdict | OpenQuestion | None:
    """What the rules say of a call that has begun; a question when somebody is to be asked.

    None where no rule is about it: nothing is decided then, nor where the client is not there any
    more. What denies it is on record with it. A call of which several hooks tell is decided once.
    """
    policy, flaw = _policy(ingest, settings)
    if policy is None and not flaw:
        return None
    call = ingest.open_call(told.call_id)
    if call is None or not is_there():
        return None
    if policy is None:
        return _decide(ingest, call, "denied", "policy:approvals.toml", flaw)
    log = ingest.attachment.stored.log
    known = approval_state(log, call.session, call.call_id, after=call.requested)
    if known.answer is not None and isinstance(known.answer.fact, CallDecided):
        return _as_decided(known.answer.fact)
    if (asked := Questions(ingest.attachment).about(call)) is not None:
        return OpenQuestion(ingest, call, asked, policy.timeout)
    ruled = _ruling(policy, ingest, told)
    if ruled.action is None or (not ruled.rule and ruled.action == "allow"):
        return None
    if (decided := ruled.decided) is not None:
        return _decide(ingest, call, decided.decision, decided.by, decided.reason)
    earlier = find_lasting_answer(log, call.session, call.tool, ruled.rule, ruled.why)
    if earlier is not None:
        by = f"{earlier[1].by} (for this session)"
        return _decide(ingest, call, earlier[1].decision, by, ruled.why)
    fact = ApprovalRequested(call.call_id, call.tool, told.arguments, ruled.why, ruled.rule)
    request = OpenCall.resumed(ingest.writer, call).ask(fact, requested=call.requested)
    return OpenQuestion(ingest, call, request, policy.timeout)


def restriction(ingest: Ingest, told: CallBegan, settings: Settings) -> str:
    """Why a call may not run without an answer: a rule denies it or asks about it; "" if none."""
    policy, flaw = _policy(ingest, settings)
    if policy is None:
        return flaw
    ruled = _ruling(policy, ingest, told)
    return ruled.why if ruled.action in ("deny", "ask") else ""


def _policy(ingest: Ingest, settings: Settings) -> tuple[Policy | None, str]:
    """The rules; None without any, and where they cannot be read, with why."""
    try:
        return policy_of(settings, ingest.attachment.on_disk.workspace.root), ""
    except AuditError as error:
        return None, str(error)


def _ruling(policy: Policy, ingest: Ingest, told: CallBegan) -> Ruling:
    workspace, paths = ingest.attachment.on_disk.workspace, told.paths or ()
    subject = subject_of(
        told.tool, told.effect, ingest.writer.actor, told.arguments, workspace, paths
    )
    return ruling(policy, subject)


def wait_for_answer(
    asked: OpenQuestion, seconds: float, is_there: Callable[[], bool]
) -> CallDecided | None:
    """The answer that counts; None when who asked went away meanwhile.

    Nobody's answer within three quarters of the seconds, and of those of the policy, is a denial.
    """
    questions, request = Questions(asked.ingest.attachment), asked.request
    until = monotonic() + min(SHARE * seconds, asked.seconds)
    answers, seen = NewestAnswer(questions.log, after=request.seq), request.seq
    while True:
        if (newest := answers.read()) > seen:
            if (found := questions.answer_to(request, after=seen)) is not None:
                return found
            seen = newest
        there = is_there()
        if not there or monotonic() >= until:
            by, why = ("gate:timeout", NOBODY) if there else ("gate:withdrawn", WITHDRAWN)
            fact = CallDecided(request.call_id, request.tool, "denied", by, why)
            counted = questions.record(request, fact)
            return counted if there else None
        sleep(min(POLL, max(0.0, until - monotonic())))


def follow_answer(asked: OpenQuestion, answer: CallDecided | None) -> Verdict:
    """Let the call run as it was answered, or put on record that it does not.

    Where who asked went away the client may run it all the same: it stays open.
    """
    ingest, call = asked.ingest, asked.call
    if answer is None:
        return Verdict("deny", WITHDRAWN)
    if answer.decision != "allowed":
        denied = _as_decided(answer)
        ingest.end_unrun(call.call_id, "denied", denied.reason)
        return denied
    held = ingest.attachment.hold(call.session)
    if held is not None:  # while somebody was asked
        return _decide(ingest, call, "denied", held.by, held.refusal)
    let_run(ingest.writer, call)
    return _as_decided(answer)


def _as_decided(answer: CallDecided) -> Verdict:
    why = answer.reason or f"{answer.decision} by {answer.by}"
    if answer.decision != "allowed":
        return Verdict("deny", why)
    given = UNSET if answer.arguments is None else answer.arguments
    return Verdict("allow", why, given)


def _decide(ingest: Ingest, call: Call, decision: Answer, by: str, why: str) -> Verdict:
    """Put on record what is decided without a question; a call that is denied ends with it."""
    fact = CallDecided(call.call_id, call.tool, decision, by, why)
    ingest.writer.record(fact)
    if decision == "denied":
        ingest.end_unrun(call.call_id, "denied", why)
    return _as_decided(fact)
