"""The gate that asks: the policy first, then whoever answers first."""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Any

import anyio
from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.ground.questions import (
    ApprovalRequest,
    NewestAnswer,
    Questions,
    find_lasting_answer,
)
from loom_audit.model.events import ApprovalRequested, CallDecided
from loom_audit.model.values import as_json
from loom_audit.ports import EventLog
from loom_audit.tools.approvals.decision import (
    Ruling,
    ShownCall,
    changed_paths,
    reason_to_ask,
    reason_to_ask_again,
    ruling,
)
from loom_audit.tools.approvals.policy import Policy, subject_of
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.fields import Fields
from loom_audit.tools.calls.gate import Decision
from loom_audit.tools.calls.thread import in_thread
from loom_audit.tools.calls.tool import Preview, Tool

CallbackAnswer = Decision | bool | None
AskCallback = Callable[[ApprovalRequest], CallbackAnswer | Awaitable[CallbackAnswer]]
"""Answers a question, True and False standing for a plain yes and no, or gives None to leave it
to others. A plain function is run in a worker thread and waited for; one that may wait long
should be `async`."""

MOST_QUESTIONS = 5
POLL = 0.1
"""Seconds between two looks for answers in a log, for all who wait in it."""


class _AnswerPoll:
    """Asks one log for answers, now and then for all who wait: none of them holds a thread."""

    def __init__(self, log: EventLog, *, after: int) -> None:
        self.log = log
        self._answers = NewestAnswer(log, after=after)
        self._again = 0.0

    async def newest(self) -> int:
        """The seq of the newest answer in the log as far as somebody has looked, 0 for none."""
        if monotonic() >= self._again:
            self._again = monotonic() + POLL  # the others do not look meanwhile
            await in_thread(self._answers.read)
        return self._answers.newest


class AskingGate:
    """Lets a call run when the policy or somebody who is asked says so.

    A question is put on record with the call; it is answered by whoever is first: `ask`, or
    anybody with the store. No answer within `timeout` seconds (by default the policy's) denies.
    With `wait` false only `ask` is asked, and without it the call is denied immediately.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        ask: AskCallback | None = None,
        wait: bool = True,
        timeout: float | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self._ask = ask
        self._wait = wait
        self._timeout = self.policy.timeout if timeout is None else timeout
        self._polls: dict[str, _AnswerPoll] = {}

    async def decide(self, tool: Tool, args: Any, ctx: ToolContext, *, asked: str = "") -> Decision:
        """By the first rule that matches, else by the tool's own wish, else yes."""
        ruled = await in_thread(partial(self._ruling, tool, args, ctx))
        if (decided := ruled.decided) is not None:
            return decided
        if reason := reason_to_ask(ruled, asked):
            return await self._ask_person(tool, args, ctx, reason, ruled.rule)
        return Decision("allowed", "gate:asking")

    def _ruling(self, tool: Tool, args: Any, ctx: ToolContext) -> Ruling:
        agent = ctx.writer.actor if ctx.writer is not None else ""
        workspace = ctx.writer.workspace if ctx.writer is not None else None
        given, effects = arguments_of(args), tool.effects(args)
        subject = subject_of(tool.name, tool.effect, agent, given, workspace, effects=effects)
        if self.policy.looks_at_paths and ctx.writer is not None:
            known: list[str] = []
            with suppress(
                AuditError
            ):  # it cannot work as it is; what it names is known all the same
                known += changed_paths(tool.preview(args, ctx).states or {})
                known += tool.paths(args, ctx)
            more = [frozenset({path}) for path in known]
            subject = replace(subject, paths=[*subject.paths, *more])
        return ruling(self.policy, subject)

    # --- asking ---------------------------------------------------------------------------

    async def _ask_person(
        self, tool: Tool, args: Any, ctx: ToolContext, reason: str, rule: str
    ) -> Decision:
        if self._ask is None and (not self._wait or ctx.call is None):
            return Decision("denied", "gate:nobody", f"{reason}; nobody could be asked")
        shown = await in_thread(partial(_show_call, tool, args, ctx))
        if isinstance(shown, AuditError):
            return Decision("denied", "gate:asking", flaw=shown)
        earlier = await in_thread(partial(_session_answer, tool, ctx, rule, reason))
        if earlier is not None:
            return replace(earlier, states=shown.preview.states)
        why, requested = reason, 0
        for number in range(1, MOST_QUESTIONS + 1):
            fact = shown.question(ctx.call_id, why, rule, number)
            request = await in_thread(partial(_put_question, ctx, fact, requested))
            requested = request.requested
            answer = await self._first_answer(request, ctx)
            if answer.decision != "allowed":
                return Decision("denied", answer.by, answer.reason, recorded=True)
            found = await in_thread(partial(self._after_yes, tool, shown, answer, ctx))
            if isinstance(found, Decision):
                return found
            shown, why = found
            if not why:
                return Decision(
                    "allowed",
                    answer.by,
                    answer.reason,
                    None if shown.args is args else shown.arguments,
                    recorded=True,
                    states=shown.preview.states,
                )
            why = f"{reason}; {why}"
        reason = f"asked {MOST_QUESTIONS} times, and what was shown changed each time"
        return Decision("denied", "gate:asking", reason)

    def _after_yes(
        self, tool: Tool, shown: ShownCall, answer: CallDecided, ctx: ToolContext
    ) -> tuple[ShownCall, str] | Decision:
        """The call as it stands after a yes, and why somebody must be asked once more."""
        args = shown.args
        if answer.arguments is not None:
            try:
                args = tool.parse(answer.arguments)
            except AuditError as error:
                return shown, f"the arguments put in place are not valid: {error.message}"
            decided = self._ruling(tool, args, ctx).decided
            if decided is not None and decided.decision == "denied":
                return decided
        now = _show_call(tool, args, ctx)
        if isinstance(now, AuditError):
            if answer.arguments is not None:
                return shown, f"the arguments put in place cannot work: {now.message}"
            return Decision("denied", answer.by, flaw=now)
        return now, reason_to_ask_again(shown, now, answer)

    async def _first_answer(self, request: ApprovalRequest, ctx: ToolContext) -> CallDecided:
        """The first answer that is on record."""
        answers: list[CallDecided] = []
        try:
            with anyio.move_on_after(self._timeout):
                await self._ask_everybody(request, ctx, answers)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        if answers:
            return answers[0]
        by, why = "gate:timeout", f"nobody answered within {self._timeout:g} seconds"
        if not self._wait:
            by, why = "gate:nobody", "nobody could be asked"
        return await _record_answer(
            request, ctx, Decision("denied", by, f"{request.reason}; {why}")
        )

    async def _ask_everybody(
        self, request: ApprovalRequest, ctx: ToolContext, answers: list[CallDecided]
    ) -> None:
        """Ask all there are at once, until one has answered or none is left."""
        async with anyio.create_task_group() as sources:

            async def ask(source: Callable[[], Awaitable[CallDecided | None]]) -> None:
                answer = await source()
                if answer is not None:
                    answers.append(answer)
                    sources.cancel_scope.cancel()

            if ctx.writer is not None and self._wait:
                sources.start_soon(
                    ask, partial(self._watch, request, Questions(ctx.writer.attachment))
                )
            if self._ask is not None:
                sources.start_soon(ask, partial(self._ask_callback, request, ctx))

    async def _watch(self, request: ApprovalRequest, questions: Questions) -> CallDecided:
        """Wait for an answer in the log: that is how other processes give theirs."""
        log, seen = questions.log, request.seq
        poll = self._polls.get(log.id)
        if poll is None or poll.log is not log:  # that of a store that was closed meanwhile
            poll = self._polls[log.id] = _AnswerPoll(log, after=seen)
        # a poll that began after the question may have passed over its answer
        found = await in_thread(partial(questions.answer_to, request, after=seen))
        while found is None:
            await anyio.sleep(POLL)
            if (newest := await poll.newest()) > seen:
                found = await in_thread(partial(questions.answer_to, request, after=seen))
                seen = newest
        return found

    async def _ask_callback(self, request: ApprovalRequest, ctx: ToolContext) -> CallDecided | None:
        assert self._ask is not None
        try:
            if inspect.iscoroutinefunction(self._ask) or inspect.iscoroutinefunction(
                getattr(self._ask, "__call__", None)  # noqa: B004 - an object may be one too
            ):
                answer: Any = self._ask(request)
            else:
                answer = await in_thread(partial(self._ask, request))
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the call is denied
            why = f"{request.reason}; who was asked failed: {type(error).__name__}: {error}"
            answer = Decision("denied", "gate:callback", why)
        if answer is None:
            return None
        return await _record_answer(request, ctx, _to_decision(answer))


