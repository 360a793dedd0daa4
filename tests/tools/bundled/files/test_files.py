"""What the file tools do to a real directory, and what they say."""

import base64
import os
from datetime import datetime
from typing import Any, BinaryIO

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.errors import AuditError
from loom_audit.model.events import ChangeIntended
from loom_audit.model.files import FileChange
from loom_audit.ports import Displaced
from loom_audit.tools.bundled.edits import TextEdit, apply_edits
from loom_audit.tools.calls.call import call_tool
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.gate import Decision
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool
from tests.tools.conftest import Bench

slow = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def test_read_file_gives_content_size_time_and_path(bench: Bench) -> None:
    result = bench.call("read_file", {"path": "src/main.py"})
    text = (bench.root / "src/main.py").read_text()
    assert result.success
    assert (
        result.output == "     1\timport os\n     2\t\n     3\tprint('one')\n     4\tprint('two')\n"
    )
    asked = {"path": "src/main.py", "numbers": False}
    assert bench.call("read_file", asked).output == text
    data = result.data
    assert data["path"] == "src/main.py"
    assert data["content"] == data["contents"] == text
    assert data["size"] == len(text) and data["truncated"] is False
    modified = datetime.fromisoformat(data["modified"]).timestamp()
    assert abs(modified - (bench.root / "src/main.py").stat().st_mtime) < 0.001


def test_read_file_of_an_absolute_path_inside(bench: Bench) -> None:
    result = bench.call("read_file", {"path": str(bench.root / "src/main.py")})
    assert result.data["path"] == "src/main.py"


def test_read_file_follows_a_symlink_inside(bench: Bench) -> None:
    (bench.root / "link").symlink_to("src/main.py")
    result = bench.call("read_file", {"path": "link"})
    assert result.output.startswith("     1\timport os")


def test_read_file_of_a_range_of_lines_keeps_their_ends(bench: Bench) -> None:
    result = bench.call("read_file", {"path": "notes.txt", "line_range": [2, 3]})
    assert result.data["content"] == "second\r\nthird"


def test_read_file_of_lines_past_the_end_says_how_many_there_are(bench: Bench) -> None:
    result = bench.call("read_file", {"path": "notes.txt", "line_range": [7, 9]})
    assert result.success and result.data["content"] == ""
    assert result.output == "[nothing there: notes.txt has 3 lines]"


def test_read_file_is_cut_at_max_bytes_between_characters(bench: Bench) -> None:
    (bench.root / "é.txt").write_text("éééé")
    result = bench.call("read_file", {"path": "é.txt", "max_bytes": 5})
    assert result.data["content"] == "éé" and result.data["truncated"] is True
    assert result.output == "     1\téé\n[bytes 0 to 4 of 8; offset 4 goes on]"


def test_read_file_of_a_binary_is_lossy_as_text_and_exact_as_base64(bench: Bench) -> None:
    (bench.root / "b.bin").write_bytes(b"a\xff\0b")
    assert bench.call("read_file", {"path": "b.bin"}).data["content"] == "a\ufffd\0b"
    exact = bench.call("read_file", {"path": "b.bin", "encoding": "base64"})
    assert base64.b64decode(exact.data["content"]) == b"a\xff\0b"


def test_an_empty_file_reads_as_empty(bench: Bench) -> None:
    (bench.root / "empty").touch()
    assert bench.call("read_file", {"path": "empty"}).data["content"] == ""


def test_a_name_that_is_not_utf_8_can_be_written_listed_read_and_deleted(bench: Bench) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    assert bench.call("write_file", {"path": name, "content": "x"}).success
    assert (bench.root / name).read_bytes() == b"x"
    listed = bench.call("list_directory", {"recursive": False})
    assert name in [entry["name"] for entry in listed.data["entries"]]
    assert bench.call("read_file", {"path": name}).data["content"] == "x"
    assert bench.call("delete_file", {"path": name}).data == {"deleted": [name]}
    bench.assert_log_agrees_with_disk()


def test_write_file_creates_parents_and_counts_bytes(bench: Bench) -> None:
    result = bench.call("write_file", {"path": "a/b/c.txt", "content": "é\r\n"})
    assert result.success and result.data == {"path": "a/b/c.txt", "size": 4, "created": True}
    assert (bench.root / "a/b/c.txt").read_bytes() == b"\xc3\xa9\r\n"
    assert result.files_changed == ["a", "a/b", "a/b/c.txt"]
    bench.assert_log_agrees_with_disk()


