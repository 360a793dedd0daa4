"""A workspace and things outside it, and commands in each backend as root and as nobody special."""

import atexit
import base64
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pathspec
import pytest

from tests.sandbox import backends

SOMEBODY = 54321
"""An ordinary user for tests that run as root; need not be known to the machine."""

SCRIPT = Path(__file__).with_name("as_user.py")


@dataclass
class Done:
    code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        return self.stdout + self.stderr


@dataclass
class Confined:
    """One backend, one user. `root` is the workspace, `outside` is not, `home` is the user's."""

    backend: str
    uid: int
    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "work"

    @property
    def outside(self) -> Path:
        return self.folder / "outside"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def own(self) -> None:
        """Everything there is the user's."""
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def run(self, *argv: str, hidden: tuple[str, ...] = (), **options: Any) -> Done:
        answer = _asked(
            self.backend,
            self.uid,
            argv=argv,
            root=str(self.root),
            hidden=hidden,
            leaks=options.pop("leaks", ()),
            variables={"HOME": str(self.home), **options.pop("ours", {})},
            options=options,
        )
        assert "error" not in answer, answer
        assert answer["sandbox"] == self.backend
        streams = [
            base64.b64decode(answer[n]).decode("utf-8", "replace") for n in ("stdout", "stderr")
        ]
        return Done(answer["code"], *streams)

    def python(self, text: str, *argv: str, **options: Any) -> Done:
        return self.run("/usr/bin/python3", "-ISc", text, *argv, **options)

    def shell(self, text: str, **options: Any) -> Done:
        return self.run("sh", "-c", text, **options)


def _asked(
    backend: str,
    uid: int,
    *,
    argv: tuple[str, ...] = (),
    root: str = "/",
    hidden: tuple[str, ...] = (),
    leaks: tuple[str, ...] = (),
    variables: dict[str, str] | None = None,
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    order = {
        "backend": backend,
        "uid": uid,
        "argv": argv,
        "root": root,
        "hidden": hidden,
        "leaks": leaks,
        "environment": variables or {},
        "options": {"timeout": 60.0, **(options or {})},
    }
    python = sys.executable if uid == os.geteuid() else "/usr/bin/python3"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(_served(python))
        with connection.makefile("rw") as stream:
            stream.write(json.dumps(order) + "\n")
            stream.flush()
            answer: dict[str, Any] = json.load(stream)
    return answer


@functools.cache
def _served(python: str) -> str:
    """Where the script, run by that Python, takes orders."""
    path = str(Path(tempfile.mkdtemp(prefix="loom-audit-test-")) / "orders")
    command = [python, "-I", str(SCRIPT), path, str(Path(pathspec.__file__).parents[1])]
    process = subprocess.Popen(
        command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    atexit.register(_end, process, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return path


def _end(process: "subprocess.Popen[str]", path: str) -> None:
    process.terminate()
    process.communicate()
    shutil.rmtree(Path(path).parent)


@functools.cache
def _flaw(backend: str, uid: int) -> str:
    """Why this user cannot use this backend here; empty when it works."""
    if uid != os.geteuid():
        version = [sys.version_info.major, sys.version_info.minor]
        check = f"import sys; sys.exit(list(sys.version_info[:2]) < {version})"
        if subprocess.run(["/usr/bin/python3", "-c", check]).returncode:
            return "/usr/bin/python3 is missing or too old to run the sandbox as another user"
        if not all(parent.stat().st_mode & 0o005 == 0o005 for parent in SCRIPT.parents):
            return "an ordinary user cannot read the folder of the tests"
    return str(_asked(backend, uid).get("error", ""))


def users() -> list[Any]:
    """Root and somebody else, as far as this process can be them."""
    if os.geteuid() == 0:
        return [pytest.param(0, id="root"), pytest.param(SOMEBODY, id="user")]
    skipped = pytest.mark.skip(reason="only root can run a command as root")
    return [pytest.param(0, id="root", marks=skipped), pytest.param(os.geteuid(), id="user")]


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=users())
def confined(request: pytest.FixtureRequest, backend: str) -> Iterator[Confined]:
    """A backend that works for that user; else the test is skipped and says why."""
    backends.check_installed(backend)
    if flaw := _flaw(backend, request.param):
        pytest.skip(f"{backend} does not work here for user {request.param}: {flaw}")
    # not in pytest's own folder, which only the user of the tests may enter
    folder = Path(tempfile.mkdtemp(prefix="loom-audit-test-"))
    try:
        folder.chmod(0o755)
        made = Confined(backend, request.param, folder.resolve())
        for path in (made.root, made.outside, made.home / ".ssh"):
            path.mkdir(parents=True)
        (made.outside / "secret").write_text("kept-apart")
        (made.home / ".ssh" / "key").write_text("kept-apart")
        made.own()
        yield made
    finally:
        shutil.rmtree(folder)
