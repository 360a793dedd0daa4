"""The dashboard: `create_app` for a server of your own, `serve` for this machine."""

import socket
import webbrowser
from collections.abc import Callable
from http import HTTPStatus

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from loom_audit.api import AuditStore, person
from loom_audit.errors import AuditError, InvalidArguments, StorageFailed
from loom_audit.web import approvals, calls, checks, overview, points, undo
from loom_audit.web.guard import Guard, secured
from loom_audit.web.pages import STATUS, Pages, assets

LOOPBACK = ("127.0.0.1", "::1", "localhost")
PORT = 8642


def create_app(store: AuditStore, *, port: int = PORT) -> FastAPI:
    """The application over an open store; it answers only to loopback host names with `port`."""
    app = FastAPI(
        title="loom-audit",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.store = store
    app.state.visitor = person()
    app.state.pages = Pages()
    for module in (overview, calls, points, undo, checks, approvals):
        app.include_router(module.router)
    app.add_api_route("/healthz", healthz, methods=["GET"])
    app.mount("/static", StaticFiles(directory=assets("static")), name="static")
    app.add_exception_handler(AuditError, _audit_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _broken)
    app.add_middleware(Guard, port=port, refuse=app.state.pages.refusal)
    return app


def serve(
    store: AuditStore,
    port: int = PORT,
    open: bool = False,
    *,
    host: str = "127.0.0.1",
    listening: Callable[[str], object] | None = None,
) -> None:
    """Serve the dashboard on loopback until interrupted; InvalidArguments for another address,
    StorageFailed when the port is taken; port 0 takes a free one.

    `open` shows it in the person's browser. `listening` is called with the address once it
    can be asked for.
    """
    if host not in LOOPBACK:
        raise InvalidArguments(
            f"the dashboard is served on loopback only, not on {host}",
            hint="It has no login. From elsewhere, use `ssh -L 8642:127.0.0.1:8642 HOST`.",
        )
    with _listen(host, port) as taken:
        port = taken.getsockname()[1]
        app = create_app(store, port=port)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=3,
            )
        )
        url = f"http://{'[::1]' if host == '::1' else host}:{port}/"
        if listening is not None:
            listening(url)
        if open:
            webbrowser.open(url)
        server.run(sockets=[taken])


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, so that a browser opened now is answered as soon as we run."""
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    try:
        taken = socket.create_server((host, port), family=family)
    except OSError as error:
        raise StorageFailed(
            f"cannot listen on {host}:{port}: {str(error.strerror).partition(' (')[0]}",
            hint="Another dashboard may be running there; give another port with `--port`.",
        ) from None
    # Accepted connections inherit it; asyncio sets it only where the socket's proto says TCP.
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return taken


def healthz() -> Response:
    return PlainTextResponse("ok\n")


def _audit_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, AuditError):
        raise error
    pages: Pages = request.app.state.pages
    return pages.error(request, STATUS.get(error.code, 500), error)


def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    hint = {
        404: "Addresses begin with /w/WORKSPACE/; the start page lists the workspaces.",
        405: "This address does not take that method.",
    }.get(status, "")
    pages: Pages = request.app.state.pages
    phrase = HTTPStatus(status).phrase
    answer = pages.refusal(request, status, phrase.upper().replace(" ", "_"), phrase + ".", hint)
    if isinstance(error, HTTPException) and error.headers:
        answer.headers.update(error.headers)
    return answer


def _invalid(request: Request, error: Exception) -> Response:
    pages: Pages = request.app.state.pages
    return pages.refusal(
        request, 400, "INVALID_ARGUMENTS", "The address is not valid.", "Check its numbers."
    )


def _broken(request: Request, error: Exception) -> Response:
    """The page for a defect of ours; the server logs the traceback."""
    pages: Pages = request.app.state.pages
    answer = pages.refusal(
        request,
        500,
        "INTERNAL",
        f"The dashboard failed on this page: {type(error).__name__}.",
        "The terminal that runs the dashboard has the details; reload to see what is on record.",
    )
    return secured(answer, request)
