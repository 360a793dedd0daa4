"""Commands that keep and rebuild points: checkpoint, replay."""

from typing import Annotated

import typer

from loom_audit.cli import exits
from loom_audit.cli.files import AtOption
from loom_audit.cli.lines import counted, local_time
from loom_audit.cli.names import named_point
from loom_audit.cli.options import Invocation, command, folder
from loom_audit.cli.progress import progress
from loom_audit.cli.records import checkpoint_record
from loom_audit.model.display import one_line


def add(app: typer.Typer) -> None:
    """Put these commands on the application."""
    command(
        app,
        "checkpoint",
        section="Take back",
        examples=("loom-audit checkpoint before-merge", "loom-audit checkpoint"),
        codes={exits.UNAVAILABLE: ""},
    )(checkpoint)
    command(
        app,
        "replay",
        section="Take back",
        examples=("loom-audit replay head~3 --to /tmp/then",),
        codes={exits.CONFLICT: "the folder is not empty", exits.CORRUPT: ""},
    )(replay)


def checkpoint(
    at: Invocation,
    name: Annotated[str | None, typer.Argument(metavar="NAME")] = None,
    point: AtOption = "head",
    note: Annotated[str, typer.Option(metavar="TEXT", help="A text kept with it.")] = "",
) -> None:
    """Give a point a name, or list the names.

    The name is then a point, written @NAME. A name used before moves to the new point.
    """
    with at.workspace() as workspace:
        if name is not None:
            before = {one.name: one.point for one in workspace.timeline.checkpoints()}
            made = workspace.checkpoint(name.removeprefix("@"), named_point(workspace, point), note)
            found = [made]
            if made.name in before:
                at.output.note(f"it was at {before[made.name]} and has moved")
        else:
            found = list(workspace.timeline.checkpoints())
        for one in found:
            if at.output.json:
                at.output.record(checkpoint_record(one))
            else:
                at.output.line(
                    (f"@{one.name}", "bold"),
                    f"  {one.point}  {local_time(one.at)}  ",
                    one_line(one.note, 100),
                )
        if not found:
            at.output.note("no checkpoints; `loom-audit checkpoint NAME` makes one")


def replay(
    at: Invocation,
    point: Annotated[
        str, typer.Argument(metavar="POINT", help="42, head~3, a time, @name or session:ID.")
    ],
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="Absent or empty.")],
) -> None:
    """Rebuild a point in another, empty folder."""
    with at.workspace() as workspace:
        target = folder(to)
        seq = workspace.timeline.point(named_point(workspace, point))
        with progress(at.output) as report:
            files = workspace.replay(seq, target, report=report)
        if at.output.json:
            at.output.record({"point": seq, "to": str(target), "files": files})
        else:
            at.output.line(f"{counted(files, 'path')} as of {seq} in {target}")
