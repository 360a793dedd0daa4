"""The dashboard served from the command line: serve, and demo at its end."""

from typing import TYPE_CHECKING

from loom_audit.cli.shared.output import Output

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
