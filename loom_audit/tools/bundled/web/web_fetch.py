"""web_fetch: one page of the public web, with where it really came from on record."""

import base64
import hashlib
import ssl
from functools import cached_property
from typing import Annotated, Any, Literal

import anyio
from pydantic import Field

from loom_audit.errors import AuditError, InvalidArguments, PermissionDenied, ToolTimeout
from loom_audit.model.kinds import kind_of
from loom_audit.model.text.display import count_text
from loom_audit.tools.bundled.web.addresses import Target, is_listed, parse_target
from loom_audit.tools.bundled.web.http_exchange import (
    HttpAnswer,
    HttpRequest,
    addresses_of,
    client,
    exchange,
)
from loom_audit.tools.bundled.web.readable import Page, readable
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.settings import ToolSettings
from loom_audit.tools.calls.tool import Tool

MAX_BODY = 1024 * 1024
MAX_SECONDS = 120
MAX_REDIRECTS = 10
REDIRECTS = (301, 302, 303, 307, 308)
CONNECTION_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "te"}
    | {"proxy-authorization", "proxy-connection", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that are the connection's, not the caller's."""

SECRETS = ("authorization", "cookie")


class FetchInput(Arguments):
    url: Annotated[NonEmpty, Field(description="http:// or https:// address")]
    method: Annotated[Literal["GET", "POST"], Field(description="GET or POST")] = "GET"
    headers: Annotated[
        dict[str, str] | None, Field(description="Headers to send; they go on record")
    ] = None
    body: Annotated[str | None, Field(description="What a POST sends")] = None
    timeout: Annotated[
        float | None,
        Field(
            gt=0, le=MAX_SECONDS, description=f"Seconds for all of it: 30, at most {MAX_SECONDS}"
        ),
    ] = None
    raw: Annotated[bool, Field(description="Show the markup of a page, not what it says")] = False


class Hop(Output):
    url: str
    status: int
    address: str


class Link(Output):
    text: str
    url: str


class FetchOutput(Output):
    """`url` and `address` are those of the last answer, `hops` all of them in order.

    `title`, `text` and `links` are of a page of HTML, whose markup is the `body`.
    """

    status: int
    headers: dict[str, str]
    body: str
    encoding: Literal["utf-8", "base64"]
    truncated: bool
    url: str
    address: str
    hops: list[Hop]
    title: str = ""
    text: str = ""
    links: list[Link] = []  # noqa: RUF012 - a field of a model


class WebFetch(Tool):
    """Fetches one page of the public web."""

    name = "web_fetch"
    description = (
        "Fetch a URL of the public web; gives status, headers and the first MiB of the body, of a "
        "page of HTML its title, text and links (its markup with raw). "
        "Redirects to another host are followed only to hosts on the allow-list."
    )
    input = FetchInput
    output = FetchOutput
    effect = "network"
    timeout_seconds = 30
    needs_workspace = False

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._given = tls

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Made once: reading the authorities takes longer than many a fetch."""
        import httpx

        return self._given or httpx.create_ssl_context()

    def requires_approval(self, args: FetchInput, ctx: ToolContext) -> bool | str:
        try:
            host = parse_target(args.url).host
        except InvalidArguments:
            return False  # it is refused without asking anybody
        if is_listed(host, ctx.settings.allowed_hosts):
            return False
        return f"fetches from {host}, which is not on the allow-list"

    def limit(self, args: FetchInput) -> float:
        return (args.timeout or self.timeout_seconds) + 5

    async def execute(self, args: FetchInput, ctx: ToolContext) -> ToolResult:
        sent = _request_of(args)
        hops: list[dict[str, Any]] = []
        seconds = args.timeout or self.timeout_seconds
        try:
            with anyio.fail_after(seconds):
                where, answer = await self._follow_redirects(
                    parse_target(args.url), sent, hops, ctx.settings
                )
        except TimeoutError:
            lasted = count_text(seconds, "second")
            error: AuditError = ToolTimeout(f"{args.url[:200]} did not answer within {lasted}")
            return ToolResult.failure(error, data={"hops": hops})
        except AuditError as error:
            return ToolResult.failure(error, data={"hops": hops} if hops else None)
        body, encoding = _text(answer)
        data = {
            "status": answer.status,
            "headers": dict(answer.headers),
            "body": body,
            "encoding": encoding,
            "truncated": answer.truncated,
            "url": str(where.url),
            "address": answer.address,
            "hops": hops,
        }
        lines = [f"{hop['status']} {hop['url']}" for hop in hops]
        if answer.truncated:
            size = len(answer.body)
            lines.append(
                f'[cut at {size} bytes: a header {{"Range": "bytes={size}-"}} may bring more]'
            )
        if encoding == "base64":
            lines.append(f"[{_named(answer.body)}]")
        elif is_page(answer) and not args.raw:
            page = await ctx.in_thread(lambda: readable(body, str(where.url)))
            data |= {"title": page.title, "text": page.text}
            data["links"] = [{"text": text, "url": url} for text, url in page.links]
            data["truncated"] = answer.truncated or page.truncated
            lines += _page_lines(page)
        else:
            lines.append(body)
        return ToolResult(True, "\n".join(lines), data)

    async def _follow_redirects(
        self, where: Target, sent: HttpRequest, hops: list[dict[str, Any]], settings: ToolSettings
    ) -> tuple[Target, HttpAnswer]:
        """The last answer and where it came from; every step is checked like the first."""
        first = where.host
        while True:
            private = is_listed(where.host, settings.private_hosts)
            addresses = await addresses_of(where, private=private)
            # a new one: connections and cookies are kept by address, which hosts may share
            async with client(self._tls) as opened:
                answer = await exchange(opened, where, addresses, sent, MAX_BODY)
            hops.append({"url": str(where.url), "status": answer.status, "address": answer.address})
            onward = answer.headers.get("location")
            if answer.status not in REDIRECTS or onward is None:
                return where, answer
            if len(hops) > MAX_REDIRECTS:
                raise PermissionDenied(
                    f"more than {MAX_REDIRECTS} redirects", hint="Fetch the address they lead to."
                )
            there = parse_target(str(where.url.join(onward)))
            if there.host != first and not is_listed(there.host, settings.allowed_hosts):
                raise PermissionDenied(
                    f"redirected to another host: {there.url}",
                    hint="Fetch that URL itself, or allow the host in tools.toml.",
                    details={"url": str(there.url)},
                )
            where, sent = there, _redirected(where, there, sent, answer.status)


def _redirected(where: Target, there: Target, sent: HttpRequest, status: int) -> HttpRequest:
    """What a redirect asks for where it leads (RFC 9110 §15.4), without credentials elsewhere."""
    if where.url.scheme == "https" and there.url.scheme == "http":
        raise PermissionDenied(
            f"redirected from https to http: {there.url}", hint="Fetch that URL itself."
        )
    if status == 303 or (status in (301, 302) and sent.method == "POST"):
        kept = {n: v for n, v in sent.headers.items() if n.lower() != "content-type"}
        sent = HttpRequest("GET", kept, b"")
    if (there.host, there.port) != (where.host, where.port):
        kept = {n: v for n, v in sent.headers.items() if n.lower() not in SECRETS}
        sent = HttpRequest(sent.method, kept, sent.body)
    return sent


def _request_of(args: FetchInput) -> HttpRequest:
    headers = args.headers or {}
    for name, value in headers.items():
        if name.lower() in CONNECTION_HEADERS:
            raise InvalidArguments(
                f"the header {name!r:.80} is set by the connection itself", hint="Leave it out."
            )
        if not name.isascii() or not _is_token(name) or not (value + " ").isprintable():
            raise InvalidArguments(
                f"{name!r:.80} is not a header", hint="Use ASCII names, and values of one line."
            )
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            raise InvalidArguments(
                f"the value of {name!r:.80} is not Latin-1",
                hint="Encode it as its receiver expects.",
            ) from None
    if args.body is not None and args.method != "POST":
        raise InvalidArguments("a GET has no body", hint="Use method POST.")
    try:
        return HttpRequest(args.method, headers, (args.body or "").encode())
    except UnicodeEncodeError:
        raise InvalidArguments(
            "body holds a lone surrogate, which is not a character", hint="Leave it out."
        ) from None


def _is_token(name: str) -> bool:
    """RFC 9110 §5.6.2."""
    return bool(name) and all(c.isalnum() or c in "!#$%&'*+-.^_`|~" for c in name)


def is_page(answer: HttpAnswer) -> bool:
    """Return whether an answer is a page of HTML, by its type."""
    kind = answer.headers.get("content-type", "").lower().partition(";")[0].strip()
    return kind in ("text/html", "application/xhtml+xml")


def _page_lines(page: Page) -> list[str]:
    lines = [f"Title: {page.title}", ""] if page.title else []
    lines.append(page.text or "[a page without text: raw shows its markup]")
    if page.truncated:
        lines.append("[the page has more text or links than these: raw shows its markup]")
    if page.links:
        lines += ["", "Links:", *(f"- {text or '(no text)'}: {url}" for text, url in page.links)]
    return lines


def _named(content: bytes) -> str:
    """What a body is that is not text."""
    digest = hashlib.sha256(content).hexdigest()
    return f"{kind_of(content).text}, {count_text(len(content), 'byte')}, SHA-256 {digest}"


def _text(answer: HttpAnswer) -> tuple[str, Literal["utf-8", "base64"]]:
    """The body as text by its charset, or as base64 when its type is not textual."""
    kind, _, rest = answer.headers.get("content-type", "").lower().partition(";")
    kind = kind.strip()
    textual = (
        kind.startswith("text/")
        or kind in ("", "application/json", "application/xml", "application/javascript")
        or kind.endswith(("+json", "+xml"))
        or "x-www-form-urlencoded" in kind
    )
    if not textual or b"\0" in answer.body[:8192]:
        return base64.b64encode(answer.body).decode("ascii"), "base64"
    charset = rest.partition("charset=")[2].split(";")[0].strip(" \"'") or "utf-8"
    try:
        return answer.body.decode(charset, "replace"), "utf-8"
    except (LookupError, ValueError):
        return answer.body.decode("utf-8", "replace"), "utf-8"
