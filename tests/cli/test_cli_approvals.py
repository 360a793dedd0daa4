"""Two people at two shells: a call waits in one process and is answered in another."""

import json
import os
import re
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from loom_audit.tools.approvals.policy import read_policy
from loom_audit.tools.calls.settings import tool_settings
from tests.cli.across.hostile import CORPUS
from tests.cli.shells import Shell, at_terminal
from tests.processes.forked import Forked

OVERWRITE = {"path": "a.txt", "content": "new\n"}


def rules(shell: Shell, text: str = "") -> None:
    folder = shell.home / "config"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "approvals.toml").write_text(text)


@pytest.fixture
def asking(audited: Shell) -> Shell:
    """A workspace whose rules leave it to the tools to ask."""
    rules(audited)
    return audited


class Waiting:
    """A `call` in a process of its own that is waiting for an answer."""

    def __init__(self, shell: Shell, tool: str = "write_file", **arguments: object) -> None:
        known = {one["seq"] for one in shell.records("approvals")}
        self.process = Forked(
            ["call", tool, json.dumps(arguments), "--json"],
            cwd=shell.workspace,
            env=shell.environment,
        )
        self.request = wait_for(shell, known, self.process)
        self.number = str(self.request["requested"])

    def result(self) -> dict[str, Any]:
        printed, errors = self.process.printed()
        assert printed, errors
        result: dict[str, Any] = json.loads(printed)
        return result


def wait_for(shell: Shell, known: set[int], process: Forked | None = None) -> dict[str, Any]:
    deadline = time.monotonic() + 60  # only so that a hang ends
    while time.monotonic() < deadline and not (process and process.ended()):
        new = [one for one in shell.records("approvals") if one["seq"] not in known]
        if new:
            return new[-1]
        time.sleep(0.05)
    raise AssertionError(process.printed() if process else "no call came to wait")


def test_a_call_waits_in_one_process_and_is_allowed_in_another(asking: Shell) -> None:
    waiting = Waiting(asking, **OVERWRITE)
    assert waiting.request["reason"] == "overwrites a.txt" and waiting.request["alive"]
    shown = asking("approvals", "show", waiting.number).text
    assert "-one" in shown and "+new" in shown and "write_file" in shown
    assert "a.txt" in asking("approvals").text
    assert (asking.workspace / "a.txt").read_text().startswith("one")
    asking("approve", waiting.number, "--reason", "fine")
    assert waiting.result()["success"]
    assert (asking.workspace / "a.txt").read_text() == "new\n"
    assert asking.records("approvals") == []
    again = asking("approve", waiting.number, code=5)
    assert "was allowed by person:" in again.errors
    assert "asks, question 1: overwrites a.txt" in asking("log", "--events").text


def test_a_call_that_waits_is_shown_with_the_commands_that_answer_it(asking: Shell) -> None:
    waiting = Waiting(asking, **OVERWRITE)
    shown = asking("show", waiting.number).text
    assert f"call {waiting.number}  write_file  waits for approval" in shown
    assert "because    overwrites a.txt" in shown
    assert f"`loom-audit approve {waiting.number}`" in shown
    assert f"`loom-audit deny {waiting.number}`" in shown
    for absent in ("open", "null", "result:", "coverage", " µs"):
        assert absent not in shown
    question = asking.records("show", waiting.number)[0]["question"]
    assert question["requested"] == int(waiting.number) and question["reason"] == "overwrites a.txt"
    assert f"loom-audit deny {waiting.number}" in asking("session", waiting.request["session"]).text
    asking("deny", waiting.number, "--reason", "keep it")
    assert not waiting.result()["success"]
    shown = asking("show", waiting.number).text
    assert "waits" not in shown and "decided    denied by person:" in shown and ": keep it" in shown
    assert asking.records("show", waiting.number)[0]["question"] is None


def test_an_undo_that_a_waiting_call_stands_in_the_way_of_says_how_to_answer_it(
    asking: Shell,
) -> None:
    asking.call("write_file", path="new.txt", content="x")
    waiting = Waiting(asking, **OVERWRITE)
    refused = asking("undo", code=5)
    assert "error: write_file waits for approval: overwrites a.txt" in refused.errors
    assert f"(call {waiting.number}, open since 20" in refused.errors
    assert f"`loom-audit deny {waiting.number}`" in refused.errors
    assert (asking.workspace / "new.txt").exists()
    asking("deny", waiting.number)
    waiting.result()
    asking("undo")
    assert not (asking.workspace / "new.txt").exists()


