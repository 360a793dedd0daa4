"""Commands that prove: head, verify."""

from typing import TYPE_CHECKING

import typer

from loom_audit.cli import exits
from loom_audit.cli.options import Invocation, command
from loom_audit.cli.output import Style
from loom_audit.cli.records import plain, tree_head_record

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


def doctor(at: Invocation) -> int:
    """Check this machine, the store and the workspaces.

    SQLite's version and settings, permissions, free space, scope rules, the clock. Changes
    nothing, and goes on after every problem.
    """
    from loom_audit.cli.checks import check_all
    from loom_audit.config import read_settings

    styles: dict[str, Style] = {"ok": "green", "warning": "yellow", "problem": "red"}
    problems = 0
    for check in check_all(read_settings(at.shared.store)):
        problems += check.verdict == "problem"
        if at.output.json:
            at.output.record(plain(check))
            continue
        at.output.line(
            (f"{check.verdict:<8}", styles[check.verdict]), f"{check.name}: ", check.text
        )
        if check.hint and check.verdict != "ok":
            at.output.line("        ", (f"-> {check.hint}", "dim"))
    return exits.FAILED if problems else exits.OK
