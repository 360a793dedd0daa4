"""What is decided of a call without asking or waiting: functions over plain data."""

from loom_audit.model.events import CallDecided
from loom_audit.model.files import FileState
from loom_audit.tools.approvals.decision import (
    ShownCall,
    reason_to_ask,
    reason_to_ask_again,
    ruling,
)
from loom_audit.tools.approvals.policy import Policy, Rule, Subject
from loom_audit.tools.calls.tool import Preview

WRITE = Subject("write_file", "write", "agent:x", [frozenset({"a.txt"})])
ASKS = Policy((Rule(1, "ask", "look first", tool="write_file"),))
FILE, OTHER = FileState("file", None, 0o644, 1), FileState("file", None, 0o600, 1)


def shown(**states: FileState | None) -> ShownCall:
    return ShownCall("write_file", {}, {"path": "a"}, Preview("a diff", states))


def test_a_rule_decides_before_the_default_and_the_default_before_nobody() -> None:
    denies = Policy((Rule(1, "deny", tool="write_file"),), default="allow")
    by_rule, by_default = ruling(denies, WRITE), ruling(Policy(default="allow"), WRITE)
    assert by_rule.decided and by_rule.decided.decision == "denied" and by_rule.rule == by_rule.by
    assert by_default.decided and by_default.decided.decision == "allowed" and not by_default.rule
    assert ruling(Policy(), WRITE).decided is None
    assert ruling(ASKS, WRITE).decided is None


def test_somebody_is_asked_for_the_reason_of_the_rule_else_of_the_tool_else_of_the_default() -> (
    None
):
    assert reason_to_ask(ruling(ASKS, WRITE), "the tool asks") == "rule 1 (write_file): look first"
    asks_by_default = ruling(Policy(default="ask"), WRITE)
    assert reason_to_ask(asks_by_default, "the tool asks") == "the tool asks"
    assert reason_to_ask(asks_by_default, "") == "no rule is about it"
    assert reason_to_ask(ruling(Policy(), WRITE), "") == ""


def test_a_yes_holds_for_what_was_shown_and_no_longer() -> None:
    yes = CallDecided("c", "write_file", "allowed", "person:me")
    assert reason_to_ask_again(shown(a=FILE), shown(a=FILE), yes) == ""
    assert "has changed since" in reason_to_ask_again(shown(a=FILE), shown(a=OTHER), yes)


def test_arguments_put_in_place_may_change_less_than_was_shown_and_not_more() -> None:
    yes = CallDecided("c", "write_file", "allowed", "person:me", arguments={"path": "a"})
    assert reason_to_ask_again(shown(a=FILE, b=None), shown(a=FILE), yes) == ""
    assert "was not shown" in reason_to_ask_again(shown(a=FILE), shown(a=FILE, b=None), yes)