def test_write_file_without_create_dirs_needs_the_directory(bench: Bench) -> None:
    before = bench.tree()
    result = bench.call("write_file", {"path": "a/b.txt", "content": "", "createDirs": False})
    assert not result.success and result.error.code == "FILE_NOT_FOUND"
    assert bench.tree() == before


def test_write_file_keeps_the_permission_bits_of_what_it_replaces(bench: Bench) -> None:
    (bench.root / "run.sh").write_text("old")
    (bench.root / "run.sh").chmod(0o750)
    assert bench.call("write_file", {"path": "run.sh", "content": "new"}).success
    assert (bench.root / "run.sh").stat().st_mode & 0o7777 == 0o750


def test_write_file_takes_base64(bench: Bench) -> None:
    content = base64.b64encode(bytes(range(256))).decode()
    arguments = {"path": "all.bin", "content": content, "encoding": "base64"}
    assert bench.call("write_file", arguments).success
    assert (bench.root / "all.bin").read_bytes() == bytes(range(256))


@slow
@given(content=st.text(max_size=300), name=st.text("abcé 🙂", min_size=1, max_size=20))
def test_what_write_file_wrote_read_file_gives_back(bench: Bench, content: str, name: str) -> None:
    path = "t/" + name.strip() + "_"
    assert bench.call("write_file", {"path": path, "content": content}).success
    assert (bench.root / path).read_bytes() == content.encode()
    assert bench.call("read_file", {"path": path}).data["content"] == content


@slow
@given(content=st.binary(max_size=300))
def test_base64_preserves_every_byte(bench: Bench, content: bytes) -> None:
    text = base64.b64encode(content).decode()
    bench.call("write_file", {"path": "b", "content": text, "encoding": "base64"})
    read = bench.call("read_file", {"path": "b", "encoding": "base64"})
    assert base64.b64decode(read.data["content"]) == content


def test_edit_file_replaces_and_shows_what_changed(bench: Bench) -> None:
    result = bench.call("edit_file", {"path": "src/main.py", "old_str": "'one'", "new_str": "'1'"})
    assert result.success
    assert result.output == (
        "Edited src/main.py (1 edit):\n@@ -1,4 +1,4 @@\n import os\n \n-print('one')\n+print('1')\n"
        " print('two')\n"
    )
    assert result.data == {
        "path": "src/main.py",
        "edits_applied": 1,
        "original_bytes": 37,
        "new_bytes": 35,
    }
    assert result.files_changed == ["src/main.py"]


def test_edits_see_each_other_and_are_written_once(bench: Bench) -> None:
    edits = [
        {"old_str": "one", "new_str": "two"},
        {"old_str": "two", "new_str": "three", "replace_all": True},
        {"old_str": "", "new_str": "# end\n"},
    ]
    result = bench.call("edit_file", {"path": "src/main.py", "edits": edits})
    assert result.data["edits_applied"] == 3
    text = (bench.root / "src/main.py").read_text()
    assert text == "import os\n\nprint('three')\nprint('three')\n# end\n"
    assert len(bench.events("files.changed")) == 2  # the baseline's and this one
    assert result.output == (
        "Edited src/main.py (3 edits):\n@@ -1,4 +1,5 @@\n import os\n \n"
        "-print('one')\n-print('two')\n+print('three')\n+print('three')\n+# end\n"
    )


def test_edits_that_undo_each_other_confirm_nothing_that_is_not_in_the_file(bench: Bench) -> None:
    edits = [{"old_str": "one", "new_str": "1"}, {"old_str": "'1'", "new_str": "'one'"}]
    result = bench.call("edit_file", {"path": "src/main.py", "edits": edits})
    assert result.output == "src/main.py is as it was: the edit changes nothing"
    assert result.files_changed == []


def test_a_difference_too_long_for_a_result_is_cut_and_says_so(bench: Bench) -> None:
    bench.call("write_file", {"path": "m.js", "content": "var a=1;" * 100_000})
    edit = {"path": "m.js", "old_str": "var a", "new_str": "var b", "replace_all": True}
    result = bench.call("edit_file", edit)
    assert "bytes left out" in result.output and len(result.full_output) < 10_000