def test_a_call_whose_asking_process_is_gone_is_shown_with_what_closes_it(asking: Shell) -> None:
    waiting = Waiting(asking, **OVERWRITE)
    waiting.process.kill()
    waiting.process.wait()
    shown = asking("show", waiting.number).text
    assert "its process is gone: `loom-audit recover` closes it" in shown
    assert "approve" not in shown
    asking("recover")
    assert "gone" not in asking("show", waiting.number).text


def test_a_no_in_another_process_is_a_refusal_with_its_reason(asking: Shell) -> None:
    waiting = Waiting(asking, "delete_file", path="a.txt")
    asking("deny", waiting.request["call_id"][:8], "--reason", "keep it")
    result = waiting.result()
    assert result["error"]["code"] == "APPROVAL_DENIED" and "keep it" in result["output"]
    assert waiting.process.returncode == 1
    assert (asking.workspace / "a.txt").exists()


def test_other_arguments_come_with_the_answer_or_are_refused_as_usage(asking: Shell) -> None:
    waiting = Waiting(asking, **OVERWRITE)
    for wrong in ("[", "[]"):
        asking("approve", waiting.number, "--args", wrong, code=2)
    other = json.dumps({"path": "b.txt", "content": "elsewhere"})
    asking("approve", waiting.number, "--args", other, "--for-session", code=2)
    told = asking("approve", waiting.number, "--args", other, code=5)
    again = wait_for(asking, {waiting.request["seq"]})
    assert "write_file b.txt" in told.text and f"asked again as {again['seq']}" in told.errors
    told = asking("approve", str(again["seq"]))
    assert "allowed: write_file b.txt; it ran" in told.text
    assert waiting.result()["success"]
    assert (asking.workspace / "b.txt").read_text() == "elsewhere"
    assert (asking.workspace / "a.txt").read_text().startswith("one")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [({"foo": 1}, 2, "foo"), ({"path": ".env", "content": ""}, 1, "rule 1 (.env*): secrets")],
)
def test_arguments_that_are_not_valid_or_denied_are_refused_before_anything_is_answered(
    asking: Shell, arguments: dict[str, object], code: int, said: str
) -> None:
    rules(asking, '[[rule]]\npath = ".env*"\naction = "deny"\nreason = "secrets"\n')
    waiting = Waiting(asking, **OVERWRITE)
    told = asking("approve", waiting.number, "--args", json.dumps(arguments), code=code)
    assert "allowed" not in told.text and said in told.errors
    assert [one["seq"] for one in asking.records("approvals")] == [waiting.request["seq"]]
    asking("deny", waiting.number)
    assert not waiting.result()["success"]


def test_a_rule_that_only_the_asking_process_has_is_told_after_the_answer(asking: Shell) -> None:
    rules(asking, '[[rule]]\npath = "b.txt"\naction = "deny"\n')
    waiting = Waiting(asking, **OVERWRITE)
    rules(asking)
    other = json.dumps({"path": "b.txt", "content": ""})
    told = asking("approve", waiting.number, "--args", other, code=1)
    assert "refused: write_file b.txt" in told.text and "rule 1 (b.txt)" in told.errors
    assert not waiting.result()["success"]


def test_a_rule_s_number_and_reason_are_shown_with_the_command(audited: Shell) -> None:
    audited("approvals", "init")
    waiting = Waiting(audited, "shell_execute", command="rm a.txt")
    listed = audited("approvals").text
    assert "shell_execute rm a.txt" in listed and "(rm *): deletes" in listed
    for command in ("log", "status"):
        listed = (
            rf" {waiting.number} .*waits for approval +shell_execute .*approve {waiting.number}"
        )
        assert re.search(listed, audited(command).text)
    audited("deny", waiting.number)
    refused = audited("call", "shell_execute", '{"command": "sudo true"}', code=1)
    assert "(sudo *): runs as another user" in refused.errors


