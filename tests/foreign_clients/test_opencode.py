"""opencode as it was recorded; what is expected was written down from the recordings by hand."""

import json

import pytest
from msgspec import UNSET

from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import (
    CallBegan,
    CallEnded,
    FileTold,
    MessageTold,
    PromptTold,
    SessionTold,
    TurnEnded,
    Verdict,
)
from tests.foreign_clients.recordings import (
    RECORDINGS,
    began,
    hook,
    hooks,
    of_kind,
    outcomes,
    read,
    told,
)

PROJECT = "/home/dev/oc_ws"
ASKED = [
    ("call_0", "write", "write", (f"{PROJECT}/a.txt",)),
    ("call_1", "edit", "write", (f"{PROJECT}/a.txt",)),
    ("call_2", "edit", "write", (f"{PROJECT}/a.txt",)),
    ("call_3", "bash", "execute", None),
    ("call_4", "read", "read", None),
]
ENDED = {
    "call_0": ("ok", None),
    "call_1": ("ok", None),
    "call_2": ("error", None),
    "call_3": ("error", 3),
    "call_4": ("ok", None),
}
DIFF = "@@ -1,1 +1,1 @@\n-hello\n+hello world\n"


def export() -> list[bytes]:
    return [(RECORDINGS / "opencode/export.json").read_bytes()]


def test_an_export_tells_every_call_and_how_it_ended() -> None:
    reports, unread = read("opencode", export())
    calls = of_kind(reports, CallBegan)
    assert [(c.call_id, c.tool, c.effect, c.paths) for c in calls] == ASKED
    assert outcomes(reports) == {call: [how] for call, how in ENDED.items()}
    assert {c.cwd for c in calls} == {PROJECT}
    assert [p.text for p in of_kind(reports, PromptTold)] == ['"please edit"']
    assert [m.text for m in of_kind(reports, MessageTold)] == ["done"]
    assert not unread


def test_the_plugin_tells_the_same_and_an_error_by_an_event() -> None:
    found = hooks("opencode", "opencode/plugin-events.jsonl")
    reports = [report for one in found for report in one.reports]
    assert [(c.call_id, c.tool, c.effect, c.paths) for c in began(reports).values()] == ASKED
    assert {call: how[0] for call, how in outcomes(reports).items()} == ENDED
    assert all(len(set(how)) == 1 for how in outcomes(reports).values())
    failed = [one for one in found if one.name == "message.part.updated"]
    failed = [one for one in failed if "call_2" in outcomes(one.reports)]
    assert [one.moment for one in failed] == ["after"]
    assert [p.text for p in of_kind(reports, PromptTold)] == ['"please edit"']
    assert [m.text for m in of_kind(reports, MessageTold)] == ["done"]
    assert len(of_kind(reports, TurnEnded)) == 1


def test_files_are_told_as_far_as_the_export_has_them() -> None:
    files = {e.call_id: e.files for e in of_kind(read("opencode", export())[0], CallEnded)}
    assert files["call_0"] == (FileTold(f"{PROJECT}/a.txt", None, "hello\n"),)
    assert files["call_1"] == (FileTold(f"{PROJECT}/a.txt", UNSET, UNSET, DIFF),)
    assert files["call_2"] == files["call_3"] == ()


def test_both_contents_of_older_releases_are_told() -> None:
    filediff = {"file": "/w/a", "before": "x\n", "after": "y\n"}
    one = hook(
        "opencode",
        hook_event_name="tool.execute.after",
        input={"tool": "edit", "sessionID": "s", "callID": "c", "args": {"filePath": "/w/a"}},
        output={"output": "done", "metadata": {"filediff": filediff}},
    )
    assert told(one, CallEnded).files == (FileTold("/w/a", "x\n", "y\n"),)


def test_a_child_session_names_its_parent() -> None:
    info = {"id": "child", "parentID": "main", "directory": "/w"}
    one = hook(
        "opencode",
        hook_event_name="event",
        session_id="child",
        cwd="/w",
        event={"type": "session.created", "properties": {"sessionID": "child", "info": info}},
    )
    assert told(one, SessionTold).parent == "main" and one.moment == "session"


def failed(error: str) -> str | None:
    state = {"status": "error", "input": {}, "error": error, "time": {"start": 1, "end": 2}}
    part = {"type": "tool", "tool": "bash", "callID": "c", "state": state}
    event = {"type": "message.part.updated", "properties": {"sessionID": "s", "part": part}}
    one = hook("opencode", hook_event_name="event", event=event)
    return told(one, CallEnded).status


def test_a_tool_that_a_person_denied_or_stopped_did_not_fail() -> None:
    assert failed("The user rejected permission to use this specific tool call.") == "denied"
    assert failed("Tool execution aborted") == "cancelled"
    assert failed("no such file") == "error"


@pytest.mark.parametrize(
    ("exit", "tail", "status"),
    [
        (None, "\n\n<bash_metadata>\nUser aborted the command\n</bash_metadata>", "cancelled"),
        (None, "\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>", "cancelled"),
        (
            None,
            "\n\n<shell_metadata>\nshell tool terminated command after exceeding timeout 9 ms."
            "\n</shell_metadata>",
            "timeout",
        ),
        (None, "<shell_metadata>\nUser aborted the command\n</shell_metadata>\nof a file", "ok"),
        (0, "\n\n<bash_metadata>\nUser aborted the command\n</bash_metadata>", "ok"),
        (None, "User aborted the command", "ok"),
    ],
)
def test_a_command_that_esc_stopped_is_cancelled_where_opencode_itself_says_so(
    exit: int | None, tail: str, status: str
) -> None:
    state = {
        "status": "completed",
        "input": {"command": "sleep 60"},
        "output": f"begun{tail}",
        "metadata": {"exit": exit},
        "time": {"start": 1, "end": 2},
    }
    part = {"type": "tool", "tool": "bash", "callID": "c", "state": state}
    event = {"type": "message.part.updated", "properties": {"sessionID": "s", "part": part}}
    assert told(hook("opencode", hook_event_name="event", event=event), CallEnded).status == status


def test_the_plugin_is_answered_only_what_was_decided() -> None:
    answer = CLIENTS["opencode"].answer
    before = hook("opencode", hook_event_name="tool.execute.before", session_id="s")
    assert answer(before, None) == b""
    denied = {"decision": "deny", "reason": "not now"}
    assert json.loads(answer(before, Verdict("deny", "not now"))) == denied
    changed = Verdict("allow", arguments={"command": "ls"})
    assert json.loads(answer(before, changed)) == {
        "decision": "allow",
        "arguments": {"command": "ls"},
    }
    after = hook("opencode", hook_event_name="tool.execute.after", session_id="s")
    assert answer(after, Verdict("deny", "too late")) == b""
