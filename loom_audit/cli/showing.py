"""Commands that show one thing whole: show, session."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_audit.cli.approvals import record as question_record
from loom_audit.cli.differences import difference, print_difference
from loom_audit.cli.lines import (
    call_line,
    change_lines,
    counted,
    event_line,
    local_time,
    numbers,
    result_lines,
    value_lines,
)
from loom_audit.cli.looking import calls_of, event_at, event_id
from loom_audit.cli.names import session_id
from loom_audit.cli.options import Invocation, command
from loom_audit.cli.records import (
    call_record,
    change_record,
    event_record,
    plain,
    session_record,
)
from loom_audit.cli.waiting import how_to_answer, question_about, questions
from loom_audit.errors import NotFound
from loom_audit.model.display import duration_text, one_line
from loom_audit.model.events import Call, Event, FilesChanged, Session
from loom_audit.ports import CallFilter

if TYPE_CHECKING:
    from loom_audit.api import AuditedWorkspace
    from loom_audit.history.approvals import ApprovalRequest
    from loom_audit.history.timeline import CallDetail


def add(app: typer.Typer) -> None:
    """Put these commands on the application."""
    section = "Look"
    command(
        app, "show", section=section, examples=("loom-audit show 42", "loom-audit show 42 --json")
    )(show)
    command(
        app, "session", section=section, examples=("loom-audit session", "loom-audit session ID")
    )(session)


def show(
    at: Invocation,
    seq: Annotated[
        int, typer.Argument(min=1, metavar="SEQ", help="The number of any event of the call.")
    ],
    no_diff: Annotated[bool, typer.Option("--no-diff", help="Only name what changed.")] = False,
) -> None:
    """Show one call whole, or any other event.

    A call with its arguments, decision, result and its own diff. Long texts of a result are
    counted only; --json gives them.
    """
    with at.workspace() as workspace:
        try:
            detail = workspace.timeline.call(seq)
        except NotFound:
            _show_event(at, workspace, event_at(workspace, seq), diff=not no_diff)
            return
        call = detail.call
        question = question_about(questions(workspace), call) if call.seq is None else None
        if at.output.json:
            at.output.record(_detail_record(workspace, detail, question))
            return
        _print_header(
            at, call, question, alive=call.seq is not None or workspace.attachment.is_alive(call)
        )
        if detail.decision is not None:
            decided = detail.decision
            why = f": {decided.reason}" if decided.reason else ""
            at.output.line("decided    ", f"{decided.decision} by {decided.by}{why}")
        shown = [("arguments", value_lines(detail.arguments))]
        if call.seq is not None:
            shown.append(("result", result_lines(detail.result)))
        for title, lines in shown:
            at.output.line((f"{title}:", "bold"))
            for line in lines:
                at.output.marked(line, "")
        if detail.changes:
            at.output.line(("changes:", "bold"))
            at.output.lines(change_lines(detail.changes, detail.moves))
            if not no_diff:
                for change in detail.changes:
                    print_difference(at.output, difference(workspace, change, disk=False))


def _detail_record(
    workspace: "AuditedWorkspace", detail: "CallDetail", question: "ApprovalRequest | None"
) -> dict[str, Any]:
    call = detail.call
    return call_record(call, event_id(workspace, call.seq or call.requested)) | {
        "arguments": detail.arguments,
        "question": question_record(question) if question else None,
        "decision": plain(detail.decision),
        "result": detail.result,
        "changes": [change_record(change) for change in detail.changes],
        "moves": plain(detail.moves),
        "events": [event.seq for event in detail.events],
    }


def _print_header(
    at: Invocation, call: Call, question: "ApprovalRequest | None", *, alive: bool
) -> None:
    status = "waits for approval" if question else call.status
    at.output.line((f"call {call.seq or call.requested}  {call.tool}", "bold"), f"  {status}")
    took = f"  {duration_text(call.duration)}" if call.duration else ""
    at.output.line("at         ", local_time(call.at), took)
    at.output.line("session    ", call.session, f"  {call.actor}")
    at.output.line("call_id    ", call.call_id, f"  effect {call.effect}  {call.sandbox}".rstrip())
    if call.seq is not None:
        at.output.line("coverage   ", "; ".join((call.coverage.level, *call.coverage.reasons)))
    if question:
        at.output.line("because    ", question.reason)
        at.output.line("answer     ", (how_to_answer(question), "yellow"))
    elif not alive:
        gone = "its process is gone: `loom-audit recover` closes it"
        at.output.line("open       ", (gone, "yellow"))
    if call.error:
        at.output.line("error      ", (call.error, "red"))
    if call.reverts:
        at.output.line("takes back ", numbers(call.reverts))
    if call.undone_by is not None:
        at.output.line("taken back by ", str(call.undone_by))


def _show_event(at: Invocation, workspace: "AuditedWorkspace", event: Event, *, diff: bool) -> None:
    if at.output.json:
        at.output.record(event_record(event))
        return
    at.output.line(*event_line(event))
    record = event_record(event)["fact"]
    fact = event.fact
    if isinstance(fact, FilesChanged):
        record.pop("changes")
    for line in value_lines(record):
        at.output.marked(line, "")
    if isinstance(fact, FilesChanged):
        shown = fact.changes if fact.origin != "baseline" else ()
        at.output.lines(change_lines(fact.changes, fact.moves))
        for change in shown if diff else ():
            print_difference(at.output, difference(workspace, change, disk=False))


def session(
    at: Invocation,
    id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Show this one with its calls; its start is enough."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, metavar="N", help="0 means all.")
    ] = 20,
) -> None:
    """List the sessions, or show one.

    The list is newest first; one is shown with its calls in order.
    """
    with at.workspace() as workspace:
        if id is not None:
            found = workspace.timeline.session(session_id(workspace, id))
            if at.output.json:
                at.output.record(session_record(found))
                return
            _print_session(at, found)
            asked = questions(workspace)
            query = CallFilter(session=found.id, newest_first=False, limit=None)
            for call in calls_of(workspace, query):
                question = question_about(asked, call)
                at.output.line(*call_line(call, width=at.output.width, question=question))
            return
        listed = workspace.timeline.sessions(limit=limit or 2**31)
        for found in listed:
            if at.output.json:
                at.output.record(session_record(found))
            else:
                _print_session(at, found)
        if not listed:
            at.output.note("no sessions yet")


def _print_session(at: Invocation, session: Session) -> None:
    errors = f", {session.errors} failed" if session.errors else ""
    done = f"{counted(session.calls, 'call')}{errors}, {counted(session.files, 'file')}"
    at.output.line(
        (session.id, "bold"),
        f"  {local_time(session.started_at)}  ",
        one_line(session.agent, 40),
        f"  {session.status}  {done}",
        f"  {one_line(session.title, 80)}" if session.title else "",
    )
