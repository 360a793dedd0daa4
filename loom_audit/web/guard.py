"""What stands before every route: who may ask, and the headers every answer carries.

A dashboard on loopback is reachable by every account of the machine and by every page the person
has open in a browser. So: a Host that is not ours is refused before routing (DNS rebinding),
whoever has not signed in is told how to and nothing else, a request that changes something must
come from our own pages (Sec-Fetch-Site and Origin, as Go's CrossOriginProtection and Datasette
do), and no answer may run, frame or load anything that is not ours.
"""

import asyncio
import secrets
from collections.abc import Iterable, MutableMapping
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loom_audit.web.shared.admission import Admission
from loom_audit.web.shared.pages import Pages
from loom_audit.web.sign_in import PATH, ask_to_sign_in

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
COMMON = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"vary", b"HX-Request, HX-Request-Type"),
)


def policy(nonce: str) -> str:
    """The Content-Security-Policy of a page: our files only, scripts by nonce, Trusted Types."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types htmx"
    )


class Changing(Struct):
    """A count of the requests that change something and are under way."""

    requests: int = 0


class _Answer(Struct):
    """Whether the answer to a request has begun."""

    begun: bool = False


class Guard:
    """ASGI middleware; `pages` renders what it answers itself, `changing` counts."""

    def __init__(
        self, app: ASGIApp, *, admission: Admission, pages: Pages, changing: Changing
    ) -> None:
        self._app = app
        self._changing = changing
        self._admission = admission
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce
        # Routes see the path as it was sent: each parameter is decoded once, as bytes, where it
        # is used. Decoded here, a name that is not UTF-8 or holds %2F or a newline would be lost.
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        request = Request(scope, receive)
        answer = self._refusal(request)
        if scope["method"] == "HEAD":  # routed as GET is; the server sends no body of it
            scope = {**scope, "method": "GET"}
        changes = scope["method"] not in SAFE
        self._changing.requests += changes
        sent = _Answer()
        send = _with_headers(send, scope["path"], nonce, sent)
        try:
            await (answer or self._app)(scope, receive, send)
        except asyncio.CancelledError:  # told a second time to end, the server waits for nothing
            if not sent.begun:
                await self._ending(request)(scope, receive, send)
        finally:
            self._changing.requests -= changes

    def _ending(self, request: Request) -> Response:
        return self._pages.refusal(
            request,
            503,
            "ENDING",
            "The dashboard was told twice to end, and did not wait for this.",
            "What was being carried out may be broken off: it is on record, and once "
            "`loom-audit serve` runs again the overview offers to finish it.",
        )

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.getlist("host")
        if len(host) != 1 or not self._admission.is_host(host[0]):
            return self._pages.refusal(
                request,
                421,
                "MISDIRECTED",
                "This server does not answer under that host name.",
                "Open it by the address that the terminal that started this server printed.",
            )
        path: str = request.scope["path"]
        # what is in the package is not a secret, and the page that asks to sign in needs it
        public = path == PATH or path.startswith("/static/")
        visitor = self._admission.visitor(request.cookies)
        if visitor is None and not public:
            return ask_to_sign_in(request, self._pages)
        request.state.visitor = visitor
        if request.method not in SAFE and not _is_ours(request, from_file=path == PATH):
            return self._pages.refusal(
                request,
                403,
                "CROSS_SITE",
                "Nothing was changed: the request did not come from this dashboard's own pages.",
                "Go to the page in this dashboard and press the button there.",
            )
        return None


def _is_ours(request: Request, *, from_file: bool) -> bool:
    """Whether a request that changes something was made by our own pages.

    `from_file` lets one through that a file on this machine made: its Origin is "null", which is
    also that of a sandboxed page of anybody's, so only what brings a token may come that way.
    """
    site = request.headers.getlist("sec-fetch-site")
    origin = request.headers.getlist("origin")
    if len(site) > 1 or len(origin) > 1 or not (site or origin):
        return False
    if from_file and origin == ["null"]:
        return True
    if site and site[0] not in ("same-origin", "none"):
        return False
    return not origin or origin[0].lower() == "http://" + request.headers["host"].lower()


def secured(answer: Response, request: Request) -> Response:
    """An answer that is sent outside the guard, made with the guard's headers."""
    extra = _headers(request.scope["path"], request.state.nonce, answer.status_code)
    answer.headers.update({name.decode(): value.decode() for name, value in extra})
    return answer


def _with_headers(send: Send, path: str, nonce: str, sent: _Answer) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            sent.begun = True
            _add_headers(message, path, nonce)
        await send(message)

    return wrapped


def _add_headers(message: MutableMapping[str, Any], path: str, nonce: str) -> None:
    headers: list[tuple[bytes, bytes]] = list(message.get("headers", []))
    present = {name.lower() for name, _ in headers}
    extra = _headers(path, nonce, message["status"])
    message["headers"] = headers + [pair for pair in extra if pair[0] not in present]


def _headers(path: str, nonce: str, status: int) -> Iterable[tuple[bytes, bytes]]:
    kept = path.startswith("/static/") and status == 200
    return (
        *COMMON,
        (b"content-security-policy", policy(nonce).encode()),
        (b"cache-control", b"public, max-age=31536000, immutable" if kept else b"no-store"),
    )
