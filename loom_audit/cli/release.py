"""`loom-audit release`: let a held session go on."""

from typing import Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.holds import SessionArgument
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.parameters import option
from loom_audit.cli.shared.points import session_id


@command(
    examples=("loom-audit release ID",),
    codes={exits.UNAVAILABLE: "", exits.CONFLICT: "it is held with the session that contains it"},
)
def release(
    invocation: Invocation,
    session: SessionArgument,
    reason: Annotated[str, option("--reason", metavar="TEXT", help="Why; it goes on record.")] = "",
) -> None:
    """Let a held session go on.

    Its next call runs, and those of the sessions within it. What was refused stays refused.
    """
    from loom_audit.api.control.holding import release

    output = invocation.output
    with invocation.workspace() as workspace:
        id = session_id(workspace, session)
        released = release(workspace, id, reason)
        if output.json:
            output.record({"session": id, "released": released})
        elif released:
            output.line((f"session {id} is released", "green"), ": its next call runs")
        else:
            output.note(f"session {id} was not held")
