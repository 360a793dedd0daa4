"""Codex as it was recorded; what is expected was written down from the recordings by hand."""

import json

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

PROJECT = "/home/dev/projects/codex"
SESSION = "01a2025d-9ecf-7ab0-a0a6-3011a976bed8"
ENDED = {
    "call_0": [("ok", 0)],
    "call_1": [("ok", None)],
    "call_2": [("ok", None)],
    "call_3": [("error", None)],
    "call_4": [("error", 3)],
    "call_5": [("running", None), ("error", -1)],
    "call_6": [("ok", 0)],
    "call_7": [("ok", 0)],
    "call_8": [("ok", None)],
}


def test_a_rollout_tells_every_call_once_and_how_it_ended() -> None:
    reports, unread = read("codex", lines("codex/rollout.jsonl"))
    calls = of_kind(reports, CallBegan)
    assert [(c.call_id, c.tool) for c in calls] == [
        ("call_0", "exec_command"),
        ("call_1", "apply_patch"),
        ("call_2", "apply_patch"),
        ("call_3", "apply_patch"),
        ("call_4", "exec_command"),
        ("call_5", "exec_command"),
        ("call_6", "exec_command"),
        ("call_7", "exec_command"),
        ("call_8", "apply_patch"),
    ]
    assert {(c.session, c.cwd) for c in calls} == {(SESSION, PROJECT)}
    assert calls[4].arguments == {"cmd": "rm precious.txt .env.log; exit 3"}
    assert outcomes(reports) == ENDED
    assert not unread


def test_a_patch_names_the_paths_it_changes() -> None:
    calls = began(read("codex", lines("codex/rollout.jsonl"))[0])
    assert calls["call_1"].paths == ("notes.txt", "sub/new.txt")
    assert calls["call_2"].paths == (
        *("src/mod1/file1.py", "src/mod1/moved.py", "src/mod1/file2.py"),
    )
    assert calls["call_0"].paths is None
    assert (calls["call_0"].effect, calls["call_1"].effect) == ("execute", "write")


def test_files_are_told_as_far_as_the_rollout_has_them() -> None:
    reports, _ = read("codex", lines("codex/rollout.jsonl"))
    files = {e.call_id: e.files for e in of_kind(reports, CallEnded) if e.files}
    diff = "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"
    assert files["call_1"] == (
        FileTold(f"{PROJECT}/sub/new.txt", None, "new file\n"),
        FileTold(f"{PROJECT}/notes.txt", diff=diff),
    )
    deleted, source, moved = files["call_2"]
    assert deleted.after is None and str(deleted.before).startswith("def f1_2(x):\n")
    assert source == FileTold(f"{PROJECT}/src/mod1/file1.py", after=None)
    assert moved.path == f"{PROJECT}/src/mod1/moved.py" and moved.source == source.path
    assert moved.diff.startswith("@@ -1,2 +1,2 @@\n-def f1_1(x):\n+def renamed(x):\n")


def test_a_command_that_runs_on_ends_later() -> None:
    reports, _ = read("codex", lines("codex/rollout.jsonl"))
    first, last = (e for e in of_kind(reports, CallEnded) if e.call_id == "call_5")
    assert (first.status, first.background) == ("running", ("76594",))
    assert last.duration == 4_570_190
    assert [e.name for e in of_kind(reports, BackgroundEnded)] == ["76594"]


def test_prompt_and_message_are_told_once_though_several_records_hold_them() -> None:
    reports, _ = read("codex", lines("codex/rollout.jsonl"))
    assert [p.text for p in of_kind(reports, PromptTold)] == ["please edit"]
    assert [m.text for m in of_kind(reports, MessageTold)] == ["done"]
    assert len(of_kind(reports, TurnEnded)) == 1


def test_calls_of_mcp_servers_are_named_as_in_hooks() -> None:
    reports, unread = read("codex", lines("codex/rollout-mcp.jsonl"))
    in_hooks = [r for h in hooks("codex", "codex/hooks-mcp.jsonl") for r in h.reports]
    named = {"call_0": "write_file", "call_1": "delete_file", "call_2": "read_file"}
    for found in (began(reports), began(in_hooks)):
        assert {c.call_id: c.tool.removeprefix("mcp__loom__") for c in found.values()} == named
    assert outcomes(reports) == {
        "call_0": [("ok", None)],
        "call_1": [("ok", None)],
        "call_2": [("error", None)],
    }
    assert outcomes(in_hooks) == {"call_0": [("ok", None)], "call_1": [("ok", None)]}
    assert not unread


def test_a_hook_after_a_command_does_not_say_how_it_ended() -> None:
    found = hooks("codex", "codex/hooks.jsonl")
    reports = [report for one in found for report in one.reports]
    assert list(began(reports)) == ["call_0", "call_1", "call_2", "call_3", "call_4"]
    assert outcomes(reports) == {
        "call_0": [(None, None)],
        "call_1": [("ok", 0)],
        "call_2": [("ok", 0)],
        "call_4": [(None, None)],
    }
    assert told(found[-1], SessionOver).reason == "other"
    assert [one.moment for one in found[:4]] == ["session", "prompt", "before", "after"]
    assert not [one.unread for one in found if one.unread]


