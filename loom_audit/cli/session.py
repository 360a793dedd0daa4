"""`loom-audit session`: the sessions, or one with its calls."""

from typing import Annotated

import typer

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import call_line, local_time
from loom_audit.cli.shared.lookup import calls_of, question_about, questions
from loom_audit.cli.shared.points import session_id
from loom_audit.cli.shared.records import session_record
from loom_audit.model.display import count_text, one_line
from loom_audit.model.events import Session
from loom_audit.ports import CallFilter


@command(examples=("loom-audit session", "loom-audit session ID"))
def session(
    invocation: Invocation,
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
    output = invocation.output
    with invocation.workspace() as workspace:
        if id is not None:
            found = workspace.timeline.session(session_id(workspace, id))
            if output.json:
                output.record(session_record(found))
                return
            _print_session(invocation, found)
            asked = questions(workspace)
            query = CallFilter(session=found.id, newest_first=False, limit=None)
            for call in calls_of(workspace, query):
                question = question_about(asked, call)
                output.line(*call_line(call, width=output.width, question=question))
            return
        listed = workspace.timeline.sessions(limit=limit or 2**31)
        for found in listed:
            if output.json:
                output.record(session_record(found))
            else:
                _print_session(invocation, found)
        if not listed:
            output.note("no sessions yet")


def _print_session(invocation: Invocation, session: Session) -> None:
    errors = f", {session.errors} failed" if session.errors else ""
    done = f"{count_text(session.calls, 'call')}{errors}, {count_text(session.files, 'file')}"
    invocation.output.line(
        (session.id, "bold"),
        f"  {local_time(session.started_at)}  ",
        one_line(session.agent, 40),
        f"  {session.status}  {done}",
        f"  {one_line(session.title, 80)}" if session.title else "",
    )
