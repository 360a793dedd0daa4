"""The warm process is killed between two steps, over and over; the agent and its record go on."""

import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, open_store
from loom_audit.api.agents.launcher import write_launcher
from loom_audit.config import read_settings
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import CallFinished, CallRequested
from tests.given.cases import some
from tests.places.made_store import lay_store
from tests.processes.hooked import HookedClaude
from tests.test_daemon import client_of, daemon_of

MOST_STEPS = 60
"""More than a process takes for two or three calls."""


@pytest.mark.parametrize("seed", some(range(2), 1))
def test_the_agent_goes_on_and_each_call_has_one_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    run(tmp_path, monkeypatch, seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2, 102))
def test_the_agent_goes_on_wherever_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    run(tmp_path, monkeypatch, seed)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A session of an agent whose warm processes die; then what is on record of it."""
    draw = random.Random(seed)
    home, root = folder / "home", folder / "repository"
    lay_store(home)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(home))
    (home / "hooks").mkdir()
    write_launcher(read_settings())
    dying = Path(__file__).parent / "programs" / "dying_daemon.py"
    words = (f"LOOM_AUDIT_HOME={home}", sys.executable, "-P", str(dying))
    (home / "hooks" / "daemon").write_bytes(b"".join(os.fsencode(word) + b"\0" for word in words))
    (home / "plans").write_text(" ".join(str(draw.randrange(1, MOST_STEPS)) for _ in range(3)))
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    with open_store() as store:
        store.attach(root)
    claude = client_of(home, root, folder)
    wanted = work(claude, root, draw)
    # what was killed is not waited for: another one is told that the session is over
    (home / "plans").write_text("0")
    for name in ("Stop", "SessionEnd"):
        claude.hook(name, reason="exit", stop_hook_active=False)
        (home / "hooks" / "failed").unlink(missing_ok=True)
    claude.hook("SessionStart", source="resume")
    claude.hook("SessionEnd", reason="exit")
    os.kill(daemon_of(home), signal.SIGKILL)
    with open_store() as store:
        check(store.workspace(root), wanted)


def work(claude: HookedClaude, root: Path, draw: random.Random) -> dict[str, str]:
    """What the agent does: the status of each of its calls, as the model was told."""
    statuses: dict[str, str] = {}
    claude.hook("SessionStart", source="startup")
    claude.hook("UserPromptSubmit", prompt="do it", prompt_id="p1")
    claude.write("user", {"type": "text", "text": "do it"}, promptId="p1")
    for n in range(6):
        id, file = f"c{n}", root / f"f{n % 3}.txt"
        (root.parent / "home" / "hooks" / "failed").unlink(missing_ok=True)
        kind = draw.choice(["write", "bash", "bash", "refused", "denied"])
        claude.write("assistant", {"type": "text", "text": f"now {n}"})
        statuses[id] = "ok"
        if kind == "write":
            claude.writes(id, file, f"{n}\n")
        elif kind == "bash":
            claude.bash(id, f"echo {n} >> {file.name}", lambda file=file: add(file))  # type: ignore[misc]
        else:
            edit = {"file_path": str(file), "old_string": "?", "new_string": "!"}
            claude.asks(id, "Edit", edit)
            if kind == "denied":
                claude.before(id, "Edit", edit)
            claude.told(id, None, "String to replace not found", error=True)
            statuses[id] = "error"
    return statuses


def add(file: Path) -> None:
    with file.open("a") as opened:
        opened.write("more\n")


def check(workspace: AuditedWorkspace, wanted: dict[str, str]) -> None:
    facts = [event.fact for event in workspace.log.read()]
    finished = Counter(fact.call_id for fact in facts if isinstance(fact, CallFinished))
    assert finished == Counter(wanted.keys()), "one finish for each call, and no other"
    assert Counter(fact.call_id for fact in facts if isinstance(fact, CallRequested)) == finished
    calls = {call.call_id: call for call in workspace.timeline.calls()}
    assert {id: call.status for id, call in calls.items()} == wanted
    told = [f.text for f in facts if isinstance(f, PromptSubmitted | MessageReceived)]
    assert sorted(told) == sorted(["do it", *(f"now {n}" for n in range(len(wanted)))])
    # what changed in the workspace is all on record, and a call that is not said to be seen in
    # part is the one that made its change
    assert workspace.status().drift == () and workspace.verify().findings == ()
    for n, (id, status) in enumerate(wanted.items()):
        call = calls[id]
        if call.effect != "read" and status == "ok" and call.coverage == Coverage():
            assert call.paths == (f"f{n % 3}.txt",)
