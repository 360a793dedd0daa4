"""`loom-audit serve`: the dashboard."""

from typing import Annotated

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.dashboard import PORT, serve_dashboard
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.parameters import option


@command(examples=("loom-audit serve", "loom-audit serve --port 9000 --open"))
def serve(
    invocation: Invocation,
    port: Annotated[
        int, option(min=1, max=65535, metavar="N", help="The port on the loopback addresses.")
    ] = PORT,
    show: Annotated[bool, option("--open", help="Open it in the browser, signed in.")] = False,
) -> None:
    """Serve the dashboard on this machine only.

    It prints its address, and a token that signs one browser in, once. Who signs in acts as
    the account that runs the server; a name given then goes on record beside it.
    """
    with invocation.store() as store:
        serve_dashboard(invocation.output, store, port, show)
