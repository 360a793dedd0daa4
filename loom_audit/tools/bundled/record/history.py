"""history: what the session did, or who changed a path."""

from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta

from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.text.display import count_text, first_few, one_line, visible
from loom_audit.tools.approvals.taking_back import recall
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.fields import Fields, Output
from loom_audit.tools.calls.past import Past
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import LIMIT_NAMES, Tool, one_thread

_MAX_SUMMARY = 120
"""Characters of what a call was about."""


class HistoryInput(Fields):
    path: Annotated[
        str,
        Meta(
            description="A file or directory: every change of it, whoever made it; "
            "by default the calls of this session"
        ),
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=200, description="At most so many, newest first")] = 30
    before: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Only what is older: next_before of the page before"),
    ] = None


class HistoryRow(Output):
    """`call` is the number of the call, None for a change from outside, or an open call.

    `taken_back_by` is the number of the call that took back all of it, of a change what it did to
    the path; `taken_back_in_part_by` are those that took back some paths of a call.
    """

    call: int | None
    at: str
    actor: str
    tool: str
    status: str
    paths: list[str]
    taken_back_by: int | None
    taken_back_in_part_by: list[int]


class HistoryOutput(Output):
    entries: list[HistoryRow]
    next_before: int | None


class History(Tool):
    """Lists the calls of the session, or the changes of a path."""

    name = "history"
    description = (
        "List what is on record, newest first: without a path the calls of this session with "
        "their numbers, which `undo` takes; with one every change of that file or directory, by "
        "this session, others and people."
    )
    input = HistoryInput
    output = HistoryOutput
    timeout_seconds = 10
    other_names = LIMIT_NAMES

    @one_thread
    async def execute(self, args: HistoryInput, ctx: ToolContext) -> ToolResult:
        def read(past: Past) -> tuple[list[dict[str, Any]], int | None]:
            limit, before = args.limit + 1, args.before
            if args.path:
                changes = past.changes(args.path, before=before, limit=limit)
                more = changes[args.limit - 1].seq if len(changes) == limit else None
                shown = changes[: args.limit]
                back = past.taken_back(shown)
                found = [
                    _of_change(one, past.call_of(one), by)
                    for one, by in zip(shown, back, strict=True)
                ]
                return found, more
            calls = past.calls(before=before, limit=limit)
            more = calls[args.limit - 1].requested if len(calls) == limit else None
            return [_of_call(one) for one in calls[: args.limit]], more

        entries, more = await recall(ctx, read)
        if args.path and not (entries or args.before or ctx.exists(args.path)):
            raise await ctx.missing(args.path)
        lines = [_line(one) for one in entries]
        lines += [f"Older ones: before={more}"] if more else []
        nothing = f"{visible(args.path)} was never changed" if args.path else "No calls yet"
        shown = [{name: value for name, value in one.items() if name != "about"} for one in entries]
        return ToolResult(
            True, "\n".join(lines) or nothing, {"entries": shown, "next_before": more}
        )


def _of_call(call: Call) -> dict[str, Any]:
    paths = [visible(path) for path in call.paths]
    named = first_few(paths, 3) if call.changed <= len(paths) else count_text(call.changed, "path")
    return {
        "call": call.seq,
        "at": _time(call.at),
        "actor": call.actor,
        "tool": call.tool,
        "status": call.status,
        "paths": paths,
        "taken_back_by": call.undone_by,
        "taken_back_in_part_by": list(call.undone_in_part_by),
        "about": f"changed {named}" if paths else one_line(call.summary, _MAX_SUMMARY),
    }


def _of_change(one: RecordedChange, call: Call | None, by: int | None) -> dict[str, Any]:
    path = visible(one.change.path)
    what = "created" if one.change.before is None else "changed"
    return {
        "call": one.number,
        "at": _time(one.at),
        "actor": one.actor,
        "tool": call.tool if call else one.origin,
        "status": call.status if call else "ok",
        "paths": [path],
        "taken_back_by": by,
        "taken_back_in_part_by": [],
        "about": f"{what if one.change.after else 'deleted'} {path}",
    }


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _line(row: dict[str, Any]) -> str:
    number = "-" if row["call"] is None else f"#{row['call']}"
    words = [number, row["at"], row["actor"], row["tool"], row["status"], row["about"]]
    if row["taken_back_by"]:
        words.append(f"[taken back by #{row['taken_back_by']}]")
    if parts := row["taken_back_in_part_by"]:
        words.append(f"[taken back in part by {first_few(parts, 3, lambda by: f'#{by}')}]")
    return " ".join(filter(None, words))
