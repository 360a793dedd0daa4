"""`loom-audit daemon`: the warm process that answers agents' hooks."""

import sys
from typing import Annotated

from loom_audit.api.agents.launcher import SOCKET
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.parameters import option


@command(examples=("loom-audit daemon",))
def daemon(
    invocation: Invocation,
    name: Annotated[
        str, option("--socket", metavar="NAME", help="The name of the socket in its folder.")
    ] = SOCKET,
) -> None:
    """Answer agents' hooks; the first hook starts this by itself.

    It ends when no hook came for ten minutes and no call is open, and makes way for another build
    of loom-audit. What went wrong is in `hooks/daemon.log` of the data folder.
    """
    from loom_audit.api.agents.launcher import check_home
    from loom_audit.daemon import run_daemon
    from loom_audit.errors import Conflict

    settings = invocation.settings
    check_home(settings)
    with invocation.store() as store:
        if sys.stderr.isatty():  # nobody reads what the one that a hook started says
            invocation.output.note(
                "answering hooks; without any for ten minutes it ends, Ctrl-C ends it now"
            )
        try:
            run_daemon(store, settings.hooks, name)
        except Conflict as there_is_one:
            invocation.output.note(str(there_is_one))
