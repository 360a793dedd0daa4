"""`loom-audit doctor`: this machine, the store and the workspaces checked."""

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.output import Style
from loom_audit.cli.shared.records import plain


@command(examples=("loom-audit doctor",), codes={exits.FAILED: "there is a problem"})
def doctor(invocation: Invocation) -> int:
    """Check this machine, the store and the workspaces.

    SQLite's version and settings, permissions, free space, scope rules, the clock; which agents
    are connected, and when each was last heard. Goes on after every problem. Changes nothing, but
    that what hooks read of held sessions is put right.
    """
    output = invocation.output
    from loom_audit.api.upkeep.doctor import check_all

    styles: dict[str, Style] = {"ok": "green", "warning": "yellow", "problem": "red"}
    problems = 0
    for check in check_all(invocation.settings):
        problems += check.verdict == "problem"
        if output.json:
            output.record(plain(check))
            continue
        output.line((f"{check.verdict:<8}", styles[check.verdict]), f"{check.name}: ", check.text)
        if check.hint and check.verdict != "ok":
            output.line("        ", (f"-> {check.hint}", "dim"))
    return exits.FAILED if problems else exits.OK
