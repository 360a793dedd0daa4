"""`loom-audit doctor`: this machine, the store and the workspaces checked."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.output import Line, Style
from loom_audit.cli.shared.records import plain

if TYPE_CHECKING:
    from loom_audit.api.upkeep.checks.check import Check


@command(examples=("loom-audit doctor",), codes={exits.FAILED: "there is a problem"})
def doctor(invocation: Invocation) -> int:
    """Check this machine, the store and the workspaces.

    SQLite's version and settings, permissions, free space, scope rules, the clock; which agents
    are connected, and when each was last heard. Goes on after every problem. Changes nothing, but
    that what hooks read of held sessions is put right.
    """
    output = invocation.output
    from loom_audit.api.upkeep.doctor import check_all

    checks = [*check_all(invocation.settings)]
    output.each(checks, plain, _lines)
    return exits.FAILED if any(one.verdict == "problem" for one in checks) else exits.OK


_STYLES: Mapping[str, Style] = {"ok": "green", "warning": "yellow", "problem": "red"}


def _lines(check: "Check") -> Iterator[Line]:
    yield ((f"{check.verdict:<8}", _STYLES[check.verdict]), f"{check.name}: ", check.text)
    if check.hint and check.verdict != "ok":
        yield ("        ", (f"-> {check.hint}", "dim"))
