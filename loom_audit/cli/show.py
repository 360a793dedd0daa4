"""`loom-audit show`: one call whole, or any other event."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.diffs import difference, print_difference
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import (
    attributed_text,
    change_lines,
    event_line,
    fact_text,
    git_lines,
    how_to_answer,
    local_time,
    numbers,
    taken_back_text,
    value_lines,
)
from loom_audit.cli.shared.lookup import event_at, question_about, questions, record_of
from loom_audit.cli.shared.output import Line, Output
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.points import call_number
from loom_audit.cli.shared.records import (
    event_record,
    git_record,
    history_record,
    plain,
    question_record,
    time_text,
)
from loom_audit.errors import NotFound
from loom_audit.model.backgrounds import BackgroundFinished
from loom_audit.model.events import CallReported, CallRequested, Event, FilesChanged
from loom_audit.model.text.display import count_text, duration_text, size_text, visible

if TYPE_CHECKING:
    from loom_audit.api.face import ApprovalRequest, AuditedWorkspace, CallDetail

LONG = 2_000
"""Characters of one value of a result's data, above which it is counted and not shown."""


@command(examples=("loom-audit show 42", "loom-audit show 42 --json"))
def show(
    invocation: Invocation,
    number: Annotated[str, argument("SEQ", "The number of any event of the call.")],
    no_diff: Annotated[bool, option("--no-diff", help="Only name what changed.")] = False,
) -> None:
    """Show one call whole, or any other event.

    A call with its arguments, decision, result and its own diff. Long texts of a result are
    counted only; --json gives them.
    """
    output = invocation.output
    seq = call_number(number)
    with invocation.workspace() as workspace:
        try:
            detail = workspace.timeline.call(seq)
        except NotFound:
            _show_event(invocation, workspace, event_at(workspace, seq), diff=not no_diff)
            return
        call = detail.call
        question = question_about(questions(workspace), call) if call.seq is None else None
        if output.json:
            output.record(_detail_record(workspace, detail, question))
            return
        _print_header(output, workspace, detail, question)
        if held := workspace.timeline.hold(call.session):
            output.line("held       ", (held.text, "yellow"))
        if detail.decision is not None:
            decided = detail.decision
            why = f": {decided.reason}" if decided.reason else ""
            output.line("decided    ", f"{decided.decision} by {decided.by}{why}")
        shown = [("arguments", value_lines(detail.arguments))]
        if call.seq is not None:
            shown.append(("result", result_lines(detail.result)))
        for maybe in detail.told_later:
            output.line(attributed_text(maybe))
        reports = [e.fact for e in detail.events if isinstance(e.fact, CallReported)]
        for told in reports:
            shown.append((f"reported later: {told.status}", result_lines(told.result)))
        for event in detail.events:
            if isinstance(event.fact, BackgroundFinished):
                printed = value_lines(event.fact.output.rstrip("\n")) if event.fact.output else []
                shown.append((f"went on as {fact_text(event)}", printed))
        for title, lines in shown:
            output.line((f"{title}:", "bold"))
            for line in lines:
                output.marked(line, "")
        if detail.changes:
            output.line(("changes:", "bold"))
            output.lines(change_lines(detail.changes, detail.moves))
            if not no_diff:
                for change in detail.changes:
                    print_difference(output, difference(workspace, change, disk=False))
        if detail.git:
            output.line(("git:", "bold"))
            for fact in detail.git:
                output.lines(git_lines(fact))
        output.lines(_doubt_lines(workspace, detail))
        if detail.to_choose and call.seq is not None and call.undone_by is None:
            choice = f"loom-audit revert {call.seq} --choose PATH=old"
            output.note(f"no undo takes back what it only may have done; `{choice}` does")


def _doubt_lines(workspace: "AuditedWorkspace", detail: "CallDetail") -> Iterator[Line]:
    """What it changed and is as before, and what is only maybe its own."""
    timeline = workspace.timeline
    if detail.as_before:
        yield (("changed, and left as it had been:", "bold"),)
        yield from ((f"  {visible(path)}",) for path in detail.as_before)
    if detail.shared:
        yield (("of these only maybe its own:", "bold"),)
        for path, others in detail.shared.items():
            known = [timeline.number(one) for one in others if one]
            why = [f"call {numbers(known)} may have done it"] if known else []
            why += ["somebody whom nobody saw may have done it"] if 0 in others else []
            yield (f"  {visible(path)}: {'; '.join(why)}",)
    if detail.maybe:
        yield (("may have been changed by it, too:", "bold"),)
        for one in detail.maybe:
            whose = f"call {timeline.number(one.requested)}" if one.requested else "outside"
            [line] = change_lines([one.change])
            yield (*line, f"  on record as of {whose}, event {one.seq}")


