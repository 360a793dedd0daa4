"""`loom-audit approve`: let a waiting call run."""

from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import answer_number
from loom_audit.cli.shared.output import Output
from loom_audit.cli.shared.parameters import option
from loom_audit.cli.shared.questions import (
    WHOLE_ARGUMENTS,
    CallArgument,
    ReasonOption,
    print_answer,
    question_text,
)
from loom_audit.errors import ApprovalDenied, Conflict
from loom_audit.model.records import Call
from loom_audit.model.text.display import one_line

if TYPE_CHECKING:
    from loom_audit.api.face import ApprovalRequest
    from loom_audit.model.events import Event


@command(
    examples=(
        "loom-audit approve 42",
        """loom-audit approve 42 --args '{"path": "b.txt", "content": "hello"}'""",
    ),
    codes={
        exits.FAILED: "a rule denied it",
        exits.UNAVAILABLE: "",
        exits.CONFLICT: "somebody else answered first, or it is asked again",
    },
)
def approve(
    invocation: Invocation,
    name: CallArgument,
    args: Annotated[
        str | None,
        option("--args", metavar="JSON", help="Arguments to run it with instead."),
    ] = None,
    reason: ReasonOption = "",
    lasting: Annotated[
        bool,
        option("--for-session", help="Also what is asked for the same reason later in it."),
    ] = False,
) -> None:
    """Let a call run that waits for an answer."""
    from loom_audit.api.control.approvals import check_arguments, read_arguments

    arguments = None if args is None else read_arguments(args, hint=WHOLE_ARGUMENTS)
    with invocation.workspace() as workspace:
        request = workspace.questions.find(name)
        if name != str(answer_number(request)) and request.fact.number > 1:
            raise Conflict(
                f"{request.tool} was asked about again: this is question {request.fact.number}",
                hint=f"See `loom-audit approvals show {request.seq}`, then answer {request.seq}.",
                details={"question": request.seq},
            )
        if arguments is not None:
            check_arguments(workspace, request, arguments)
        event = workspace.questions.answer(
            request, "allowed", reason=reason, arguments=arguments, lasting=lasting
        )
        about = question_text(request, request.arguments if arguments is None else arguments)
        came = workspace.questions.outcome(request, event)
        _print_outcome(invocation.output, event, came, about)


def _print_outcome(
    output: Output, event: "Event", came: "ApprovalRequest | Call", about: str
) -> None:
    """Say what really came of a yes. Conflict when it is asked again, ApprovalDenied."""
    if not isinstance(came, Call):
        print_answer(output, event, "asked again", about, question=came.seq)
        raise Conflict(
            f"it was not allowed yet: asked again as {came.seq}: {came.reason}",
            hint=f"See `loom-audit approvals show {came.seq}`, then answer {came.seq}.",
            details={"question": came.seq},
        )
    if came.seq is None:
        more = "; the process that asked goes on with it, `loom-audit log` says what came of it"
        print_answer(output, event, "answered", about + more)
    elif came.status == "denied":
        print_answer(output, event, "refused", about)
        raise ApprovalDenied(
            f"the answer was yes, and yet {came.error or 'it was denied'}",
            hint="A rule holds for arguments put in place too. Nothing was done.",
        )
    elif came.status == "ok":
        print_answer(output, event, "allowed", f"{about}; it ran, call {came.seq}")
    else:
        ended = f"; it ended {came.status}, call {came.seq}: {one_line(came.error, 200)}"
        print_answer(output, event, "allowed", about + ended)
