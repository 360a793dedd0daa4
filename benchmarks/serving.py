"""The dashboard of a store in a process of its own, and a browser's connection to it."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlencode, urlsplit


class Browser:
    """One connection that stays open, signed in; it takes pages compressed, as browsers do."""

    def __init__(self, url: str, cookie: str) -> None:
        self._host = urlsplit(url).netloc
        self._headers = {"Host": self._host, "Cookie": cookie, "Accept-Encoding": "gzip"}
        self._connection = HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=60)

    def get(self, path: str) -> bytes:
        """The body of a page, as it was sent."""
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {body[:300]!r}")
        return body

    def close(self) -> None:
        self._connection.close()


@contextmanager
def serving(store: str) -> Iterator[tuple[str, str]]:
    """The address of a dashboard over the store of this URL, and the cookie of who signed in."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "loom_audit", "--store", store, "serve", "--json"]
    with subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            invited = json.loads(process.stdout.readline())
            yield invited["url"], _sign_in(invited["url"], invited["token"])
        finally:
            process.terminate()


def _sign_in(url: str, token: str) -> str:
    place = urlsplit(url)
    connection = HTTPConnection("127.0.0.1", place.port, timeout=60)
    headers = {
        "Host": place.netloc,
        "Origin": f"http://{place.netloc}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    connection.request("POST", "/sign-in", urlencode({"token": token}), headers)
    answer = connection.getresponse()
    answer.read()
    cookie = answer.getheader("Set-Cookie", "")
    connection.close()
    if not cookie:
        raise SystemExit(f"the dashboard let nobody in: {answer.status}")
    return cookie.partition(";")[0]