@pytest.mark.parametrize("form", ["alone", "in a list"])
def test_replace_all_replaces_each_and_without_a_match_is_an_error(bench: Bench, form: str) -> None:
    def edit(**one: Any) -> ToolResult:
        arguments = one if form == "alone" else {"edits": [one]}
        return bench.call("edit_file", {"path": "src/main.py", **arguments})

    result = edit(old_str="print", new_str="log", replace_all=True)
    assert result.success and result.data["edits_applied"] == 1
    assert (bench.root / "src/main.py").read_text().count("log(") == 2
    before = bench.tree()
    result = edit(old_str="print", new_str="log", replace_all=True)
    assert result.error.code == "INVALID_ARGUMENTS" and "not found" in result.error.message
    assert bench.tree() == before


def test_replace_all_beside_a_list_of_edits_is_refused(bench: Bench) -> None:
    edits: list[dict[str, object]] = [{"old_str": "print", "new_str": "log"}]
    arguments = {"path": "src/main.py", "edits": edits, "replace_all": True}
    assert bench.call("edit_file", arguments).error.code == "INVALID_ARGUMENTS"


def test_numbers_and_their_words_agree(bench: Bench) -> None:
    assert bench.call("write_file", {"path": "x", "content": "1"}).output == "Created x: 1 byte"
    assert bench.call("write_file", {"path": "x", "content": "12"}).output == "Wrote x: 2 bytes"
    cut = bench.call("read_file", {"path": "x", "max_bytes": 1})
    assert cut.output == "     1\t1\n[bytes 0 to 1 of 2; offset 1 goes on]"
    edits = [{"old_str": "", "new_str": "x"}] * 6
    edited = bench.call("edit_file", {"path": "x", "edits": edits})
    assert "(6 edits)" in edited.output and edited.output.count("\n+12xxxxxx\n") == 1


def test_edits_are_all_or_nothing(bench: Bench) -> None:
    before = bench.tree()
    edits = [{"old_str": "one", "new_str": "1"}, {"old_str": "nope", "new_str": ""}]
    result = bench.call("edit_file", {"path": "src/main.py", "edits": edits})
    assert result.error.code == "INVALID_ARGUMENTS" and bench.tree() == before


def test_edit_file_creates_a_file_with_an_empty_old_str(bench: Bench) -> None:
    result = bench.call("edit_file", {"path": "new/x.txt", "old_str": "", "new_str": "hello"})
    assert result.success and (bench.root / "new/x.txt").read_text() == "hello"


@slow
@given(
    content=st.binary(max_size=60),
    pairs=st.lists(
        st.tuples(st.text("ab\n\r", max_size=3), st.text("ab\n\r", max_size=3), st.booleans()),
        min_size=1,
        max_size=4,
    ),
)
def test_edit_file_on_disk_is_the_edit_in_memory_or_nothing(
    bench: Bench, content: bytes, pairs: list[tuple[str, str, bool]]
) -> None:
    (bench.root / "e").write_bytes(content)
    steps = [TextEdit(old.encode(), new.encode(), every) for old, new, every in pairs]
    try:
        wanted = apply_edits("e", content, steps)
    except AuditError:
        wanted = None
    edits = [{"old_str": o, "new_str": n, "replace_all": e} for o, n, e in pairs]
    result = bench.call("edit_file", {"path": "e", "edits": edits})
    assert result.success == (wanted is not None)
    assert (bench.root / "e").read_bytes() == (content if wanted is None else wanted)


def test_delete_file_deletes_a_link_and_not_its_target(bench: Bench) -> None:
    (bench.root / "link").symlink_to("notes.txt")
    assert bench.call("delete_file", {"path": "link"}).data == {"deleted": ["link"]}
    assert (bench.root / "notes.txt").exists() and not (bench.root / "link").is_symlink()


def test_delete_file_of_a_directory_lists_all_that_is_gone(bench: Bench) -> None:
    result = bench.call("delete_file", {"path": "src", "recursive": True})
    assert result.data == {"deleted": ["src", "src/main.py"]}
    assert not (bench.root / "src").exists()
    bench.assert_log_agrees_with_disk()


def test_move_file_moves_and_creates_parents(bench: Bench) -> None:
    result = bench.call("move_file", {"from": "notes.txt", "to": "docs/n.txt"})
    assert result.success and result.data == {"from": "notes.txt", "to": "docs/n.txt"}
    assert (bench.root / "docs/n.txt").exists() and not (bench.root / "notes.txt").exists()
    bench.assert_log_agrees_with_disk()


