"""Nobody decides for the person: a client asks, or does not, just as it does without us."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.real_clients.clients import CLIENTS, CODEX
from tests.real_clients.runs import Run, running
from tests.real_clients.script import Step
from tests.real_clients.sessions import Hands
from tests.real_clients.workspaces import difference, manifest

pytestmark = pytest.mark.timeout(600)
ASKED = "asked.txt"


def one_command(hands: Hands) -> Sequence[Step]:
    return [
        Step("command", [hands.shell("call_01", f"echo ran > {ASKED}")]),
        Step("create", [hands.create("call_02", "written.txt", "written\n")]),
        Step("end", text="Done."),
    ]


@pytest.mark.parametrize("name", CLIENTS)
def test_what_runs_unasked_is_the_same_with_us_and_without(name: str) -> None:
    """Its default permission mode; without a terminal nobody can answer a question."""
    without, connected = (outcome(name, ours=ours) for ours in (False, True))
    assert connected == without


def outcome(name: str, *, ours: bool) -> dict[str, object]:
    client = CLIENTS[name]
    with running(client, one_command) as run:
        if ours:
            run.ours("connect", name)
        run.work(client.careful("please do both"), code=None)
        told = {id: client.status(one) for id, one in run.model.told.items()}
        there = [(run.workspace / path).exists() for path in (ASKED, "written.txt")]
        if ours:
            assert set(run.calls()) == {client.id_of(call) for call in run.model.asked}
        return {"code": run.code, "told": told, "there": there}


def silencing(hands: Hands) -> Sequence[Step]:
    settings = json.dumps({"disableAllHooks": True})
    return [
        Step("before", [hands.shell("call_01", "echo one > one.txt")]),
        Step("silence", [hands.create("call_02", ".claude/settings.json", settings)]),
        Step("meanwhile", [hands.shell("call_03", "sleep 3")]),
        Step("after", [hands.shell("call_04", "echo two > two.txt")]),
        Step("end", text="Done."),
    ]


def test_calls_after_the_agent_silenced_all_hooks_are_on_record_without_a_hook() -> None:
    client = CLIENTS["claude-code"]
    with running(client, silencing) as run:
        (run.workspace / ".claude" / "settings.json").unlink()
        run.ours("connect", client.name)
        run.work(client.once("please do all"))
        heard = calls_in_time(run, 4)
        assert set(heard) == {"call_01", "call_02", "call_03", "call_04"}
        assert heard["call_01"]["coverage"] == "full"
        silent = heard["call_04"]
        assert (silent["coverage"], silent["coverage_reasons"]) == ("none", ["no hook"])


def calls_in_time(run: Run, number: int) -> dict[str, dict[str, Any]]:
    """The warm process reads a transcript whose hooks are silent within seconds."""
    deadline = time.monotonic() + 20
    while len(found := run.calls()) < number and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def test_the_persons_settings_are_as_they_were_once_we_are_taken_out() -> None:
    for client in CLIENTS.values():
        with running(client, one_command) as run:
            before = settings(run)
            run.ours("connect", client.name)
            assert settings(run) != before
            run.ours("connect", client.name)
            run.ours("connect", "--remove", client.name)
            assert settings(run) == before


def settings(run: Run) -> dict[Path, bytes]:
    """Every file that a client may read its settings from."""
    places = [
        run.home,
        *(run.workspace / f".{n}" for n in ("claude", "codex", "gemini", "opencode")),
    ]
    ours = run.home / ".local"
    return {
        file: file.read_bytes()
        for place in places
        for file in place.rglob("*")
        if file.is_file() and not file.is_relative_to(ours)
    }


def test_what_codexs_own_sandbox_lays_into_the_folder_is_not_a_change_of_anybody() -> None:
    """It mounts empty folders for a command's time: `.agents`, `.aws`, `.codex`."""
    with running(CLIENTS["codex"], one_command) as run:
        run.ours("connect", "codex")
        begun = manifest(run.workspace)
        run.work((*CODEX, "-s", "workspace-write", "please do both"))
        assert [call["paths"] for call in run.calls().values()] == [[ASKED], ["written.txt"]]
        run.ours("status", "--exit-code")  # 0: the disk is as the log says
        run.ours("rollback", f"session:{run.session()}", "--yes")
        assert not difference(begun, manifest(run.workspace))