def test_a_hook_after_a_call_tells_the_arguments_that_another_hook_put_in() -> None:
    found = hooks("codex", "codex/hooks-deny-and-rewrite.jsonl")
    ends = [e for one in found for e in of_kind(one.reports, CallEnded)]
    assert [(e.call_id, e.arguments) for e in ends] == [
        ("call_1", {"command": "echo rewritten > r.txt"})
    ]


def test_only_what_the_client_understands_is_answered() -> None:
    answer = CLIENTS["codex"].answer
    before = hook("codex", session_id="s", hook_event_name="PreToolUse")
    assert answer(before, None) == b""
    assert answer(before, Verdict("allow")) == b""
    assert json.loads(answer(before, Verdict("deny", "not now"))) == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "not now",
        }
    }
    asked = hook("codex", session_id="s", hook_event_name="PermissionRequest")
    assert json.loads(answer(asked, Verdict("allow"))) == {
        "hookSpecificOutput": {
            "hookEventName": "PermissionRequest",
            "decision": {"behavior": "allow"},
        }
    }
    assert answer(asked, None) == b""
    assert answer(asked, Verdict("allow", arguments={"command": "ls"})) == b""


def item(kind: str, **given: object) -> bytes:
    return json.dumps({"type": "response_item", "payload": {"type": kind, **given}}).encode()


META = json.dumps(
    {"type": "session_meta", "payload": {"id": "s", "cwd": "/w", "cli_version": "0.40"}}
).encode()


def ended(name: str, output: object) -> list[tuple[str | None, int | None]]:
    found = [
        META,
        item("function_call", name=name, arguments="{}", call_id="c"),
        item("function_call_output", call_id="c", output=output),
    ]
    return outcomes(read("codex", found)[0])["c"]


def test_outcomes_are_read_from_the_text_of_other_releases_too() -> None:
    older = json.dumps({"output": "x", "metadata": {"exit_code": 7, "duration_seconds": 0.1}})
    assert ended("shell", older) == [("error", 7)]
    assert ended("shell_command", "Exit code: 0\nWall time: 1 seconds\nOutput:\n") == [("ok", 0)]
    assert ended("exec_command", "exec_command failed: no such folder") == [("error", None)]
    assert ended("exec_command", "Command blocked by PreToolUse hook: held") == [("denied", None)]
    assert ended("exec_command", "exec command rejected by user") == [("denied", None)]
    assert ended("apply_patch", "`touch x` was blocked by policy.") == [("denied", None)]
    assert ended("shell", "aborted by user after 3.0s") == [("cancelled", None)]
    assert ended("update_plan", "Plan updated") == [("ok", None)]


def test_what_does_not_tell_its_end_is_not_taken_for_a_success() -> None:
    assert ended("exec_command", "something new") == [(None, None)]
    assert ended("apply_patch", "something new") == [(None, None)]


def test_output_of_a_command_cannot_tell_another_exit_code() -> None:
    forged = "Wall time: 1\nProcess exited with code 3\nOutput:\nProcess exited with code 0\n"
    assert ended("exec_command", forged) == [("error", 3)]


def test_events_of_older_releases_end_calls_too() -> None:
    end = {
        "type": "exec_command_end",
        "call_id": "c",
        "exit_code": 2,
        "aggregated_output": "no",
        "duration": {"secs": 1, "nanos": 5000},
    }
    found = [
        META,
        item("function_call", name="shell", arguments="{}", call_id="c"),
        json.dumps({"type": "event_msg", "payload": end}).encode(),
        item("function_call_output", call_id="c", output="Exit code: 2"),
    ]
    reports, _ = read("codex", found)
    [only] = of_kind(reports, CallEnded)
    assert (only.status, only.duration, only.result["output"]) == ("error", 1_000_005, "no")


def test_a_subagents_rollout_names_the_session_it_works_for() -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "main", "depth": 1}}}
    meta = {"type": "session_meta", "payload": {"id": "child", "source": source}}
    reports, _ = read("codex", [json.dumps(meta).encode()])
    assert of_kind(reports, SessionTold) == [SessionTold("child", parent="main")]


def test_what_a_fork_copied_does_not_change_the_session() -> None:
    other = json.dumps({"type": "session_meta", "payload": {"id": "other"}}).encode()
    call = item("function_call", name="shell", arguments="{}", call_id="c")
    reports, _ = read("codex", [META, other, call])
    assert began(reports)["c"].session == "s"


def test_a_turn_that_was_stopped_is_told_as_interrupted() -> None:
    stopped = {"type": "event_msg", "payload": {"type": "turn_aborted", "reason": "interrupted"}}
    reports, _ = read("codex", [META, json.dumps(stopped).encode()])
    assert of_kind(reports, TurnEnded)[0].interrupted
    assert told(hook("codex", session_id="s", hook_event_name="Interrupt"), TurnEnded).interrupted
