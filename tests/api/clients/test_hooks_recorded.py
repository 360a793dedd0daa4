"""Recordings of real clients, told to the hooks in the order in which the clients did."""

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.api.agents.clients import Hooks
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.records import Call
from tests.api.clients.test_hooks import root as root
from tests.api.clients.test_hooks import workspace as workspace
from tests.foreign_clients.recordings import lines

TIME = re.compile(rb"2026-11-2[12]T\d\d:\d\d:\d\d\.\d+Z")


def to_now(recorded: list[bytes]) -> list[bytes]:
    """The same lines, as if the first were written now."""
    first = min(found for line in recorded for found in TIME.findall(line))
    shift = datetime.now(UTC) - datetime.fromisoformat(first.decode())

    def moved(found: re.Match[bytes]) -> bytes:
        at = datetime.fromisoformat(found[0].decode()) + shift + timedelta(seconds=1)
        return at.isoformat().replace("+00:00", "Z").encode()

    return [TIME.sub(moved, line) for line in recorded]


def asks(line: bytes, id: str) -> bool:
    """Whether a line of a transcript holds the request of a call."""
    return any(
        re.search(pattern % re.escape(id.encode()), line)
        for pattern in (rb'"tool_use","id":"%s"', rb'"id":"%s","name"', rb'"call_id":"%s","name"')
    ) or (b'_call"' in line and b'"call_id":"%s"' % id.encode() in line)


def replay(
    hooks: Hooks, client: str, told: list[bytes], written: list[bytes], root: Path, folder: Path
) -> None:
    """Tell all hooks; before each call the transcript is as far as its request."""
    transcript = folder / "transcript.jsonl"
    there = json.loads(told[0])["cwd"].encode()
    told = [line.replace(there, os.fsencode(root)) for line in told]
    written = [line.replace(there, os.fsencode(root)) for line in to_now(written)]
    at = 0

    def write(until: int) -> None:
        nonlocal at
        with transcript.open("ab") as file:
            file.writelines(line + b"\n" for line in written[at:until])
        at = max(at, until)

    for line in told:
        given = json.loads(line)
        given["transcript_path"] = str(transcript)
        if (id := given.get("tool_use_id")) and "Pre" in given["hook_event_name"]:
            write(next(n for n, one in enumerate(written) if asks(one, id)) + 1)
        if given["hook_event_name"] in ("Stop", "SessionEnd", "AfterAgent"):
            write(len(written))
        assert hooks.answer(client, json.dumps(given).encode()) == b""


@pytest.fixture
def replayed(
    hooks: Hooks, workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> Iterator[Callable[..., list[Call]]]:
    def of(client: str, told: str, written: str, times: int = 2) -> list[Call]:
        for _ in range(times):  # told twice it is the same, where calls have ids
            replay(hooks, client, lines(told), lines(written), root, tmp_path)
            (tmp_path / "transcript.jsonl").unlink()
        return [*reversed(workspace.timeline.calls())]

    yield of
    sessions = workspace.timeline.sessions()
    assert [session.ended is None for session in sessions] == [False] * len(sessions)


def test_claude_code(replayed: Callable[..., list[Call]], workspace: AuditedWorkspace) -> None:
    calls = replayed("claude-code", "claude-code/hooks.jsonl", "claude-code/session.jsonl")
    assert [(call.call_id, call.tool, call.status) for call in calls] == [
        ("toolu_0", "Read", "ok"),
        ("toolu_1", "Edit", "ok"),
        ("toolu_2", "Write", "ok"),
        ("toolu_3", "Edit", "error"),
        ("toolu_4", "Bash", "error"),
        ("toolu_5", "Bash", "running"),
        ("toolu_6", "Bash", "ok"),
        ("toolu_7", "Bash", "ok"),
        ("toolu_8", "Write", "ok"),
    ]
    assert calls[3].coverage.reasons == (), "it was refused before it ran"
    facts = [event.fact for event in workspace.log.read()]
    assert [fact.text for fact in facts if isinstance(fact, PromptSubmitted)] == ["please edit"]
    said = [(fact.role, fact.text[:19]) for fact in facts if isinstance(fact, MessageReceived)]
    notice = ("system", "<task-notification>")
    assert said == [("assistant", "done"), notice, ("assistant", "done")]


def test_codex(replayed: Callable[..., list[Call]], workspace: AuditedWorkspace) -> None:
    calls = replayed("codex", "codex/hooks-mcp.jsonl", "codex/rollout-mcp.jsonl")
    assert [(call.call_id, call.tool, call.status) for call in calls] == [
        ("call_0", "mcp__loom__write_file", "ok"),
        ("call_1", "mcp__loom__delete_file", "ok"),
        ("call_2", "mcp__loom__read_file", "error"),
    ]


def test_gemini(replayed: Callable[..., list[Call]], workspace: AuditedWorkspace) -> None:
    calls = replayed("gemini", "gemini/hooks.jsonl", "gemini/session.jsonl", times=1)
    shell = "run_shell_command"
    tools = ["read_file", "replace", "write_file", "replace", *[shell] * 4, "write_file"]
    assert [call.tool for call in calls] == tools
    statuses = [call.status for call in calls]
    assert statuses[3] == "error" and statuses[:3] == ["ok"] * 3
    assert all(call.coverage.level != "none" for call in calls)
    for call in calls:
        told = [event.fact for event in workspace.timeline.call(call.requested).events]
        named = [fact for fact in told if f"{call.tool}__{call.tool}_" in str(fact)]
        assert named, f"{call.call_id} is not on record with the client's own id"
