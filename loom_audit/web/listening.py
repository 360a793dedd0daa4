"""The sockets that the dashboard is asked on."""

import errno
import socket
from typing import Final

from loom_audit.errors import StorageFailed

IPV4, IPV6 = "127.0.0.1", "::1"
_FAMILIES: Final = {IPV4: socket.AF_INET, IPV6: socket.AF_INET6}
_NO_SUCH_ADDRESS = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_FREE_PORTS_TRIED = 20


def listen(port: int) -> list[socket.socket]:
    """Listening sockets on both loopback addresses, one where there is no IPv6; port 0 takes a
    free one. StorageFailed when one of them is taken.

    A browser asks ::1 first: were it left free, another account could answer there in our name.
    """
    tries = 1 if port else _FREE_PORTS_TRIED
    while True:
        tries -= 1
        first = _listen_on(IPV4, port)
        try:
            return [first, _listen_on(IPV6, first.getsockname()[1])]
        except StorageFailed as error:
            if error.details["errno"] in _NO_SUCH_ADDRESS:
                return [first]
            first.close()
            if not tries:
                raise


def _listen_on(host: str, port: int) -> socket.socket:
    try:
        taken = socket.create_server((host, port), family=_FAMILIES[host])
    except OSError as error:
        shown = f"[{host}]" if host == IPV6 else host
        raise StorageFailed(
            f"cannot listen on {shown}:{port}: {str(error.strerror).partition(' (')[0]}",
            hint="Another dashboard may be running there; give another port with `--port`.",
            details={"errno": error.errno},
        ) from None
    # Accepted connections inherit it; asyncio sets it only where the socket's proto says TCP.
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return taken
