"""undo: a call of the agent's own session taken back."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from loom_audit.model.plans.planning import Plan
from loom_audit.model.text.display import count_text, visible
from loom_audit.tools.approvals.preview import preview_undo
from loom_audit.tools.approvals.taking_back import past_of, take_back
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.fields import Fields, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Preview, Tool, one_thread

_MAX_NAMED = 100


class UndoInput(Fields):
    call: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="The number of a call of this session, as `history` lists it; "
            "by default the newest that changed files and is not taken back"
        ),
    ] = None


class UndoOutput(Output):
    call: int
    tool: str
    paths: list[str]
    not_taken_back: list[str]


class Undo(Tool):
    """Takes back a call of the session, all that it changed or nothing."""

    name = "undo"
    description = (
        "Take back what one call of this session changed in files: your own mistake. All of it "
        "or nothing: refused where somebody, or a later call, changed one of the files since, and "
        "where a person had allowed the call. Called again it goes one call further back. "
        "The call stays on record, and so does the undo."
    )
    input = UndoInput
    output = UndoOutput
    effect = "write"
    timeout_seconds = 60

    def requires_approval(self, args: UndoInput, ctx: ToolContext) -> bool | str:
        plan = past_of(ctx).plan(args.call)
        gone = [change.path for change in plan.changes if change.after is None]
        return f"deletes {visible(gone[0])}" if gone else False

    def preview(self, args: UndoInput, ctx: ToolContext) -> Preview:
        return preview_undo(ctx, args.call)

    @one_thread
    async def execute(self, args: UndoInput, ctx: ToolContext) -> ToolResult:
        plan = await take_back(ctx, args.call)
        tool = plan.target.partition("(")[2].rstrip(")")
        paths = [change.path for change in plan.changes]
        left = [*_not_taken_back(plan)]
        data = {"call": plan.calls[0], "tool": tool, "paths": paths, "not_taken_back": left}
        lines = [f"Took back {plan.target}: {count_text(len(paths), 'path')} changed"]
        lines += [_line(plan, path) for path in paths[:_MAX_NAMED]]
        lines += [f"… and {len(paths) - _MAX_NAMED} more"] if len(paths) > _MAX_NAMED else []
        lines += [f"Not taken back: {one}" for one in left]
        return ToolResult(True, "\n".join(lines), data)


def _line(plan: Plan, path: str) -> str:
    change = next(one for one in plan.changes if one.path == path)
    verb = "deleted" if change.after is None else "restored" if change.before else "brought back"
    return f"{verb} {visible(path)}"


def _not_taken_back(plan: Plan) -> Sequence[str]:
    """What stays of the call's doing, and what is on record as maybe a later call's."""
    notes = (*plan.irreversible, *plan.inexact, *plan.passed_over)
    return [": ".join(filter(None, (visible(one.path), one.reason))) for one in notes]
