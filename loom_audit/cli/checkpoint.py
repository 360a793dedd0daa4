"""`loom-audit checkpoint`: names for points."""

from collections.abc import Iterator
from typing import Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import local_time
from loom_audit.cli.shared.options import AtOption
from loom_audit.cli.shared.output import Line
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.points import named_point
from loom_audit.cli.shared.records import plain
from loom_audit.model.records import Checkpoint
from loom_audit.model.text.display import one_line


@command(
    examples=("loom-audit checkpoint before-merge", "loom-audit checkpoint"),
    codes={exits.UNAVAILABLE: ""},
)
def checkpoint(
    invocation: Invocation,
    name: Annotated[str | None, argument("NAME")] = None,
    point: AtOption = "head",
    note: Annotated[str, option(metavar="TEXT", help="A text kept with it.")] = "",
) -> None:
    """Give a point a name, or list the names.

    The name is then a point, written @NAME. A name used before moves to the new point.
    """
    output = invocation.output
    with invocation.workspace() as workspace:
        if name is not None:
            before = {one.name: one.point for one in workspace.timeline.checkpoints()}
            made = workspace.checkpoint(name.removeprefix("@"), named_point(workspace, point), note)
            found = [made]
            if made.name in before:
                output.note(f"it was at {before[made.name]} and has moved")
        else:
            found = list(workspace.timeline.checkpoints())
        none = "no checkpoints; `loom-audit checkpoint NAME` makes one"
        output.each(found, plain, _lines, none=none)


def _lines(one: Checkpoint) -> Iterator[Line]:
    note = one_line(one.note, 100)
    yield ((f"@{one.name}", "bold"), f"  {one.point}  {local_time(one.at)}  ", note)
