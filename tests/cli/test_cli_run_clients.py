"""`run -- claude`, `codex`, `opencode`: each of their calls on record, for this run.

The programs here do with what they are given what the real ones do, which `make test-clients` runs.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shells import Shell

SESSION = """
import json, os, subprocess, sys

def hook(command, name, **more):
    told = {"session_id": "s1", "cwd": os.getcwd(), "hook_event_name": name, **more}
    done = subprocess.run(command, shell=True, input=json.dumps(told).encode(), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout

WRITE = {"file_path": os.path.abspath("told.txt"), "content": "told\\n"}
PATCH = {"command": "*** Begin Patch\\n*** Add File: told.txt\\n+told\\n*** End Patch\\n"}
CREATED = {"type": "create", "filePath": WRITE["file_path"], "content": "told\\n"}

def session(commands, tool="Write", told=WRITE, response=CREATED):
    call = {"tool_name": tool, "tool_use_id": "call_1", "tool_input": told}
    def each(name, **more):
        return [hook(command, name, **more) for command in commands.get(name, [])]
    each("SessionStart", source="startup")
    each("UserPromptSubmit", prompt="write it")
    each("PreToolUse", **call)
    with open("told.txt", "w") as file:
        file.write("told\\n")
    each("PostToolUse", **call, tool_response=response)
    with open("untold.txt", "w") as file:
        file.write("by the program itself\\n")
    each("Stop")
    each("SessionEnd", reason="other")
"""
CLAUDE = (
    SESSION
    + """
given = [sys.argv[n + 1] for n, word in enumerate(sys.argv) if word == "--settings"]
told = json.loads(given[-1]) if given else {}
with open("given.json", "w") as file:
    json.dump({"settings": told, "words": sys.argv[1:]}, file)
session({name: [one["command"] for entry in entries for one in entry["hooks"]]
         for name, entries in told.get("hooks", {}).items()})
"""
)
CODEX = (
    SESSION
    + """
import hashlib, tomllib
flags = [sys.argv[n + 1] for n, word in enumerate(sys.argv) if word == "-c"]
told, trusted = {}, {}
for flag in flags:
    name, _, text = flag.partition("=")
    value = tomllib.loads("value = " + text)["value"]
    if name == "hooks.state":
        trusted = {key: one["trusted_hash"] for key, one in value.items()}
    elif name.startswith("hooks."):
        told[name.removeprefix("hooks.")] = value[0]["hooks"][0]["command"]
known = [{"key": f"/<session-flags>/config.toml:{name}:0:0", "source": "sessionFlags",
          "command": command, "currentHash": hashlib.sha256(command.encode()).hexdigest()}
         for name, command in told.items()]
if sys.argv[-1] == "app-server":
    for line in sys.stdin:
        if json.loads(line).get("id") == 2:
            print(json.dumps({"method": "other"}), flush=True)
            print(json.dumps({"id": 2, "result": {"data": [{"hooks": known}]}}), flush=True)
else:
    session({name: [told[name]] for name, one in zip(told, known)
             if trusted.get(one["key"]) == one["currentHash"]}, "apply_patch", PATCH,
            "Exit code: 0\\nOutput:\\nSuccess. Updated the following files:\\nA told.txt\\n")
"""
)


@pytest.fixture
def person(audited: Shell, tmp_path: Path) -> Shell:
    """A person at a shell on whose path the clients are."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("claude", CLAUDE), ("codex", CODEX), ("gemini", SESSION)):
        file = programs / name
        file.write_text(f"#!{sys.executable}\n{text}")
        file.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    audited.extra |= {"PATH": path, "HOME": str(tmp_path)}
    return audited


def on_record(person: Shell) -> dict[str, dict[str, Any]]:
    return {str(call["tool"]): call for call in person.records("log")}


@pytest.mark.few(1)
@pytest.mark.parametrize(("program", "tool"), [("claude", "Write"), ("codex", "apply_patch")])
def test_each_call_is_on_record_within_the_run(person: Shell, program: str, tool: str) -> None:
    ran = person("run", "--", program, "do it")
    assert "one call:" not in ran.errors
    # told.txt and untold.txt; the one that stands in for Claude also says what it was given
    files = "3 files" if program == "claude" else "2 files"
    said = f"[loom-audit] 1 call on record, {files} changed: `loom-audit log`\n"
    assert ran.errors == said
    calls = on_record(person)
    assert calls.keys() == {"run", tool}
    assert (calls[tool]["call_id"], calls[tool]["paths"]) == ("call_1", ["told.txt"])
    assert "untold.txt" in calls["run"]["paths"] and "told.txt" not in calls["run"]["paths"]
    sessions = {str(one["id"]): one for one in person.records("session")}
    assert sessions["s1"]["status"] == "completed"
    shown = person("show", str(calls[tool]["seq"]), "--json").text
    assert str(calls["run"]["requested"]) in shown
    person("undo", "--session", "s1", "--yes")
    assert not (person.workspace / "told.txt").exists()
    assert (person.workspace / "untold.txt").exists()
    person("verify")


def test_what_a_client_leaves_running_is_named_beside_what_is_on_record(
    person: Shell, tmp_path: Path
) -> None:
    program = tmp_path / "programs" / "claude"
    left = (
        "subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)"
    )
    program.write_text(f"{program.read_text()}\n{left}\n")
    told = person("run", "--", "claude", "do it").errors.splitlines()
    assert "coverage partial: killed at the end: " in told[0] and told[0].endswith(" sleep")
    assert told[1:] == ["[loom-audit] 1 call on record, 3 files changed: `loom-audit log`"]


def test_settings_of_ones_own_are_merged_and_no_file_is_changed(person: Shell) -> None:
    own: dict[str, Any] = {
        "model": "x",
        "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]},
    }
    (person.workspace / "own.json").write_text(json.dumps(own))
    person("run", "--", "claude", "--settings", "own.json", "--verbose", "do it")
    given = json.loads((person.workspace / "given.json").read_text())
    assert given["settings"]["model"] == "x"
    assert given["settings"]["hooks"]["Stop"][0] == own["hooks"]["Stop"][0]
    assert given["words"][0] == "--settings" and given["words"][2:] == ["--verbose", "do it"]
    assert given["words"].count("--settings") == 1
    assert on_record(person).keys() == {"run", "Write"}
    assert not (person.workspace / ".claude").exists()
    assert json.loads((person.workspace / "own.json").read_text()) == own


def test_settings_that_cannot_be_read_are_named_before_anything_runs(person: Shell) -> None:
    refused = person("run", "--", "claude", "--settings", "{", code=None)
    assert refused.code and "--settings {" in refused.errors
    assert not (person.workspace / "told.txt").exists()


def test_a_run_without_a_hook_says_that_it_is_one_call(person: Shell, tmp_path: Path) -> None:
    (tmp_path / "programs" / "claude").write_text(f"#!{sys.executable}\nopen('x', 'w')\n")
    ran = person("run", "--", "claude")
    assert "no hook of claude-code came: this run is one call" in ran.errors
    assert on_record(person)["run"]["paths"] == ["x"]


def test_a_client_that_works_without_its_hooks_is_named_while_it_works(
    person: Shell, tmp_path: Path
) -> None:
    block = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "true"}}
    record = {"type": "assistant", "sessionId": "s9", "cwd": str(person.workspace), "uuid": "u"}
    line = json.dumps({**record, "message": {"role": "assistant", "content": [block]}})
    transcript = tmp_path / ".claude" / "projects" / "p" / "s9.jsonl"
    program = f"""
import os, sys, time
os.makedirs({str(transcript.parent)!r})
with open({str(transcript)!r}, "w") as file:
    file.write({line!r} + "\\n")
time.sleep(2.5)
print("and it ends", file=sys.stderr)
"""
    (tmp_path / "programs" / "claude").write_text(f"#!{sys.executable}\n{program}")
    ran = person("run", "--", "claude", "-p", "do it")
    note = "no hook of claude-code came: this run is one call"
    assert ran.errors.count(note) == 1
    assert ran.errors.index(note) < ran.errors.index("and it ends")


