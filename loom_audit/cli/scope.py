"""`loom-audit scope`: what is recorded."""

from typing import Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.parameters import argument
from loom_audit.errors import InvalidArguments
from loom_audit.model.text.display import size_text


@command(examples=("loom-audit scope", "loom-audit scope accept"), codes={exits.UNAVAILABLE: ""})
def scope(
    invocation: Invocation,
    action: Annotated[str, argument("accept", help="Accept .loomignore as it is now.")] = "",
) -> None:
    """Show what is recorded, or accept .loomignore.

    Until a person accepts it, a changed .loomignore changes nothing.
    """
    output = invocation.output
    if action not in ("", "accept"):
        raise InvalidArguments(
            f"unknown action {action}", hint="There is one: `loom-audit scope accept`."
        )
    with invocation.workspace() as workspace:
        if action:
            workspace.accept_scope()
        rules = workspace.scope
        if output.json:
            output.record(
                {
                    "workspace": workspace.id,
                    "accepted": bool(action),
                    "ignore": rules.ignore,
                    "max_file_bytes": rules.max_file_bytes,
                    "heavy": sorted(rules.heavy),
                }
            )
            return
        if action:
            output.line(("accepted", "green"), "; from now on this holds")
        output.line(("never: ", "bold"), ".git and the store")
        output.line(("heavy folders left out: ", "bold"), ", ".join(sorted(rules.heavy)))
        output.line(("by hash only: ", "bold"), f"over {size_text(rules.max_file_bytes)}")
        output.line(("ignored by the accepted .loomignore:", "bold"))
        output.text(rules.ignore.rstrip("\n") or "(nothing)", indent="  ")