def test_move_file_overwrites_only_when_told(bench: Bench) -> None:
    arguments = {"from": "notes.txt", "to": "src/main.py"}
    assert bench.call("move_file", arguments).error.code == "CONFLICT"
    assert bench.call("move_file", {**arguments, "overwrite": True}).success
    assert (bench.root / "src/main.py").read_bytes().startswith(b"first")
    bench.assert_log_agrees_with_disk()


@pytest.fixture
def forest(bench: Bench) -> Bench:
    for name in ("src/deep/er/x.py", ".git/config", "node_modules/m/i.js", ".env", "__pycache__/a"):
        path = bench.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (bench.root / "link").symlink_to("notes.txt")
    return bench


def test_list_directory_is_a_tree_of_two_levels_without_the_ignored(forest: Bench) -> None:
    result = forest.call("list_directory", {})
    assert result.output.split("\n") == [
        "./",
        "  .env",
        "  link@",
        "  notes.txt",
        "  src/",
        "    deep/",
        "    main.py",
        "[left out: __pycache__, node_modules; all: true goes into them]",
    ]


def test_list_directory_gives_entries_of_one_level(forest: Bench) -> None:
    result = forest.call("list_directory", {"path": "src", "recursive": False})
    entries = {entry["name"]: entry for entry in result.data["entries"]}
    assert {name: entry["type"] for name, entry in entries.items()} == {
        "deep": "directory",
        "main.py": "file",
    }
    assert entries["main.py"]["size"] == 37
    times = [datetime.fromisoformat(entry["modified"]) for entry in entries.values()]
    assert all(time.year > 2000 for time in times)


def test_list_directory_recursive_hides_dot_names_unless_asked(forest: Bench) -> None:
    plain = forest.call("list_directory", {"recursive": True})
    names = [entry["name"] for entry in plain.data["entries"]]
    assert "src/deep/er/x.py" in names and "node_modules" not in names
    assert plain.data["left_out"] == {"node_modules": 1, "__pycache__": 1}
    assert not [n for n in names if n.startswith((".", "node_modules/"))]
    hidden = forest.call("list_directory", {"recursive": True, "includeHidden": True})
    names = [entry["name"] for entry in hidden.data["entries"]]
    assert ".env" in names and not [n for n in names if n.startswith(".git")]
    whole = forest.call("list_directory", {"recursive": True, "all": True})
    names = [entry["name"] for entry in whole.data["entries"]]
    assert {"node_modules/m/i.js", "__pycache__/a"} < {*names} and whole.data["left_out"] == {}


def test_approval_is_asked_for_overwriting_and_always_for_deleting(bench: Bench) -> None:
    reasons = []

    class Ask:
        async def decide(
            self, tool: Tool, args: Any, ctx: ToolContext, *, asked: str = ""
        ) -> Decision:
            reasons.append(asked)
            return Decision("allowed", "person:me", "fine" if asked else "")

    for tool, arguments in (
        ("write_file", {"path": "new", "content": ""}),
        ("write_file", {"path": "new", "content": "again"}),
        ("move_file", {"from": "new", "to": "other"}),
        ("move_file", {"from": "other", "to": "notes.txt", "overwrite": True}),
        ("delete_file", {"path": "notes.txt"}),
        ("read_file", {"path": "src/main.py"}),
    ):
        assert bench.call(tool, arguments, gate=Ask()).success
    assert reasons == ["", "overwrites new", "", "overwrites notes.txt", "deletes notes.txt", ""]
    assert len(bench.events("call.decided")) == 6, "a person's yes, asked or not"


def test_results_of_a_whole_session_undo_to_the_start(bench: Bench) -> None:
    start, seq = bench.tree(), bench.workspace.log.head()

    async def work() -> None:
        for tool, arguments in (
            ("write_file", {"path": "x/y", "content": "1"}),
            ("edit_file", {"path": "notes.txt", "old_str": "second", "new_str": "2nd"}),
            ("move_file", {"from": "src", "to": "lib"}),
            ("delete_file", {"path": "notes.txt"}),
        ):
            writer, session = bench.session.writer, bench.session
            result = await call_tool(bench.registry, session.gate, writer, tool, arguments)
            assert result.success, result.output

    anyio.run(work)
    assert bench.tree() != start
    bench.workspace.carry_out(bench.workspace.plan_rollback(seq))
    assert bench.tree() == start


