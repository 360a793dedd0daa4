"""Whether a client's call may run, as `approvals.toml` and whoever is asked say."""

from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep

from msgspec import UNSET, Struct

from loom_audit.api.gates import policy_of
from loom_audit.clients.reports import CallBegan, Verdict
from loom_audit.config import Settings
from loom_audit.errors import AuditError
from loom_audit.history.approvals import ApprovalRequest, find_answer, record_answer
from loom_audit.history.foreign_approvals import ask, decide, let_run
from loom_audit.history.ingest import Ingest
from loom_audit.history.questions import find_lasting_answer
from loom_audit.model.coverage import Status
from loom_audit.model.events import ApprovalRequested, CallDecided
from loom_audit.model.records import Call
from loom_audit.tools.approvals.policy import Policy, Rule, Subject, command_in, paths_in

POLL = 0.1
SHARE = 0.75
"""Of the time that a hook has: after it a question that nobody answered is a denial."""

NOBODY = "nobody answered in time"
WITHDRAWN = "who asked went away"


class Question(Struct, frozen=True):
    """A question about a call that waits, and the rule that asks it; "" for the default."""

    ingest: Ingest
    call: Call
    request: ApprovalRequest
    seconds: float


def decide_call(ingest: Ingest, told: CallBegan, settings: Settings) -> Verdict | Question | None:
    """What the rules say of a call that has begun; a question when somebody is to be asked.

    None where no rule is about it: nothing is decided then. What denies it is on record with it.
    """
    policy, flaw = None, ""
    try:
        policy = policy_of(settings, ingest.attachment.workspace.root)
    except AuditError as error:  # there are rules, and they cannot be read
        flaw = str(error)
    if policy is None and not flaw:
        return None
    call = ingest.open_call(told.call_id)
    if call is None:
        return None
    if policy is None:
        return _deny(ingest, call, "policy:approvals.toml", flaw)
    rule = policy.rule_for(_subject(ingest, call, told))
    action = rule.action if rule else policy.default
    if action is None or (rule is None and action == "allow"):
        return None
    by = rule.name if rule else "policy:approvals.toml#default"
    why = rule.why if rule else f"no rule is about it; the default is {action}"
    if action == "deny":
        return _deny(ingest, call, by, why)
    if action == "allow":
        decide(ingest.writer, CallDecided(call.call_id, call.tool, "allowed", by, why))
        return Verdict("allow", why)
    return _ask(ingest, call, told, rule, policy, why)


def wait_for_answer(
    asked: Question, seconds: float, is_there: Callable[[], bool]
) -> CallDecided | None:
    """The answer that counts; None when who asked went away meanwhile.

    Nobody's answer within three quarters of the seconds, and of those of the policy, is a denial.
    """
    attachment, request = asked.ingest.attachment, asked.request
    until = monotonic() + min(SHARE * seconds, asked.seconds)
    seen = request.seq
    while True:
        head = attachment.log.head()
        found = find_answer(attachment, request, after=seen) if head > seen else None
        if found is not None:
            return found
        seen = head
        there = is_there()
        if not there or monotonic() >= until:
            by, why = ("gate:timeout", NOBODY) if there else ("gate:withdrawn", WITHDRAWN)
            fact = CallDecided(request.call_id, request.tool, "denied", by, why)
            counted = record_answer(attachment, request, fact)
            return counted if there else None
        sleep(min(POLL, max(0.0, until - monotonic())))


def follow_answer(asked: Question, answer: CallDecided | None) -> Verdict:
    """Let the call run as it was answered, or put on record that it does not."""
    ingest, call = asked.ingest, asked.call
    if answer is None:
        ingest.end_unrun(call.call_id, "cancelled", WITHDRAWN)
        return Verdict("deny", WITHDRAWN)
    if answer.decision != "allowed":
        why = answer.reason or f"denied by {answer.by}"
        ingest.end_unrun(call.call_id, "denied", why)
        return Verdict("deny", why)
    held = ingest.attachment.hold(call.session)
    if held is not None:  # while somebody was asked
        return _deny(ingest, call, held.by, held.refusal)
    let_run(ingest.writer, call)
    given = UNSET if answer.arguments is None else answer.arguments
    return Verdict("allow", answer.reason or f"allowed by {answer.by}", given)


def _ask(
    ingest: Ingest, call: Call, told: CallBegan, rule: Rule | None, policy: Policy, why: str
) -> Verdict | Question:
    name = rule.name if rule else ""
    earlier = find_lasting_answer(ingest.attachment.log, call.session, call.tool, name, why)
    if earlier is not None and isinstance(earlier.fact, CallDecided):
        by = f"{earlier.fact.by} (for this session)"
        if earlier.fact.decision != "allowed":
            return _deny(ingest, call, by, why)
        decide(ingest.writer, CallDecided(call.call_id, call.tool, "allowed", by, why))
        return Verdict("allow", why)
    fact = ApprovalRequested(call.call_id, call.tool, told.arguments, why, name)
    return Question(ingest, call, ask(ingest.writer, call, fact), policy.timeout)


def _deny(ingest: Ingest, call: Call, by: str, why: str) -> Verdict:
    decide(ingest.writer, CallDecided(call.call_id, call.tool, "denied", by, why))
    status: Status = "denied"
    ingest.end_unrun(call.call_id, status, why)
    return Verdict("deny", why)


def _subject(ingest: Ingest, call: Call, told: CallBegan) -> Subject:
    workspace = ingest.attachment.workspace
    named = [*(told.paths or ()), *paths_in(told.arguments)]
    paths = []
    for path in named:
        meant = {path}
        with suppress(AuditError):  # it is none of the workspace's
            relative = workspace.relative(path)
            meant = {relative, workspace.resolve(relative)}
        paths.append(frozenset(meant))
    return Subject(call.tool, call.effect, call.actor, paths, command_in(told.arguments))
