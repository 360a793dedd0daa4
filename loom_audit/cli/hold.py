"""`loom-audit hold`: let no call of a session run until it is released."""

from typing import Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.holds import SessionArgument, hold_record, note_open_calls
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.parameters import option
from loom_audit.cli.shared.points import session_id


@command(
    examples=("loom-audit hold ID --reason 'the tests come first'",),
    codes={exits.UNAVAILABLE: "", exits.CONFLICT: "the session has ended"},
)
def hold(
    invocation: Invocation,
    session: SessionArgument,
    reason: Annotated[
        str, option("--reason", metavar="TEXT", help="Why; the model can read it.")
    ] = "",
) -> None:
    """Let no call of a session run until it is released.

    Every call that it, or a session within it, begins from now on is refused with the reason,
    and on record as denied. What runs already goes on. Held twice is held once.
    """
    from loom_audit.api.control.holding import calls_left_open, hold

    output = invocation.output
    with invocation.workspace() as workspace:
        held = hold(workspace, session_id(workspace, session), reason)
        left = [call for call in calls_left_open(workspace) if call.session == held.session]
        if output.json:
            output.record(hold_record(held) | {"open": [call.requested for call in left]})
            return
        output.line((held.text, "yellow"))
        note_open_calls(output, left)
        output.note(f"`loom-audit release {held.session}` lets it go on")
