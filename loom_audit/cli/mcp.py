"""`loom-audit mcp`: the tools for any client of the Model Context Protocol."""

from typing import Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.parameters import option


@command(
    examples=("loom-audit mcp", "loom-audit mcp --allow-undo"),
    codes={exits.UNAVAILABLE: ""},
)
def mcp(
    invocation: Invocation,
    undo: Annotated[
        bool, option("--allow-undo", help="Offer rollback of the whole workspace as a tool too.")
    ] = False,
) -> None:
    """Serve the tools to a client of the Model Context Protocol.

    It speaks on its standard streams, so a client starts it: each call is on record, in a session
    under the client's name. Timeline, calls, diffs and files at a point are resources.
    """
    from loom_audit.api.ground.event_loop import run_in_loop
    from loom_audit.mcp_server.server import McpServer

    with invocation.workspace() as workspace:
        run_in_loop(McpServer(workspace, rollback=undo).serve())
