"""What the transcript of a client that is gone tells of its prompts: on record as at its end."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.agents.reading import read_transcripts
from loom_audit.history.told.ingest import Ingest
from loom_audit.history.told.unread_transcripts import transcript_name
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from tests.api.clients.test_hooks_missed import CLIENT
from tests.processes.hooked import HookedClaude, HookedCodex, HookedGemini

Told = list[tuple[str, str]]


def texts(workspace: AuditedWorkspace) -> Told:
    """What people and the model said, in the order in which it is on record."""
    found = (event.fact for event in workspace.log.read())
    return [
        ("asked" if isinstance(one, PromptSubmitted) else "said", one.text)
        for one in found
        if isinstance(one, PromptSubmitted | MessageReceived)
    ]


@contextmanager
def killed(
    hooks: Hooks, client: str, *, prompts: bool = True
) -> Iterator[Callable[[bytes], bytes]]:
    """A client that is killed at the end of the block; who answers its hooks."""
    with started() as (process, hook):
        yield lambda data: hooks.answer(client, data, hook=hook, prompts=prompts)
        process.kill()


@contextmanager
def started() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A client's process, and that of a hook, which runs as long as it does."""
    runs, pipe = [sys.executable, "-c", CLIENT], subprocess.PIPE
    with subprocess.Popen(runs, stdout=pipe, stdin=pipe) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())


def claude_code(answer: Callable[[bytes], bytes], root: Path, file: Path) -> None:
    """A prompt that a hook tells, one that only the transcript tells, and what was said to it."""
    claude = HookedClaude(answer, root, file)
    claude.hook("SessionStart", source="startup")
    claude.hook("UserPromptSubmit", prompt="first ", prompt_id="p1")
    claude.write("user", {"type": "text", "text": "first"}, promptId="p1")
    claude.bash("c1", "true")
    claude.write("user", {"type": "text", "text": "second"}, promptId="p2")
    claude.write("assistant", {"type": "text", "text": "done"})
    claude.write("user", {"type": "text", "text": "second"}, promptId="p3")


def codex(answer: Callable[[bytes], bytes], root: Path, file: Path) -> None:
    told = HookedCodex(answer, root, file)
    told.hook("SessionStart", source="startup")
    told.hook("UserPromptSubmit", prompt="first", turn_id="p1")
    for turn, kind, said in (
        ("p1", "user", "first"),
        ("p2", "user", "second"),
        ("p2", "agent", "done"),
        ("p3", "user", "second"),
    ):
        told.write("turn_context", {"turn_id": turn, "cwd": str(root)})
        told.write("event_msg", {"type": f"{kind}_message", "message": said, "turn_id": turn})


def gemini(answer: Callable[[bytes], bytes], root: Path, file: Path) -> None:
    told = HookedGemini(answer, root, file)
    told.hook("SessionStart", source="startup")
    told.hook("BeforeAgent", prompt="first")
    for name, kind, said in (
        ("m1", "user", "first"),
        ("m2", "user", "second"),
        ("m3", "gemini", "done"),
        ("m4", "user", "second"),
    ):
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        with file.open("a", encoding="utf-8") as lines:
            record = {"id": name, "timestamp": at, "type": kind, "content": said}
            lines.write(json.dumps(record) + "\n")


CLIENTS = {"claude-code": claude_code, "codex": codex, "gemini": gemini}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("by", ["undo", "undo after a command of ours", "warm process"])
def test_prompts_that_only_the_transcript_of_a_client_that_is_gone_tells_are_on_record(
    store: AuditStore,
    workspace: AuditedWorkspace,
    hooks: Hooks,
    root: Path,
    tmp_path: Path,
    client: str,
    by: str,
) -> None:
    with killed(hooks, client) as answer:
        CLIENTS[client](answer, root, tmp_path / "told.jsonl")
    hooks.close()  # the warm process is killed as well
    mine = store.workspace(root)
    if by == "undo after a command of ours":
        mine.recover()
    for _ in range(2):
        if by == "warm process":
            other = Hooks(store)
            other.answer("claude-code", b"{}")
            other._open(mine.id)
            assert other.settle() == []
            other.close()
        else:
            read_transcripts(mine)
        mine.recover()
        told = [(kind, said.strip()) for kind, said in texts(mine)]
        assert told == [
            ("asked", "first"),
            ("asked", "second"),
            ("said", "done"),
            ("asked", "second"),
        ]
    assert not [one for one in mine.timeline.sessions() if one.ended is None]
    assert mine.verify().findings == ()
    assert workspace.root == mine.root


