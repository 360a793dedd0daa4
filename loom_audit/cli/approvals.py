"""`loom-audit approvals`: the calls that wait for an answer, and recommended rules."""

import os
from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import answer_number, local_time
from loom_audit.cli.shared.output import Output, Piece
from loom_audit.cli.shared.parameters import argument
from loom_audit.cli.shared.questions import preview_lines, question_lines, question_text
from loom_audit.cli.shared.records import question_record
from loom_audit.errors import Conflict, InvalidArguments

if TYPE_CHECKING:
    from loom_audit.api.face import ApprovalRequest


@command(
    examples=(
        "loom-audit approvals",
        "loom-audit approvals show 42",
        "loom-audit approvals init",
    ),
    codes={exits.CONFLICT: "answered already, or the file is there"},
)
def approvals(
    invocation: Invocation,
    action: Annotated[str, argument("show|init", help="Show one, or write a file of rules.")] = "",
    name: Annotated[str, argument("CALL", help="The one to show.")] = "",
) -> None:
    """List the calls that wait for an answer.

    `show CALL` prints one with what it would change. `init` writes recommended rules to
    approvals.toml in the configuration folder, which makes them hold from the next session on,
    and hosts that web_fetch need not ask about to tools.toml where there is none.
    """
    output = invocation.output
    if action == "init" and not name:
        _write_rules(invocation)
        return
    if action not in ("", "show") or bool(name) != (action == "show"):
        raise InvalidArguments(
            "expected nothing, `show CALL` or `init`", hint="See `loom-audit approvals --help`."
        )
    with invocation.workspace() as workspace:
        if name:
            _show(output, workspace.questions.find(name))
            return
        waiting = workspace.questions.pending()
        for request in waiting:
            if output.json:
                output.record(question_record(request))
            else:
                output.line(*_line(request))
        if not waiting:
            output.note("no call waits for an answer")


def _line(request: "ApprovalRequest") -> list[Piece]:
    gone = "" if request.alive else "  its process is gone: `loom-audit recover`"
    return [
        (f"{answer_number(request):>6}  ", "bold"),
        f"{local_time(request.at)}  {request.actor}  ",
        (question_text(request, request.arguments), "cyan"),
        f"  {request.reason}",
        (gone, "yellow"),
    ]


def _show(output: Output, request: "ApprovalRequest") -> None:
    if output.json:
        output.record(question_record(request))
        return
    for line in question_lines(request):
        output.line(*line)
    for text, style in preview_lines(request):
        output.marked(text, style)


def _write_rules(invocation: Invocation) -> None:
    output = invocation.output
    from loom_audit.api.control.recommended import write_recommended
    from loom_audit.config import APPROVALS

    file = invocation.settings.configuration / APPROVALS
    if os.path.lexists(file):
        raise Conflict(f"{file} is there already", hint="Edit it.")
    written = write_recommended(invocation.settings)
    if output.json:
        output.record({"file": str(file), "written": [*map(str, written)]})
        return
    for one in written:
        output.line((f"{one} is written", "green"), "; it holds from the next session on")
