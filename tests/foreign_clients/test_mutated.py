"""Damaged recordings: nothing raised but our own errors, no whole line lost.

Which calls a line tells is read from it here by its raw structure, not by our readers.
"""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from loom_audit import open_store
from loom_audit.api.agents.importing import import_file
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import CallBegan, CallEnded, Report
from loom_audit.errors import InvalidArguments
from tests.foreign_clients.recordings import RECORDINGS, lines, of_kind

TRANSCRIPTS = {
    "claude-code": ["claude-code/session.jsonl", "claude-code/viewer.jsonl"],
    "codex": ["codex/rollout.jsonl", "codex/rollout-mcp.jsonl"],
    "gemini": ["gemini/session.jsonl", "gemini/session-small.jsonl"],
    "opencode": [],
}
HOOKS = {
    "claude-code": ["claude-code/hooks.jsonl"],
    "codex": ["codex/hooks.jsonl", "codex/hooks-mcp.jsonl"],
    "gemini": ["gemini/hooks.jsonl"],
    "opencode": ["opencode/plugin-events.jsonl"],
}
ODD: list[Any] = [
    *(None, True, 0, -1, 2**70, 1e308, "", "\ud800", "x" * 300, [], {}, [[]], {"type": "text"}),
    *([None, 1, "a"], {"": {}}, "2026-99-99T00:00:00Z", "<task-notification>", float("nan")),
]
FEW, MANY, AT_ONCE = 600, 100_000, 2_000


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a value with every key or index in it."""
    if isinstance(value, dict | list):
        for key in [*value] if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def mutated(line: bytes, chance: random.Random) -> bytes:
    """A damaged line: torn, with other bytes, or with other values of other types in it."""
    how = chance.randrange(6)
    if how == 0:
        return line[: chance.randrange(len(line))]
    if how == 1:
        at = chance.randrange(len(line))
        return line[:at] + chance.randbytes(chance.randrange(1, 5)) + line[at + 1 :]
    if how == 2:
        return b"[" * chance.choice([1, 5000]) + line
    value = json.loads(line)
    for _ in range(chance.randrange(1, 4)):
        found = [*places(value)]
        if not found:
            break
        inside, key = chance.choice(found)
        if how == 3 and isinstance(inside, dict):
            del inside[key]
        elif how == 4 and isinstance(inside, dict):
            inside[chance.choice(["type", "new field", "content"])] = deepcopy(chance.choice(ODD))
        else:
            inside[key] = deepcopy(chance.choice(ODD))
    return json.dumps(value).encode()


def calls_told(client: str, line: bytes) -> tuple[set[str], set[str]]:
    """The calls that a whole line says were asked for, and those that it says have ended."""
    record = json.loads(line)
    asked: set[str] = set()
    ended: set[str] = set()
    if client == "claude-code" and record["type"] in ("user", "assistant"):
        content = record["message"]["content"]
        for block in content if isinstance(content, list) else ():
            if block["type"] == "tool_use":
                asked.add(block["id"])
            elif block["type"] == "tool_result":
                ended.add(block["tool_use_id"])
    elif client == "codex" and record["type"] == "response_item":
        payload = record["payload"]
        if payload["type"] in ("function_call", "custom_tool_call"):
            asked.add(payload["call_id"])
        elif payload["type"].endswith("_call_output"):
            ended.add(payload["call_id"])
    elif client == "gemini":
        for call in record.get("toolCalls", ()):
            asked.add(call["id"])
            ended.add(call["id"])
    return asked, ended


def check_a_damaged_transcript(client: str, name: str, chance: random.Random) -> None:
    reader = CLIENTS[client].transcript()
    reports: list[Report] = []
    asked: set[str] = set()
    ended: set[str] = set()
    share = chance.choice([0.02, 0.2, 0.6])
    for line in lines(name):
        if chance.random() < share:
            line = mutated(line, chance)
        else:
            also_asked, also_ended = calls_told(client, line)
            asked |= also_asked
            ended |= also_ended
        reports.extend(reader.read(line))
    assert asked <= {call.call_id for call in of_kind(reports, CallBegan)}
    assert ended <= {call.call_id for call in of_kind(reports, CallEnded)}


def check_a_damaged_export(chance: random.Random) -> None:
    whole = (RECORDINGS / "opencode/export.json").read_bytes()
    CLIENTS["opencode"].transcript().read(mutated(whole, chance))


def check_a_damaged_hook(client: str, chance: random.Random) -> None:
    line = mutated(chance.choice(lines(chance.choice(HOOKS[client]))), chance)
    try:
        hook = CLIENTS[client].read_hook(line)
    except InvalidArguments:
        return
    assert CLIENTS[client].answer(hook, None) == b""


def check_damage(client: str, seed: str, number: int) -> None:
    chance = random.Random(f"{seed} {client} {number}")
    check_a_damaged_hook(client, chance)
    if client == "opencode":
        check_a_damaged_export(chance)
    elif number % 10 == 0:  # a whole transcript has some ten damaged lines
        check_a_damaged_transcript(client, chance.choice(TRANSCRIPTS[client]), chance)


@pytest.mark.few(1)
@pytest.mark.parametrize("client", list(CLIENTS))
def test_damaged_input_raises_nothing_else_and_no_whole_line_is_lost(
    client: str, seed: str
) -> None:
    for number in range(FEW):
        check_damage(client, seed, number)


@pytest.mark.deep
@pytest.mark.parametrize("start", range(0, MANY, AT_ONCE))
@pytest.mark.parametrize("client", list(CLIENTS))
def test_a_hundred_thousand_damaged_inputs_raise_nothing_else(
    client: str, start: int, seed: str
) -> None:
    for number in range(start, start + AT_ONCE):
        check_damage(client, seed, number)


def check_a_damaged_import(client: str, chance: random.Random, folder: Path) -> None:
    """Every call ends once, the log is whole, and nothing is added by doing it again."""
    file = folder / "t.jsonl"
    if client == "opencode":
        file.write_bytes(mutated((RECORDINGS / "opencode/export.json").read_bytes(), chance))
    else:
        told = lines(chance.choice(TRANSCRIPTS[client]))
        share = chance.choice([0.02, 0.2, 0.6])
        damaged = [mutated(one, chance) if chance.random() < share else one for one in told]
        file.write_bytes(b"\n".join(line.replace(b"\n", b" ") for line in damaged))
    with open_store(f"sqlite:///{folder}/audit.db") as store:
        try:
            done = import_file(store, file)
        except InvalidArguments:  # who wrote it cannot be seen any more
            return
        workspace = store.workspace(done.workspace)
        head = workspace.head()
        assert import_file(store, file).workspace == done.workspace
        assert workspace.head() == head
        assert not workspace.timeline.open_calls()
        assert workspace.verify().ok
        for call in workspace.timeline.calls():
            assert call.seq is not None
            workspace.timeline.call(call.seq)
        for path in workspace.timeline.tree():
            assert path and not path.startswith("/") and ".." not in path.split("/")


@pytest.mark.few(1)
@pytest.mark.parametrize("client", list(CLIENTS))
def test_damaged_transcripts_are_imported_as_far_as_they_can_be_read(
    client: str, seed: str, tmp_path: Path
) -> None:
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        check_a_damaged_import(client, random.Random(f"{seed} {client} {number}"), folder)


@pytest.mark.deep
@pytest.mark.parametrize("start", range(0, 1000, 50))
@pytest.mark.parametrize("client", list(CLIENTS))
def test_a_thousand_damaged_transcripts_are_imported(
    client: str, start: int, seed: str, tmp_path: Path
) -> None:
    for number in range(start, start + 50):
        folder = tmp_path / str(number)
        folder.mkdir()
        check_a_damaged_import(client, random.Random(f"{seed} {client} {number}"), folder)
