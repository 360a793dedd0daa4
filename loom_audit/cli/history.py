"""`loom-audit history`: every change of one path."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import _about, git_lines, local_time, mark
from loom_audit.cli.shared.lookup import note_verified
from loom_audit.cli.shared.options import workspace_path
from loom_audit.cli.shared.output import Line, Output
from loom_audit.cli.shared.parameters import argument, most_rows, option
from loom_audit.cli.shared.records import event_record, git_record, history_record, time_text
from loom_audit.errors import Corrupt, FileNotFound
from loom_audit.model.git.record import GitChanged
from loom_audit.model.records import RecordedChange
from loom_audit.model.text.display import one_line, visible
from loom_audit.ports import EventFilter

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace
    from loom_audit.model.records import Call


@command(examples=("loom-audit history src/app.py", "loom-audit history .git"))
def history(
    invocation: Invocation,
    path: Annotated[str, argument("PATH")],
    below: Annotated[bool, option("--below", help="Of everything in this folder, too.")] = False,
    limit: Annotated[int, option("--limit", "-n", min=0, metavar="N", help="0 means all.")] = 50,
) -> None:
    """List every change of one path, newest first.

    `.git`, or the name of a branch, lists what changed of git; `FOLDER/.git` that of
    one repository below.
    """
    output = invocation.output
    with invocation.workspace() as workspace:
        name = workspace_path(workspace.root, path)
        inside = below or not name
        found = workspace.timeline.history(name, below=inside, limit=most_rows(limit))
        of_git = ".git" in name.split("/") or not found
        is_listed = of_git and _git_history(output, workspace, name, limit)
        if not found and not is_listed:
            raise FileNotFound(
                f"nothing is on record for {visible(name) or 'the workspace'}",
                hint="`loom-audit ls -r` lists what is; --below includes a folder's content.",
            )
        try:
            moves = _moves(workspace, found)
        except Corrupt as error:  # the list itself is of the tables
            moves = {}
            output.note(f"what was moved cannot be read: {one_line(error.message, 300)}")
        for recorded in found:
            made_by = _made_by(workspace, recorded)
            call = made_by.seq if made_by else None
            moved = moves.get((recorded.seq, recorded.change.path), "")
            told = workspace.timeline.told_at(recorded.seq)
            is_outside = recorded.origin == "outside"
            observed = workspace.timeline.observed_at(recorded.seq) if is_outside else None
            source = workspace.timeline.source_of(recorded.seq) if is_outside else ""
            if output.json:
                output.record(
                    history_record(recorded, call)
                    | {"occurred_at": time_text(told or observed), "moved": moved or None}
                    | {"source": source or None}
                )
            else:
                others = _others(workspace, recorded, call)
                line = history_line(recorded, made_by, others, told, observed, source, path=inside)
                output.line(*line, _moved_text(recorded, moved))
        note_verified(invocation, workspace)


def _git_history(output: Output, workspace: "AuditedWorkspace", name: str, limit: int) -> bool:
    """List what changed of git, or of one of its names and files; whether anything did."""
    listed = 0
    wanted = EventFilter(kinds=(GitChanged.kind,), newest_first=True)
    for event in workspace.timeline.events(wanted):
        fact = event.fact
        if not isinstance(fact, GitChanged) or not fact.is_about(name):
            continue
        if limit and listed == limit:
            break
        listed += 1
        if output.json:
            output.record(event_record(event) | {"git": git_record(fact)})
            continue
        who = event.actor if fact.origin != "outside" else "outside"
        output.line((f"{event.seq:>6}", "bold"), f"  {local_time(event.at)}  {one_line(who, 40)}")
        output.lines(git_lines(fact))
    return listed > 0


def _made_by(workspace: "AuditedWorkspace", recorded: "RecordedChange") -> "Call | None":
    """The call that made a change; None where there is none. While it is open it has no number."""
    return None if recorded.call_id is None else workspace.timeline.call_of(recorded)


def _moves(
    workspace: "AuditedWorkspace", changes: Sequence[RecordedChange]
) -> dict[tuple[int, str], str]:
    """The other end of the move by which a path came or went, by the event and the path."""
    seqs = {
        one.seq
        for one in changes
        if None in (one.change.before, one.change.after) and one.origin != "baseline"
    }
    facts = workspace.timeline.verified.files_changed(seqs)
    ends = [(seq, move) for seq, fact in facts.items() for move in fact.moves]
    return {(seq, move.target): move.source for seq, move in ends} | {
        (seq, move.source): move.target for seq, move in ends
    }


def _moved_text(recorded: RecordedChange, other: str) -> str:
    if not other:
        return ""
    return f"  moved {'to' if recorded.change.after is None else 'from'} {visible(other)}"


def _others(
    workspace: "AuditedWorkspace", recorded: "RecordedChange", call: int | None
) -> list[int]:
    """The numbers of the other calls that may have made a change."""
    found = (workspace.timeline.listed_call(cause) for cause in recorded.causes if cause)
    return [one.seq for one in found if one.seq is not None and one.seq != call]


def history_line(
    recorded: RecordedChange,
    call: "Call | None",
    others: Sequence[int] = (),
    told: datetime | None = None,
    observed: datetime | None = None,
    source: str = "",
    *,
    path: bool,
) -> Line:
    """One change of a path's history: its event's number, who did it, in which call.

    `others` are calls that may have made it instead; it was recorded later than it was `observed`.
    `source` is what made a change from outside, where that is known.
    """
    letter, style = mark(recorded.change)
    who = recorded.actor if recorded.origin != "outside" else "outside"
    # of what took back, its own verb: the origin of a redo or a rollback is `undo`, too
    origin = call.tool if call and recorded.origin == "undo" else recorded.origin
    how: list[str] = [origin] if origin not in (who, "tool") else []
    how += ["by loom-audit connect"] if source == "connect" else []
    how += [f"call {call.seq}"] if call and call.seq else []
    how += [f"or call {other}" for other in others]
    how += [f"told {local_time(told)}"] if told else []
    return (
        (f"{recorded.seq:>6}", "bold"),
        f"  {local_time(observed or recorded.at)}  ",
        (letter, style),
        f" {visible(recorded.change.path)}" if path else "",
        (_about(recorded.change), "dim"),
        f"  {one_line(who, 40)}",
        (f"  {', '.join(how)}" if how else "", "dim"),
    )
