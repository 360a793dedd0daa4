"""`loom-audit doctor`: this machine, the store and the workspaces checked."""

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.output import Style
from loom_audit.cli.shared.records import plain


@command(examples=("loom-audit doctor",), codes={exits.FAILED: "there is a problem"})
def doctor(invocation: Invocation) -> int:
    """Check this machine, the store and the workspaces.

    SQLite's version and settings, permissions, free space, scope rules, the clock. Changes
    nothing, and goes on after every problem.
    """
    from loom_audit.api.doctor import check_all
    from loom_audit.config import read_settings

    styles: dict[str, Style] = {"ok": "green", "warning": "yellow", "problem": "red"}
    problems = 0
    for check in check_all(read_settings(invocation.shared.store)):
        problems += check.verdict == "problem"
        if invocation.output.json:
            invocation.output.record(plain(check))
            continue
        invocation.output.line(
            (f"{check.verdict:<8}", styles[check.verdict]), f"{check.name}: ", check.text
        )
        if check.hint and check.verdict != "ok":
            invocation.output.line("        ", (f"-> {check.hint}", "dim"))
    return exits.FAILED if problems else exits.OK