SILENCED = """
hooks = {name: one[0]["hooks"][0]["command"] for name, one in told["hooks"].items()}
transcript = os.path.join(os.environ["HOME"], "s1.jsonl")

def says(id, tool, given):
    block = {"type": "tool_use", "id": id, "name": tool, "input": given}
    about = {"type": "assistant", "sessionId": "s1", "cwd": os.getcwd(), "uuid": id}
    line = json.dumps({**about, "message": {"role": "assistant", "content": [block]}})
    with open(transcript, "a") as file:
        file.write(line + "\\n")

says("call_1", "Write", WRITE)
call = {"tool_name": "Write", "tool_use_id": "call_1", "tool_input": WRITE,
        "transcript_path": transcript}
hook(hooks["PreToolUse"], "PreToolUse", **call)
with open("told.txt", "w") as file:
    file.write("told\\n")
hook(hooks["PostToolUse"], "PostToolUse", **call, tool_response=CREATED)
says("call_2", "Bash", {"command": "touch untold.txt"})
open("untold.txt", "w").close()
"""


def test_a_call_without_a_hook_is_on_record_when_the_run_ends(
    person: Shell, tmp_path: Path
) -> None:
    """As when the agent writes a project file that switches all hooks off."""
    begun, _, _ = CLAUDE.partition("session({name")
    program = f"#!{sys.executable}\n{begun}{SILENCED}"
    (tmp_path / "programs" / "claude").write_text(program)
    person("run", "--", "claude", "do it")
    calls = on_record(person)
    assert calls.keys() == {"run", "Write", "Bash"}
    assert calls["Bash"]["call_id"] == "call_2"
    assert (calls["Bash"]["coverage"], calls["Bash"]["coverage_reasons"]) == ("none", ["no hook"])
    sessions = {str(one["id"]): one for one in person.records("session")}
    assert sessions["s1"]["status"] == "completed"
    person("verify")


def test_a_client_that_takes_no_hooks_for_one_run_says_how_it_does(person: Shell) -> None:
    ran = person("run", "--", "gemini")
    assert "`loom-audit connect gemini` gives one record per call" in ran.errors


def test_a_codex_that_does_not_tell_its_hooks_is_one_call(person: Shell, tmp_path: Path) -> None:
    text = f"#!{sys.executable}\nimport sys\nif sys.argv[1:] == ['exec']: open('x', 'w')\n"
    (tmp_path / "programs" / "codex").write_text(text)
    ran = person("run", "--", "codex", "exec")
    assert "this run is one call: codex does not say" in ran.errors
    assert on_record(person)["run"]["paths"] == ["x"]
