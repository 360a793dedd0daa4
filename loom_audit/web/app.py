"""The dashboard: `create_app` for a server of your own, `serve` for this machine."""

import asyncio
import os
import socket
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from loom_audit.api.control.flagged import FlaggedCalls
from loom_audit.api.face import AuditStore, person
from loom_audit.api.review.sessions import Reviews
from loom_audit.errors import AuditError, StorageFailed
from loom_audit.web import keys, live, sign_in, undo
from loom_audit.web.guard import Changing, Guard, secured
from loom_audit.web.listening import listen
from loom_audit.web.overview.memo import OverviewMemo
from loom_audit.web.request_timeout import SECONDS, TimedConnection
from loom_audit.web.review.blame import Followings
from loom_audit.web.shared.admission import Admission, Visitor
from loom_audit.web.shared.pages import STATUS, Pages, assets, obstacles

MODULES = (
    "overview.first_page",
    "overview.needs",
    "overview.later",
    "calls",
    "finding",
    "review.call",
    "review.said",
    "review.steps",
    "review.session",
    "review.marks",
    "approvals",
    "points",
    "comparing",
    "checks",
    "proof",
    "undo",
    "holding",
    "counts",
    "images",
    "live",
    "keys",
    "sign_in",
)
"""Every module with a `router`; the navigation leads to the `PLACES` of those that have some."""

PORT = 8642
SMALL = 1_000
"""Bytes that are sent as they are."""
COMPRESSION = 3
"""The level, of 9: what the higher ones save is less than what they take."""


def create_app(store: AuditStore, admission: Admission) -> FastAPI:
    """The application over an open store, for whom `admission` lets in."""
    app = FastAPI(
        title="loom-audit",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.store = store
    app.state.admission = admission
    modules = [import_module(f"loom_audit.web.{name}") for name in MODULES]
    app.state.pages = Pages(
        [place for module in modules for place in getattr(module, "PLACES", ())],
        partial(keys.are_off, store),
    )
    app.state.plans = undo.LastPlans()
    app.state.progress = live.WorkProgress()
    app.state.flagged_calls = FlaggedCalls()
    app.state.overview = OverviewMemo(app.state.flagged_calls)
    app.state.reviews = Reviews()
    app.state.followings = Followings(app.state.reviews)
    for module in modules:
        app.include_router(module.router)
    app.add_api_route("/healthz", healthz, methods=["GET"])
    app.mount("/static", StaticFiles(directory=assets("static")), name="static")
    app.add_exception_handler(AuditError, _audit_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _broken)
    app.state.changing = Changing()
    guarded = {"admission": admission, "pages": app.state.pages, "changing": app.state.changing}
    app.add_middleware(Guard, **guarded)
    app.add_middleware(GZipMiddleware, minimum_size=SMALL, compresslevel=COMPRESSION)
    return app


class Server(uvicorn.Server):
    """A server that ends once all that changes something is answered, at once at a second signal.

    What only reads is waited for as long as the configuration says.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop taking requests at the first signal, and waiting for answers at the second."""
        self.force_exit |= self.should_exit
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the sockets, wait for the requests that change something, then end."""
        for listening in self.servers:
            listening.close()
        for connection in [*self.server_state.connections]:
            connection.shutdown()  # it takes no more requests
        changing: Changing = cast(FastAPI, self.config.app).state.changing
        await asyncio.sleep(0.1)  # those that have arrived have begun
        while changing.requests and not self.force_exit:
            await asyncio.sleep(0.1)
        await super().shutdown(sockets)


def server_of(app: FastAPI, seconds: float = SECONDS) -> Server:
    """A server of the dashboard, which closes a connection of which no whole request arrives in so
    many seconds.
    """
    return Server(
        uvicorn.Config(
            app,
            http=cast(Any, partial(TimedConnection, seconds)),
            ws="none",
            lifespan="off",  # nothing begins or ends with it, and a second signal would cut it off
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=3,
        )
    )


def serve(
    store: AuditStore,
    port: int = PORT,
    open: bool = False,
    *,
    listening: Callable[[str, str, Visitor | None], object],
) -> None:
    """Serve the dashboard on loopback until interrupted; port 0 takes a free one. StorageFailed
    when the port is taken.

    `listening` is told the address, a token that lets one browser in, and None; then, each time
    such a token was used, the next one and by whom. `open` shows the dashboard in the person's
    browser.
    """
    admission = Admission(person())
    with ExitStack() as held:
        taken = [held.enter_context(one) for one in listen(port)]
        url = f"http://{admission.host}:{taken[0].getsockname()[1]}/"

        def invite(visitor: Visitor | None = None) -> None:
            listening(url, admission.new_token(invite), visitor)

        app = create_app(store, admission)
        server = server_of(app)
        # before anybody knows that it serves: where Python cannot raise KeyboardInterrupt, as in
        # `__del__` or a callback of the import system, a Ctrl-C would be lost
        held.enter_context(server.capture_signals())
        invite()
        # who was invited takes longer to come
        Thread(target=app.state.pages.compile, daemon=True).start()
        if open:
            held.enter_context(_opened(store, admission, url))
        server.run(sockets=taken)


@contextmanager
def _opened(store: AuditStore, admission: Admission, url: str) -> Iterator[None]:
    """The dashboard in the person's browser, which a file of theirs signs in.

    A token on the command line of a browser could be read by every account of the machine.
    """
    file = store.home / f"sign-in-{os.getpid()}.html"

    def delete(visitor: Visitor | None = None) -> None:
        file.unlink(missing_ok=True)

    try:
        _write_private(file, sign_in.signing_in_page(url, admission.new_token(delete)))
        webbrowser.open(file.as_uri())
        yield
    finally:
        delete()


def _write_private(file: Path, text: str) -> None:
    """A new file that its owner alone can read. StorageFailed."""
    try:
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as made:
            made.write(text)
    except OSError as error:
        raise StorageFailed(f"cannot write {file}: {error.strerror}") from error


def healthz() -> Response:
    """Answer that the server runs."""
    return PlainTextResponse("ok\n")


def _audit_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, AuditError):
        raise error
    pages: Pages = request.app.state.pages
    return pages.refusal(
        request,
        STATUS.get(error.code, 500),
        error.code,
        error.message,
        error.hint,
        details=error.details,
        links=obstacles(request, error),
    )


def _refusal(request: Request, status: int, code: str, message: str, hint: str) -> Response:
    pages: Pages = request.app.state.pages
    return pages.refusal(request, status, code, message, hint)


def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    hint = {
        404: "Addresses begin with /w/WORKSPACE/; the start page lists the workspaces.",
        405: "This address does not take that method.",
    }.get(status, "")
    phrase = HTTPStatus(status).phrase
    answer = _refusal(request, status, phrase.upper().replace(" ", "_"), phrase + ".", hint)
    if isinstance(error, HTTPException) and error.headers:
        answer.headers.update(error.headers)
    return answer


def _invalid(request: Request, error: Exception) -> Response:
    return _refusal(
        request, 400, "INVALID_ARGUMENTS", "The address is not valid.", "Check its numbers."
    )


def _broken(request: Request, error: Exception) -> Response:
    """The page for a defect of ours; the server logs the traceback."""
    answer = _refusal(
        request,
        500,
        "INTERNAL",
        f"The dashboard failed on this page: {type(error).__name__}.",
        "The terminal that runs the dashboard has the details; reload to see what is on record.",
    )
    return secured(answer, request)
