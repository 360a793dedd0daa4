"""Each error that docs/tools.md lists for a tool can happen, and no other does."""

import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import force_setattr

from loom_audit.history.undo.own_calls import OwnCalls
from loom_audit.tools.bundled.builtin import builtin_tools
from loom_audit.tools.bundled.project import pip_install
from loom_audit.tools.bundled.search.search_files import SearchFiles
from loom_audit.tools.calls.settings import ToolSettings
from tests.tools.bundled.test_bad_input import BAD
from tests.tools.conftest import Bench

ROOT = Path(__file__).parents[3]
LOCAL_SERVER = "http://127.0.0.1:9/"
CAUSES: Mapping[tuple[str, str], Mapping[str, object]] = {
    ("write_file", "FILE_NOT_FOUND"): {"path": "a/b", "content": "", "createDirs": False},
    ("write_file", "TOO_LARGE"): {"path": "a", "content": "x" * 2000},
    ("edit_file", "TOO_LARGE"): {"path": "huge", "old_str": "a", "new_str": "b"},
    ("list_files", "INVALID_PATH"): {"path": ".."},
    ("list_files", "NOT_A_DIRECTORY"): {"path": "notes.txt"},
    ("bash", "NOT_A_DIRECTORY"): {"command": "true", "cwd": "notes.txt"},
    ("edit_file", "NOT_A_DIRECTORY"): {"path": "notes.txt/x", "old_str": "", "new_str": "x"},
    ("list_files", "FILE_NOT_FOUND"): {"path": "nowhere"},
    ("search_files", "TIMEOUT"): {"pattern": "(a+)+$"},
    ("shell_execute", "TIMEOUT"): {"command": "sleep 60", "timeout": 1},
    ("shell_execute", "EXECUTION_ERROR"): {"command": "exit 1"},
    ("shell_execute", "BLOCKED_COMMAND"): {"command": "mkfs /dev/null"},
    ("bash", "INVALID_PATH"): {"command": "true", "cwd": ".."},
    ("bash", "FILE_NOT_FOUND"): {"command": "true", "cwd": "nowhere"},
    ("bash", "TIMEOUT"): {"command": "sleep 60", "timeout": 1},
    ("bash", "EXECUTION_ERROR"): {"command": "exit 1"},
    ("bash", "BLOCKED_COMMAND"): {"command": "mkfs /dev/null"},
    ("shell_execute", "NOT_FOUND"): {"command": "true", "in": "bg1"},
    ("bash", "NOT_FOUND"): {"command": "true", "in": "bg1"},
    ("bash_output", "NOT_FOUND"): {"id": "bg1"},
    ("bash_stop", "NOT_FOUND"): {"id": "bg1"},
    ("undo", "NOT_FOUND"): {},
    ("undo", "PERMISSION_DENIED"): {},
    ("undo", "CONFLICT"): {},
    ("history", "INVALID_PATH"): {"path": "../y"},
    ("run_code", "TIMEOUT"): {"language": "bash", "code": "sleep 60", "timeout": 1},
    ("run_code", "EXECUTION_ERROR"): {"language": "python", "code": "raise SystemExit(1)"},
    ("run_code", "BLOCKED_COMMAND"): {"language": "bash", "code": "mkfs /dev/null"},
    ("git_status", "NOT_FOUND"): {},
    ("git_diff", "NOT_FOUND"): {},
    ("git_log", "NOT_FOUND"): {},
    ("git_diff", "FILE_NOT_FOUND"): {"paths": ["nowhere"]},
    ("git_log", "FILE_NOT_FOUND"): {"paths": ["nowhere"]},
    ("git_commit", "NOT_FOUND"): {"message": "x"},
    ("git_push", "NOT_FOUND"): {},
    ("run_tests", "NOT_FOUND"): {},
    ("run_tests", "INVALID_PATH"): {"paths": ["../x"]},
    ("run_tests", "FILE_NOT_FOUND"): {"paths": ["nowhere.py"]},
    ("run_tests", "EXECUTION_ERROR"): {"framework": "unittest", "paths": ["failing.py"]},
    ("run_tests", "TIMEOUT"): {"framework": "unittest", "paths": ["slow.py"], "timeout": 1},
    ("format_code", "NOT_FOUND"): {"paths": ["notes.txt"]},
    ("format_code", "INVALID_PATH"): {"paths": ["../x.py"]},
    ("format_code", "FILE_NOT_FOUND"): {"paths": ["gone.py"]},
    ("install_package", "PERMISSION_DENIED"): {"manager": "pip", "packages": ["tiny"]},
    ("install_package", "EXECUTION_ERROR"): {"manager": "pip", "packages": ["tiny"]},
    ("install_package", "TIMEOUT"): {"manager": "pip", "packages": ["tiny"]},
    ("search_code", "EXECUTION_ERROR"): {"query": "x"},
    ("search_code", "INVALID_PATH"): {"query": "x", "path": "../y"},
    ("search_code", "FILE_NOT_FOUND"): {"query": "x", "path": "no/such"},
    ("web_fetch", "PERMISSION_DENIED"): {"url": LOCAL_SERVER},
    ("web_fetch", "EXECUTION_ERROR"): {"url": "http://nobody.invalid/"},
    ("web_fetch", "TIMEOUT"): {"url": "http://127.0.0.1:{silent}/", "timeout": 0.3},
    ("web_search", "EXECUTION_ERROR"): {"query": "x"},
    ("web_search_google", "EXECUTION_ERROR"): {"query": "x"},
    ("web_search_serper", "EXECUTION_ERROR"): {"query": "x"},
    ("oracle", "EXECUTION_ERROR"): {"question": "x"},
    ("oracle", "TIMEOUT"): {"question": "x", "timeout": 0.3},
}


