"""The dashboard of a store in a process of its own, and a browser's connection to it."""

import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import cycle
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


class Readers:
    """People who read pages in a process of its own, each a page every `pause` seconds."""

    def __init__(self, url: str, cookie: str, count: int, pause: float, paths: Sequence[str]):
        given = json.dumps([url, cookie, count, pause, [*paths]])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.serving"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(given + "\n")
        self._process.stdin.flush()
        self._process.stdout.readline()  # all of them are reading

    def end(self) -> tuple[int, float]:
        """How many pages were read, and the median of seconds for one. All were answered."""
        told, _ = self._process.communicate("")
        if self._process.returncode:
            raise SystemExit("a page was not answered")
        pages, median = json.loads(told)
        return int(pages), float(median)


def read_on(url: str, cookie: str, count: int, pause: float, paths: Sequence[str]) -> None:
    """Read until standard input ends, and print how many pages and how long one took."""
    ended, times = threading.Event(), list[float]()

    def reader(place: int) -> None:
        browser = Browser(url, cookie)
        for path in cycle((*paths[place % len(paths) :], *paths[: place % len(paths)])):
            started = time.monotonic()
            browser.get(path)
            times.append(time.monotonic() - started)
            if ended.wait(max(0.0, pause - times[-1])):
                break
        browser.close()

    with ThreadPoolExecutor(count) as pool:
        readers = [pool.submit(reader, place) for place in range(count)]
        print(flush=True)
        sys.stdin.read()
        ended.set()
        for one in readers:
            one.result()
    print(json.dumps([len(times), statistics.median(times)]))


if __name__ == "__main__":
    read_on(*json.loads(sys.stdin.readline()))
