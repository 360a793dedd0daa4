"""A lone surrogate in any text of any tool is an error that says so, and changes nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from loom_audit.tools.bundled.builtin import BUNDLED, bundled_tool
from tests.tools.conftest import Bench

ARGUMENTS: dict[str, dict[str, Any]] = {
    "read_file": {"path": "notes.txt"},
    "write_file": {"path": "new.txt", "content": "x"},
    "edit_file": {"path": "notes.txt", "old_str": "first", "new_str": "1st"},
    "delete_file": {"path": "notes.txt"},
    "move_file": {"from": "notes.txt", "to": "b.txt"},
    "list_directory": {"path": ".", "glob": "*"},
    "list_files": {"path": ".", "glob": "*"},
    "search_files": {"pattern": "x", "path": ".", "file_pattern": "*"},
    "search_code": {"query": "x", "path": "."},
    "shell_execute": {"command": "true", "cwd": "."},
    "bash": {"command": "true", "cwd": "."},
    "undo": {"call": 1},
    "history": {"path": "notes.txt"},
    "bash_output": {"id": "bg1"},
    "bash_stop": {"id": "bg1"},
    "run_code": {"language": "bash", "code": "true", "args": ["x"], "env": {"A": "x"}},
    "git_diff": {"paths": ["x"], "from": "HEAD"},
    "git_log": {"ref": "HEAD", "paths": ["x"]},
    "git_commit": {"message": "x", "paths": ["x"]},
    "git_push": {"remote": "x"},
    "run_tests": {"paths": ["x"]},
    "format_code": {"paths": ["x"]},
    "install_package": {"manager": "pip", "packages": ["x"]},
    "web_fetch": {"url": "http://x/"},
    "web_search": {"query": "x"},
    "web_search_google": {"query": "x"},
    "web_search_serper": {"query": "x"},
    "oracle": {"question": "x"},
}
BYTES = {
    *("path", "from", "to", "paths", "cwd", "glob", "file_pattern"),
    *("command", "code", "args", "env", "ref", "remote"),
    "id",
}
"""Texts that may name what has a name that is not UTF-8, as some surrogates stand for its bytes;
and those that are only compared with names that are known."""


def with_sign(value: Any, sign: str) -> Iterator[tuple[str, Any]]:
    """The arguments with the sign in one text after the other."""
    if isinstance(value, str):
        yield "", value + sign
    elif isinstance(value, dict):
        for key, inner in value.items():
            for _, made in with_sign(inner, sign):
                yield key, {**value, key: made}
    elif isinstance(value, list):
        for n, inner in enumerate(value):
            for _, made in with_sign(inner, sign):
                yield "", [*value[:n], made, *value[n + 1 :]]


def test_every_tool_with_texts_is_asked() -> None:
    assert {*ARGUMENTS} == {name for name in BUNDLED if bundled_tool(name).parameters["properties"]}


@pytest.mark.parametrize("tool", ARGUMENTS)
def test_a_lone_surrogate_is_refused_wherever_it_stands(bench: Bench, tool: str) -> None:
    before = bench.tree()
    for sign in ("\ud800", "\udfff", "\udcff"):
        for key, arguments in with_sign(ARGUMENTS[tool], sign):
            if (sign == "\udcff" and key in BYTES) or key in ("language", "manager"):
                continue
            result = bench.call(tool, arguments)
            assert result.error is not None, (key, sign)
            assert result.error.code == "INVALID_ARGUMENTS", (key, sign, result.output)
            assert result.error.hint
            assert "lone surrogate" in result.error.message or sign == "\udcff"
    assert bench.tree() == before
    bench.assert_every_call_has_one_finish()