def arguments_of(args: Any) -> Any:
    """Parsed arguments as the caller gave them, by the names of the schema."""
    if isinstance(args, Fields):
        args = args.given()
    elif not isinstance(args, dict):
        from loom_audit.tools.calls.models import given

        args = given(args)
    return as_json(args, "arguments")


def _show_call(tool: Tool, args: Any, ctx: ToolContext) -> ShownCall | AuditError:
    """The call with what it would change; the error when it cannot work."""
    try:
        preview = tool.preview(args, ctx) if ctx.writer is not None else Preview()
    except AuditError as error:
        return error
    return ShownCall(tool.name, args, arguments_of(args), preview)


def _put_question(ctx: ToolContext, fact: ApprovalRequested, requested: int) -> ApprovalRequest:
    if ctx.call is None or ctx.writer is None:
        return ApprovalRequest(0, 0, datetime.now(UTC), "", "", ctx.effect, fact)
    return ctx.call.ask(fact, requested=requested)


def _session_answer(tool: Tool, ctx: ToolContext, rule: str, reason: str) -> Decision | None:
    """What was decided for the whole session before."""
    if ctx.writer is None:
        return None
    attachment = ctx.writer.attachment
    found = find_lasting_answer(attachment.stored.log, ctx.writer.session, tool.name, rule, reason)
    if found is None:
        return None
    seq, answer = found
    call = attachment.stored.reading.call_at(seq)
    by = f"{answer.by} (for this session, call {call.seq or call.requested})"
    return Decision(answer.decision, by, reason)


async def _record_answer(
    request: ApprovalRequest, ctx: ToolContext, decision: Decision
) -> CallDecided:
    """The answer on record: this one, unless another came before it."""
    fact = CallDecided(
        request.call_id,
        request.tool,
        "allowed" if decision.decision == "allowed" else "denied",
        decision.by,
        decision.reason,
        None if decision.arguments is None else as_json(decision.arguments, "arguments"),
        decision.lasting and decision.arguments is None,
    )
    if ctx.writer is None:
        return fact
    return await in_thread(partial(Questions(ctx.writer.attachment).record, request, fact))


def _to_decision(answer: Any) -> Decision:
    """What a callback returned, as a decision; anything else denies, and says what is expected."""
    if isinstance(answer, Decision):
        return answer
    if isinstance(answer, bool):
        return Decision("allowed" if answer else "denied", "gate:callback")
    why = f"the function that was asked gave {type(answer).__name__}"
    return Decision(
        "denied", "gate:callback", f"{why}; expected are a Decision, True, False or None"
    )
