"""`loom-audit head`: the Merkle root over all events."""

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.records import plain


@command(examples=("loom-audit head >> /elsewhere/heads.txt",))
def head(invocation: Invocation) -> None:
    """Print the Merkle root over all events.

    Kept elsewhere, `verify --against` finds everything that was changed since.
    """
    output = invocation.output
    from loom_audit.api.upkeep.heads import head_line

    with invocation.workspace() as workspace:
        found = workspace.head()
        if output.json:
            output.record(plain(found))
        else:
            output.line(head_line(found))
