"""A dashboard that is told to end while something is carried out in it."""

import http.client
import logging.handlers
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from loom_audit.api.face import AuditedWorkspace, person
from loom_audit.web.app import Server, create_app, server_of
from loom_audit.web.listening import listen
from loom_audit.web.shared.admission import COOKIE, Admission
from tests.web.conftest import Recorded

AWHILE = 1.0


class Working:
    """A server in a thread, in which an undo was begun that waits until it may go on."""

    def __init__(self, recorded: Recorded, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.status = 0
        carry_out = AuditedWorkspace.carry_out

        def slowly(*args: Any, **named: Any) -> Any:
            self.begun.set()
            assert self.may_end.wait(60)
            return carry_out(*args, **named)

        patch.setattr(AuditedWorkspace, "carry_out", slowly)
        self._recorded, self._admission = recorded, Admission(person())
        sockets = listen(0)
        self._port = sockets[0].getsockname()[1]
        self.server: Server = server_of(create_app(recorded.store, self._admission))
        self.server.config.timeout_graceful_shutdown = 0
        self.serving = threading.Thread(target=self.server.run, args=(sockets,), daemon=True)
        self.asking = threading.Thread(target=self._ask)
        self.serving.start()
        self.asking.start()
        assert self.begun.wait(60)

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        cookie = self._admission.redeem(self._admission.new_token(), "")
        headers = {
            "host": f"{self._admission.host}:{self._port}",
            "sec-fetch-site": "same-origin",
            "cookie": f"{COOKIE}={cookie}",
            "content-type": "application/x-www-form-urlencoded",
        }
        wish = {"verb": "revert", "target": str(self._recorded.numbers["notes"]), "quick": "1"}
        connection.request("POST", f"{self._recorded.url}/carry-out", urlencode(wish), headers)
        try:
            self.status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            self.status = -1  # it went away

    def tell(self) -> None:
        self.server.handle_exit(signal.SIGTERM, None)
        self.server._captured_signals.clear()  # they are raised again in a main thread only

    def end(self) -> None:
        self.may_end.set()
        self.asking.join(60)
        self.serving.join(60)


@pytest.fixture
def working(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> Iterator[Working]:
    made = Working(recorded, monkeypatch)
    yield made
    made.end()


def test_what_is_carried_out_is_ended_and_answered_first(
    working: Working, recorded: Recorded
) -> None:
    working.tell()
    working.serving.join(AWHILE)
    assert [working.serving.is_alive(), working.status] == [True, 0]
    working.end()
    assert [working.serving.is_alive(), working.status] == [False, 303]
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\n"


def test_told_a_second_time_it_waits_for_nothing_and_prints_no_traceback(working: Working) -> None:
    handler = logging.handlers.BufferingHandler(1000)
    logging.getLogger("uvicorn.error").addHandler(handler)
    working.tell()
    working.tell()
    working.serving.join(60)
    logging.getLogger("uvicorn.error").removeHandler(handler)
    working.asking.join(60)
    assert [working.serving.is_alive(), working.status] == [False, 503]
    said = [logging.Formatter().format(one) for one in handler.buffer]
    assert [text for text in said if "Traceback" in text] == []


IN_A_DESTRUCTOR = """
import signal
from loom_audit.api.face import open_store
from loom_audit.web.app import serve


class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


with open_store() as store:
    serve(store, 0, listening=lambda *_: Dying() and None)
"""


def test_a_ctrl_c_where_python_can_raise_nothing_ends_it_all_the_same() -> None:
    process = subprocess.Popen([sys.executable, "-c", IN_A_DESTRUCTOR], stderr=subprocess.PIPE)
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT, errors
