"""`loom-audit session`: the sessions, one with its calls, or the end of one."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.holds import hold_record, note_holds
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import local_time
from loom_audit.cli.shared.lookup import calls_of, listed_lines
from loom_audit.cli.shared.output import Line
from loom_audit.cli.shared.parameters import argument, most_rows, option
from loom_audit.cli.shared.points import session_id
from loom_audit.cli.shared.records import session_record, time_text
from loom_audit.errors import InvalidArguments
from loom_audit.model.records import Session
from loom_audit.model.text.display import count_text, one_line
from loom_audit.ports import CallFilter

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace


@command(
    examples=("loom-audit session", "loom-audit session ID", "loom-audit session end ID"),
    codes={exits.UNAVAILABLE: "", exits.CONFLICT: "a running process is recording it"},
)
def session(
    invocation: Invocation,
    words: Annotated[
        list[str] | None,
        argument(
            "ID | end ID",
            help="Show this one with its calls, or end it; its start is enough.",
        ),
    ] = None,
    limit: Annotated[int, option("--limit", "-n", min=0, metavar="N", help="0 means all.")] = 20,
) -> None:
    """List the sessions, show one, or end one.

    The list is newest first; one is shown with its calls in order. `end` is for a session of
    another program whose end nobody reports: its open calls are closed as they are now.
    """
    output = invocation.output
    ending, id = _read_words(words or [])
    with invocation.workspace() as workspace:
        if ending:
            workspace.end_session(session_id(workspace, id or ""))
        if id is not None:
            found = workspace.timeline.session(session_id(workspace, id))
            if output.json:
                output.record(_record(workspace, found))
                return
            output.lines(_session_lines(workspace, found))
            if held := workspace.timeline.hold(found.id):
                output.line((held.text, "yellow"))
            query = CallFilter(session=found.id, newest_first=False, limit=None)
            calls = calls_of(workspace, query)
            output.lines(line for _, _, line in listed_lines(output, workspace, calls))
            return
        output.each(
            workspace.timeline.sessions(limit=most_rows(limit)),
            partial(_record, workspace),
            partial(_session_lines, workspace),
            none="no sessions yet",
        )
        note_holds(workspace, output)


def _record(workspace: "AuditedWorkspace", session: Session) -> dict[str, Any]:
    held = workspace.timeline.hold(session.id) if session.ended is None else None
    return session_record(session) | {
        "occurred_at": time_text(workspace.timeline.told_at(session.started)),
        "held": hold_record(held) if held else None,
    }


def _read_words(words: list[str]) -> tuple[bool, str | None]:
    """Whether to end a session, and which one is named."""
    if words == ["end"]:
        raise InvalidArguments(
            "the session to end is not named",
            hint="Write `loom-audit session end ID`; `loom-audit session` lists them.",
        )
    ending = len(words) == 2 and words[0] == "end"
    if len(words) > 1 and not ending:
        raise InvalidArguments(
            "one session can be shown", hint="Write `loom-audit session ID`, or `… end ID`."
        )
    return ending, words[-1] if words else None


def _session_lines(workspace: "AuditedWorkspace", session: Session) -> Iterator[Line]:
    told = workspace.timeline.told_at(session.started)
    errors = f", {session.errors} failed" if session.errors else ""
    done = f"{count_text(session.calls, 'call')}{errors}, {count_text(session.files, 'file')}"
    yield (
        (session.id, "bold"),
        f"  {local_time(session.started_at)}  ",
        one_line(session.agent, 40),
        f"  {session.status}  {done}",
        f"  {one_line(session.title, 80)}" if session.title else "",
        (f"  [told {local_time(told)}]" if told else "", "dim"),
    )
