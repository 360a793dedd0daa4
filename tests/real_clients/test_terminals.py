"""A client in a terminal: started, resized, interrupted and quit, with us and without."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.real_clients.clients import CLIENTS
from tests.real_clients.runs import Run, running
from tests.real_clients.script import Step
from tests.real_clients.sessions import Hands
from tests.real_clients.terminals import ENTER, ESCAPE, Terminal

pytestmark = pytest.mark.timeout(600)
BEGUN = ".git/begun"
OURS = re.compile(rb"hook_client|loom_audit|loom-audit[ :]|Traceback|hook error", re.I)
SECONDS = 180.0
"""That a step may take: opencode first installs packages into a home that is new."""


def interrupted(hands: Hands) -> Sequence[Step]:
    return [
        Step("long", [hands.shell("call_01", f"echo begun > half.txt; touch {BEGUN}; sleep 60")]),
        Step("short", [hands.shell("call_02", "echo two > two.txt")]),
        Step("end", text="Finished."),
    ]


@pytest.mark.parametrize("name", CLIENTS)
def test_the_terminal_is_left_as_without_us_and_what_esc_stopped_is_on_record(name: str) -> None:
    client = CLIENTS[name]
    with running(client, interrupted) as run:
        without = seen(run)
    with running(client, interrupted) as run:
        run.ours("connect", name)
        connected = seen(run)
        calls = run.calls()
        found = {id: call["status"] for id, call in calls.items()}
        first, second = (client.id_of(call) for call in run.model.asked)
        # what Codex tells later, that the command failed, replaces what was inferred
        stopped = ("cancelled", "error") if name == "codex" else ("cancelled",)
        assert found == {first: found[first], second: "ok"} and found[first] in stopped
        run.ours("undo", "--yes")
        assert not (run.workspace / "two.txt").exists()
        run.ours("undo", "--yes", code=None)
        late = "looked at late" in calls[first]["coverage_reasons"]
        if late and (run.workspace / "half.txt").exists():
            # opencode may tell that the turn ended before it tells that its command did: what such
            # a look finds may be a person's, so that only a person's choice takes it back
            run.ours("undo", "--yes", "--choose", "half.txt=old", code=7)
        assert not (run.workspace / "half.txt").exists()
    assert connected == without


def shown(hooks: bytes, screen: bytes) -> bytes:
    """What was on the screen but for what the client itself says of its hooks, by our name."""
    return re.sub(hooks, b"", screen) if hooks else screen


def seen(run: Run) -> dict[str, Any]:
    """What a person at the terminal can tell of it once the client has ended."""
    terminal = Terminal(run.client.terminal("please start"), run.workspace, run.environment)
    try:
        begun = terminal.read_until((run.workspace / BEGUN).exists, SECONDS)
        assert begun, terminal.screen[-3000:]
        terminal.read_for(1)
        terminal.resize(30, 90)
        terminal.read_for(1)
        for _ in range(run.client.escapes):
            terminal.press(ESCAPE)
        terminal.read_for(2)
        terminal.press(b"go on", ENTER)
        told = terminal.read_until(lambda: "call_02" in run.model.told, SECONDS)
        assert told, terminal.screen[-3000:]
        terminal.read_for(1.5)
        terminal.press(*run.client.leaving)
        terminal.read_until(terminal.has_ended, 15)
        return {
            "as found": terminal.attributes() == terminal.found,
            "modes": terminal.modes(),
            "ours": OURS.findall(shown(run.client.told, terminal.screen)),
            "code": terminal.close(),
        }
    except BaseException:
        terminal.close()
        raise
