"""The dashboard served from the command line: serve, and demo at its end."""

import socket
from typing import TYPE_CHECKING

from loom_audit.cli.shared.output import Output
from loom_audit.errors import StorageFailed

if TYPE_CHECKING:
    from loom_audit.api import AuditStore

PORT = 8642


def serve_dashboard(output: Output, store: "AuditStore", port: int, show: bool = False) -> None:
    """Serve it until Ctrl-C, after its URL is printed; `show` opens a browser."""
    from loom_audit.web.app import serve as serve_web

    def listening(url: str) -> None:
        if output.json:
            output.record({"url": url, "store": store.url})
        else:
            output.line(f"dashboard on {url}  (Ctrl-C ends it)")
        output.stdout.flush()

    serve_web(store, port, show, listening=listening)


def usable_port(port: int | None) -> int:
    """The port asked for; where none was, the usual one, or 0 for a free one. StorageFailed."""
    try:
        socket.create_server(("127.0.0.1", port or PORT)).close()
    except OSError as error:
        if port is None:
            return 0
        raise StorageFailed(
            f"cannot listen on 127.0.0.1:{port}: {str(error.strerror).partition(' (')[0]}",
            hint="Nothing was recorded. Give another port with `--port`, or none.",
        ) from None
    return port or PORT
