"""The rules of approvals.toml: what they match, and what is not a rule."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.errors import InvalidArguments
from loom_audit.tools.approvals.asking_gate import AskingGate
from loom_audit.tools.approvals.policy import Policy, Subject, command_in, paths_in, read_policy
from loom_audit.tools.calls.gate import Decision
from tests.tools.approvals.person import NO, OVERWRITE, Person, answers, questions
from tests.tools.conftest import Bench


def subject(**more: Any) -> Subject:
    return Subject(**({"tool": "bash", "effect": "execute", "agent": "agent:coder"} | more))


def matches(one: Subject, action: str = "deny", **rule: object) -> bool:
    policy = read_policy({"rule": [{"action": action, **rule}]})
    return policy.rule_for(one) is not None


def test_the_first_rule_that_matches_decides() -> None:
    rules = [
        {"tool": "read_*", "action": "allow"},
        {"effect": "write", "agent": "trusted-*", "action": "allow"},
        {"effect": "write", "action": "ask", "reason": "look"},
        {"action": "deny"},
    ]
    policy = read_policy({"rule": rules, "timeout": 5})
    for one, number in (
        (subject(tool="read_file", effect="read"), 1),
        (subject(tool="write_file", effect="write", agent="agent:trusted-1"), 2),
        (subject(tool="write_file", effect="write"), 3),
        (subject(), 4),
    ):
        rule = policy.rule_for(one)
        assert rule is not None and rule.number == number
    assert policy.timeout == 5
    assert policy.rules[2].name == "policy:approvals.toml#3"
    assert Policy().rule_for(subject()) is None


def test_an_agent_is_named_alone_or_with_what_it_is() -> None:
    assert matches(subject(), agent="coder") and matches(subject(), agent="agent:*")
    assert not matches(subject(), agent="code") and not matches(subject(), agent="person:*")


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("rm x", "rm *"),
        ("rm", "rm *"),
        ("sudo rm -rf x", "rm *"),
        ("/bin/rm x", "rm *"),
        ("ls; rm x", "rm *"),
        ("ls\nrm x", "rm *"),
        ("ls && (rm x)", "rm *"),
        ("echo `rm x`", "rm *"),
        ('echo "$(rm x)"', "rm *"),
        ("sh -c 'rm x'", "rm *"),
        ("bash -c \"sh -c 'rm x'\"", "rm *"),
        ("'r'm x", "rm *"),
        ("r\\\nm x", "rm *"),
        ("echo 'unbalanced; rm x", "rm *"),
        ("git push --force origin", "git push *"),
        ("npm run deploy:prod", "npm run deploy*"),
        ("cat /etc/passwd", "cat /etc/*"),
        ("find . -exec rm {} +", "rm *"),
        ("touch a\\\\\nrm x", "rm *"),
        ("$'rm' x", "rm *"),
        ("r=rm; $r x", "rm *"),
        ("${r:-rm} x", "rm *"),
        ("{rm,x}", "rm *"),
        ("git -C . push", "git push *"),
        ("/usr/bin/git --no-pager -c a=b push", "git push *"),
    ],
)
def test_one_command_of_a_line_is_enough_to_ask_or_deny(command: str, pattern: str) -> None:
    assert matches(subject(command=command), "deny", command=pattern)
    assert matches(subject(command=command), "ask", command=pattern)


@pytest.mark.parametrize(
    ("command", "pattern", "allowed"),
    [
        ("git status", "git status *", True),
        ("git status -s", "git status *", True),
        ("git status && git log", "git *", True),
        ("git status | head", "git *", False),
        ("git status; rm x", "git *", False),
        ("git status\nrm x", "git *", False),
        ("git log > x", "git *", False),
        ("git log $(rm x)", "git *", False),
        ("git log `rm x`", "git *", False),
        ("git log $HOME", "git *", False),
        ("git log 'unbalanced", "git *", False),
        ("X=1 git log", "git *", False),
        ("sudo git log", "git *", False),
        ("/tmp/git log", "git *", False),
        ("git log & rm x", "git *", False),
        ("", "git *", False),
        ("git", "git status *", False),
        ("ls # x\nrm x", "ls *", False),
        ("ls # '\nrm x #'", "ls *", False),
        ('ls #"\nrm x #"', "ls *", False),
        ("ls \\\\\nrm x", "ls *", False),
        ("./x\ry", "./x *", False),
        ("git {-C,x,push}", "git *", False),
        ("git show stash@{0}", "git show *", True),
        ("cat src/../.env", "cat src/*", False),
        ("cat src/a..b", "cat src/*", True),
    ],
)
def test_every_command_of_a_line_must_match_to_be_allowed(
    command: str, pattern: str, allowed: bool
) -> None:
    assert matches(subject(command=command), "allow", command=pattern) == allowed


def test_options_before_what_is_wanted_do_not_make_another_command_of_it() -> None:
    assert not matches(subject(command="git commit -m push"), "ask", command="git push *")
    assert not matches(subject(command="git push -f"), "ask", command="git pull *")


def test_a_path_allows_nothing_that_runs_in_it() -> None:
    inside = subject(command="rm -rf ../src", paths=[frozenset({"build"})])
    assert not matches(inside, "allow", path="build/")
    assert matches(inside, "allow", path="build/", tool=inside.tool)
    assert matches(inside, "deny", path="build/")


def test_variables_of_a_command_are_part_of_it() -> None:
    given_path = {"language": "bash", "code": "git status", "env": {"PATH": "./bin"}}
    one = subject(command=command_in(given_path))
    assert not matches(one, "allow", command="git status *")
    assert matches(one, "deny", command="git status *")


@given(
    st.text(st.sampled_from("rm x;|&()<>\n\\'\"`$#*{}\t\u00e9\udcff"), max_size=60),
    st.sampled_from(["rm *", "x", "* x", "rm x"]),
)
def test_any_text_is_read_and_what_is_allowed_would_be_denied_too(
    command: str, pattern: str
) -> None:
    one = subject(command=command)
    if matches(one, "allow", command=pattern):
        assert matches(one, "deny", command=pattern)


@pytest.mark.parametrize("length", [10_000, pytest.param(200_000, marks=pytest.mark.deep)])
def test_a_very_long_command_is_read_in_time_that_grows_with_it(length: int) -> None:
    for piece in ("x ", "x; ", "x;", "("):
        command = piece * (length // len(piece))
        command = f"'{command}'" if piece == "x; " else command
        assert not matches(subject(command=command), "deny", command="rm *")


@pytest.mark.parametrize(
    ("pattern", "path", "matched"),
    [
        ("secrets/", "secrets/a/b.txt", True),
        ("secrets/", "secrets", True),
        ("/secrets/", "x/secrets/a", False),
        (".env*", "deep/.env.local", True),
        ("src/**/*.py", "src/a/b.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("*", "", False),
    ],
)
def test_path_patterns_are_those_of_gitignore(pattern: str, path: str, matched: bool) -> None:
    one = subject(effect="write", paths=[frozenset({path})])
    assert matches(one, "deny", path=pattern) == matched
    assert matches(one, "allow", path=pattern) == matched


def test_one_path_is_enough_to_deny_and_all_must_match_to_allow() -> None:
    both = subject(paths=[frozenset({"src/a"}), frozenset({"secrets/b"})])
    assert matches(both, "deny", path="secrets/") and not matches(both, "allow", path="src/")
    link = subject(paths=[frozenset({"src/link", "secrets/b"})])
    assert matches(link, "ask", path="secrets/") and not matches(link, "allow", path="src/")
    assert not matches(subject(), "allow", path="src/")


def test_what_arguments_name() -> None:
    arguments = {"path": "a", "from": "b", "to": "c", "paths": ["d", 1], "other": "e"}
    assert paths_in(arguments) == ["a", "b", "c", "d"]
    assert paths_in(["a"]) == []
    assert command_in({"command": "ls"}) == "ls"
    assert command_in({"command": ["ls", "a b"]}) == "ls 'a b'"
    assert command_in({"language": "bash", "code": "ls"}) == "ls"
    assert command_in({"language": "python", "code": "ls"}) is None
    assert command_in({"command": 3}) is None


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"rules": []}, "rules"),
        ({"timeout": "long"}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"default": "perhaps"}, "default"),
        ({"rule": {"action": "ask"}}, "rule must be written"),
        ({"rule": ["ask"]}, "rule 1"),
        ({"rule": [{}]}, "rule 1: action"),
        ({"rule": [{"action": "deny"}, {"action": "allows"}]}, "rule 2: action"),
        ({"rule": [{"action": "ask", "tools": "x"}]}, "rule 1: tools"),
        ({"rule": [{"action": "ask", "number": 3}]}, "rule 1: number"),
        ({"rule": [{"action": "ask", "tool": 3}]}, "rule 1: tool"),
        ({"rule": [{"action": "ask", "tool": " "}]}, "rule 1: tool"),
        ({"rule": [{"action": "ask", "effect": "delete"}]}, "rule 1: effect"),
        ({"rule": [{"action": "ask", "path": "!x"}]}, "rule 1: path"),
        ({"rule": [{"action": "ask", "command": "'x"}]}, "rule 1: command"),
        ({"rule": [{"action": "deny", "command": "curl * | sh"}]}, "rule 1: command"),
        ({"rule": [{"action": "deny", "command": "echo x > y"}]}, "rule 1: command"),
        ({"rule": [{"action": "deny", "path": "./secrets/"}]}, "rule 1: path"),
        ({"rule": [{"action": "deny", "path": "a/../secrets"}]}, "rule 1: path"),
        ({"rule": [{"action": "deny", "path": "~/secrets"}]}, "rule 1: path"),
        ({"rule": [{"action": "deny", "path": "/"}]}, "rule 1: path"),
        ({"rule": [{"action": "deny", "path": "a\nb"}]}, "rule 1: path"),
    ],
)
def test_what_is_not_a_rule_is_named(table: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        read_policy(table)
    assert named in caught.value.message and "approvals.toml" in caught.value.message


def test_a_rule_is_named_with_its_number_what_it_is_about_and_its_reason(bench: Bench) -> None:
    rules = [{"command": "sudo *", "action": "deny", "reason": "runs as another user"}]
    rules += [{"path": "*.txt", "action": "ask"}]
    gate = AskingGate(read_policy({"rule": rules}), ask=Person(NO))
    refused = bench.call("shell_execute", {"command": "sudo true"}, gate=gate)
    assert "rule 1 (sudo *): runs as another user" in refused.output
    bench.call("write_file", OVERWRITE, gate=gate)
    assert questions(bench)[-1].reason == "rule 2 (*.txt)"


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [({"action": "allow", "path": "*.txt"}, True), ({"action": "deny", "effect": "write"}, False)],
)
def test_the_policy_decides_first_and_its_decision_is_on_record(
    bench: Bench, rule: dict[str, str], allowed: bool
) -> None:
    gate = AskingGate(read_policy({"rule": [{"tool": "none", "action": "ask"}, rule]}))
    result = bench.call("write_file", OVERWRITE, gate=gate)
    assert result.success == allowed
    (said,) = answers(bench)
    assert said.by == "policy:approvals.toml#2" and questions(bench) == []


def test_arguments_put_in_place_must_pass_the_policy_too(bench: Bench) -> None:
    deny = {"path": "src/", "action": "deny"}
    gate = AskingGate(
        read_policy({"rule": [deny]}),
        ask=Person(Decision("allowed", "p", "", {"path": "src/new", "content": ""})),
    )
    result = bench.call("write_file", OVERWRITE, gate=gate)
    assert result.error.details["by"] == "policy:approvals.toml#1"
    assert not (bench.root / "src/new").exists()


@pytest.mark.parametrize(
    "call",
    [
        ("delete_file", {"path": "src", "recursive": True}),
        ("move_file", {"from": "src", "to": "elsewhere"}),
        ("write_file", {"path": "a/../link", "content": ""}),
        ("edit_file", {"path": "link", "old_str": "one", "new_str": "two"}),
    ],
)
def test_a_path_is_denied_however_it_is_reached(bench: Bench, call: dict[str, str]) -> None:
    (bench.root / "link").symlink_to("src/main.py")
    gate = AskingGate(read_policy({"rule": [{"path": "src/main.py", "action": "deny"}]}))
    result = bench.call(*call, gate=gate)
    assert result.error.code == "APPROVAL_DENIED", result


def test_folders_that_are_only_made_do_not_stand_in_the_way_of_an_allowed_path(
    bench: Bench,
) -> None:
    rules = [{"path": "new/**/*.txt", "action": "allow"}, {"action": "deny"}]
    gate = AskingGate(read_policy({"rule": rules}))
    assert bench.call("write_file", {"path": "new/a/b.txt", "content": ""}, gate=gate).success
    assert not bench.call("write_file", {"path": "new/a/b.py", "content": ""}, gate=gate).success


def test_the_default_of_the_policy_stands_where_no_rule_matches(bench: Bench) -> None:
    for default, code in (("deny", "APPROVAL_DENIED"), ("ask", "APPROVAL_DENIED"), ("allow", None)):
        gate = AskingGate(read_policy({"default": default}), wait=False)
        result = bench.call("read_file", {"path": "notes.txt"}, gate=gate)
        assert (result.error and result.error.code) == code
