"""Held sessions and the calls that go on in them, as they are printed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from loom_audit.cli.shared.lines import call_line
from loom_audit.cli.shared.output import Output
from loom_audit.cli.shared.parameters import argument
from loom_audit.cli.shared.records import time_text
from loom_audit.model.records import Call, SessionHold
from loom_audit.model.text.display import count_text

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace

SessionArgument = Annotated[str, argument("SESSION", help="Its id; the start of it is enough.")]


def hold_record(held: SessionHold) -> dict[str, Any]:
    """The record of a hold; its `session` was held, which may be one that contains the other."""
    return {
        "session": held.session,
        "by": held.by,
        "reason": held.reason,
        "since": time_text(held.since),
        "seq": held.seq,
    }


def note_holds(workspace: "AuditedWorkspace", output: Output) -> None:
    """Say which open sessions are held."""
    for held in workspace.timeline.holds():
        output.note((held.text, "yellow"))


def going_on(workspace: "AuditedWorkspace", output: Output) -> dict[str, Any]:
    """Name the held sessions and the calls that are left open; returned is the same for JSON."""
    from loom_audit.api.control.holding import calls_left_open, still_running

    held, left = workspace.timeline.holds(), calls_left_open(workspace)
    if not output.json:
        output.lines(((one.text, "yellow"),) for one in held)
        note_open_calls(output, left)
        for session, pid in still_running(workspace):
            process = f" (process {pid})" if pid else ""
            output.line((f"the agent of session {session} still runs{process}", "yellow"))
        if left:
            output.note("what they change from now on is on record as theirs, and later than this")
        for one in held:
            output.note(f"`loom-audit release {one.session}` lets it go on")
    return {
        "held": [hold_record(one) for one in held],
        "left_open": [call.requested for call in left],
    }


def note_open_calls(output: Output, calls: Sequence[Call]) -> None:
    """Name the calls that go on all the same."""
    if calls:
        still = "which goes on" if len(calls) == 1 else "which go on"
        output.line((f"still open: {count_text(len(calls), 'call')}, {still}", "yellow"))
        output.lines(call_line(call, width=output.width) for call in calls)
