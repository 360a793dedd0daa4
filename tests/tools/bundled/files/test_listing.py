"""list_files: one level unless asked, at most ten down, paths of the workspace."""

import os
import shutil
from datetime import datetime
from pathlib import Path

import pytest

from loom_audit.tools.bundled.files import listing
from loom_audit.tools.calls.result import ToolResult
from tests.tools.conftest import Bench


def paths(result: ToolResult) -> list[str]:
    return [item["path"] for item in result.data["files"]]


@pytest.fixture
def empty(bench: Bench) -> Bench:
    shutil.rmtree(bench.root / "src")
    (bench.root / "notes.txt").unlink()
    assert not [*bench.root.iterdir()]
    return bench


@pytest.fixture
def deep(empty: Bench) -> Bench:
    bench = empty
    folder = bench.root
    for level in range(1, 13):
        folder = folder / f"d{level}"
        folder.mkdir()
        (folder / "f.txt").write_text("x" * level)
    return bench


def test_only_the_directory_itself_is_listed_unless_asked(empty: Bench) -> None:
    (empty.root / "Cargo.toml").write_bytes(b"x" * 512)
    (empty.root / "src").mkdir()
    (empty.root / "src" / "main.rs").write_bytes(b"y" * 1024)
    result = empty.call("list_files", {})
    assert result.data == {
        "files": [
            {"path": "Cargo.toml", "size": 512, "is_dir": False},
            {"path": "src", "size": 0, "is_dir": True},
        ],
        "left_out": {},
        "truncated": False,
    }
    assert result.output == "       512  Cargo.toml\n         0  src/"
    assert paths(empty.call("list_files", {"path": "src"})) == ["src/main.rs"]


def test_recursion_ends_at_depth_ten_by_default_and_earlier_when_asked(deep: Bench) -> None:
    found = paths(deep.call("list_files", {"recursive": True}))
    assert max(path.count("/") for path in found) == 9
    assert "d1/d2/f.txt" in found
    found = paths(deep.call("list_files", {"recursive": True, "max_depth": 2}))
    assert found == ["d1", "d1/d2", "d1/f.txt"]


def test_a_depth_over_ten_is_refused(empty: Bench) -> None:
    result = empty.call("list_files", {"max_depth": 11})
    assert result.error.code == "INVALID_ARGUMENTS"


def test_heavy_folders_are_counted_by_name_and_entered_only_when_asked(empty: Bench) -> None:
    for name in (".git", "node_modules", "__pycache__", "a/__pycache__", ".mypy_cache"):
        (empty.root / name).mkdir(parents=True)
        (empty.root / name / "inside").touch()
    result = empty.call("list_files", {"recursive": True})
    assert paths(result) == [".git", "a"]
    assert result.data["left_out"] == {"__pycache__": 2, "node_modules": 1, ".mypy_cache": 1}
    assert result.output.endswith(
        "[left out: .mypy_cache, 2 × __pycache__, node_modules; all: true goes into them]"
    )
    assert paths(empty.call("list_files", {})) == [
        ".git",
        ".mypy_cache",
        "__pycache__",
        "a",
        "node_modules",
    ]
    found = paths(empty.call("list_files", {"recursive": True, "all": True}))
    assert {"node_modules/inside", "a/__pycache__/inside"} < {*found}
    assert ".git/inside" not in found
    assert paths(empty.call("list_files", {"path": "node_modules"})) == ["node_modules/inside"]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"glob": "*.py"}, ["a/b/c.py", "a/d.py", "e.py"]),
        ({"glob": "*.py", "max_depth": 1}, ["e.py"]),
        ({"glob": "a/*.py"}, ["a/d.py"]),
        ({"glob": "a/**"}, ["a/b", "a/b/c.py", "a/d.py"]),
        ({"path": "a", "glob": "*.py"}, ["a/b/c.py", "a/d.py"]),
        ({"path": "a", "glob": "b/*.py"}, ["a/b/c.py"]),
        ({"glob": "*.{rs,md}"}, ["f.md"]),
        ({"glob": "*.rs"}, []),
    ],
)
def test_a_glob_finds_paths_in_all_directories_below(
    empty: Bench, arguments: dict[str, object], wanted: list[str]
) -> None:
    for name in ("a/b/c.py", "a/d.py", "e.py", "f.md", "node_modules/g.py"):
        (empty.root / name).parent.mkdir(parents=True, exist_ok=True)
        (empty.root / name).touch()
    result = empty.call("list_files", arguments)
    assert paths(result) == wanted
    if not wanted:
        assert result.output.startswith("[nothing fits *.rs]")
    listed = empty.call("list_directory", {k: v for k, v in arguments.items() if k != "max_depth"})
    below = 2 if "path" in arguments else 0
    if "max_depth" not in arguments:
        assert [e["name"] for e in listed.data["entries"]] == [path[below:] for path in wanted]


def test_many_entries_that_do_not_fit_a_glob_do_not_hide_those_that_do(
    empty: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_ENTRIES", 3)
    for number in range(9):
        (empty.root / f"f{number}").touch()
    (empty.root / "z.py").touch()
    result = empty.call("list_files", {"glob": "*.py"})
    assert paths(result) == ["z.py"] and result.data["truncated"] is False


def test_a_symlink_to_a_directory_outside_is_named_and_not_entered(
    empty: Bench, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").touch()
    (empty.root / "link").symlink_to(outside)
    assert paths(empty.call("list_files", {"recursive": True})) == ["link"]
    assert empty.call("list_files", {"path": "link"}).error.code == "INVALID_PATH"


def test_many_entries_are_cut_and_said_so(empty: Bench) -> None:
    for number in range(5):
        (empty.root / f"f{number}").touch()
    result = empty.call("list_files", {"limit": 3})
    assert len(result.data["files"]) == 3 and result.data["truncated"]
    assert result.output.endswith("[more than 3 entries: name a directory below, or a glob]")


def test_a_file_and_a_missing_directory_are_errors(empty: Bench) -> None:
    (empty.root / "f").touch()
    assert empty.call("list_files", {"path": "f"}).error.code == "NOT_A_DIRECTORY"
    assert empty.call("list_files", {"path": "no"}).error.code == "FILE_NOT_FOUND"


def test_a_name_that_is_not_utf8_is_listed(empty: Bench) -> None:
    (empty.root / os.fsdecode(b"caf\xe9")).touch()
    assert len(empty.call("list_files", {}).data["files"]) == 1


def test_entries_have_name_type_size_and_an_iso_time(bench: Bench) -> None:
    (bench.root / "link").symlink_to("notes.txt")
    (bench.root / ".hidden").touch()
    result = bench.call("list_directory", {"path": ".", "recursive": False})
    entries = {entry["name"]: entry for entry in result.data["entries"]}
    assert {name: entry["type"] for name, entry in entries.items()} == {
        "link": "symlink",
        "notes.txt": "file",
        "src": "directory",
    }
    assert entries["notes.txt"]["size"] == (bench.root / "notes.txt").stat().st_size
    for entry in entries.values():
        assert {*entry} == {"name", "type", "size", "modified"}
        assert datetime.fromisoformat(entry["modified"]).tzinfo is not None
    shown = bench.call("list_directory", {"recursive": False, "includeHidden": True})
    assert ".hidden" in [entry["name"] for entry in shown.data["entries"]]
