"""One HTTP exchange with an address that was resolved once and checked."""

import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from loom_audit.errors import ExecutionFailed
from loom_audit.tools.bundled.web.addresses import Target, check_address

if TYPE_CHECKING:
    import httpx

_CHUNK = 64 * 1024


class HttpRequest(Struct, frozen=True):
    """A request as a server gets it."""

    method: str
    headers: Mapping[str, str]
    body: bytes


class HttpAnswer(Struct, frozen=True):
    """The answer of a server, decoded; `truncated` when not all of its body was kept."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool
    address: str


@asynccontextmanager
async def client(tls: ssl.SSLContext) -> "AsyncIterator[httpx.AsyncClient]":
    """Open a client that asks no proxy of the environment and follows no redirect by itself."""
    import httpx

    async with httpx.AsyncClient(
        verify=tls,
        trust_env=False,
        follow_redirects=False,
        timeout=None,
    ) as opened:
        yield opened


async def addresses_of(target: Target, *, private: bool) -> Sequence[str]:
    """Return the addresses of a host, in the system's order: every one of them may be fetched from.

    ExecutionFailed when there is none, PermissionDenied when any of them is not public.
    """
    try:
        found = await anyio.getaddrinfo(
            target.host.strip("[]"), target.port, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError) as error:
        raise ExecutionFailed(
            f"{target.host} has no address: {error}", hint="Check the name of the host."
        ) from error
    addresses = [*dict.fromkeys(str(item[4][0]) for item in found)]
    for address in addresses:
        check_address(target.host, address, private=private)
    return addresses


async def exchange(
    opened: "httpx.AsyncClient",
    target: Target,
    addresses: Sequence[str],
    sent: HttpRequest,
    limit: int,
) -> HttpAnswer:
    """Ask the first address that takes the connection; keep at most `limit` bytes of the body.

    The certificate is checked against the host's name. ExecutionFailed names what went wrong.
    """
    import httpx

    for number, address in enumerate(addresses, 1):
        try:
            return await _send(opened, target, address, sent, limit)
        except httpx.ConnectError as error:
            if number == len(addresses):
                raise ExecutionFailed(
                    f"{target.host} cannot be reached: {_error_text(error)}",
                    hint="Check host and port.",
                    details={"address": address},
                ) from error
        except (httpx.HTTPError, zlib.error) as error:
            raise ExecutionFailed(
                f"{target.host} did not answer as HTTP asks for: {_error_text(error)}",
                hint="Check scheme and port; something other than a web server may listen there.",
                details={"address": address},
            ) from error
    raise ExecutionFailed(f"{target.host} has no address", hint="Check the name of the host.")


async def _send(
    opened: "httpx.AsyncClient", target: Target, address: str, sent: HttpRequest, limit: int
) -> HttpAnswer:
    request = opened.build_request(
        sent.method,
        # the address that was checked: asking by name would resolve the name once more
        target.url.copy_with(host=address),
        headers={
            "User-Agent": "loom-audit",
            "Accept": "*/*",
            **sent.headers,
            "Accept-Encoding": "identity",
            "Host": target.url.netloc.decode("ascii"),
        },
        content=sent.body or None,
        extensions={"sni_hostname": target.host.strip("[]")},
    )
    response = await opened.send(request, stream=True)
    try:
        body, truncated = await _body(response, limit)
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()
    headers = {name.lower(): value for name, value in response.headers.items()}
    return HttpAnswer(response.status_code, headers, body, truncated, address)


async def _body(response: "httpx.Response", limit: int) -> tuple[bytes, bool]:
    """The body and whether it was cut; compressed ones are unpacked within the limit."""
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    unpack = zlib.decompressobj(wbits=47) if coding in ("gzip", "x-gzip", "deflate") else None
    kept = bytearray()
    async for chunk in response.aiter_raw(_CHUNK):
        # one byte more than is kept tells whether there was more
        space = limit + 1 - len(kept)
        kept += unpack.decompress(chunk, space) if unpack else chunk[:space]
        if len(kept) > limit:
            return bytes(kept[:limit]), True
    return bytes(kept), False


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__