def test_an_edit_in_between_is_asked_about_again(asking: Shell) -> None:
    waiting = Waiting(asking, **OVERWRITE)
    (asking.workspace / "a.txt").write_text("by a person\n")
    asking("approve", waiting.number, code=5)
    again = wait_for(asking, {waiting.request["seq"]})
    assert again["reason"].startswith("overwrites a.txt; ")
    assert "-by a person" in again["preview"]
    told = asking("approve", waiting.number, code=5)  # who types it may have seen the first alone
    assert f"answer {again['seq']}" in told.errors
    asking("approve", str(again["seq"]))
    assert waiting.result()["success"]
    asking("undo", "--yes")
    assert (asking.workspace / "a.txt").read_text() == "by a person\n"


def test_of_two_processes_that_answer_at_once_one_wins_and_the_other_is_told(
    asking: Shell,
) -> None:
    waiting = Waiting(asking, **OVERWRITE)
    asking.real = True
    codes: dict[str, int] = {}

    def say(word: str) -> None:
        codes[word] = asking(word, waiting.number, code=None).code

    both = [threading.Thread(target=say, args=(word,)) for word in ("approve", "deny")]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert sorted(codes.values()) == [0, 5]
    assert waiting.result()["success"] == (codes["approve"] == 0)
    decided = [e for e in asking.records("log", "--events") if e["kind"] == "call.decided"]
    assert len(decided) == 1


def test_two_sessions_ask_at_once_and_each_gets_its_own_answer(asking: Shell) -> None:
    one = Waiting(asking, **OVERWRITE)
    two = Waiting(asking, "write_file", path="src/app.py", content="two")
    assert len(asking.records("approvals")) == 2
    asking("approve", two.number)
    asking("deny", one.number)
    assert two.result()["success"] and not one.result()["success"]


def test_a_call_whose_process_died_waiting_is_closed_and_said_so(asking: Shell) -> None:
    waiting = Waiting(asking, "delete_file", path="a.txt")
    waiting.process.kill()
    waiting.process.wait()
    (left,) = asking.records("approvals")
    assert left["seq"] == waiting.request["seq"] and not left["alive"]
    assert "recover" in asking("approvals").text
    assert "nobody waits" in asking("approve", waiting.number, code=5).errors
    asking("recover")
    assert asking.records("approvals") == []
    assert asking.records("log")[0]["status"] == "interrupted"
    assert (asking.workspace / "a.txt").exists()
    asking("call", "list_directory")
    asking("verify")


def test_rules_that_deny_are_followed_by_call_and_a_bad_file_stops_it(audited: Shell) -> None:
    rules(audited, '[[rule]]\ntool = "write_file"\naction = "deny"\nreason = "no writing"\n')
    refused = audited("call", "write_file", json.dumps(OVERWRITE), code=1)
    assert "no writing" in refused.errors
    rules(audited, '[[rule]]\naction = "maybe"\n')
    assert "rule 1: action" in audited("call", "list_directory", code=2).errors


def test_init_writes_rules_that_are_valid_and_never_over_a_person_s(audited: Shell) -> None:
    audited("approvals", "init")
    file = audited.home / "config" / "approvals.toml"
    policy = read_policy(tomllib.loads(file.read_text()))
    asked = [rule.tool for rule in policy.rules if rule.action == "ask"]
    assert len(policy.rules) >= 4 and "delete_file" in asked
    settings = tool_settings(tomllib.loads((file.parent / "tools.toml").read_text()))
    assert settings.allowed_hosts
    file.write_text("# mine\n")
    audited("approvals", "init", code=5)
    assert file.read_text() == "# mine\n"
    audited("call", "read_file", '{"path": "a.txt"}')


def test_init_of_a_workspace_writes_recommended_rules_once(shell: Shell) -> None:
    shell("init", "--approvals", "strict", code=2)
    assert not shell.database.exists()
    [first] = shell.records("init", "--approvals", "recommended")
    folder = shell.home / "config"
    assert first["written"] == [str(folder / "approvals.toml"), str(folder / "tools.toml")]
    assert {one.stat().st_mode & 0o777 for one in (shell.home, folder)} == {0o700}
    assert shell.records("init", "--approvals", "recommended")[0]["written"] == []
    file = shell.workspace / "a.txt"
    file.write_text("a")
    waiting = Waiting(shell, "delete_file", path="a.txt")
    assert "rule 2 (delete_file): deletes" in shell("approvals").text
    shell("deny", waiting.number)
    assert not waiting.result()["success"] and file.exists()