@pytest.fixture
def silent() -> Iterator[int]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: " ".join(cause))
def test_each_error_of_a_tool_happens(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, silent: int, cause: tuple[str, str]
) -> None:
    name, code = cause
    arguments = dict(CAUSES[cause])
    given = ToolSettings()
    if cause == ("edit_file", "TOO_LARGE"):
        with (bench.root / "huge").open("wb") as file:
            file.truncate(2**30)
    for name_of, body in (("failing", "assert 0"), ("slow", "__import__('time').sleep(60)")):
        text = f"import unittest\nclass T(unittest.TestCase):\n    def test_it(self): {body}\n"
        (bench.root / f"{name_of}.py").write_text(text)
    if cause == ("write_file", "TOO_LARGE"):
        force_setattr(bench.session.writer.attachment.scope, "max_file_bytes", 1000)
    if cause == ("install_package", "PERMISSION_DENIED"):
        (bench.root / ".venv").mkdir()  # no environment: it is left alone
    if cause == ("install_package", "EXECUTION_ERROR"):
        (bench.root / ".venv" / "bin").mkdir(parents=True)
        (bench.root / ".venv" / "pyvenv.cfg").touch()
        (bench.root / ".venv" / "bin" / "python").symlink_to("/bin/false")
        monkeypatch.setenv("PIP_NO_INDEX", "1")
    if cause == ("install_package", "TIMEOUT"):
        monkeypatch.setattr(pip_install, "SECONDS", 0.01)
    if name in ("git_diff", "git_log") and code == "FILE_NOT_FOUND":
        made = "-c user.name=a -c user.email=a@b commit --quiet --allow-empty -m x"
        for words in ("init --quiet", made):
            subprocess.run(["git", *words.split()], cwd=bench.root, check=True)
    if cause == ("search_code", "EXECUTION_ERROR"):
        force_setattr(bench.session.writer.attachment.on_disk, "code", None)
    if cause == ("search_files", "TIMEOUT"):
        (bench.root / "b").write_text("a" * 60 + "!\n")
        monkeypatch.setattr(SearchFiles, "timeout_seconds", 6)
    if cause == ("oracle", "TIMEOUT"):
        given = ToolSettings(proxy_url=f"http://127.0.0.1:{silent}")
    if cause == ("web_fetch", "TIMEOUT"):
        arguments["url"] = str(arguments["url"]).format(silent=silent)
        given = ToolSettings(private_hosts=("127.0.0.1",))
    if name == "undo" and code != "NOT_FOUND":
        assert bench.call("write_file", {"path": "made", "content": "x"}).ok
    if cause == ("undo", "CONFLICT"):
        (bench.root / "made").write_text("a person's")
    if cause == ("undo", "PERMISSION_DENIED"):
        monkeypatch.setattr(OwnCalls, "_who_allowed", lambda *_: "person:ada")
    result = bench.call(name, arguments, settings=given)
    assert result.error.code == code, result.error
    assert bench.last().result["error"]["code"] == code


EVERYWHERE = {
    "UNKNOWN_TOOL",
    "INVALID_ARGUMENTS",
    "SERIALIZATION",
    "NO_WORKSPACE",
    "APPROVAL_DENIED",
    "AUDIT_UNAVAILABLE",
    "*",
}


def test_the_table_of_errors_is_what_happens() -> None:
    text = (ROOT / "docs" / "tools.md").read_text("utf-8")
    written = {
        (name, code)
        for line in text.splitlines()
        if (row := re.fullmatch(r"\| (`\w+`(?:, `\w+`)*) \| ([A-Z_ ]+) \|", line))
        for name in re.findall(r"`(\w+)`", row[1])
        for code in row[2].split()
    }
    happens = {(tool, code) for tool, _, code in BAD.values() if code not in EVERYWHERE}
    assert written == happens | {*CAUSES}
    assert {name for name, _ in written} == {tool.name for tool in builtin_tools()}
    assert EVERYWHERE - {"*"} <= {*re.findall(r"`([A-Z_]+)`", text)}
