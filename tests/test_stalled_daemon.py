"""The warm process stalls: hooks run into their client's time limit, and it goes on later."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from loom_audit import AuditStore
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.agents.reading import read_transcripts
from loom_audit.errors import AuditError
from tests.processes.hooked import HookedClaude
from tests.test_daemon import call_of, daemon_of, home, root, run_hook, store

__all__ = ["home", "root", "store"]

LIMIT = ("--seconds", "1")


@pytest.mark.few(1)
@pytest.mark.parametrize("moment", ["before", "after", "both"])
def test_what_was_done_while_it_stalled_is_not_a_call_s_own(
    store: AuditStore, home: Path, root: Path, tmp_path: Path, moment: str
) -> None:
    limit: tuple[str, ...] = ()

    def answer(data: bytes) -> bytes:
        done = run_hook(home, data, "claude-code", *limit, cwd=root)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    claude = HookedClaude(answer, root, tmp_path / "s1.jsonl")
    claude.hook("SessionStart", source="startup")
    claude.bash("c1", "touch b", (root / "b").touch)
    warm = daemon_of(home)
    arguments = {"command": "make"}
    try:
        claude.asks("c2", "Bash", arguments)
        if moment != "after":
            os.kill(warm, signal.SIGSTOP)
            limit = LIMIT
        claude.before("c2", "Bash", arguments)
        if moment == "before":
            os.kill(warm, signal.SIGCONT)
            limit = ()
        (root / "made.txt").write_text("made")
        (root / "mine.txt").write_text("a person's")
        if moment == "after":
            os.kill(warm, signal.SIGSTOP)
            limit = LIMIT
        claude.after("c2", "Bash", arguments, {"stdout": "", "stderr": ""})
        (root / "later.txt").write_text("a person's")
        claude.told("c2", {"stdout": "", "stderr": ""})
        os.kill(warm, signal.SIGCONT)
        limit = ()
        claude.bash("c3", "touch c", (root / "c").touch)
        claude.hook("Stop", stop_hook_active=False)
        until = time.monotonic() + 60
        while call_of(store, root, "c2").seq is None:
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        with suppress(ProcessLookupError):
            os.kill(warm, signal.SIGKILL)
    hooks = Hooks(store)
    hooks.take_up(last=True)
    hooks.close()
    workspace = store.workspace(root)
    read_transcripts(workspace)
    call = call_of(store, root, "c2")
    assert call.status == "ok" and call.coverage.level != "full"
    assert [call_of(store, root, id).coverage.level for id in ("c1", "c3")] == ["full", "full"]
    while True:
        try:
            workspace.carry_out(workspace.plan_undo())
        except AuditError:
            break
    kept = {"mine.txt": "a person's", "later.txt": "a person's", "made.txt": "made"}
    assert {name: (root / name).read_text() for name in kept} == kept
    assert workspace.verify().findings == ()
