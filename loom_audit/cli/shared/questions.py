"""Calls that wait for an answer: how they are shown, and answered."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import answer_number, local_time, value_lines
from loom_audit.cli.shared.output import Output, Piece, Style
from loom_audit.cli.shared.records import plain
from loom_audit.errors import ApprovalDenied, Conflict
from loom_audit.model.display import one_line
from loom_audit.model.events import Call

if TYPE_CHECKING:
    from loom_audit.history.approvals import ApprovalRequest
    from loom_audit.model.events import Event

CallArgument = Annotated[
    str, typer.Argument(metavar="CALL", help="The number of its request, or its id.")
]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; the model can read it.")
]
WHOLE_ARGUMENTS = """Give all of them: --args '{"path": "b.txt", "content": "hello"}'."""


def question_text(request: "ApprovalRequest", arguments: Any) -> str:
    """The tool with its command or paths."""
    from loom_audit.tools.approvals.policy import named_in

    what = named_in(arguments) or json.dumps(arguments, ensure_ascii=False)
    return f"{request.tool} {one_line(what, 100)}"


def question_lines(request: "ApprovalRequest") -> list[list[Piece]]:
    question = ""
    if request.fact.number > 1:
        question = f", question {request.fact.number}: answer {request.seq}"
    rule = f" ({request.fact.rule})" if request.fact.rule else ""
    lines: list[list[Piece]] = [
        [("call     ", "bold"), f"{request.requested} ({request.call_id}){question}"],
        [("asked    ", "bold"), f"{local_time(request.at)} by {request.actor}"],
        [("tool     ", "bold"), (request.tool, "cyan"), f", effect {request.effect}"],
        [("because  ", "bold"), request.reason, rule],
        [("arguments", "bold")],
    ]
    return lines + [[text] for text in value_lines(request.arguments)]


def preview_style(line: str) -> Style:
    if line.startswith(("+++", "---", "diff ", "rename ", "delete ")):
        return "bold"
    if line.startswith("@@"):
        return "cyan"
    return "green" if line.startswith("+") else "red" if line.startswith("-") else ""


def answer_question(
    invocation: Invocation, name: str, decision: Any, reason: str, **more: Any
) -> None:
    from loom_audit.api import person
    from loom_audit.api.approvals import check_arguments
    from loom_audit.history.approvals import answer, find, wait_after_answer

    with invocation.workspace() as workspace:
        request = find(workspace.attachment, name)
        if (
            decision == "allowed"
            and name != str(answer_number(request))
            and request.fact.number > 1
        ):
            raise Conflict(
                f"{request.tool} was asked about again: this is question {request.fact.number}",
                hint=f"See `loom-audit approvals show {request.seq}`, then answer {request.seq}.",
                details={"question": request.seq},
            )
        if more.get("arguments") is not None:
            check_arguments(workspace, request, more["arguments"])
        event = answer(workspace.attachment, request, decision, person(), reason=reason, **more)
        if decision == "denied":
            _told(invocation.output, event, "denied", question_text(request, request.arguments))
            return
        used = more.get("arguments")
        about = question_text(request, request.arguments if used is None else used)
        _came_of(
            invocation.output, event, wait_after_answer(workspace.attachment, request, event), about
        )


def _came_of(output: Output, event: "Event", came: "ApprovalRequest | Call", about: str) -> None:
    """Say what really came of a yes. Conflict when it is asked again, ApprovalDenied."""
    if not isinstance(came, Call):
        _told(output, event, "asked again", about, question=came.seq)
        raise Conflict(
            f"it was not allowed yet: asked again as {came.seq}: {came.reason}",
            hint=f"See `loom-audit approvals show {came.seq}`, then answer {came.seq}.",
            details={"question": came.seq},
        )
    if came.seq is None:
        more = "; the process that asked goes on with it, `loom-audit log` says what came of it"
        _told(output, event, "answered", about + more)
    elif came.status == "denied":
        _told(output, event, "refused", about)
        raise ApprovalDenied(
            f"the answer was yes, and yet {came.error or 'it was denied'}",
            hint="A rule holds for arguments put in place too. Nothing was done.",
        )
    elif came.status == "ok":
        _told(output, event, "allowed", f"{about}; it ran, call {came.seq}")
    else:
        ended = f"; it ended {came.status}, call {came.seq}: {one_line(came.error, 200)}"
        _told(output, event, "allowed", about + ended)


def _told(output: Output, event: "Event", what: str, about: str, **more: Any) -> None:
    if output.json:
        said = {"seq": event.seq, "id": event.id, **plain(event.fact), "outcome": what}
        output.record(said | more)
    else:
        output.line((f"{what}: ", "bold"), about)
