"""Commands that reach further: serve, demo."""

from typing import Annotated

import typer

from loom_audit.cli import exits
from loom_audit.cli.options import Invocation, command

PORT = 8642


def add(app: typer.Typer) -> None:
    """Put these commands on the application."""
    command(
        app,
        "serve",
        section="Reach",
        examples=("loom-audit serve", "loom-audit serve --port 9000 --open"),
    )(serve)
    command(
        app,
        "demo",
        section="Reach",
        examples=("loom-audit demo", "loom-audit demo --no-serve --json"),
        codes={exits.FAILED: "the rebuilt workspace was not equal byte for byte"},
    )(demo)


def serve(
    at: Invocation,
    port: Annotated[
        int, typer.Option(min=1, max=65535, metavar="N", help="The port on 127.0.0.1.")
    ] = PORT,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Serve the dashboard, on 127.0.0.1 only."""
    from loom_audit.web.app import serve as serve_web

    with at.store() as store:
        url = f"http://127.0.0.1:{port}/"
        if at.output.json:
            at.output.record({"url": url, "store": store.url})
        else:
            at.output.line(f"dashboard on {url}  (Ctrl-C ends it)")
        at.output.stdout.flush()
        serve_web(store, port, show)


def demo(
    at: Invocation,
    serving: Annotated[
        bool, typer.Option("--serve/--no-serve", help="Serve the dashboard on it at the end.")
    ] = True,
    port: Annotated[
        int, typer.Option(min=1, max=65535, metavar="N", help="The dashboard's port.")
    ] = PORT,
) -> int:
    """Record a real agent session and show what can be done.

    Over a copy of a Python package found on this machine. Without serving it ends by rolling
    the workspace back to the start, replaying the end, and proving both equal byte for byte.
    """
    from loom_audit.demo import run_demo

    return run_demo(at, serving, port)
