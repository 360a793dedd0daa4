"""Processes of ours that are asked: the dashboard by a browser, the warm process by hooks.

Each is as one that does something by itself: it ends once what it is asked is answered.
"""

import http.client
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from loom_audit import open_store
from loom_audit.api.agents.launcher import write_launcher
from loom_audit.config import read_settings
from loom_audit.web.listening import listen
from tests.crash.programs.faults import wait_for
from tests.processes.forked import Forked
from tests.test_daemon import client_of, daemon_of
from tests.web.test_web_undo import fields

PRESSES: Mapping[str, tuple[str, str]] = {
    "undo": ("carry-out", "verb=undo"),
    "rollback": ("carry-out", "verb=rollback&target=@start"),
    "continue": ("recover", "mode=continue"),
    "abandon": ("recover", "mode=abandon"),
    "accept": ("status", ""),
}


class Asked(Forked):
    """A process that serves, and somebody who asks it something; told to end when that is done."""

    def __init__(
        self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], data: Path
    ) -> None:
        super().__init__(arguments, cwd=cwd, env=env)
        self._data, self._root = data, cwd
        self.answered = threading.Event()
        self._told_to_end = False
        self.problem: BaseException | None = None
        self._asking = threading.Thread(target=self._ask)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self._told_to_end = True
        super().kill(number)

    def begin(self) -> None:
        """Return as it is asked; once it answers, it has done all that it does when it starts."""
        raise NotImplementedError

    def ask(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError

    def _ask(self) -> None:
        try:
            self.ask()
        except BaseException as error:  # noqa: BLE001 - raised where its end is waited for
            self.problem = error
        finally:
            self.answered.set()

    def wait(self, seconds: float = 120) -> int:
        if self._asking.ident is not None:
            self._asking.join(seconds)
        if not self._told_to_end:
            self.kill(signal.SIGTERM)
        code = super().wait(seconds)
        if self.problem is not None:
            raise self.problem
        return code


class Dashboard(Asked):
    """`serve`, and a browser in which something is pressed."""

    def __init__(self, press: str, *, cwd: Path, env: Mapping[str, str], data: Path) -> None:
        port = str(_free_port())
        super().__init__(["--json", "serve", "--port", port], cwd=cwd, env=env, data=data)
        self._press = press
        self.call: int | None = None

    def begin(self) -> None:
        told = json.loads(wait_for("the address", lambda: self._first_line()))
        self._url, self._cookie = urlsplit(told["url"]), ""
        answer = self._send("POST", "/sign-in", {"token": told["token"]})
        self._cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        with open_store() as store:
            self._path = f"/w/{store.workspace(self._root).id}"
        where, words = PRESSES[self._press]
        self._form = dict(pair.split("=") for pair in words.split("&") if pair)
        if where == "carry-out":
            page = self._send("GET", f"{self._path}/plan?{words}").read().decode()
            self._form = fields(page)
        self._where = f"{self._path}/{where}"
        self._asking.start()

    def _first_line(self) -> bytes:
        assert not self.ended(), self.printed()
        out = os.pread(self._streams[1].fileno(), 4096, 0)
        return out if out.endswith(b"\n") else b""

    def _send(
        self, method: str, path: str, form: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self._url.port or 0, timeout=60)
        headers = {"host": self._url.netloc, "sec-fetch-site": "same-origin"}
        headers |= {"cookie": self._cookie} if self._cookie else {}
        if form is not None:
            headers["content-type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, urlencode(form or {}), headers)
        answer = connection.getresponse()
        # a second signal breaks off what it is answering, and the server says so
        allowed = (200, 303, 503) if self._told_to_end else (200, 303)
        assert answer.status in allowed, (answer.status, answer.read().decode())
        return answer

    def ask(self) -> None:
        with suppress(http.client.HTTPException, OSError):  # it was told to end, or is killed
            said = self._send("POST", self._where, self._form).getheader("location") or ""
            self.call = int(said.rpartition("/c/")[2]) if "/c/" in said else None

    def check(self) -> None:
        """What the person was told was done is on record as done."""
        if self.call is not None:
            with open_store() as store:
                done = store.workspace(self._root).timeline.call(self.call).call
                assert done.status == "ok", done


class WarmProcess(Asked):
    """`daemon`, and a client whose hooks it answers; who comes after it answers the others."""

    def __init__(self, *, cwd: Path, env: Mapping[str, str], data: Path) -> None:
        folder = data / "hooks"
        folder.mkdir(exist_ok=True)
        write_launcher(read_settings())
        words = (f"LOOM_AUDIT_HOME={data}", sys.executable, "-P", "-m", "loom_audit", "daemon")
        (folder / "daemon").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))
        super().__init__(["daemon"], cwd=cwd, env=env, data=data)
        self._client = client_of(data, cwd, data.parent, f"s{self.pid}")

    def begin(self) -> None:
        wait_for("the socket", self._answers)
        self._client.hook("SessionStart", source="startup")
        self._client.hook("UserPromptSubmit", prompt="do it", prompt_id="p1")
        self._client.write("user", {"type": "text", "text": "do it"}, promptId="p1")
        self._asking.start()

    def _answers(self) -> bool:
        with suppress(OSError):
            return bool(daemon_of(self._data))
        return False

    def ask(self) -> None:
        client, root = self._client, self._root
        client.bash("c1", "echo x >> f1", lambda: _append(root / "f1"))
        client.writes("c2", root / "new.txt", "new\n")
        client.bash("c3", "rm f2", lambda: (root / "f2").unlink())

    def wait(self, seconds: float = 120) -> int:
        code = super().wait(seconds)
        # what comes after it is told that the session is over
        (self._data / "hooks" / "failed").unlink(missing_ok=True)
        for name in ("Stop", "SessionEnd"):
            self._client.hook(name, reason="exit", stop_hook_active=False)
        with suppress(OSError):
            last = daemon_of(self._data)
            os.kill(last, signal.SIGTERM)
            wait_for("its end", lambda: not Path(f"/proc/{last}").exists())
        return code

    def check(self) -> None:
        """Each of its calls is on record once, as what it was, whoever answered its hooks."""
        with open_store() as store:
            calls = store.workspace(self._root).timeline.calls()
            told = {call.call_id: call for call in calls if call.session == self._client.session}
        assert set(told) == {"c1", "c2", "c3"}
        assert {call.status for call in told.values()} == {"ok"}
        for id, path in (("c1", "f1"), ("c2", "new.txt"), ("c3", "f2")):
            if told[id].coverage.level == "full":
                assert told[id].paths == (path,), told[id]


def _free_port() -> int:
    sockets = listen(0)
    number: int = sockets[0].getsockname()[1]
    for one in sockets:
        one.close()
    return number


def _append(file: Path) -> None:
    with file.open("a") as opened:
        opened.write("x\n")


SERVED: Mapping[str, tuple[str, Callable[..., Dashboard | WarmProcess]]] = {
    "serve, undo": ("changed", lambda **kept: Dashboard("undo", **kept)),
    "serve, rollback": ("changed", lambda **kept: Dashboard("rollback", **kept)),
    "serve, continue": ("stopped", lambda **kept: Dashboard("continue", **kept)),
    "serve, abandon": ("stopped", lambda **kept: Dashboard("abandon", **kept)),
    "serve, accept": ("changed", lambda **kept: Dashboard("accept", **kept)),
    "hooks": ("changed", lambda **kept: WarmProcess(**kept)),
}
