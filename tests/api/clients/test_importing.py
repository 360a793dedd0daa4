"""Transcripts put on record in logs of their own."""

import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, InvalidArguments, NoWorkspace
from loom_audit.api.agents.importing import Imported, import_file, origin_of
from loom_audit.errors import AuditUnavailable
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.events import Draft, Event
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter
from loom_audit.sql.store.event_log import SqlEventLog

RECORDINGS = Path(__file__).parent.parent.parent / "data" / "clients"
CLAUDE = RECORDINGS / "claude-code/session.jsonl"
RECORDED = {
    "claude-code/session.jsonl": (
        *("ok", "ok", "ok", "error", "error", "running", "ok", "ok", "ok"),
    ),
    "codex/rollout.jsonl": (*("ok", "ok", "ok", "error", "error", "running", "ok", "ok", "ok"),),
    "gemini/session.jsonl": (*("ok", "ok", "ok", "error", "error", "running", "ok", "ok", "ok"),),
    "opencode/export.json": ("ok", "ok", "error", "error", "ok"),
}
"""How the calls of a recording ended, in the order in which the model asked for them."""


def calls(workspace: AuditedWorkspace) -> Sequence[Call]:
    found = [event for event in workspace.log.read() if event.kind == "call.finished"]
    return [workspace.timeline.call(event.seq).call for event in found]


def content_at(workspace: AuditedWorkspace, path: str, seq: int | None = None) -> bytes:
    state = workspace.timeline.state(path, seq)
    assert state is not None
    return workspace.timeline.content(state)


def imported(store: AuditStore, file: Path) -> tuple[Imported, AuditedWorkspace]:
    done = import_file(store, file)
    return done, store.workspace(done.workspace)


@pytest.mark.parametrize(("name", "statuses"), RECORDED.items())
def test_every_call_of_a_transcript_is_on_record(
    store: AuditStore, name: str, statuses: tuple[str, ...]
) -> None:
    done, workspace = imported(store, RECORDINGS / name)
    assert [call.status for call in calls(workspace)] == [*statuses]
    assert (done.calls, done.skipped, done.unread) == (len(statuses), (), {})
    assert not workspace.timeline.open_calls()
    assert workspace.verify().ok


def test_a_name_that_a_transcript_gives_a_text_is_kept_up_to_200_letters(
    store: AuditStore, tmp_path: Path
) -> None:
    found = []
    for line in CLAUDE.read_text().splitlines():
        record = json.loads(line)
        longer = {
            name: record[name] + "x" * 10_000 for name in ("uuid", "promptId") & record.keys()
        }
        found.append(json.dumps(record | longer))
    (tmp_path / "long.jsonl").write_text("\n".join(found))
    _, workspace = imported(store, tmp_path / "long.jsonl")
    facts = [event.fact for event in workspace.log.read()]
    names = [one.prompt_id for one in facts if isinstance(one, PromptSubmitted)]
    names += [one.message_id for one in facts if isinstance(one, MessageReceived)]
    assert len(names) >= 2 and {len(name) for name in names} == {200}


@pytest.mark.parametrize("name", RECORDED)
def test_importing_twice_adds_nothing(store: AuditStore, name: str) -> None:
    done, workspace = imported(store, RECORDINGS / name)
    before = workspace.head()
    again, _ = imported(store, RECORDINGS / name)
    assert store.workspace(done.workspace).head() == before
    assert (again.calls, again.workspace) == (0, done.workspace)


