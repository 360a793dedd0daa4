"""A session of each agent framework, as PyPI has it, with the tools of ours."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.real_clients import workspaces
from tests.real_clients.installed import from_pypi, our_python, with_ours
from tests.real_clients.model_server import ScriptedModel
from tests.real_clients.script import Call, Step
from tests.real_clients.workspaces import Manifest, difference, manifest

pytestmark = pytest.mark.timeout(600)

PACKAGES = {"pydantic-ai": "pydantic-ai-slim[openai,mcp]", "openai-agents": "openai-agents"}
PROGRAM = Path(__file__).with_name("framework_program.py")
RULES = """\
default = "allow"

[[rule]]
path = "*.env"
tool = "write_file"
action = "deny"
reason = "holds secrets"
"""
LATER = "(sleep 1; echo late > late.txt) & echo begun"
CALLS: Sequence[tuple[str, str, dict[str, Any], str]] = (
    ("read", "read_file", {"path": "notes.txt"}, "ok"),
    ("edit", "edit_file", {"path": "notes.txt", "old_str": "two", "new_str": "TWO"}, "ok"),
    ("miss", "edit_file", {"path": "notes.txt", "old_str": "none", "new_str": "x"}, "error"),
    ("create", "write_file", {"path": "new/made.txt", "content": "made\n"}, "ok"),
    ("shell", "bash", {"command": "echo 1 > shell.txt; exit 3"}, "error"),
    ("rm", "delete_file", {"path": "secret.env"}, "ok"),
    ("rm_r", "bash", {"command": "rm -r old"}, "ok"),
    ("first", "write_file", {"path": "twice.txt", "content": "first\n"}, "ok"),
    ("second", "write_file", {"path": "twice.txt", "content": "second\n"}, "ok"),
    ("background", "bash", {"command": LATER}, "ok"),
    ("denied", "write_file", {"path": "other.env", "content": "x"}, "denied"),
)
TOGETHER = [
    Call("call_left", "write_file", {"path": "left.txt", "content": "left\n"}),
    Call("call_right", "write_file", {"path": "right.txt", "content": "right\n"}),
]
STATUS = {f"call_{name}": status for name, _, _, status in CALLS}


@dataclass
class Work:
    """What a framework did, and what the workspace was before each step."""

    workspace: Path
    environment: dict[str, str]
    model: ScriptedModel
    before: dict[str, Manifest] = field(default_factory=dict)

    def ours(self, *words: str, codes: Sequence[int] = (0, 7)) -> str:
        done = self.run(str(our_python()), "-m", "loom_audit", *words)
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words,
            cwd=self.workspace,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def calls(self) -> list[dict[str, Any]]:
        listed = self.ours("log", "--limit", "0", "--oldest-first", "--json").splitlines()
        return [json.loads(line) for line in listed]


@pytest.fixture(scope="module", params=PACKAGES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    folder = tmp_path_factory.mktemp(request.param)
    workspace, home = folder / "repo", folder / "home"
    workspaces.make(workspace)
    rules = home / ".config" / "loom-audit" / "approvals.toml"
    rules.parent.mkdir(parents=True)
    rules.write_text(RULES)
    steps = [Step(name, [Call(f"call_{name}", tool, given)]) for name, tool, given, _ in CALLS]
    steps = [*steps, Step("together", TOGETHER), Step("end", text="done")]
    before: dict[str, Manifest] = {}

    def look(step: Step) -> None:
        before[step.name] = manifest(workspace)

    with ScriptedModel(steps, workspace, look) as model:
        environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        work = Work(workspace, environment, model, before)
        work.ours("init")
        python = with_ours(from_pypi(PACKAGES[request.param]))
        done = work.run(str(python), str(PROGRAM), request.param, model.url)
        assert done.returncode == 0, done.stdout + done.stderr
        yield work


def test_every_call_of_the_model_is_on_record_once_with_its_id_and_arguments(run: Work) -> None:
    asked = [call for step in run.model.steps for call in step.calls]
    assert run.model.asked == asked and set(run.model.told) == {call.id for call in asked}
    found = run.calls()
    assert sorted(call["call_id"] for call in found) == sorted(call.id for call in asked)
    for call in found:
        [meant] = [one for one in asked if one.id == call["call_id"]]
        shown = json.loads(run.ours("show", str(call["seq"]), "--json"))
        assert (call["tool"], shown["arguments"]) == (meant.tool, meant.arguments)
        assert call["status"] == STATUS.get(meant.id, "ok"), call
    said = run.model.told["call_denied"].text
    assert "holds secrets" in said and not (run.workspace / "other.env").exists()


def test_a_process_left_by_a_call_owns_nothing_of_a_later_one(run: Work) -> None:
    later = run.calls()[[one["call_id"] for one in run.calls()].index("call_background") + 1 :]
    assert all("late.txt" not in call["paths"] for call in later)


def test_rollback_gives_the_workspace_that_the_session_found(run: Work) -> None:
    now = manifest(run.workspace)
    run.ours("rollback", f"session:{run.calls()[0]['session']}", "--yes")
    assert not difference(run.before["read"], manifest(run.workspace))
    run.ours("undo", "--yes")
    assert not difference(now, manifest(run.workspace))
    run.ours("verify")


def test_each_call_is_reverted_to_the_exact_bytes_before_it_newest_first(run: Work) -> None:
    """It is the last test of its session: it leaves the workspace as it was before it."""
    made = {call["call_id"]: str(call["seq"]) for call in run.calls() if call["call_id"]}
    for step in reversed(run.model.steps):
        changing = [call.id for call in step.calls if call.id not in ("call_read", "call_miss")]
        for id in reversed(changing):
            run.ours("revert", made[id], "--yes")
        if step.calls:
            left = difference(run.before[step.name], manifest(run.workspace))
            assert not left, (step.name, left)
    run.ours("verify")
