"""Bad input gets an error with code and message, changes nothing, and is on record."""

import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.tools.conftest import Bench

OUTSIDE = "/etc/hostname"
NEVER = f"/tmp/never-written-by-a-tool-{os.getpid()}"
BAD = {
    "unknown tool": ("read_fiel", {"path": "notes.txt"}, "UNKNOWN_TOOL"),
    "a tool name that is not a text": (7, {}, "UNKNOWN_TOOL"),
    "an endless tool name": ("x" * 100_000, {}, "UNKNOWN_TOOL"),
    "an empty tool name": ("", {}, "UNKNOWN_TOOL"),
    "missing argument": ("read_file", {}, "INVALID_ARGUMENTS"),
    "extra argument": ("read_file", {"path": "notes.txt", "mode": 1}, "INVALID_ARGUMENTS"),
    "wrong type": ("read_file", {"path": 3}, "INVALID_ARGUMENTS"),
    "a text for a number": (
        "read_file",
        {"path": "notes.txt", "max_bytes": "9"},
        "INVALID_ARGUMENTS",
    ),
    "a boolean for a number": (
        "read_file",
        {"path": "notes.txt", "max_bytes": True},
        "INVALID_ARGUMENTS",
    ),
    "arguments null": ("read_file", None, "INVALID_ARGUMENTS"),
    "arguments a list": ("read_file", ["notes.txt"], "INVALID_ARGUMENTS"),
    "arguments a text": ("read_file", '{"path": "notes.txt"}', "INVALID_ARGUMENTS"),
    "arguments an object of Python": ("read_file", object(), "SERIALIZATION"),
    "arguments with bytes": ("write_file", {"path": "x", "content": b"x"}, "SERIALIZATION"),
    "arguments with NaN": ("read_file", {"path": "x", "max_bytes": float("nan")}, "SERIALIZATION"),
    "arguments with a number for a key": ("read_file", {1: 2}, "SERIALIZATION"),
    "line range backwards": (
        "read_file",
        {"path": "notes.txt", "line_range": [3, 2]},
        "INVALID_ARGUMENTS",
    ),
    "line range from 0": (
        "read_file",
        {"path": "notes.txt", "line_range": [0, 2]},
        "INVALID_ARGUMENTS",
    ),
    "line range of one": (
        "read_file",
        {"path": "notes.txt", "line_range": [1]},
        "INVALID_ARGUMENTS",
    ),
    "no such encoding": (
        "read_file",
        {"path": "notes.txt", "encoding": "latin-1"},
        "INVALID_ARGUMENTS",
    ),
    "no such file": ("read_file", {"path": "missing.txt"}, "FILE_NOT_FOUND"),
    "below a file": ("read_file", {"path": "notes.txt/x"}, "NOT_A_DIRECTORY"),
    "writing below a file": (
        "write_file",
        {"path": "notes.txt/x", "content": ""},
        "NOT_A_DIRECTORY",
    ),
    "a directory where a file is expected": ("read_file", {"path": "src"}, "IS_A_DIRECTORY"),
    "a file where a directory is expected": (
        "list_directory",
        {"path": "notes.txt"},
        "NOT_A_DIRECTORY",
    ),
    "listing what is not there": ("list_directory", {"path": "nowhere"}, "FILE_NOT_FOUND"),
    "empty path": ("read_file", {"path": ""}, "INVALID_ARGUMENTS"),
    "up and out": ("read_file", {"path": "../secret"}, "INVALID_PATH"),
    "up and out below": ("read_file", {"path": "src/../../secret"}, "INVALID_PATH"),
    "absolute outside": ("read_file", {"path": OUTSIDE}, "INVALID_PATH"),
    "write outside": ("write_file", {"path": NEVER, "content": ""}, "INVALID_PATH"),
    "write up and out": ("write_file", {"path": "../x", "content": ""}, "INVALID_PATH"),
    "edit outside": ("edit_file", {"path": OUTSIDE, "old_str": "", "new_str": "x"}, "INVALID_PATH"),
    "delete outside": ("delete_file", {"path": "../home", "recursive": True}, "INVALID_PATH"),
    "move out": ("move_file", {"from": "notes.txt", "to": "../x"}, "INVALID_PATH"),
    "move in": ("move_file", {"from": OUTSIDE, "to": "x"}, "INVALID_PATH"),
    "list outside": ("list_directory", {"path": ".."}, "INVALID_PATH"),
    "search outside": ("search_files", {"pattern": "x", "path": ".."}, "INVALID_PATH"),
    "run outside": ("shell_execute", {"command": "true", "cwd": ".."}, "INVALID_PATH"),
    "run in a file": ("shell_execute", {"command": "true", "cwd": "notes.txt"}, "NOT_A_DIRECTORY"),
    "run nowhere": ("shell_execute", {"command": "true", "cwd": "no"}, "FILE_NOT_FOUND"),
    "own process": ("read_file", {"path": "/proc/self/environ"}, "INVALID_PATH"),
    "through a link out": ("read_file", {"path": "out/hostname"}, "INVALID_PATH"),
    "a link out": ("read_file", {"path": "secret"}, "INVALID_PATH"),
    "write through a link out": ("write_file", {"path": "out/new", "content": ""}, "INVALID_PATH"),
    "write to a link out": ("write_file", {"path": "secret", "content": ""}, "INVALID_PATH"),
    "list a link out": ("list_directory", {"path": "out"}, "INVALID_PATH"),
    "search a link out": ("search_files", {"pattern": "x", "path": "out"}, "INVALID_PATH"),
    "the repository": ("write_file", {"path": ".git/config", "content": ""}, "INVALID_PATH"),
    "a fifo": ("read_file", {"path": "fifo"}, "INVALID_PATH"),
    "writing a fifo": ("write_file", {"path": "fifo", "content": ""}, "INVALID_PATH"),
    "a socket": ("read_file", {"path": "socket"}, "INVALID_PATH"),
    "NUL in a path": ("read_file", {"path": "a\0b"}, "INVALID_PATH"),
    "NUL in a command": ("shell_execute", {"command": "a\0b"}, "INVALID_ARGUMENTS"),
    "a name of 300": ("write_file", {"path": "n" * 300, "content": ""}, "INVALID_PATH"),
    "a path of 5000": ("write_file", {"path": "n/" * 2500 + "n", "content": ""}, "INVALID_PATH"),
    "old_str not there": (
        "edit_file",
        {"path": "notes.txt", "old_str": "4th", "new_str": ""},
        "INVALID_ARGUMENTS",
    ),
    "old_str twice": (
        "edit_file",
        {"path": "src/main.py", "old_str": "print", "new_str": ""},
        "INVALID_ARGUMENTS",
    ),
    "edit of no file": (
        "edit_file",
        {"path": "no", "old_str": "a", "new_str": ""},
        "FILE_NOT_FOUND",
    ),
    "edit of a directory": (
        "edit_file",
        {"path": "src", "old_str": "", "new_str": "x"},
        "IS_A_DIRECTORY",
    ),
    "edit in both forms": (
        "edit_file",
        {"path": "notes.txt", "old_str": "a", "new_str": "", "edits": []},
        "INVALID_ARGUMENTS",
    ),
    "edit in no form": ("edit_file", {"path": "notes.txt"}, "INVALID_ARGUMENTS"),
    "half an edit": ("edit_file", {"path": "notes.txt", "old_str": "a"}, "INVALID_ARGUMENTS"),
    "no edits": ("edit_file", {"path": "notes.txt", "edits": []}, "INVALID_ARGUMENTS"),
    "a lone surrogate as content": (
        "write_file",
        {"path": "x", "content": "\ud800"},
        "INVALID_ARGUMENTS",
    ),
    "no base64": (
        "write_file",
        {"path": "x", "content": "é", "encoding": "base64"},
        "INVALID_ARGUMENTS",
    ),
    "write on a directory": ("write_file", {"path": "src", "content": ""}, "IS_A_DIRECTORY"),
    "write on the workspace": ("write_file", {"path": ".", "content": ""}, "IS_A_DIRECTORY"),
    "delete what is not there": ("delete_file", {"path": "no"}, "FILE_NOT_FOUND"),
    "delete a full directory": ("delete_file", {"path": "src"}, "NOT_EMPTY"),
    "delete the workspace": ("delete_file", {"path": ".", "recursive": True}, "INVALID_PATH"),
    "move what is not there": ("move_file", {"from": "no", "to": "x"}, "FILE_NOT_FOUND"),
    "move onto a file": ("move_file", {"from": "notes.txt", "to": "src/main.py"}, "CONFLICT"),
    "move into itself": ("move_file", {"from": "src", "to": "src/in"}, "INVALID_PATH"),
    "invalid regex": ("search_files", {"pattern": "(["}, "INVALID_ARGUMENTS"),
    "search nowhere": ("search_files", {"pattern": "x", "path": "no"}, "FILE_NOT_FOUND"),
    "no command": ("shell_execute", {"command": ""}, "INVALID_ARGUMENTS"),
    "too long a timeout": (
        "shell_execute",
        {"command": "true", "timeout": 301},
        "INVALID_ARGUMENTS",
    ),
}


