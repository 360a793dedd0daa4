"""Commands that prove: head, verify."""

from typing import TYPE_CHECKING

import typer

from loom_audit.cli.options import Invocation, command
from loom_audit.cli.records import tree_head_record

if TYPE_CHECKING:
    pass


def add(app: typer.Typer) -> None:
    """Put these commands on the application."""
    command(app, "head", section="Prove", examples=("loom-audit head >> /elsewhere/heads.txt",))(
        head
    )


def head(at: Invocation) -> None:
    """Print the Merkle root over all events.

    Kept elsewhere, `verify --against` finds everything that was changed since.
    """
    from loom_audit.disk.heads import head_line

    with at.workspace() as workspace:
        found = workspace.head()
        if at.output.json:
            at.output.record(tree_head_record(found))
        else:
            at.output.line(head_line(found))
