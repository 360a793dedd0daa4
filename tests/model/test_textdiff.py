"""Diffs that say what changed, and that `git apply` and `patch` turn into the new content."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_audit.model.files import FileState
from loom_audit.model.text.textdiff import MAX_BYTES, diff_lines, marked_lines, unified
from tests.given.examples import examples

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
needs_patch = pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")

lines = st.lists(
    st.sampled_from(
        [b"a\n", b"b\n", b"\n", b"\r\n", b"x\r\n", b"+y\n", b"-- z\n", b"\xff\r\xfe\n"]
    ),
    max_size=25,
).map(b"".join)
texts = st.tuples(lines, st.sampled_from([b"", b"end", b"\\ No"])).map(b"".join)
names = st.lists(
    st.sampled_from([b"f", b"b c", b'q"uo\\te', b"\xc3\xa9", b"\xff", b"t\tn\n", b"-"]), min_size=1
).map(lambda parts: b"".join(parts).decode("utf-8", "surrogateescape"))


def file(mode: int = 0o644) -> FileState:
    return FileState("file", None, mode, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("apply")


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def applied(
    folder: Path, patch: bytes, *, tool: tuple[str, ...] = ("git", "apply", "--whitespace=nowarn")
) -> None:
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    done = subprocess.run(
        tool, cwd=folder, input=patch, capture_output=True, env=environment, check=False
    )
    assert done.returncode == 0, (done.stderr, patch)


@needs_git
@examples(30, 150)
@given(old=st.none() | texts, new=st.none() | texts, name=names, context=st.integers(1, 4))
def test_git_applies_a_diff_to_the_byte(
    folder: Path, old: bytes, new: bytes, name: str, context: int
) -> None:
    emptied(folder)
    path = folder / name
    if old is not None:
        path.write_bytes(old)
    patch = unified(name, name, old, new, context=context)
    assert (patch == b"") == (old == new)
    if patch:
        applied(folder, patch)
    assert (path.read_bytes() if path.exists() else None) == new


@needs_git
@settings(max_examples=40, deadline=None)
@given(old=texts, new=texts, names=st.tuples(names, names).filter(lambda n: n[0] != n[1]))
def test_git_applies_a_rename_with_changes(
    folder: Path, old: bytes, new: bytes, names: tuple[str, str]
) -> None:
    emptied(folder)
    (folder / names[0]).write_bytes(old)
    applied(folder, unified(*names, old, new, state_old=file(), state_new=file(0o755)))
    assert [os.fsencode(one.name) for one in folder.iterdir()] == [os.fsencode(names[1])]
    assert (folder / names[1]).read_bytes() == new
    assert (folder / names[1]).stat().st_mode & 0o100


@needs_patch
@settings(max_examples=60, deadline=None)
@given(old=lines, new=lines.filter(bool))
def test_patch_applies_a_diff_to_the_byte(folder: Path, old: bytes, new: bytes) -> None:
    emptied(folder)
    (folder / "f g").write_bytes(old)
    if old != new:
        applied(
            folder, unified("f g", "f g", old, new), tool=("patch", "-p1", "--binary", "-s", "-f")
        )
    assert (folder / "f g").read_bytes() == new


@given(texts, texts, st.integers(0, 4), st.booleans())
def test_hunks_count_and_number_their_lines(
    old: bytes, new: bytes, context: int, words: bool
) -> None:
    diff = diff_lines(old, new, context, words=words)
    sides = {"-": old.split(b"\n"), "+": new.split(b"\n")}
    for hunk in diff.hunks:
        olds = [line for line in hunk.lines if line.kind != "+"]
        news = [line for line in hunk.lines if line.kind != "-"]
        assert (len(olds), len(news)) == (hunk.old_count, hunk.new_count)
        assert not olds or olds[0].old == hunk.old_start
        assert not news or news[0].new == hunk.new_start
        for line in hunk.lines:
            assert line.old is None or sides["-"][line.old - 1] == line.content.removesuffix(b"\n")
            assert line.new is None or sides["+"][line.new - 1] == line.content.removesuffix(b"\n")
            assert all(0 <= start < end <= len(line.content) for start, end in line.spans)
    kinds = [line.kind for hunk in diff.hunks for line in hunk.lines]
    assert (kinds.count("+"), kinds.count("-")) == (diff.added, diff.removed)


def test_a_diff_is_minimal_where_lines_repeat() -> None:
    old = b"a\n" * 5000 + b"x\n" + b"a\n" * 5000
    new = b"a\n" * 5000 + b"a\n" * 5000 + b"y\n"
    diff = diff_lines(old, new)
    assert (diff.added, diff.removed) == (1, 1)


def test_words_that_differ_are_marked_within_the_line() -> None:
    diff = diff_lines(b"def size(n):\n", b"def size(number):\n", words=True)
    gone, come = diff.hunks[0].lines
    assert [gone.content[a:b] for a, b in gone.spans] == [b"n"]
    assert [come.content[a:b] for a, b in come.spans] == [b"number"]


def test_lines_with_little_alike_have_no_marks() -> None:
    diff = diff_lines(b"one two three\n", b"x = compute()\n", words=True)
    assert [line.spans for line in diff.hunks[0].lines] == [(), ()]


def test_the_look_of_a_unified_diff() -> None:
    old = b"".join(b"%d\n" % n for n in range(1, 9))
    assert unified("a b", "a b", old, old.replace(b"5", b"five")[:-1]) == (
        b"diff --git a/a b b/a b\n--- a/a b\t\n+++ b/a b\t\n@@ -2,7 +2,7 @@\n"
        b" 2\n 3\n 4\n-5\n+five\n 6\n 7\n-8\n+8\n\\ No newline at end of file\n"
    )


def test_modes_of_created_deleted_and_changed_files() -> None:
    made = unified(None, "f", None, b"x\n", state_new=file(0o755))
    assert made.startswith(b"diff --git a/f b/f\nnew file mode 100755\n--- /dev/null\n+++ b/f\n")
    gone = unified("f", None, b"x\n", None, state_old=file(0o600))
    assert b"deleted file mode 100600\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n" in gone
    changed = unified("f", "f", b"x", b"x", state_old=file(), state_new=file(0o600))
    assert changed == b"diff --git a/f b/f\nold mode 100644\nnew mode 100600\n"


def test_a_file_that_became_a_symlink_goes_and_comes() -> None:
    link = FileState("symlink", None, 0o777, 1)
    patch = unified("f", "f", b"x\n", b"t", state_old=file(), state_new=link)
    assert b"deleted file mode 100644" in patch and b"new file mode 120000" in patch
    assert patch.endswith(b"+t\n\\ No newline at end of file\n")


def test_binary_and_huge_content_is_named_only() -> None:
    assert unified("f", "f", b"\0", b"\0\1") == (
        b"diff --git a/f b/f\nBinary files a/f and b/f differ\n"
    )
    assert diff_lines(None, b"x" * (MAX_BYTES + 1)).binary


def test_folders_and_equal_contents_give_nothing() -> None:
    folder = FileState("directory", None, 0o755, 0)
    assert unified(None, "d", None, None, state_new=folder) == b""
    assert unified("f", "f", b"x", b"x") == b""


def test_lines_of_a_diff_are_marked_by_what_they_are() -> None:
    text = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n---- a\n+++ b\n c"
    marks = [mark for _, mark in marked_lines(text.split("\n"))]
    assert marks == ["head"] * 3 + ["at", "del", "ins", ""]
