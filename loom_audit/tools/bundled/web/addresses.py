"""Which hosts and addresses may be fetched from; no I/O."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

from msgspec import Struct

from loom_audit.errors import InvalidArguments, PermissionDenied

if TYPE_CHECKING:
    import httpx

MAX_URL = 8 * 1024
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)
_NAT64 = IPv6Network("64:ff9b::/96")
"""RFC 6052 §2.1: an IPv4 address in the last 32 bits."""

_UNICAST = IPv6Network("2000::/3")
"""RFC 4291 §2.4, all that IANA gives out. Beyond lie old forms that hold IPv4 addresses."""


class Target(Struct, frozen=True):
    """A URL that may be fetched: its host as the host is resolved, and its port."""

    url: "httpx.URL"
    host: str
    port: int


def parse_target(text: str) -> Target:
    """Return the URL of a text.

    InvalidArguments for anything else, or a URL no browser would write.

    Refused are other schemes than http and https, user names and passwords, and hosts that are
    numbers in another form than an address is written in (WHATWG URL §3.5 "ends in a number").
    """
    import httpx

    if len(text) > MAX_URL or not text.isprintable() or " " in text or "\\" in text:
        raise _url_error(
            text, "holds white space, control characters or a backslash, or is too long"
        )
    try:
        url = httpx.URL(text)
        host = url.raw_host.decode("ascii").lower().rstrip(".")
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise _url_error(text, str(error)) from error
    if url.scheme not in ("http", "https"):
        raise _url_error(text, "does not begin with http:// or https://")
    if url.userinfo:
        raise _url_error(text, "holds a user name; put credentials in a header")
    if not host:
        raise _url_error(text, "names no host")
    last = host.rsplit(".", 1)[-1]
    if _NUMBER.fullmatch(last) and not _is_plain_ipv4(host):
        raise _url_error(text, "writes an address in a form that hides it")
    port = url.port or (443 if url.scheme == "https" else 80)
    if port > 65535:
        raise _url_error(text, "names a port that does not exist")
    return Target(url, host, port)


def is_listed(host: str, patterns: Iterable[str]) -> bool:
    """Return whether a list of names holds a host; `*.example.org` is all below example.org."""
    for pattern in patterns:
        name = pattern.lower().rstrip(".")
        if name.startswith("*."):
            if host.endswith(name[1:]) and host != name[2:]:
                return True
        elif host == name:
            return True
    return False


def check_address(host: str, text: str, *, private: bool) -> None:
    """Raise PermissionDenied for an address that is not of the public internet.

    `private` lets private and loopback addresses pass; link-local ones (where clouds keep their
    credentials), multicast and unspecified ones never do.
    """
    address = _embedded_ipv4(ip_address(text.split("%", 1)[0]))
    known = isinstance(address, IPv4Address) or address in _UNICAST
    if known and address.is_global and not address.is_multicast:
        return
    never = address.is_link_local or address.is_multicast or address.is_unspecified
    if private and not never:
        return
    raise PermissionDenied(
        f"{host} has the address {text}, which is not of the public internet",
        hint="A person can allow a private host by name: `private_hosts` in tools.toml."
        if not never
        else "Addresses of this kind are never fetched from.",
        details={"host": host, "address": text},
    )


def _embedded_ipv4(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one stands for, else itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.ipv4_mapped or address.sixtofour or address


def _is_plain_ipv4(host: str) -> bool:
    try:
        IPv4Address(host)  # refuses leading zeros, hexadecimal and short forms
    except ValueError:
        return False
    return True


def _url_error(text: str, why: str) -> InvalidArguments:
    return InvalidArguments(
        f"This URL is refused, it {why}: {text[:200]!r}",
        hint="Give a plain URL like https://example.org/page.",
    )