def _detail_record(
    workspace: "AuditedWorkspace", detail: "CallDetail", question: "ApprovalRequest | None"
) -> dict[str, Any]:
    call = detail.call
    return record_of(workspace, call) | {
        "occurred_at": time_text(_occurred(detail)),
        "arguments": detail.arguments,
        "question": question_record(question) if question else None,
        "last_heard": time_text(workspace.timeline.last_heard(call)),
        "decision": plain(detail.decision),
        "result": detail.result,
        "changes": plain(detail.changes),
        "moves": plain(detail.moves),
        "as_before": list(detail.as_before),
        "taken_back_in_part": detail.taken_back_in_part,
        "shared": [{"path": path, "with": list(others)} for path, others in detail.shared.items()],
        "may_have_changed": [history_record(one, one.number) for one in detail.maybe],
        "may_have_been": plain(detail.told_later),
        "git": [git_record(fact) for fact in detail.git],
        "events": [event.seq for event in detail.events],
    }


def _occurred(detail: "CallDetail") -> datetime | None:
    """When a call was asked for, where that was told and is not when it was recorded."""
    requests = (event for event in detail.events if isinstance(event.fact, CallRequested))
    return next((event.occurred_at for event in requests), None)


def _print_header(
    output: Output,
    workspace: "AuditedWorkspace",
    detail: "CallDetail",
    question: "ApprovalRequest | None",
) -> None:
    call = detail.call
    status = "waits for approval" if question else call.status
    output.line((f"call {call.seq or call.requested}  {call.tool}", "bold"), f"  {status}")
    took = f"  {duration_text(call.duration)}" if call.duration else ""
    output.line("at         ", local_time(call.at), took)
    if (occurred := _occurred(detail)) is not None:
        output.line("occurred   ", local_time(occurred), "  as the client tells it")
    output.line("session    ", call.session, f"  {call.actor}")
    client_id = workspace.timeline.client_id(call)
    output.line("call_id    ", client_id, f"  effect {call.effect}  {call.sandbox}".rstrip())
    if call.seq is not None:
        output.line("coverage   ", "; ".join((call.coverage.level, *call.coverage.reasons)))
    if question:
        output.line("because    ", question.reason)
        output.line("answer     ", (how_to_answer(question), "yellow"))
    elif call.seq is None and not workspace.is_alive(call):
        gone = "its process is gone: `loom-audit recover` closes it"
        output.line("open       ", (gone, "yellow"))
    elif (heard := workspace.timeline.last_heard(call)) is not None:
        output.line("open       ", f"last heard {local_time(heard)}")
    if call.error:
        output.line("error      ", (call.error, "red"))
    if call.reverts:
        output.line("takes back ", numbers(call.reverts))
    if call.undone_by is not None:
        by_agent = bool(workspace.timeline.taken_back_by_agents([call]))
        output.line(taken_back_text(call.undone_by, by_agent))
    for path, by in detail.taken_back_in_part.items():
        output.line("in part    ", f"{visible(path)} is taken back by {by}")


def _show_event(
    invocation: Invocation, workspace: "AuditedWorkspace", event: Event, *, diff: bool
) -> None:
    output = invocation.output
    if output.json:
        output.record(event_record(event))
        return
    output.line(*event_line(event))
    record = event_record(event)["fact"]
    fact = event.fact
    if isinstance(fact, FilesChanged):
        record.pop("changes")
    for line in value_lines(record):
        output.marked(line, "")
    if isinstance(fact, FilesChanged):
        shown = fact.changes if fact.origin != "baseline" else ()
        output.lines(change_lines(fact.changes, fact.moves))
        for change in shown if diff else ():
            print_difference(output, difference(workspace, change, disk=False))


def result_lines(result: Any) -> list[str]:
    """A tool's result without what is said elsewhere: the paths, the success, empty fields.

    Of its data, texts that the output holds are left out, and long ones are counted.
    """
    if not isinstance(result, dict):
        return value_lines(result)
    told = {"files_changed", "success", "data"}
    shown = {k: v for k, v in result.items() if k not in told and v not in (None, "")}
    found = result.get("data")
    if not isinstance(found, dict):
        return value_lines(shown if found in (None, "") else shown | {"data": found})
    output = str(result.get("output") or "")
    kept = {k: _counted(v) for k, v in found.items() if not _said(v, output)}
    said = value_lines(shown) if shown else []
    return said + (["  data:", *value_lines(kept, "    ")] if kept else [])


def _said(value: Any, output: str) -> bool:
    """Whether a value is empty, or a text that is in the output anyway."""
    if isinstance(value, str):
        return value.strip() in output
    return value is None or value == []


def _counted(value: Any) -> Any:
    """A value to be shown; a long text or list as how much of it there is."""
    if isinstance(value, str) and len(value) > LONG:
        lines = value.count("\n") + (not value.endswith("\n"))
        return (
            f"({count_text(lines, 'line')}, {size_text(len(value.encode(errors='replace')))}; "
            "--json has it)"
        )
    if isinstance(value, list | dict) and len(json.dumps(value, default=str)) > LONG:
        n = len(value)
        return f"({n} {'entry' if n == 1 else 'entries'}; --json has {'it' if n == 1 else 'them'})"
    return value
