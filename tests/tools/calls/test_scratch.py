"""scratch://: a directory of the session's own, outside the workspace and out of its log."""

import os
from pathlib import Path
from typing import Any

import pytest

from loom_audit.model.events import CallRequested
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool
from tests.tools.conftest import Bench

MISSING = "FILE_NOT_FOUND"


def scratch_of(bench: Bench) -> Path:
    return Path(bench.session.writer.scratch.root)


def test_every_file_tool_takes_scratch_paths(bench: Bench) -> None:
    before = bench.tree()
    made = bench.call("write_file", {"path": "scratch://a/note.txt", "content": "one\ntwo\n"})
    assert made.success and made.data["path"] == "scratch://a/note.txt" and made.data["created"]
    assert (scratch_of(bench) / "a" / "note.txt").read_text() == "one\ntwo\n"
    read = bench.call("read_file", {"path": "scratch://a/note.txt", "line_range": [2, 2]})
    assert read.data["content"] == "two\n" and read.data["path"] == "scratch://a/note.txt"
    edit = {"path": "scratch://a/note.txt", "old_str": "two", "new_str": "three"}
    assert bench.call("edit_file", edit).data["new_bytes"] == 10
    found = bench.call("search_files", {"pattern": "thr", "path": "scratch://"})
    assert found.output == "scratch://a/note.txt:2: three"
    listed = bench.call("list_files", {"path": "scratch://", "recursive": True})
    assert [f["path"] for f in listed.data["files"]] == ["scratch://a", "scratch://a/note.txt"]
    tree = bench.call("list_directory", {"path": "scratch://", "recursive": True})
    assert [entry["name"] for entry in tree.data["entries"]] == ["a", "a/note.txt"]
    moved = {"from": "scratch://a/note.txt", "to": "scratch://b/n.txt"}
    assert bench.call("move_file", moved).success
    assert not (scratch_of(bench) / "a" / "note.txt").exists()
    gone = bench.call("delete_file", {"path": "scratch://b", "recursive": True})
    assert gone.data["deleted"] == ["scratch://b", "scratch://b/n.txt"]
    assert bench.tree() == before


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "scratch://out/passwd"}),
        ("write_file", {"path": "scratch://out/passwd", "content": "x"}),
        ("edit_file", {"path": "scratch://out/passwd", "old_str": "a", "new_str": "b"}),
        ("list_directory", {"path": "scratch://out"}),
    ],
)
def test_a_link_out_of_the_scratch_directory_is_not_said_to_leave_the_workspace(
    bench: Bench, tool: str, arguments: dict[str, str]
) -> None:
    (scratch_of(bench) / "out").symlink_to("/etc")
    error = bench.call(tool, arguments).error
    assert error.code == "INVALID_PATH" and "leads outside: out" in error.message
    assert "workspace" not in error.message and "scratch directory" in error.hint


def test_scratch_changes_are_calls_on_record_with_their_gap_named(bench: Bench) -> None:
    head = bench.workspace.log.head()
    bench.call("write_file", {"path": "scratch://x", "content": "secret"})
    last = bench.last()
    assert last.tool == "write_file" and last.status == "ok"
    assert "outside the workspace: scratch" in last.coverage.reasons
    assert [fact.arguments for fact in bench.requested()][-1]["content"] == "secret"
    assert bench.workspace.log.head() > head and not bench.workspace.timeline.diff(
        head, bench.workspace.log.head()
    )
    assert bench.call("write_file", {"path": "scratch://x", "content": "b"}).files_changed == []


def test_commands_can_write_the_scratch_directory_and_are_told_where_it_is(bench: Bench) -> None:
    result = bench.call("bash", {"command": 'echo hi > "$SCRATCH_DIR/out"; cat "$SCRATCH_DIR/out"'})
    assert result.data["stdout"] == "hi\n" and result.files_changed == []
    assert bench.call("read_file", {"path": "scratch://out"}).data["content"] == "hi\n"


def test_each_session_has_its_own_and_it_ends_with_the_session(bench: Bench) -> None:
    with bench.workspace.session("other") as other:
        first, second = scratch_of(bench), Path(other.writer.scratch.root)
        assert first != second and second.is_dir()
        assert second.stat().st_mode & 0o777 == 0o700
        (second / "left").write_text("x")
    assert not second.exists() and first.is_dir()


@pytest.mark.parametrize(
    "path",
    [
        "scratch://../x",
        "scratch://a/../../x",
        "scratch://..",
        "scratch:///../../etc/passwd",
        "scratch://a\0b",
        "scratch://" + "n" * 300,
    ],
)
def test_a_scratch_path_cannot_leave_it(bench: Bench, path: str) -> None:
    for tool, more in (("read_file", {}), ("write_file", {"content": "x"}), ("delete_file", {})):
        result = bench.call(tool, {"path": path, **more})
        assert result.error.code in ("INVALID_PATH", "FILE_NOT_FOUND"), (tool, path)


