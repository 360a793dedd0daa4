"""Gemini CLI as it was recorded; what is expected was written down from the recordings by hand."""

import json

from loom_audit.clients.gemini import tail_of
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import (
    CallBegan,
    CallEnded,
    FileTold,
    MessageTold,
    PromptTold,
    SessionOver,
    SessionTold,
    Verdict,
)
from tests.foreign_clients.recordings import hook, hooks, lines, of_kind, outcomes, read, told

PROJECT = "/home/dev/projects/gemini"
ENDED = [
    ("read_file", "ok", None),
    ("replace", "ok", None),
    ("write_file", "ok", None),
    ("replace", "error", None),
    ("run_shell_command", "error", 3),
    ("run_shell_command", "running", None),
    ("run_shell_command", "ok", 0),
    ("run_shell_command", "ok", 0),
    ("write_file", "ok", None),
]


def ends(found: list[CallEnded]) -> list[tuple[str, str | None, int | None]]:
    return [(e.tool, e.status, e.result["data"].get("exit_code")) for e in found]


def test_a_session_file_tells_every_call_once_and_how_it_ended() -> None:
    reports, unread = read("gemini", lines("gemini/session.jsonl"))
    calls = of_kind(reports, CallBegan)
    assert [(c.tool, c.effect) for c in calls] == [
        ("read_file", "read"),
        ("replace", "write"),
        ("write_file", "write"),
        ("replace", "write"),
        ("run_shell_command", "execute"),
        ("run_shell_command", "execute"),
        ("run_shell_command", "execute"),
        ("run_shell_command", "execute"),
        ("write_file", "write"),
    ]
    assert calls[1].paths == (f"{PROJECT}/notes.txt",) and calls[1].cwd == PROJECT
    assert ends(of_kind(reports, CallEnded)) == ENDED
    assert len(set(outcomes(reports))) == 9
    assert not unread


def test_hooks_tell_the_same_without_ids() -> None:
    found = hooks("gemini", "gemini/hooks.jsonl")
    reports = [report for one in found for report in one.reports]
    assert ends(of_kind(reports, CallEnded)) == ENDED
    assert {c.call_id for c in of_kind(reports, CallBegan)} == {""}
    assert [p.text for p in of_kind(reports, PromptTold)] == ["please edit"]
    assert told(found[-1], SessionOver).reason == "exit"
    moments = ["session", "prompt", *["before", "after"] * 9, "stop", "end"]
    assert [one.moment for one in found] == moments
    assert not [one.unread for one in found if one.unread]


def test_what_a_command_left_running_is_named_by_its_processes() -> None:
    for reports in (
        read("gemini", lines("gemini/session.jsonl"))[0],
        [r for one in hooks("gemini", "gemini/hooks.jsonl") for r in one.reports],
    ):
        left = [e.background for e in of_kind(reports, CallEnded)]
        assert left == [(), (), (), (), (), ("11333",), (), (), ()]


def test_files_are_told_as_they_were_before_and_after() -> None:
    reports, _ = read("gemini", lines("gemini/session.jsonl"))
    files = [e.files for e in of_kind(reports, CallEnded)]
    notes, new = f"{PROJECT}/notes.txt", f"{PROJECT}/sub/new.txt"
    assert files[1] == (FileTold(notes, "one\ntwo\nthree\n", "one\nTWO\nthree\n"),)
    assert files[2] == (FileTold(new, None, "new file\n"),)
    assert files[3] == ()
    assert files[8] == (FileTold(new, "new file\n", "newer file\n"),)


def test_the_directory_is_told_by_the_first_message_which_is_not_a_prompt() -> None:
    reports, _ = read("gemini", lines("gemini/session.jsonl"))
    assert [s.cwd for s in of_kind(reports, SessionTold)] == ["", PROJECT]
    assert [p.text for p in of_kind(reports, PromptTold)] == ["please edit"]
    assert [m.text for m in of_kind(reports, MessageTold)] == ["done"]


def test_the_one_object_that_older_releases_wrote_is_read_too() -> None:
    head, *rest = [json.loads(line) for line in lines("gemini/session-small.jsonl")]
    messages = {r["id"]: r for r in rest if "id" in r}
    whole = json.dumps({**head, "messages": [*messages.values()]}).encode()
    reports, unread = read("gemini", [whole])
    assert outcomes(reports) == {
        "write_file__call_0": [("ok", None)],
        "replace__call_1": [("ok", None)],
        "replace__call_2": [("error", None)],
        "run_shell_command__call_3": [("error", 3)],
        "read_file__call_4": [("ok", None)],
    }
    assert not unread


def test_an_exit_code_in_the_output_of_a_command_is_not_its_exit_code() -> None:
    told = tail_of("Output: Exit Code: 7\nfine\nExit Code: 3\nProcess Group PGID: 1")
    assert told.exit_code == 3
    assert tail_of("Output: x\nExit Code: 7\nthe end").exit_code is None
    assert tail_of("Command moved to background (PID: 77). Output hidden.").background == ("77",)


def test_only_a_call_is_answered_and_only_when_somebody_decided() -> None:
    answer = CLIENTS["gemini"].answer
    before = hook("gemini", session_id="s", hook_event_name="BeforeTool")
    assert answer(before, None) == b""
    denied = {"decision": "deny", "reason": "not now"}
    assert json.loads(answer(before, Verdict("deny", "not now"))) == denied
    assert json.loads(answer(before, Verdict("allow"))) == {"decision": "allow"}
    changed = json.loads(answer(before, Verdict("allow", arguments={"command": "ls"})))
    assert changed["hookSpecificOutput"]["tool_input"] == {"command": "ls"}
    prompt = hook("gemini", session_id="s", hook_event_name="BeforeAgent")
    assert answer(prompt, Verdict("deny", "not now")) == b""


def test_a_call_that_a_hook_blocked_was_denied() -> None:
    blocked = {"llmContent": "Tool execution blocked: held", "error": {"message": "held"}}
    one = hook(
        "gemini",
        session_id="s",
        hook_event_name="AfterTool",
        tool_name="write_file",
        tool_input={},
        tool_response=blocked,
    )
    assert told(one, CallEnded).status == "denied"
    answer = {"functionResponse": {"response": {"error": "Tool execution blocked: held"}}}
    call = {"id": "c", "name": "write_file", "args": {}, "status": "error", "result": [answer]}
    found = [
        {"sessionId": "s", "projectHash": "0"},
        {"id": "m", "type": "gemini", "content": "", "toolCalls": [call]},
    ]
    reports, _ = read("gemini", [json.dumps(one).encode() for one in found])
    assert outcomes(reports) == {"c": [("denied", None)]}