def prior_content(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, str]
) -> list[bytes | None]:
    """What the log knows of the file in the moment it is about to be replaced."""
    kept: list[bytes | None] = []
    whole = DiskWorkspace.replace

    def replace(
        self: DiskWorkspace,
        change: FileChange,
        content: BinaryIO | None,
        *more: Any,
    ) -> Displaced:
        for event in bench.events("change.intended"):
            assert isinstance(event.fact, ChangeIntended)
            for intended in event.fact.changes:
                before = intended.before
                blob = before and before.blob
                kept.append(bench.workspace.blobs.get(blob) if blob else None)
        return whole(self, change, content, *more)

    monkeypatch.setattr(DiskWorkspace, "replace", replace)
    assert bench.call(tool, arguments).success
    return kept


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"path": "notes.txt", "content": "new"}),
        ("edit_file", {"path": "notes.txt", "old_str": "second", "new_str": "2nd"}),
        ("delete_file", {"path": "notes.txt"}),
    ],
)
def test_what_was_there_is_on_record_before_it_is_changed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, str]
) -> None:
    before = (bench.root / "notes.txt").read_bytes()
    kept = prior_content(bench, monkeypatch, tool, arguments)
    assert kept and kept[0] == before
    bench.workspace.carry_out(bench.workspace.plan_undo())
    assert (bench.root / "notes.txt").read_bytes() == before


def test_read_file_takes_a_megabyte_unless_told_otherwise(bench: Bench) -> None:
    (bench.root / "exact").write_bytes(b"x" * 2**20)
    (bench.root / "more").write_bytes(b"x" * (2**20 + 1))
    exact = bench.call("read_file", {"path": "exact"}).data
    assert (len(exact["contents"]), exact["size"]) == (2**20, 2**20)
    more = bench.call("read_file", {"path": "more"}).data
    assert (len(more["contents"]), more["truncated"], more["size"]) == (2**20, True, 2**20 + 1)


def test_write_file_counts_bytes_and_not_characters(bench: Bench) -> None:
    data = bench.call("write_file", {"path": "a/é.txt", "content": "é€"}).data
    assert data["path"] == "a/é.txt" and data["size"] == 5
    raw = base64.b64encode(b"\0\xff").decode()
    wrote = bench.call("write_file", {"path": "b", "content": raw, "encoding": "base64"})
    assert wrote.data["size"] == 2 and (bench.root / "b").read_bytes() == b"\0\xff"


def test_an_edit_of_everything_without_a_match_is_an_error(bench: Bench) -> None:
    edits = [{"old_str": "nowhere", "new_str": "x", "replace_all": True}]
    result = bench.call("edit_file", {"path": "notes.txt", "edits": edits})
    assert result.error.code == "INVALID_ARGUMENTS"
    assert result.error.message.startswith("old_str not found in notes.txt: 'nowhere'")


def test_an_edit_of_what_stands_several_times_says_how_often_and_what_to_do(bench: Bench) -> None:
    edits: list[dict[str, object]] = [{"old_str": "print", "new_str": "log"}]
    result = bench.call("edit_file", {"path": "src/main.py", "edits": edits})
    assert result.error.message.startswith("old_str found 2 times in src/main.py")
    assert "replace_all" in result.error.hint
    edits[0]["replace_all"] = True
    assert bench.call("edit_file", {"path": "src/main.py", "edits": edits}).success
    assert (bench.root / "src/main.py").read_text().count("log(") == 2


def test_an_edit_gives_counts_and_appends_with_an_empty_old_str(bench: Bench) -> None:
    edits = [
        {"old_str": "first", "new_str": "1st"},
        {"old_str": "second", "new_str": "2nd"},
        {"old_str": "", "new_str": "\r\nfourth"},
    ]
    size = (bench.root / "notes.txt").stat().st_size
    result = bench.call("edit_file", {"path": "notes.txt", "edits": edits})
    after = (bench.root / "notes.txt").read_bytes()
    assert after == b"1st\r\n2nd\r\nthird\r\nfourth"
    assert result.data == {
        "path": "notes.txt",
        "edits_applied": 3,
        "original_bytes": size,
        "new_bytes": len(after),
    }