@pytest.fixture(scope="module")
def trapped(
    tmp_path_factory: pytest.TempPathFactory,
    new_bench: Callable[[Path], AbstractContextManager[Bench]],
) -> Iterator[Bench]:
    """A workspace with everything in it that is not to be touched; no row may change it."""
    with new_bench(tmp_path_factory.mktemp("trapped")) as bench:
        (bench.root / "out").symlink_to("/etc")
        (bench.root / "secret").symlink_to(OUTSIDE)
        (bench.root / ".git").mkdir()
        (bench.root / ".git/config").write_text("[core]\n")
        os.mkfifo(bench.root / "fifo")
        with socket.socket(socket.AF_UNIX) as listening:
            here = Path.cwd()
            os.chdir(bench.root)  # a socket's path is short
            try:
                listening.bind("socket")
            finally:
                os.chdir(here)
            yield bench


@pytest.mark.parametrize("row", BAD)
def test_bad_input(trapped: Bench, row: str) -> None:
    tool, arguments, code = BAD[row]
    before, asked_before = trapped.tree(), len(trapped.requested())
    result = trapped.call(tool, arguments)
    assert not result.success and result.output.startswith("Error: ")
    assert result.error.message and result.error.hint, result.error
    assert code in ("*", result.error.code), result.error
    assert result.files_changed == []
    assert trapped.tree() == before and not os.path.lexists(NEVER)
    trapped.assert_every_call_has_one_finish()
    (asked,) = trapped.requested()[asked_before:]
    (fact,) = trapped.finished()[asked_before:]
    assert fact.call_id == asked.call_id and fact.status == "error"
    assert fact.result["error"]["code"] == result.error.code
    if isinstance(tool, str) and 0 < len(tool) < 100:
        assert asked.tool == tool
    if result.error.code != "SERIALIZATION":
        assert asked.arguments == arguments


