"""Claude Code as it was recorded; what is expected was written down from the recordings by hand."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from msgspec import UNSET

from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import (
    BackgroundEnded,
    CallBegan,
    CallEnded,
    FileTold,
    MessageTold,
    PromptTold,
    SessionOver,
    SessionTold,
    TurnEnded,
    Verdict,
)
from loom_audit.errors import InvalidArguments
from tests.foreign_clients.recordings import (
    began,
    hook,
    hooks,
    lines,
    of_kind,
    outcomes,
    read,
    told,
)

SESSION = "17303078-608f-46fb-acbc-ba6db18b1279"
PROJECT = "/home/dev/projects/claude"
ASKED = [
    ("toolu_0", "Read", "read", None),
    ("toolu_1", "Edit", "write", (f"{PROJECT}/notes.txt",)),
    ("toolu_2", "Write", "write", (f"{PROJECT}/sub/new.txt",)),
    ("toolu_3", "Edit", "write", (f"{PROJECT}/notes.txt",)),
    ("toolu_4", "Bash", "execute", None),
    ("toolu_5", "Bash", "execute", None),
    ("toolu_6", "Bash", "execute", None),
    ("toolu_7", "Bash", "execute", None),
    ("toolu_8", "Write", "write", (f"{PROJECT}/sub/other.txt",)),
]
"""What the scripted model asked for, in its order."""

ENDED = {
    "toolu_0": [("ok", None)],
    "toolu_1": [("ok", None)],
    "toolu_2": [("ok", None)],
    "toolu_3": [("error", None)],
    "toolu_4": [("error", 3)],
    "toolu_5": [("running", None)],
    "toolu_6": [("ok", 0)],
    "toolu_7": [("ok", 0)],
    "toolu_8": [("ok", None)],
}


def test_a_transcript_tells_every_call_that_the_model_asked_for_and_how_it_ended() -> None:
    reports, unread = read("claude-code", lines("claude-code/session.jsonl"))
    calls = of_kind(reports, CallBegan)
    assert [(c.call_id, c.tool, c.effect, c.paths) for c in calls] == ASKED
    assert {(c.session, c.cwd) for c in calls} == {(SESSION, PROJECT)}
    assert outcomes(reports) == ENDED
    assert not unread


def test_a_transcript_tells_prompts_messages_and_the_end_of_background_work() -> None:
    reports, _ = read("claude-code", lines("claude-code/session.jsonl"))
    [prompt] = of_kind(reports, PromptTold)
    assert prompt.text == "please edit"
    assert prompt.at == datetime(2026, 11, 22, 9, 0, 24, 467000, UTC)
    told_texts = [(m.text, m.thinking) for m in of_kind(reports, MessageTold) if not m.notice]
    assert told_texts == [("done", False)] * 2
    assert {end.name for end in of_kind(reports, BackgroundEnded)} == {"b3xk6mpfg"}
    assert of_kind(reports, SessionTold)[-1].cwd == PROJECT
    assert of_kind(reports, SessionTold)[-1].version == "2.1.328"


def test_files_are_told_as_they_were_before_and_after() -> None:
    reports, _ = read("claude-code", lines("claude-code/session.jsonl"))
    ends = {end.call_id: end.files for end in of_kind(reports, CallEnded)}
    before, after = "one\ntwo\nthree\n", "one\nTWO\nthree\n"
    assert ends["toolu_1"] == (FileTold(f"{PROJECT}/notes.txt", before, after),)
    assert ends["toolu_2"] == (FileTold(f"{PROJECT}/sub/new.txt", None, "new file\n"),)
    assert ends["toolu_3"] == ends["toolu_4"] == ()
    late, notes, *deleted = ends["toolu_7"]
    assert late == FileTold(f"{PROJECT}/late.txt", None, UNSET, "@@ -1,0 +1,1 @@\n+late\n")
    assert notes.path == f"{PROJECT}/notes.txt" and notes.diff.endswith(" three\n+four\n")
    assert [file.after for file in deleted[:3]] == [None, None, None]
    assert len(ends["toolu_7"]) == 5 + 27


def test_hooks_tell_every_call_but_the_edit_that_was_refused_before_it_ran() -> None:
    found = hooks("claude-code", "claude-code/hooks.jsonl")
    reports = [report for one in found for report in one.reports]
    assert list(began(reports)) == [call for call, *_ in ASKED if call != "toolu_3"]
    assert outcomes(reports) == {call: how for call, how in ENDED.items() if call != "toolu_3"}
    assert [one.moment for one in found[:4]] == ["session", "prompt", "before", "after"]
    assert [one.moment for one in found[-4:]] == ["stop", "prompt", "stop", "end"]
    assert {one.session for one in found} == {SESSION}
    assert not [one.unread for one in found if one.unread]


def test_a_hook_tells_arguments_as_they_ran_and_how_long_a_call_took() -> None:
    *_, edited = [h for h in hooks("claude-code", "claude-code/hooks.jsonl")[:6] if h.reports]
    end = told(edited, CallEnded)
    assert end.arguments["new_string"] == "TWO" and end.duration == 13_000
    assert end.files == (
        FileTold(f"{PROJECT}/notes.txt", "one\ntwo\nthree\n", "one\nTWO\nthree\n"),
    )


def test_the_end_of_background_work_is_not_taken_for_a_prompt() -> None:
    found = hooks("claude-code", "claude-code/hooks.jsonl")
    prompts = [p.text for one in found for p in of_kind(one.reports, PromptTold)]
    assert prompts == ["please edit"]
    assert told(found[19], BackgroundEnded).name == "b3xk6mpfg"
    notice = told(found[19], MessageTold)
    assert notice.notice and "completed (exit code 0)" in notice.text
    assert told(found[18], TurnEnded).background == ("b3xk6mpfg",)
    assert told(found[20], TurnEnded).background == ()
    assert told(found[21], SessionOver).reason == "other"


def test_a_subagent_written_into_the_transcript_of_its_session_is_a_session_of_its_own() -> None:
    reports, unread = read("claude-code", lines("claude-code/viewer.jsonl"))
    main = "5c0375b4-57a5-4f26-b12d-d022ee4e51b7"
    sessions = {s.session: s.parent for s in of_kind(reports, SessionTold)}
    first, second = (
        f"{main}.6340ddef-f656-4b72-a065-82390f637678",
        (f"{main}.83e2917c-8940-4df6-a5a5-f2514f0d08c5"),
    )
    assert sessions == {main: "", first: main, second: main}
    calls = of_kind(reports, CallBegan)
    assert [c.tool for c in calls if c.session == first] == ["Glob", "Read"]
    assert [c.tool for c in calls if c.session == second] == [*["Bash"] * 4, "Read", "Bash"]
    assert len(calls) == 21 and set(outcomes(reports)) == {c.call_id for c in calls}
    failed = [call for call, [(status, _)] in outcomes(reports).items() if status != "ok"]
    assert failed == [
        "toolu_018t5jce2ZNoGr2ADsHGQife",
        "toolu_01KDiLyJT1VsszVhG4d3p6jV",
        "toolu_019ctBEHhLKehUi4xPDkYwvc",
    ]
    assert not unread


def test_several_edits_of_one_call_lead_to_one_content() -> None:
    reports, _ = read("claude-code", lines("claude-code/viewer.jsonl"))
    [edited] = [e for e in of_kind(reports, CallEnded) if e.tool == "MultiEdit"]
    [file] = edited.files
    assert isinstance(file.before, str) and isinstance(file.after, str)
    assert "Next.js 14" in file.before and "Next.js 15.5.2" in file.after


def test_a_session_with_few_fields_is_read_too() -> None:
    reports, _ = read("claude-code", lines("claude-code/sample.jsonl"))
    assert [p.text for p in of_kind(reports, PromptTold)] == [
        "Create a hello world function",
        "Now add a goodbye function",
    ]
    assert outcomes(reports) == {"toolu_001": [("ok", None)], "toolu_002": [("ok", 0)]}


SUBAGENT = {
    "session_id": "s1",
    "agent_id": "a1",
    "agent_type": "Explore",
    "cwd": "/w",
    "transcript_path": "/home/dev/.claude/projects/w/s1.jsonl",
}


def test_a_subagents_hook_is_of_a_session_of_its_own_with_its_own_transcript() -> None:
    one = hook(
        "claude-code",
        **SUBAGENT,
        hook_event_name="PreToolUse",
        tool_name="Read",
        tool_use_id="t1",
        tool_input={"file_path": "/w/a"},
    )
    assert one.session == "s1.a1"
    assert one.transcript == "/home/dev/.claude/projects/w/s1/subagents/agent-a1.jsonl"
    assert told(one, SessionTold).parent == "s1"
    assert told(one, CallBegan).session == "s1.a1"


def test_a_subagents_transcript_is_of_the_same_session_as_its_hooks() -> None:
    record = {
        "type": "assistant",
        "sessionId": "s1",
        "agentId": "a1",
        "isSidechain": True,
        "message": {"content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]},
    }
    reports, _ = read("claude-code", [json.dumps(record).encode()])
    assert began(reports)["t1"].session == "s1.a1"


def test_an_unknown_hook_is_kept_as_another_moment() -> None:
    one = hook("claude-code", session_id="s", hook_event_name="BrandNew", wings=2)
    assert (one.name, one.moment, one.session) == ("BrandNew", "other", "s")
    assert one.unread == ("BrandNew.wings", "hook BrandNew")


@pytest.mark.parametrize("given", [b"", b"[]", b"3", b"{", b"\xff\xfe", b'"text"', b"null"])
def test_what_is_not_the_input_of_a_hook_is_refused(given: bytes) -> None:
    with pytest.raises(InvalidArguments):
        CLIENTS["claude-code"].read_hook(given)


def test_an_answer_is_empty_when_nobody_decided() -> None:
    answer = CLIENTS["claude-code"].answer
    for name in ("PreToolUse", "PermissionRequest", "Stop", "UserPromptSubmit", "BrandNew"):
        assert answer(hook("claude-code", session_id="s", hook_event_name=name), None) == b""


def test_a_decision_is_answered_in_the_words_of_the_client() -> None:
    answer = CLIENTS["claude-code"].answer
    before = hook("claude-code", session_id="s", hook_event_name="PreToolUse")
    assert json.loads(answer(before, Verdict("deny", "not now"))) == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "not now",
        }
    }
    changed = Verdict("allow", arguments={"command": "ls"})
    assert json.loads(answer(before, changed)) == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "updatedInput": {"command": "ls"},
        }
    }
    asked = hook("claude-code", session_id="s", hook_event_name="PermissionRequest")
    assert json.loads(answer(asked, Verdict("deny", "not now"))) == {
        "hookSpecificOutput": {
            "hookEventName": "PermissionRequest",
            "decision": {"behavior": "deny", "message": "not now"},
        }
    }
    after = hook("claude-code", session_id="s", hook_event_name="PostToolUse")
    assert answer(after, Verdict("deny", "too late")) == b""


def result(text: str, given: object = None, **record: object) -> str | None:
    """The status of a call whose result says this."""
    block = {"type": "tool_result", "tool_use_id": "t", "content": text, "is_error": True}
    said = {"type": "user", "sessionId": "s", "message": {"content": [block]}, **record}
    if given is not None:
        said["toolUseResult"] = given
    reports, _ = read("claude-code", [json.dumps(said).encode()])
    [end] = of_kind(reports, CallEnded)
    return end.status


def test_a_call_that_a_person_denied_or_stopped_did_not_fail() -> None:
    rejected = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    assert result(rejected, "User rejected tool use") == "denied"
    assert result("anything", permissionDecision={"decision": "reject"}) == "denied"
    abort = {"decision": "reject", "source": {"type": "user_abort"}}
    assert result("anything", permissionDecision=abort) == "cancelled"
    assert result("anything", toolDenialKind="permission-rule") == "denied"
    assert result("anything", toolDenialKind="interrupted") == "cancelled"
    rejected = "The user doesn't want to proceed with this tool use."
    assert result(rejected, toolDenialKind="user-rejected") == "cancelled"
    before = {"toolDenialKind": "user-rejected", "toolDenialBeforeRun": True}
    assert result(rejected, **before) == "denied"
    assert result("PreToolUse:Bash hook error: [x]: held") == "denied"
    assert result("[Request interrupted by user for tool use]") == "cancelled"
    assert result("partial", {"interrupted": True, "stdout": "", "stderr": ""}) == "cancelled"
    assert result("Command timed out after 2m 0.0s") == "timeout"
    assert result("Error: no such file", "Error: no such file") == "error"


@pytest.mark.parametrize(
    ("tool", "said", "ran"),
    [
        ("Edit", "<tool_use_error>String to replace not found in file.</tool_use_error>", False),
        ("Write", "<tool_use_error>File has not been read yet.</tool_use_error>", False),
        (
            "Bash",
            "<tool_use_error>InputValidationError: `command` is missing</tool_use_error>",
            False,
        ),
        ("Gone", "<tool_use_error>Error: No such tool available: Gone</tool_use_error>", False),
        ("Edit", "<tool_use_error>Error calling tool (Edit): EIO</tool_use_error>", True),
        ("Edit", "<tool_use_error>Cancelled: another call failed</tool_use_error>", True),
        ("Edit", "String to replace not found in file.", True),
        ("Bash", "<tool_use_error>it said so itself</tool_use_error>", True),
        ("Bash", "Exit code 1\n<tool_use_error>InputValidationError: x</tool_use_error>", True),
    ],
)
def test_a_call_did_not_run_only_where_the_transcript_proves_it(
    tool: str, said: str, ran: bool
) -> None:
    asked = {"type": "tool_use", "id": "t1", "name": tool, "input": {"file_path": "/p/a"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": said, "is_error": True}
    common = {"sessionId": "s", "cwd": "/p", "uuid": "u"}
    reader = CLIENTS["claude-code"].transcript()
    for kind, block in (("assistant", asked), ("user", result)):
        record = {"type": kind, "message": {"content": [block]}, **common}
        reports = reader.read(json.dumps(record).encode())
    [ended] = [report for report in reports if isinstance(report, CallEnded)]
    assert ended.status == "error" and ended.ran is ran


def test_an_interruption_ends_the_turn_and_is_not_a_prompt() -> None:
    said = {"content": [{"type": "text", "text": "[Request interrupted by user]"}]}
    record = {"type": "user", "sessionId": "s", "message": said}
    reports, _ = read("claude-code", [json.dumps(record).encode()])
    assert of_kind(reports, TurnEnded) == [TurnEnded("s", interrupted=True)]
    assert not of_kind(reports, PromptTold)


def test_what_the_client_writes_in_a_persons_name_is_not_a_prompt() -> None:
    meta = {"isMeta": True}, {"isCompactSummary": True}
    for flags in meta:
        record = {"type": "user", "sessionId": "s", "message": {"content": "summary"}, **flags}
        reports, _ = read("claude-code", [json.dumps(record).encode()])
        assert not of_kind(reports, PromptTold)


@pytest.mark.parametrize("status", ["completed", "running"])
def test_a_notice_of_the_client_is_told_once_and_is_not_a_prompt(status: str) -> None:
    text = f"<task-notification>\n<task-id>b1</task-id>\n<status>{status}</status>\n"
    text += "</task-notification>\nRead the output file to retrieve the result: /tmp/b1"
    records: list[dict[str, object]] = [
        {"type": "queue-operation", "operation": "enqueue", "content": text},
        {"type": "user", "uuid": "u", "promptId": "p", "message": {"content": text}},
    ]
    reports, _ = read(
        "claude-code", [json.dumps({"sessionId": "s", **one}).encode() for one in records]
    )
    assert of_kind(reports, MessageTold) == [MessageTold("s", text, "p", notice=True)]
    assert not of_kind(reports, PromptTold)
    assert bool(of_kind(reports, BackgroundEnded)) == (status == "completed")


def edited(response: Mapping[str, object]) -> FileTold:
    one = hook(
        "claude-code",
        session_id="s",
        hook_event_name="PostToolUse",
        tool_name="Edit",
        tool_use_id="t",
        tool_input={},
        tool_response={"filePath": "/w/a", **response},
    )
    [file] = told(one, CallEnded).files
    return file


def test_content_after_an_edit_is_told_only_where_it_follows() -> None:
    patch = [{"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1, "lines": ["-a", "+b"]}]
    plain = {"oldString": "a", "newString": "b", "originalFile": "a\na\n", "structuredPatch": patch}
    assert edited(plain).after == "b\na\n"
    assert edited({**plain, "replaceAll": True}).after == "b\nb\n"
    by_hand = edited({**plain, "userModified": True})
    assert by_hand.after is UNSET and by_hand.diff == "@@ -1,1 +1,1 @@\n-a\n+b\n"
    assert edited({**plain, "oldString": "z"}).after is UNSET
    longer = [{**patch[0], "newLines": 4}]
    assert edited({**plain, "structuredPatch": longer}).after is UNSET
    assert edited({**plain, "originalFile": None}).before is UNSET


def test_a_line_that_is_deleted_whole_leaves_no_empty_one() -> None:
    patch = [{"oldStart": 1, "oldLines": 2, "newStart": 1, "newLines": 1, "lines": [" a", "-b"]}]
    gone = {"oldString": "b", "newString": "", "originalFile": "a\nb\n", "structuredPatch": patch}
    assert edited(gone).after == "a\n"


def test_strange_lines_are_counted_by_their_kind() -> None:
    found = [b'{"type":"user"', b"[1]", b'{"type":"brand-new","sessionId":"s"}', b"\xff"]
    _, unread = read("claude-code", found)
    assert unread == {"torn line": 2, "line that is not an object": 1, "record brand-new": 1}


def test_text_that_is_half_a_character_is_told_with_a_mark() -> None:
    line = b'{"type":"user","sessionId":"s","message":{"content":"half \\ud83d and \xff"}}'
    reports, _ = read("claude-code", [line])
    [prompt] = of_kind(reports, PromptTold)
    assert prompt.text == "half \ufffd and \ufffd"
