"""The dashboard served from the command line: serve, and demo at its end."""

from typing import TYPE_CHECKING

from loom_audit.cli.shared.output import Output
from loom_audit.errors import StorageFailed
from loom_audit.model.text.display import one_line

if TYPE_CHECKING:
    from loom_audit.api.face import AuditStore
    from loom_audit.web.shared.admission import Visitor

PORT = 8642


def serve_dashboard(output: Output, store: "AuditStore", port: int, show: bool = False) -> None:
    """Serve it until Ctrl-C, after how to get in is printed; `show` opens a browser."""
    from loom_audit.web.app import serve as serve_web

    def listening(url: str, token: str, visitor: "Visitor | None") -> None:
        if output.json:
            output.record({"url": url, "token": token, "store": store.url})
        elif visitor is None:
            number = url.rstrip("/").rpartition(":")[2]
            tunnel = f"ssh -L {number}:127.0.0.1:{number} HOST"
            output.line(f"dashboard on {url}  (Ctrl-C ends it)")
            output.line("  sign in there with this token, which works once: ", (token, "bold"))
            output.line(
                "  ", (f"from another machine: `{tunnel}` there, then the same address", "dim")
            )
        else:
            called = f" as {one_line(visitor.label)}" if visitor.label else ""
            output.line(f"a browser signed in{called}; for one more: ", (token, "bold"))
        output.stdout.flush()

    serve_web(store, port, show, listening=listening)


def usable_port(port: int | None) -> int:
    """The port asked for; where none was, the usual one, or 0 for a free one.

    StorageFailed where the port asked for is taken.
    """
    from loom_audit.web.listening import listen

    try:
        for one in listen(port or PORT):
            one.close()
    except StorageFailed as error:
        if port is None:
            return 0
        error.hint = "Nothing was recorded. Give another port with `--port`, or none."
        raise
    return port or PORT