def test_what_a_client_says_that_was_connected_without_prompts_stays_off_the_record(
    store: AuditStore, workspace: AuditedWorkspace, hooks: Hooks, root: Path, tmp_path: Path
) -> None:
    with killed(hooks, "claude-code", prompts=False) as answer:
        claude_code(answer, root, tmp_path / "told.jsonl")
    read_transcripts(workspace)
    assert texts(workspace) == []
    assert [call.call_id for call in workspace.timeline.calls()] == ["c1"]


def test_where_it_was_not_kept_whether_prompts_are_recorded_none_is(
    store: AuditStore, workspace: AuditedWorkspace, hooks: Hooks, root: Path, tmp_path: Path
) -> None:
    """An earlier release kept the file alone."""
    with killed(hooks, "claude-code") as answer:
        claude_code(answer, root, tmp_path / "told.jsonl")
    known = texts(workspace)
    looks, name = workspace.attachment.on_disk.looks, transcript_name("s1")
    looks.keep(name, looks.get(name)[:2])
    read_transcripts(workspace)
    assert texts(workspace) == known and workspace.attachment.on_disk.looks.get(name) is None


def test_a_client_that_is_connected_again_without_prompts_says_nothing_from_then_on(
    store: AuditStore, workspace: AuditedWorkspace, hooks: Hooks, root: Path, tmp_path: Path
) -> None:
    with started() as (process, hook):
        prompts = [True]

        def answer(data: bytes) -> bytes:
            return hooks.answer("claude-code", data, hook=hook, prompts=prompts[0])

        claude = HookedClaude(answer, root, tmp_path / "told.jsonl")
        claude.hook("SessionStart", source="startup")
        prompts[0] = False
        claude.bash("c1", "true")
        claude.write("user", {"type": "text", "text": "secret"}, promptId="p2")
        process.kill()
    read_transcripts(workspace)
    assert texts(workspace) == []


def test_the_same_prompt_is_on_record_as_often_as_it_was_told_to_two_warm_processes(
    store: AuditStore, workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> None:
    """Of the client's process neither knows anything, so that the session just goes on."""
    for number in (1, 2):
        hooks = Hooks(store)
        answer = partial(hooks.answer, "claude-code")
        claude = HookedClaude(answer, root, tmp_path / "t.jsonl")
        if number == 1:
            claude.hook("SessionStart", source="startup")
        claude.hook("UserPromptSubmit", prompt="again ", prompt_id=f"p{number}")
        claude.write("user", {"type": "text", "text": "again"}, promptId=f"p{number}")
        claude.bash(f"c{number}", "true")
        hooks.close()
    assert texts(workspace) == [("asked", "again "), ("asked", "again ")]


def test_a_call_that_no_hook_told_is_not_seen_in_part_as_another_process_ends_it(
    store: AuditStore,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The warm process is killed when the call is on record as asked for, and not as ended."""
    hooks = Hooks(store)
    claude = HookedClaude(partial(hooks.answer, "claude-code"), root, tmp_path / "t.jsonl")
    claude.hook("SessionStart", source="startup")
    unheard = HookedClaude(lambda _: b"", root, claude.transcript)
    unheard.bash("c1", "make", (root / "made").touch)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Ingest, "_record_end", killed)
        hooks.settle()
    assert workspace.timeline.projections.call("s1", "c1").seq is None
    other = Hooks(store)
    claude.answer = partial(other.answer, "claude-code")
    claude.hook("Stop", stop_hook_active=False)
    call = workspace.timeline.projections.call("s1", "c1")
    assert (call.status, call.coverage.level, call.coverage.reasons) == ("ok", "none", ("no hook",))
    assert 0 in workspace.timeline.history("made")[0].causes, "nobody knows whose it is"
    for one in (hooks, other):
        one.close()


def test_a_prompt_that_was_said_before_the_client_was_connected_takes_no_later_ones_place(
    store: AuditStore, workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> None:
    """Only later ones are on record, so that their numbers are not those of another process."""
    assert workspace.root == str(root)
    before = (datetime.now(UTC) - timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    for number in (1, 2):
        hooks = Hooks(store)
        claude = HookedClaude(partial(hooks.answer, "claude-code"), root, tmp_path / "t.jsonl")
        if number == 1:
            claude.hook("SessionStart", source="resume")
            claude.write("user", {"type": "text", "text": "go on"}, promptId="p0", timestamp=before)
            hooks.settle()
            claude.bash("c0", "true")
        claude.hook("UserPromptSubmit", prompt="go on", prompt_id=f"p{number}")
        hooks.close()
    assert texts(workspace) == [("asked", "go on"), ("asked", "go on")]
