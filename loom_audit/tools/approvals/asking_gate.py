"""The gate that asks: the policy first, then whoever answers first."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio
from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.ground.questions import find_lasting_answer
from loom_audit.history.record.approvals import ApprovalRequest, ask, find_answer, record_answer
from loom_audit.model.events import ApprovalRequested, CallDecided
from loom_audit.model.files import FileState, parents
from loom_audit.ports import Workspace
from loom_audit.tools.approvals.policy import Policy, Rule, Subject, command_in, paths_in
from loom_audit.tools.approvals.preview import MAX_PREVIEW, approval_hash
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.fields import Fields
from loom_audit.tools.calls.gate import Decision
from loom_audit.tools.calls.result import cut
from loom_audit.tools.calls.thread import in_thread
from loom_audit.tools.calls.tool import Preview, Tool
from loom_audit.tools.calls.values import as_json

CallbackAnswer = Decision | bool | None
AskCallback = Callable[[ApprovalRequest], CallbackAnswer | Awaitable[CallbackAnswer]]
"""Answers a question, True and False standing for a plain yes and no, or gives None to leave it
to others. A plain function is run in a worker thread and waited for; one that may wait long
should be `async`."""

MOST_QUESTIONS = 5
POLL = 0.2
"""Seconds between two looks for an answer in the log."""


class _ShownCall(Struct, frozen=True):
    """A call as it is put to somebody."""

    args: Any
    arguments: Any
    preview: Preview

    def hash(self, tool: Tool) -> str:
        states, text = self.preview.states, self.preview.text
        if states is None and text:  # what was shown is all there is to hold to
            return approval_hash(tool.name, {"arguments": self.arguments, "shown": text}, {})
        return approval_hash(tool.name, self.arguments, states or {})


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

    async def decide(self, tool: Tool, args: Any, ctx: ToolContext, *, asked: str = "") -> Decision:
        """By the first rule that matches, else by the tool's own wish, else yes."""
        rule = await in_thread(partial(self._matching_rule, tool, args, ctx))
        decision = self._decide_by_rule(rule)
        if decision is not None:
            return decision
        if rule is not None:
            return await self._ask_person(tool, args, ctx, rule.why, rule)
        if not asked and self.policy.default == "ask":
            asked = "no rule is about it"
        if not asked:
            return Decision("allowed", "gate:asking")
        return await self._ask_person(tool, args, ctx, asked, None)

    # --- the policy -----------------------------------------------------------------------

    def _matching_rule(self, tool: Tool, args: Any, ctx: ToolContext) -> Rule | None:
        arguments = arguments_of(args)
        workspace = ctx.writer.workspace if ctx.writer is not None else None
        paths = [_possible_paths(workspace, path) for path in paths_in(arguments)]
        if self.policy.looks_at_paths and ctx.writer is not None:
            try:
                states = tool.preview(args, ctx).states or {}
            except AuditError:
                states = {}  # it cannot work as it is; what it names is known all the same
            paths += [frozenset({path}) for path in _changed_paths(states)]
        agent = ctx.writer.actor if ctx.writer is not None else ""
        command = command_in(arguments)
        return self.policy.rule_for(Subject(tool.name, tool.effect, agent, paths, command))

    def _decide_by_rule(self, rule: Rule | None) -> Decision | None:
        """What the policy decides alone; None when somebody is to be asked, or the tool."""
        action = rule.action if rule is not None else self.policy.default
        if action is None or action == "ask":
            return None
        by = rule.name if rule is not None else "policy:approvals.toml#default"
        why = rule.why if rule is not None else f"no rule is about it; the default is {action}"
        return Decision("allowed" if action == "allow" else "denied", by, why)

    # --- asking ---------------------------------------------------------------------------

    async def _ask_person(
        self, tool: Tool, args: Any, ctx: ToolContext, reason: str, rule: Rule | None
    ) -> Decision:
        name = rule.name if rule is not None else ""
        if self._ask is None and (not self._wait or ctx.call is None):
            return Decision("denied", "gate:nobody", f"{reason}; nobody could be asked")
        shown = await in_thread(partial(_show_call, tool, args, ctx))
        if isinstance(shown, AuditError):
            return Decision("denied", "gate:asking", flaw=shown)
        earlier = await in_thread(partial(_session_answer, tool, ctx, name, reason))
        if earlier is not None:
            return replace(earlier, states=shown.preview.states)
        why, requested = reason, 0
        for number in range(1, MOST_QUESTIONS + 1):
            fact = _question_fact(tool, ctx, shown, why, name, number)
            request = await in_thread(partial(_put_question, ctx, fact, requested))
            requested = request.requested
            answer = await self._first_answer(request, ctx)
            if answer.decision != "allowed":
                return Decision("denied", answer.by, answer.reason, recorded=True)
            shown_again, why = await in_thread(partial(self._recheck, tool, shown, answer, ctx))
            if isinstance(shown_again, Decision):
                return shown_again
            if not why:
                return Decision(
                    "allowed",
                    answer.by,
                    answer.reason,
                    None if shown_again.args is args else shown_again.arguments,
                    recorded=True,
                    states=shown_again.preview.states,
                )
            shown, why = shown_again, f"{reason}; {why}"
        reason = f"asked {MOST_QUESTIONS} times, and what was shown changed each time"
        return Decision("denied", "gate:asking", reason)

    def _recheck(
        self, tool: Tool, shown: _ShownCall, answer: CallDecided, ctx: ToolContext
    ) -> tuple[_ShownCall | Decision, str]:
        """The call as it stands after the answer, and why somebody must be asked once more."""
        args = shown.args
        if answer.arguments is not None:
            try:
                args = tool.parse(answer.arguments)
            except AuditError as error:
                return shown, f"the arguments put in place are not valid: {error.message}"
            decision = self._decide_by_rule(self._matching_rule(tool, args, ctx))
            if decision is not None and decision.decision == "denied":
                return decision, ""
        shown_now = _show_call(tool, args, ctx)
        if isinstance(shown_now, AuditError):
            if answer.arguments is not None:
                return shown, f"the arguments put in place cannot work: {shown_now.message}"
            return Decision("denied", answer.by, flaw=shown_now), ""
        if answer.arguments is None:
            changed = shown_now.hash(tool) != shown.hash(tool)
            return (
                shown_now,
                "what it would change has changed since it was shown" if changed else "",
            )
        if _changes_more(shown.preview, shown_now.preview):
            return shown_now, "the arguments put in place change what was not shown"
        return shown_now, ""

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
                sources.start_soon(ask, partial(_watch, request, ctx))
            if self._ask is not None:
                sources.start_soon(ask, partial(self._ask_callback, request, ctx))

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