@pytest.mark.parametrize("name", ["claude-code/session.jsonl", "codex/rollout.jsonl"])
def test_a_transcript_that_has_grown_adds_what_is_new(
    store: AuditStore, tmp_path: Path, name: str
) -> None:
    lines = (RECORDINGS / name).read_bytes().splitlines(keepends=True)
    file = tmp_path / "t.jsonl"
    for end in range(1, len(lines), 7):
        file.write_bytes(b"".join(lines[:end]))
        import_file(store, file)
    file.write_bytes(b"".join(lines))
    _, workspace = imported(store, file)
    found = {call.call_id: call for call in calls(workspace)}
    assert len(found) == len(calls(workspace)) == 9
    statuses = {call: found[call].status for call in sorted(found)}
    told = dict(zip(sorted(found), RECORDED[name], strict=True))
    later = {
        event.fact.call_id: event.fact.status
        for event in workspace.log.read(EventFilter(kinds=("call.reported",)))
    }
    for call, status in told.items():
        assert statuses[call] == status or (statuses[call], later[call]) == ("unknown", status)


@pytest.mark.parametrize("name", ["claude-code/session.jsonl", "codex/rollout.jsonl"])
def test_a_call_that_is_told_again_long_after_it_ended_is_one(
    store: AuditStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("loom_audit.history.told.importing.AT_ONCE", 1)
    monkeypatch.setattr("loom_audit.history.told.importing.REMEMBERED", 1)
    file = tmp_path / "t.jsonl"
    file.write_bytes((RECORDINGS / name).read_bytes() * 3)
    done, workspace = imported(store, file)
    assert [call.status for call in calls(workspace)] == [*RECORDED[name]]
    assert done.calls == len(RECORDED[name]) and not workspace.timeline.open_calls()
    head = workspace.head()
    again, _ = imported(store, file)
    assert (again.calls, store.workspace(done.workspace).head()) == (0, head)


def test_files_are_rebuilt_where_their_contents_are_told(store: AuditStore) -> None:
    _, workspace = imported(store, CLAUDE)
    found = {call.call_id: call for call in calls(workspace)}
    edit, bash = found["toolu_1"].seq, found["toolu_7"].seq
    assert edit and bash

    def content(path: str, seq: int) -> bytes:
        return content_at(workspace, path, seq)

    assert content("notes.txt", edit) == b"one\nTWO\nthree\n"
    assert content("notes.txt", bash) == b"one\nTWO\nthree\nfour\n"
    assert content("late.txt", bash) == b"late\n"
    assert content("notes.txt", edit - 1 - 1) == b"one\ntwo\nthree\n"
    assert found["toolu_1"].coverage.level == "partial"
    assert found["toolu_4"].coverage.level == "none"
    assert found["toolu_0"].coverage.level == "full"
    assert any("content not told" in why for why in found["toolu_7"].coverage.reasons)


def test_a_patch_is_applied_to_what_is_known_and_not_to_anything_else(store: AuditStore) -> None:
    _, workspace = imported(store, RECORDINGS / "codex/rollout.jsonl")
    tree = workspace.timeline.tree()
    assert content_at(workspace, "sub/new.txt") == b"newer file\n"
    assert "notes.txt" not in tree and "src/mod1/file2.py" not in tree
    [first, *_] = (call for call in calls(workspace) if call.call_id == "call_1")
    assert "content not told: notes.txt" in first.coverage.reasons


def test_torn_and_strange_lines_are_named_and_skipped(store: AuditStore, tmp_path: Path) -> None:
    lines = CLAUDE.read_bytes().splitlines()
    damaged = [lines[0], b'{"type":"us', *lines[1:50], b"[1, 2]", b"", *lines[50:]]
    file = tmp_path / "t.jsonl"
    file.write_bytes(b"\n".join(damaged))
    done, workspace = imported(store, file)
    assert done.skipped == ((2, "torn line"), (52, "line that is not an object"))
    assert len(calls(workspace)) == 9


def test_a_call_whose_request_is_in_a_torn_line_is_on_record_with_its_end(
    store: AuditStore, tmp_path: Path
) -> None:
    lines = CLAUDE.read_bytes().splitlines()
    [number] = [n for n, line in enumerate(lines) if _asks(line, "toolu_2")]
    lines[number] = lines[number][:200]
    file = tmp_path / "t.jsonl"
    file.write_bytes(b"\n".join(lines))
    done, workspace = imported(store, file)
    assert done.skipped == ((number + 1, "torn line"),)
    [call] = [call for call in calls(workspace) if call.call_id == "toolu_2"]
    assert call.status == "ok"
    assert "its request is not in the transcript" in call.coverage.reasons


def _asks(line: bytes, call: str) -> bool:
    record = json.loads(line)
    content = record.get("message", {}).get("content")
    asked = content if record["type"] == "assistant" else []
    return any(block.get("id") == call for block in asked)


def test_a_workspace_of_the_same_folder_keeps_its_own_log(
    store: AuditStore, workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> None:
    before, here = workspace.head(), str(root)
    file = tmp_path / "t.jsonl"
    file.write_bytes(CLAUDE.read_bytes().replace(b"/home/dev/projects/claude", here.encode()))
    done, other = imported(store, file)
    assert other.id != workspace.id and done.root == f"import:{here}"
    assert store.workspace(root).id == workspace.id
    assert workspace.head() == before
    assert store.attach(root).id == workspace.id
    assert (root / "a.txt").read_text() == "one\n" and not (root / "notes.txt").exists()


def test_a_folder_can_be_put_under_audit_after_its_transcripts_were_imported(
    store: AuditStore, root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "t.jsonl"
    file.write_bytes(CLAUDE.read_bytes().replace(b"/home/dev/projects/claude", str(root).encode()))
    done, _ = imported(store, file)
    assert store.attach(root).id != done.workspace


def test_nothing_is_recorded_in_an_imported_log_but_imports(store: AuditStore) -> None:
    _, workspace = imported(store, CLAUDE)
    before = workspace.head()
    with pytest.raises(NoWorkspace, match="can only be read"), workspace.session("agent"):
        pass
    with pytest.raises(NoWorkspace, match="can only be read"):
        workspace.start_foreign_session("agent")
    with pytest.raises(NoWorkspace, match="can only be read"):
        workspace.checkpoint("name")
    with pytest.raises(NoWorkspace, match="can only be read"):
        workspace.plan_rollback(3)
    assert store.workspace(workspace.id).head() == before


def test_paths_of_other_folders_are_named_and_not_among_the_files(
    store: AuditStore, tmp_path: Path
) -> None:
    file = tmp_path / "t.jsonl"
    told = CLAUDE.read_bytes().replace(
        b"/home/dev/projects/claude/sub/new.txt", b"/home/dev/projects/claude/../../../etc/new.txt"
    )
    file.write_bytes(told)
    _, workspace = imported(store, file)
    [write] = [call for call in calls(workspace) if call.call_id == "toolu_2"]
    assert "files outside the folder of the session" in write.coverage.reasons
    assert not any("new.txt" in path for path in workspace.timeline.tree())


def test_an_import_that_was_stopped_goes_on(
    store: AuditStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, left = SqlEventLog.append, [2]

    def stops(log: SqlEventLog, drafts: Sequence[Draft]) -> Sequence[Event]:
        left[0] -= 1
        if left[0] < 0:
            raise AuditUnavailable("the disk is gone")
        return append(log, drafts)

    monkeypatch.setattr("loom_audit.history.told.importing.AT_ONCE", 4)
    stopped = 0
    for allowed in (2, 3, 4):
        with monkeypatch.context() as patch, pytest.raises(AuditUnavailable):
            left[0] = allowed
            patch.setattr(SqlEventLog, "append", stops)
            import_file(store, CLAUDE)
        stopped += 1
    done, workspace = imported(store, CLAUDE)
    assert stopped == 3 and done.calls < 9 == len(calls(workspace))
    assert [call.status for call in calls(workspace)] == [*RECORDED["claude-code/session.jsonl"]]
    assert content_at(workspace, "notes.txt") == b"one\nTWO\nthree\nfour\n"


def test_a_transcript_is_never_in_memory_as_a_whole(
    store: AuditStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom_audit.history.told.importing.STAGED", 1 << 20)
    monkeypatch.setattr("loom_audit.sql.contents.blobs.CACHE_BYTES", 1 << 20)
    file = tmp_path / "t.jsonl"
    with file.open("w") as out:
        for number in range(100):
            block = {"type": "text", "text": f"{number} " + "word " * 50_000}
            message = {"role": "user", "content": [block]}
            told = {"type": "user", "uuid": f"u{number}", "sessionId": "s", "message": message}
            out.write(json.dumps(told) + "\n")
    tracemalloc.start()
    imported(store, file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < file.stat().st_size / 4


def test_calls_without_an_end_are_ended_a_transaction_at_a_time(
    store: AuditStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, appended = SqlEventLog.append, list[int]()

    def counting(log: SqlEventLog, drafts: Sequence[Draft]) -> Sequence[Event]:
        appended.append(len(drafts))
        return append(log, drafts)

    [asked] = [line for line in CLAUDE.read_bytes().splitlines() if _asks(line, "toolu_2")]
    file = tmp_path / "t.jsonl"
    file.write_bytes(b"\n".join(asked.replace(b"toolu_2", b"toolu_2_%d" % n) for n in range(50)))
    monkeypatch.setattr("loom_audit.history.told.importing.AT_ONCE", 8)
    monkeypatch.setattr(SqlEventLog, "append", counting)
    done, workspace = imported(store, file)
    assert done.calls == 50 and not workspace.timeline.open_calls()
    assert max(appended) <= 8 + 1


def test_calls_whose_ids_differ_in_what_cannot_be_seen_are_each_on_record(
    store: AuditStore, tmp_path: Path
) -> None:
    [asked] = [line for line in CLAUDE.read_bytes().splitlines() if _asks(line, "toolu_2")]
    tool = f"mcp__{'a' * 60}__read"
    file = tmp_path / "t.jsonl"
    ids = (b"toolu_\\u0001", b"toolu_\\u0002")
    lines = [asked.replace(b"toolu_2", id).replace(b'"Write"', f'"{tool}"'.encode()) for id in ids]
    file.write_bytes(b"\n".join(lines))
    done, workspace = imported(store, file)
    assert done.calls == 2 == len({call.call_id for call in calls(workspace)})
    assert {call.tool for call in calls(workspace)} == {tool}


def test_subagents_are_sessions_of_the_one_they_work_for(store: AuditStore) -> None:
    done, workspace = imported(store, RECORDINGS / "claude-code/viewer.jsonl")
    started = workspace.log.read(EventFilter(kinds=("session.started",)))
    parents = {event.session: event.fact.parent for event in started}
    main = "5c0375b4-57a5-4f26-b12d-d022ee4e51b7"
    assert set(done.sessions) == set(parents)
    assert sorted(str(parent) for parent in parents.values()) == [main, main, "None"]


def test_what_is_not_a_transcript_is_refused(store: AuditStore, tmp_path: Path) -> None:
    for content in (b"", b"hello", b"\x00\xff", b'{"a": 1}\n', b"[]"):
        file = tmp_path / "x.jsonl"
        file.write_bytes(content)
        with pytest.raises(InvalidArguments):
            import_file(store, file)
    with pytest.raises(InvalidArguments):
        import_file(store, CLAUDE, origin_of(CLAUDE, "codex"))
    assert not store.workspaces()


def test_every_text_of_a_prompt_is_on_record_and_each_once(
    store: AuditStore, tmp_path: Path
) -> None:
    texts = [{"type": "text", "text": text} for text in ("look here", "and here", "look here")]
    told = {
        "type": "user",
        "sessionId": "s",
        "cwd": "/w",
        "promptId": "p",
        "message": {"content": texts},
    }
    file = tmp_path / "t.jsonl"
    file.write_text(json.dumps(told))
    _, workspace = imported(store, file)
    prompts = workspace.log.read(EventFilter(kinds=("prompt.submitted",)))
    assert [event.fact.text for event in prompts] == ["look here", "and here"]