def test_an_init_whose_rules_cannot_be_written_puts_nothing_under_audit(shell: Shell) -> None:
    shell.home.mkdir()
    (shell.home / "config").write_text("in the way")
    shell("init", "--approvals", "recommended", code=4)
    assert [one.name for one in shell.home.iterdir()] == ["config"]


def test_an_init_that_is_refused_writes_no_rules(audited: Shell, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("*.log\n")
    audited("init", "--ignore", str(rules), "--approvals", "recommended", code=5)
    assert not [*(audited.home / "config").iterdir()]


def test_numbers_that_are_not_json_are_refused(asking: Shell) -> None:
    waiting = Waiting(asking, **OVERWRITE)
    asking("approve", waiting.number, "--args", '{"path": "x", "content": NaN}', code=2)
    asking("deny", waiting.number)
    assert not waiting.result()["success"]


def test_what_is_not_there_is_not_found(asking: Shell) -> None:
    assert "no call waits" in asking("approvals").errors
    asking("approve", "nothing", code=4)
    asking("approvals", "show", "1", code=4)
    asking("approvals", "shew", code=2)


@pytest.mark.parametrize("answer", [b"y\n", b"n\n", b"s\n", b'{"path": "a.txt", "content": "c"}\n'])
def test_at_a_terminal_the_call_itself_asks(asking: Shell, answer: bytes) -> None:
    arguments = json.dumps(OVERWRITE)
    code, printed = at_terminal(
        asking, "call", "write_file", arguments, answer=b"what\n" + answer, after=b"Allow?"
    )
    assert "overwrites a.txt" in printed and "-one" in printed and printed.count("Allow?") == 2
    assert code == (1 if answer == b"n\n" else 0)
    disk = (asking.workspace / "a.txt").read_text()
    assert (disk == "new\n") == (answer in (b"y\n", b"s\n"))
    assert (disk == "c") == answer.startswith(b"{")
    assert "s allows what is asked for the same reason" in " ".join(printed.split())


def test_what_was_typed_before_the_question_is_not_an_answer(asking: Shell) -> None:
    rules(asking, "timeout = 1\n")
    code, printed = at_terminal(asking, "call", "write_file", json.dumps(OVERWRITE), answer=b"y\n")
    assert code == 1 and "nobody answered within 1 seconds" in printed
    assert (asking.workspace / "a.txt").read_text() != "new\n"


def test_hostile_text_in_a_question_cannot_steer_the_terminal(asking: Shell) -> None:
    content = "\n".join(CORPUS).encode("utf-8", "ignore").decode()
    waiting = Waiting(asking, path="a.txt", content=content)
    for arguments in (("approvals",), ("approvals", "show", waiting.number)):
        printed = asking(*arguments).text
        assert not any(ord(c) < 32 and c not in "\n\t" for c in printed)
        assert "\u202e" not in printed and "\x1b" not in printed
    asking("deny", waiting.number)
    assert not waiting.result()["success"]


def test_an_agent_s_command_is_told_nothing_of_the_store(audited: Shell) -> None:
    """Neither its path nor a token, by the environment or an open file."""
    audited.extra["LOOM_AUDIT_STORE"] = str(audited.home / "audit.db")
    audited.real = audited.started = True
    script = "env; ls -l /proc/self/fd"
    output = audited.sh(script)["output"]
    assert "LOOM_AUDIT" not in output
    assert "PATH=" in output and "/proc/" in output and str(audited.home) not in output


def test_every_question_is_left_after_the_store_was_opened_anew(asking: Shell) -> None:
    waiting = Waiting(asking, **OVERWRITE)
    asking.real = True
    assert [one["seq"] for one in asking.records("approvals")] == [waiting.request["seq"]]
    asking("approve", waiting.number)
    assert waiting.result()["success"]
    assert Path(os.path.join(asking.workspace, "a.txt")).read_text() == "new\n"
