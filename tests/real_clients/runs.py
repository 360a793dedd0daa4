"""One run of a real client: its home, its repository, its model, and our commands beside it."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real_clients import workspaces
from tests.real_clients.clients import RealClient, surroundings
from tests.real_clients.installed import cache, our_python
from tests.real_clients.model_server import ScriptedModel
from tests.real_clients.script import Step
from tests.real_clients.sessions import Hands
from tests.real_clients.workspaces import Manifest

SECONDS = 300.0
"""That a client may take for a session."""


@dataclass
class Run:
    """`before` holds what the workspace was before each step, by the step's name."""

    client: RealClient
    home: Path
    workspace: Path
    model: ScriptedModel
    before: dict[str, Manifest] = field(default_factory=dict)
    output: str = ""
    code: int | None = None

    @property
    def environment(self) -> dict[str, str]:
        return surroundings(self.client, self.home, self.model.url)

    def work(self, words: Sequence[str], *, code: int | None = 0, folder: str = "") -> None:
        """Let the client follow the script, without a terminal, in a folder of the workspace."""
        done = subprocess.run(
            words,
            cwd=self.workspace / folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        self.output, self.code = done.stdout + done.stderr, done.returncode
        self.before["end"] = workspaces.manifest(self.workspace)
        if code is not None:
            assert done.returncode == code, self.output[-4000:]

    def ours(self, *words: str, code: int | None = 0) -> "subprocess.CompletedProcess[str]":
        """`loom-audit` at a shell in the workspace, outside the client."""
        done = subprocess.run(
            [str(our_python()), "-m", "loom_audit", *words],
            cwd=self.workspace,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if code is not None:
            assert done.returncode == code, (
                f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def listed(self, *words: str) -> list[dict[str, Any]]:
        """What one of our commands prints with --json, a dict for each line."""
        printed = self.ours(*words, "--json").stdout
        return [json.loads(line) for line in printed.splitlines()]

    def calls(self) -> dict[str, dict[str, Any]]:
        """The calls on record under the client's ids, each shown whole."""
        found = self.listed("log", "--limit", "0", "--oldest-first")
        return {call["call_id"]: call for call in found if call["call_id"]}

    def session(self) -> str:
        """The id of the client's session, in which all calls of its model are."""
        ids = {self.client.id_of(call) for call in self.model.asked}
        (one,) = {call["session"] for id, call in self.calls().items() if id in ids}
        return str(one)


@contextmanager
def running(client: RealClient, script: Callable[[Hands], Sequence[Step]]) -> Iterator[Run]:
    """A client that is ready to follow a script in a repository of its own, without us yet."""
    runs = cache() / "runs"
    runs.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{client.name}-", dir=runs))
    home, workspace = folder / "home", folder / "repo"
    home.mkdir()
    workspaces.make(workspace)
    run: Run

    def before(step: Step) -> None:
        run.before[step.name] = workspaces.manifest(workspace)

    try:
        with ScriptedModel(script(client.hands(workspace)), workspace, before) as model:
            run = Run(client, home, workspace, model)
            client.prepare(home, workspace, model.url)
            yield run
    finally:
        end_daemon(home)
        if not os.environ.get("KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


def end_daemon(home: Path) -> None:
    """End the warm process of a run, which is the one that has a file of its home open."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            store = (process / "environ").read_bytes()
        except OSError:
            continue
        if b"daemon" in words and f"LOOM_AUDIT_STORE=sqlite:///{home}/".encode() in store:
            os.kill(int(process.name), 15)
            _gone(process)


def _gone(process: Path) -> None:
    deadline = time.monotonic() + 10
    while process.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
