"""`loom-audit approve`: let a waiting call run."""

from typing import Annotated

import typer

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.questions import (
    WHOLE_ARGUMENTS,
    CallArgument,
    ReasonOption,
    answer_question,
)


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
        typer.Option("--args", metavar="JSON", help="Arguments to run it with instead."),
    ] = None,
    reason: ReasonOption = "",
    lasting: Annotated[
        bool,
        typer.Option("--for-session", help="Also what is asked for the same reason later in it."),
    ] = False,
) -> None:
    """Let a call run that waits for an answer."""
    from loom_audit.api.approvals import read_arguments

    arguments = None if args is None else read_arguments(args, hint=WHOLE_ARGUMENTS)
    answer_question(invocation, name, "allowed", reason, arguments=arguments, lasting=lasting)