def denying_rule(
    policy: Policy, tool: Tool, arguments: Any, workspace: Workspace, agent: str
) -> Rule | None:
    """The rule that denies a call for what its arguments name; the asking process sees more."""
    named = [_possible_paths(workspace, path) for path in paths_in(arguments)]
    subject = Subject(tool.name, tool.effect, agent, named, command_in(arguments))
    rule = policy.rule_for(subject)
    return rule if rule is not None and rule.action == "deny" else None


def _question_fact(
    tool: Tool, ctx: ToolContext, shown: _ShownCall, reason: str, rule: str, number: int
) -> ApprovalRequested:
    text = cut(shown.preview.text, MAX_PREVIEW)
    return ApprovalRequested(
        ctx.call_id, tool.name, shown.arguments, reason, rule, text, shown.hash(tool), number
    )


def _show_call(tool: Tool, args: Any, ctx: ToolContext) -> _ShownCall | AuditError:
    """The call with what it would change; the error when it cannot work."""
    try:
        preview = tool.preview(args, ctx) if ctx.writer is not None else Preview()
    except AuditError as error:
        return error
    return _ShownCall(args, arguments_of(args), preview)


def _put_question(ctx: ToolContext, fact: ApprovalRequested, requested: int) -> ApprovalRequest:
    if ctx.call is None or ctx.writer is None:
        return ApprovalRequest(0, 0, datetime.now(UTC), "", "", ctx.effect, fact)
    return ask(ctx.call, fact, requested=requested)


def _session_answer(tool: Tool, ctx: ToolContext, rule: str, reason: str) -> Decision | None:
    """What was decided for the whole session before."""
    if ctx.writer is None:
        return None
    attachment = ctx.writer.attachment
    found = find_lasting_answer(attachment.log, ctx.writer.session, tool.name, rule, reason)
    if found is None or not isinstance(found.fact, CallDecided):
        return None
    call = attachment.projections.call_at(found.seq)
    by = f"{found.fact.by} (for this session, call {call.seq or call.requested})"
    return Decision(found.fact.decision, by, reason)


async def _watch(request: ApprovalRequest, ctx: ToolContext) -> CallDecided:
    """Wait for an answer in the log: that is how other processes give theirs."""
    assert ctx.writer is not None
    attachment, seen = ctx.writer.attachment, request.seq

    def look() -> tuple[CallDecided | None, int]:
        head = attachment.log.head()
        return (find_answer(attachment, request, after=seen) if head > seen else None), head

    while True:
        answer, head = await in_thread(look)
        if answer is not None:
            return answer
        seen = head
        await anyio.sleep(POLL)


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
    return await in_thread(partial(record_answer, ctx.writer.attachment, request, fact))


def _changed_paths(states: Mapping[str, FileState | None]) -> list[str]:
    """The paths a call would change, without the folders that are only made for others."""
    above = {folder for path in states for folder in parents(path)}
    return [path for path, state in states.items() if state is not None or path not in above]


def _changes_more(shown: Preview, now: Preview) -> bool:
    """Whether a path would change, be it absent, that was not shown as it is."""
    if now.states is None:
        return bool(now.text) and now.text != shown.text
    seen = shown.states or {}
    return any(path not in seen or seen[path] != state for path, state in now.states.items())


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


def _possible_paths(workspace: Workspace | None, path: str) -> frozenset[str]:
    """The workspace paths that a path in arguments may stand for."""
    if workspace is None:
        return frozenset({path})
    try:
        relative = workspace.relative(path)
        return frozenset({relative, workspace.resolve(relative)})
    except AuditError:
        return frozenset({path})  # it is refused by whoever opens it
