"""Who sends a request slowly, or never ends one, is cut off and holds up nobody."""

import http.client
import logging
import socket
import time
from collections.abc import Iterator
from logging.handlers import QueueHandler
from queue import SimpleQueue
from urllib.parse import urlsplit

import pytest

from tests.web.conftest import Live, Recorded, serving

SECONDS = 0.5
LATE = 20.0
"""Only so that a hang ends."""


@pytest.fixture(scope="module")
def patient(standing: Recorded) -> Iterator[Live]:
    with serving(standing, SECONDS) as made:
        yield made


@pytest.fixture
def logged() -> Iterator[SimpleQueue[logging.LogRecord]]:
    """What the server logs, which its terminal shows."""
    found: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = QueueHandler(found)
    logging.getLogger("uvicorn.error").addHandler(handler)
    yield found
    logging.getLogger("uvicorn.error").removeHandler(handler)


def ask(client: http.client.HTTPConnection, live: Live) -> None:
    """One whole request, and its answer."""
    client.request("GET", "/sign-in", headers={"Host": urlsplit(live.address).netloc})
    answer = client.getresponse()
    assert answer.read() and answer.status == 403


def connection(live: Live) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(live.address).port or 0), LATE)


def closed_after(client: socket.socket) -> float:
    """After how many seconds the other side closes; what it says before is left out."""
    begun = time.monotonic()
    try:
        while client.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - begun


def head_of(live: Live, more: str = "", method: str = "GET") -> bytes:
    host = urlsplit(live.address).netloc
    return f"{method} /sign-in HTTP/1.1\r\nHost: {host}\r\n{more}".encode()


@pytest.mark.parametrize("sent", ["nothing", "half a head", "half a body"])
def test_a_request_that_does_not_end_is_cut_off(
    patient: Live, sent: str, logged: SimpleQueue[logging.LogRecord]
) -> None:
    with connection(patient) as client:
        if sent == "half a head":
            client.sendall(head_of(patient))
        if sent == "half a body":
            ours = "Sec-Fetch-Site: same-origin\r\nContent-Length: 99\r\n\r\ntoken="
            client.sendall(head_of(patient, ours, "POST"))
        assert SECONDS * 0.8 < closed_after(client) < LATE / 2
    ask(http.client.HTTPConnection("127.0.0.1", urlsplit(patient.address).port), patient)
    assert logged.empty(), "it is not a defect of ours"


def test_one_byte_after_the_other_does_not_keep_a_connection_open(patient: Live) -> None:
    begun = time.monotonic()
    with connection(patient) as client, pytest.raises(ConnectionError):
        for byte in head_of(patient) + b"X" * 10_000:
            client.sendall(bytes([byte]))
            time.sleep(0.02)
            assert time.monotonic() - begun < LATE / 2
    assert time.monotonic() - begun > SECONDS * 0.8


def test_the_second_request_of_a_connection_has_to_arrive_as_well(patient: Live) -> None:
    with connection(patient) as client:
        client.sendall(head_of(patient, "\r\n"))
        assert client.recv(65536).startswith(b"HTTP/1.1 403")
        client.sendall(head_of(patient))
        assert closed_after(client) < LATE / 2


def test_a_hundred_that_never_end_hold_up_nobody_else(patient: Live) -> None:
    slow = [connection(patient) for _ in range(100)]
    for one in slow:
        one.sendall(head_of(patient))
    other = http.client.HTTPConnection("127.0.0.1", urlsplit(patient.address).port, timeout=LATE)
    begun = time.monotonic()
    ask(other, patient)
    assert time.monotonic() - begun < LATE / 4
    other.close()
    for one in slow:
        assert closed_after(one) < LATE / 2
        one.close()


def test_a_connection_that_asks_again_in_time_stays_open_beyond_it(patient: Live) -> None:
    other = http.client.HTTPConnection("127.0.0.1", urlsplit(patient.address).port, timeout=LATE)
    begun = time.monotonic()
    while time.monotonic() - begun < SECONDS * 2.5:
        ask(other, patient)
        kept = other.sock
        time.sleep(0.1)
        assert other.sock is kept
    other.close()
