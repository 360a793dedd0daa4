"""The protocol's own client in a Python of its own, as PyPI has it, with `loom-audit mcp`."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.real_clients import workspaces
from tests.real_clients.installed import from_pypi, our_python
from tests.real_clients.workspaces import difference, manifest

PROGRAM = Path(__file__).with_name("mcp_program.py")
STEPS: list[list[tuple[str, str, dict[str, Any], str]]] = [
    [("1", "read_file", {"path": "notes.txt"}, "ok")],
    [("2", "edit_file", {"path": "notes.txt", "old_str": "two", "new_str": "TWO"}, "ok")],
    [("3", "edit_file", {"path": "notes.txt", "old_str": "none", "new_str": "x"}, "error")],
    [("4", "shell_execute", {"command": "rm secret.env; rm -r old; exit 3"}, "error")],
    [("5", "write_file", {"path": "twice.txt", "content": "first\n"}, "ok")],
    [("6", "write_file", {"path": "twice.txt", "content": "second\n"}, "ok")],
    [
        ("7", "write_file", {"path": "left.txt", "content": "left\n"}, "ok"),
        ("8", "write_file", {"path": "right.txt", "content": "right\n"}, "ok"),
    ],
]


@pytest.mark.timeout(600)
def test_calls_of_the_mcp_client_are_on_record_and_can_be_taken_back(tmp_path: Path) -> None:
    workspace, home = tmp_path / "repo", tmp_path / "home"
    home.mkdir()
    workspaces.make(workspace)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    ours = [str(our_python()), "-m", "loom_audit"]

    def run(*words: str, stdin: str = "") -> str:
        done = subprocess.run(
            words,
            cwd=workspace,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode in (0, 7), done.stdout + done.stderr
        return done.stdout

    run(*ours, "init")
    before = manifest(workspace)
    given = [
        [{"id": id, "tool": tool, "arguments": arguments} for id, tool, arguments, _ in step]
        for step in STEPS
    ]
    told = json.loads(
        run(str(from_pypi("mcp")), str(PROGRAM), *ours, "mcp", stdin=json.dumps(given))
    )
    asked = [call for step in STEPS for call in step]
    assert {id: one["failed"] for id, one in told.items()} == {
        id: status == "error" for id, _, _, status in asked
    }
    calls = [json.loads(line) for line in run(*ours, "log", "--json").splitlines()]
    found = []
    for call in calls:
        shown = json.loads(run(*ours, "show", str(call["seq"]), "--json"))
        found.append((call["tool"], shown["arguments"], call["status"]))
    for _, tool, arguments, status in asked:
        assert any(
            (tool, status) == (one, how) and arguments.items() <= has.items()
            for one, has, how in found
        ), (tool, found)
    assert len(found) == len(asked)
    run(*ours, "rollback", f"session:{calls[0]['session']}", "--yes")
    assert not difference(before, manifest(workspace))
