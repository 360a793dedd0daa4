"""`loom-audit replay`: a point rebuilt in another folder."""

from typing import Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lookup import say_unknown
from loom_audit.cli.shared.options import folder
from loom_audit.cli.shared.output import progress
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.points import read_point
from loom_audit.model.text.display import count_text


@command(
    examples=("loom-audit replay head~3 --to /tmp/then",),
    codes={exits.CONFLICT: "the folder is not empty"},
)
def replay(
    invocation: Invocation,
    point: Annotated[str, argument("POINT", help="42, head~3, a time, @name or session:ID.")],
    to: Annotated[str, option("--to", metavar="DIR", help="Absent or empty.")],
) -> None:
    """Rebuild a point in another, empty folder."""
    output = invocation.output
    with invocation.workspace() as workspace:
        target = folder(to)
        seq = read_point(invocation, workspace, point)
        with progress(output) as report:
            files = workspace.replay(seq, target, report=report)
        unknown = workspace.timeline.unseen(seq)
        if output.json:
            told = [{"path": path, "unknown": why} for path, why in unknown.items()]
            output.record({"point": seq, "to": str(target), "files": files, "unknown": told})
            return
        left = f", without {count_text(len(unknown), 'path')} not known" if unknown else ""
        output.line(f"{count_text(files, 'path')} as of {seq} in {target}{left}")
        say_unknown(invocation, workspace, seq)
