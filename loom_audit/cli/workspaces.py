"""`loom-audit workspaces`: those of the store."""

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.records import plain


@command(examples=("loom-audit workspaces --json",))
def workspaces(invocation: Invocation) -> None:
    """List the workspaces of the store."""
    output = invocation.output
    with invocation.store() as store:
        for entry in store.workspaces():
            if output.json:
                output.record(plain(entry))
            else:
                output.line(
                    (entry.root, "bold"),
                    f"  {entry.id}  log at {entry.head}",
                    "" if entry.baseline_done else "  (baseline not finished: `loom-audit init`)",
                )
