"""`kill -9` while an agent runs git commands: then the record is what git says, and all is kept.

What records is killed at any moment of a script of git commands, alone, so that the script goes on
without it, or with all that it started.
"""

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, open_store
from loom_audit.api.agents.launcher import write_launcher
from loom_audit.config import read_settings
from tests.crash.programs.faults import check_finishes
from tests.given.cases import some
from tests.history.look.test_git_tape import COMMANDS, check, git
from tests.history.look.test_git_tape_elsewhere import check_objects
from tests.places.git_person import as_ann
from tests.places.made_store import lay_store
from tests.processes.forked import Forked
from tests.test_daemon import client_of, daemon_of

ALWAYS = (
    "echo {n} > f0; git add -A; git commit -qm kept{n}",
    "git branch kept{n}",
    "echo {n} >> f0; git stash -q",
    "git rebase -q kept{n} HEAD~1",
)
"""What each script does somewhere."""
KILLS = 10


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    lay_store(home)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(home))
    as_ann(monkeypatch)
    return home


@pytest.fixture
def root(tmp_path: Path, home: Path) -> Path:
    """A workspace with a repository of some commits, whose person is in its settings."""
    root = tmp_path / "workspace"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "config", "user.name", "ann")
    git(root, "config", "user.email", "ann@example.org")
    for n in range(3):
        (root / "f0").write_text(f"{n}\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"c{n}")
    with open_store() as store:
        store.attach(root)
    return root


def script_of(draw: random.Random, n: int) -> str:
    """Some commands of the tape, with those among them that each script has."""
    lines = [*ALWAYS, *draw.sample(COMMANDS, 6)]
    draw.shuffle(lines)
    said = "; ".join(line.format(n=n, m=draw.randrange(3)) for line in lines)
    return f"export GIT_EDITOR=true; {{ {said}; }} >/dev/null 2>&1; true"


def working_in(root: Path) -> Iterator[int]:
    """The processes that are in a folder or below it, but for this one."""
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (one / "cwd").resolve().is_relative_to(root) and int(one.name) != os.getpid():
                yield int(one.name)


def wait_until_all_ended(root: Path) -> None:
    deadline = time.monotonic() + 60
    while found := [*working_in(root)]:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def kill(process: Forked, root: Path, *, whole: bool) -> bool:
    """Kill what records, or also all that it started; whether it had not ended before."""
    was_alive = not process.ended()
    process.kill()
    while whole and (found := [*working_in(root)]):
        for one in found:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
    process.wait()
    return was_alive


@contextmanager
def killing(home: Path, moment: float) -> Iterator[threading.Event]:
    """Kill the warm process so many seconds from now; whether that was before the block ended."""
    over, hit = threading.Event(), threading.Event()

    def kill() -> None:
        if not over.wait(moment):
            with suppress(OSError):  # another one is starting
                os.kill(daemon_of(home), signal.SIGKILL)
                hit.set()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield hit
    finally:
        over.set()
        killer.join()


def acted(script: str, root: Path) -> None:
    """What the client runs."""
    subprocess.run(["sh", "-c", script], cwd=root, check=True)


def remove_locks(root: Path) -> None:
    """What a person does after git was killed."""
    for one in (root / ".git").rglob("*.lock"):
        one.unlink()


def check_all(workspace: AuditedWorkspace, root: Path, step: str) -> None:
    check(workspace, root, step)
    check_objects(workspace)
    check_finishes(workspace)


def play(root: Path, way: str, draw: random.Random, kills: int) -> None:
    """Run scripts of which each is recorded by a process that is killed; check after each kill."""
    killed, longest = 0, 1.0
    for n in range(kills * 3):
        if killed == kills:
            return
        script, whole = script_of(draw, n), draw.random() < 0.5
        words = ["run", "--", "sh", "-c", script]
        if way == "call":
            words = ["call", "shell_execute", json.dumps({"command": script})]
        started, moment = time.monotonic(), draw.uniform(0, longest)
        process = Forked(words, cwd=root, env=os.environ)
        while time.monotonic() < started + moment and not process.ended():
            time.sleep(0.002)
        if kill(process, root, whole=whole):
            killed += 1
        else:
            longest = min(longest, time.monotonic() - started)
        wait_until_all_ended(root)
        process.printed()
        step = f"{way} {n}, killed {'whole ' * whole}after {moment:.3f} s: {script}"
        try:
            with open_store() as store:
                workspace = store.workspace(root)
                assert not any(one.waiting for one in workspace.recover())
                with workspace.session("next") as session:
                    session.run(["true"])
                check_all(workspace, root, step)
        except BaseException as error:
            error.add_note(step)
            raise
        remove_locks(root)
    raise AssertionError(f"only {killed} were killed before they ended")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", ["run", "call"])
@pytest.mark.parametrize(
    ("seed", "kills"),
    [(27, 2), *(pytest.param(n, KILLS, marks=pytest.mark.deep) for n in range(8))],
)
def test_a_kill_amid_git_commands_loses_nothing(
    root: Path, way: str, seed: int, kills: int
) -> None:
    play(root, way, random.Random(f"{way} {seed}"), kills)
    with open_store() as store:
        assert store.workspace(root).verify().findings == ()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", some(range(5), 1))
def test_kills_of_the_warm_process_amid_git_commands_lose_nothing(
    home: Path, root: Path, tmp_path: Path, seed: int
) -> None:
    """The agent goes on meanwhile, and another warm process answers its next hook."""
    draw, kills = random.Random(seed), KILLS if seed else 2
    (home / "hooks").mkdir()
    write_launcher(read_settings())
    claude = client_of(home, root, tmp_path)
    claude.hook("SessionStart", source="startup")
    killed = 0
    for n in range(kills * 30):  # most end before they are killed on a quick machine
        if killed == kills:
            break
        (home / "hooks" / "failed").unlink(missing_ok=True)
        script, moment = script_of(draw, n), draw.uniform(0, 1.0)
        with killing(home, moment) as hit:
            claude.bash(f"c{n}", script, partial(acted, script, root))
        killed += hit.is_set()
        remove_locks(root)
    assert killed == kills
    (home / "hooks" / "failed").unlink(missing_ok=True)
    claude.hook("SessionEnd", reason="exit")
    with suppress(OSError):
        os.kill(daemon_of(home), signal.SIGKILL)
    with open_store() as store:
        workspace = store.workspace(root)
        check_all(workspace, root, f"hooks {seed}")
        assert workspace.verify().findings == ()