def test_messages_say_what_and_what_to_do(bench: Bench) -> None:
    missing = bench.call("read_file", {"path": "missing.txt"})
    assert missing.output.split("\n")[0] == "Error: File not found: missing.txt"
    assert str(missing.error) == "File not found: missing.txt"
    unknown = bench.call("read_fiel", {})
    assert unknown.output == "Error: Unknown tool: read_fiel\nDid you mean read_file?"
    listed = [tool.name for tool in bench.registry.usable(bench.session.settings)]
    assert len(listed) < len(bench.registry.list())
    said = bench.call("nothing like it", {}).error.hint
    assert said == f"There are: {', '.join(listed)}."
    extra = bench.call("read_file", {"path": "notes.txt", "mode": 1, "line_range": "x"})
    assert "'mode' was unexpected" in extra.output and "line_range: 'x'" in extra.output
    assert (
        "path, line_range?, line_offset?, line_limit?, offset?, limit?, max_bytes?" in extra.output
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("bash", {"command": "true", "timeout": 600}, "timeout: 600 is greater than the maximum"),
        ("bash", {"command": "true", "timeout": "x"}, "timeout: 'x' is not of type 'integer'"),
        ("run_tests", {"paths": [""]}, "paths.0: '' should be non-empty"),
        ("run_tests", {"paths": [3]}, "paths.0: 3 is not of type 'string'"),
    ],
)
def test_a_refused_optional_argument_is_told_its_limit(
    bench: Bench, tool: str, arguments: dict[str, object], said: str
) -> None:
    assert said in bench.call(tool, arguments).error.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"path": "a.txt",\n "max_bytes" 3}', "are not JSON: Expecting ':' delimiter at line 2"),
        ('{"path": ', "are not JSON: Expecting value at line 1, column 10"),
        ("[" * 100_000, "are not JSON that can be read"),
        ('{"path": "notes.txt"}', "must be a JSON object, not str"),
    ],
)
def test_broken_json_is_told_where_it_breaks(bench: Bench, text: str, said: str) -> None:
    result = bench.call("read_file", text)
    assert result.error.code == "INVALID_ARGUMENTS"
    assert result.error.message.startswith(f"The arguments of read_file {said}")