def test_a_path_that_leaves_it_is_told_as_written(bench: Bench) -> None:
    path = "scratch://a/../../x"
    for tool, more in (("read_file", {}), ("write_file", {"content": ""}), ("delete_file", {})):
        said = bench.call(tool, {"path": path, **more}).error.message
        assert said == f"the path leaves the scratch directory: {path}"


def test_a_listing_of_it_is_headed_by_its_name(bench: Bench) -> None:
    bench.call("write_file", {"path": "scratch://a/b.txt", "content": ""})
    assert bench.call("list_directory", {"path": "scratch://"}).output.startswith(
        "scratch://\n  a/"
    )
    assert bench.call("list_directory", {"path": "scratch://a"}).output.startswith("scratch://a/\n")


def test_a_link_in_the_scratch_directory_leads_nowhere(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("keep")
    (scratch_of(bench) / "link").symlink_to(outside)
    assert bench.call("read_file", {"path": "scratch://link"}).error.code == "INVALID_PATH"
    written = bench.call("write_file", {"path": "scratch://link", "content": "x"})
    assert written.error.code == "INVALID_PATH"
    (scratch_of(bench) / "folder").symlink_to(tmp_path)
    made = bench.call("write_file", {"path": "scratch://folder/new.txt", "content": "x"})
    assert not made.success
    assert outside.read_text() == "keep" and not (tmp_path / "new.txt").exists()


def test_nothing_is_moved_between_workspace_and_scratch(bench: Bench) -> None:
    result = bench.call("move_file", {"from": "notes.txt", "to": "scratch://notes.txt"})
    assert result.error.code == "INVALID_PATH" and (bench.root / "notes.txt").exists()


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("read_file", {"path": "scratch://no"}, "FILE_NOT_FOUND"),
        ("delete_file", {"path": "scratch://"}, "INVALID_PATH"),
        ("delete_file", {"path": "scratch://no"}, "FILE_NOT_FOUND"),
        ("delete_file", {"path": "scratch://d"}, "NOT_EMPTY"),
        ("write_file", {"path": "scratch://d", "content": ""}, "IS_A_DIRECTORY"),
        ("write_file", {"path": "scratch://d/f/x", "content": ""}, "NOT_A_DIRECTORY"),
        ("write_file", {"path": "scratch://n/x", "content": "", "createDirs": False}, MISSING),
        ("move_file", {"from": "scratch://no", "to": "scratch://x"}, "FILE_NOT_FOUND"),
        ("move_file", {"from": "scratch://d", "to": "scratch://x"}, "INVALID_PATH"),
        ("move_file", {"from": "scratch://d/f", "to": "scratch://g"}, "CONFLICT"),
        ("edit_file", {"path": "scratch://g", "old_str": "no", "new_str": ""}, "INVALID_ARGUMENTS"),
    ],
)
def test_bad_input_is_a_clear_error_and_changes_nothing(
    bench: Bench, tool: str, arguments: dict[str, object], code: str
) -> None:
    folder = scratch_of(bench)
    (folder / "d").mkdir()
    (folder / "d" / "f").write_text("f")
    (folder / "g").write_text("g")
    before = sorted(path.name for path in folder.rglob("*"))
    assert bench.call(tool, arguments).error.code == code
    assert sorted(path.name for path in folder.rglob("*")) == before
    assert (folder / "g").read_text() == "g"


def test_the_request_is_on_record_before_the_scratch_directory_changes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    class Peeking(Tool):
        name, description, effect = "peeking", "Writes and looks.", "write"

        async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
            await ctx.write("scratch://p", b"x")
            facts = [event.fact for event in bench.events("call.requested")]
            seen.extend(f.tool for f in facts if isinstance(f, CallRequested))
            return ToolResult(True)

    bench.registry.register(Peeking())
    bench.call("peeking", {})
    assert "peeking" in seen


def test_a_tool_that_only_reads_cannot_write_there(bench: Bench) -> None:
    class Sly(Tool):
        name, description = "sly", "Says it reads."

        async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
            await ctx.write("scratch://p", b"x")
            return ToolResult(True)

    bench.registry.register(Sly())
    assert bench.call("sly", {}).error.code == "PERMISSION_DENIED"
    assert not (scratch_of(bench) / "p").exists()


@pytest.mark.few(0)
def test_folders_that_a_command_has_nested_deeply_can_be_deleted(bench: Bench) -> None:
    nest = "import os; os.chdir(os.environ['SCRATCH_DIR'])\n" + (
        "for _ in range(1200): os.mkdir('d'); os.chdir('d')"
    )
    assert bench.call("run_code", {"language": "python", "code": nest}).success
    bench.registry.get("delete_file").timeout_seconds = 250  # a slow machine is not a failure
    result = bench.call("delete_file", {"path": "scratch://d", "recursive": True})
    assert result.success
    assert [one.name for one in scratch_of(bench).iterdir()] == ["output"]  # its long answer


@pytest.mark.few(0)
def test_a_session_ends_whatever_a_command_has_left_in_scratch(bench: Bench) -> None:
    with bench.workspace.session("tester") as session:
        folder = Path(session.writer.scratch.root)
        here = os.open(folder, os.O_RDONLY)
        for _ in range(1_200):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
    assert not folder.exists()
