"""`loom-audit deny`: refuse a waiting call."""

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.questions import CallArgument, ReasonOption, print_answer, question_text


@command(
    examples=("loom-audit deny 42 --reason 'use the other branch'",),
    codes={exits.UNAVAILABLE: "", exits.CONFLICT: "somebody else answered first"},
)
def deny(invocation: Invocation, name: CallArgument, reason: ReasonOption = "") -> None:
    """Refuse a call that waits for an answer; the model is told so."""
    with invocation.workspace() as workspace:
        request = workspace.questions.find(name)
        event = workspace.questions.answer(request, "denied", reason=reason)
        about = question_text(request, request.arguments)
        print_answer(invocation.output, event, "denied", about)