def test_values_that_cannot_be_recorded_are_on_record_as_far_as_possible(bench: Bench) -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    cyclic: list[object] = []
    cyclic.append(cyclic)
    result = bench.call("read_file", {"path": "x", "n": float("inf"), "b": Broken(), "c": cyclic})
    assert result.error.code == "SERIALIZATION"
    recorded = bench.requested()[0].arguments
    assert recorded["path"] == "x" and "inf" in recorded["n"] and recorded["b"] == "<Broken>"
    bench.assert_every_call_has_one_finish()


def test_a_file_over_the_limit_of_the_record_is_not_written(bench: Bench) -> None:
    bench.store.attach(bench.root, max_file_bytes=100)
    assert bench.call("write_file", {"path": "small", "content": "x"}).success
    before = bench.tree()
    assert bench.call("write_file", {"path": "x", "content": "x" * 101}).error.code == "TOO_LARGE"
    grow = {"path": "notes.txt", "old_str": "", "new_str": "x" * 100}
    assert bench.call("edit_file", grow).error.code == "TOO_LARGE"
    assert bench.tree() == before
    bench.assert_every_call_has_one_finish()


def test_a_huge_file_is_not_read_into_memory_to_be_edited(bench: Bench) -> None:
    with (bench.root / "huge").open("wb") as file:
        file.truncate(2**40)
    edit = {"path": "huge", "old_str": "a", "new_str": "b"}
    assert bench.call("edit_file", edit).error.code == "TOO_LARGE"
    assert bench.call("read_file", {"path": "huge", "max_bytes": 10}).data["truncated"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_what_the_system_refuses(bench: Bench) -> None:
    (bench.root / "notes.txt").chmod(0)
    (bench.root / "src").chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        refused = "PERMISSION_DENIED"
        assert bench.call("read_file", {"path": "notes.txt"}).error.code == refused
        assert bench.call("write_file", {"path": "src/x", "content": ""}).error.code == refused
        assert bench.call("delete_file", {"path": "src/main.py"}).error.code == refused
    finally:
        (bench.root / "src").chmod(0o755)
    bench.assert_every_call_has_one_finish()


@pytest.mark.few(0)
def test_a_link_swapped_while_calls_run_never_leaks(bench: Bench) -> None:
    """Another process keeps exchanging a directory for a link to one outside."""
    import multiprocessing

    inside, outside = bench.root / "d", bench.root.parent / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "f").write_text("inside")
    (outside / "f").write_text("SECRET")
    swapping = multiprocessing.get_context("spawn").Process(target=_swap, args=(str(bench.root),))
    swapping.start()
    try:
        seen = {bench.call("read_file", {"path": "d/f"}).output.split(":")[0] for _ in range(150)}
        for n in range(30):
            bench.call("write_file", {"path": "d/f", "content": f"inside {n}"})
    finally:
        swapping.terminate()
        swapping.join()
    assert not [text for text in seen if "SECRET" in text]
    assert (outside / "f").read_text() == "SECRET"
    assert [path.name for path in outside.iterdir()] == ["f"]
    bench.assert_every_call_has_one_finish()


def _swap(root: str) -> None:
    os.chdir(root)
    os.symlink("../outside", "l")
    while True:
        os.rename("d", "t")
        os.rename("l", "d")
        os.rename("d", "l")
        os.rename("t", "d")


def test_calls_in_a_workspace_that_vanished_fail_on_record(bench: Bench) -> None:
    shutil.rmtree(bench.root)
    for tool, arguments in (
        ("read_file", {"path": "notes.txt"}),
        ("write_file", {"path": "x/y", "content": ""}),
        ("edit_file", {"path": "notes.txt", "old_str": "first", "new_str": "1st"}),
        ("delete_file", {"path": "notes.txt"}),
        ("list_directory", {}),
        ("search_files", {"pattern": "x"}),
        ("shell_execute", {"command": "true"}),
    ):
        result = bench.call(tool, arguments)
        assert not result.success and result.error.message, tool
    assert not bench.root.exists()
    bench.assert_every_call_has_one_finish()
