"""`loom-audit find`: words wherever they stand, on the command line."""

import pytest

from loom_audit.api.agents.said import tell_message, tell_prompt
from loom_audit.api.face import open_store
from tests.cli.shells import Shell


def say(audited: Shell, prompt: str, message: str) -> str:
    with open_store(f"sqlite:///{audited.database}") as store:
        session = store.workspace(str(audited.workspace)).session("talker")
        with session:
            tell_prompt(session, prompt)
            tell_message(session, message)
    return session.id


def test_words_are_found_in_prompts_messages_calls_and_what_came_from_outside(
    audited: Shell,
) -> None:
    session = say(audited, "Build the zeppelin, please.", "It flies, \x1b[31mthe zeppelin.")
    audited.call("write_file", path="zeppelin.txt", content="hydrogen\n")
    (audited.workspace / "zeppelin-by-hand.txt").write_text("x")
    audited.call("shell_execute", command="cat zeppelin.txt")
    found = audited.records("find", "zeppelin")
    assert [one["kind"] for one in found] == ["call", "outside", "call", "message", "prompt"]
    assert [one["kind"] for one in audited.records("find", "zepp", "-n", "2")] == [
        "call",
        "outside",
    ]
    assert [one["title"] for one in audited.records("find", "zeppelin", "--kind", "prompt")] == [
        "Build the zeppelin, please."
    ]
    assert {one["session"] for one in found[3:]} == {session}
    assert audited.records("find", "hydrogen", "zeppelin")[-1]["tool"] == "write_file"
    assert audited.records("find", "zeppelin", "--tool", "shell_execute") == found[:1]
    assert audited.records("find", "zeppelin", "--session", session[:6]) == found[3:]
    early = audited.records("find", "zeppelin", "--to", str(found[3]["seq"]))
    assert early == found[3:]
    shown = audited("find", "zeppelin").text
    assert "message" in shown and "\x1b[31m" not in shown and "\\x1b[31m" in shown
    assert "nothing says that" in audited("find", "absent").errors


@pytest.mark.parametrize("words", [("x", "--kind", "call.requested"), ("x", "--status", "fine")])
def test_a_choice_that_there_is_not_is_refused(audited: Shell, words: tuple[str, ...]) -> None:
    assert "There are:" in audited("find", *words, code=2).errors
