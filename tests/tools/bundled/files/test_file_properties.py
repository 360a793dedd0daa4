"""The file tools against models that are naive and obviously right, over any text and any bytes."""

import base64
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from loom_audit.tools.calls.result import ToolResult
from tests.given.examples import examples
from tests.tools.conftest import Bench

some = settings(
    examples(15, 60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

TRICKY = [
    b"",
    b"a",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\0",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\x1a",
    b"\x85",
    b"\x0b",
    b"\x0c",
    b"\x1c",
    "\u2028".encode(),
    "\u0085".encode(),
    "é".encode(),
    "e\u0301".encode(),
    "🙂".encode(),
    b"\xf0\x9f",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\t",
    b" ",
    b"word",
    b"old",
    b"new",
]
RAW = st.lists(st.sampled_from(TRICKY), max_size=30).map(b"".join) | st.binary(max_size=200)
TEXT = st.lists(st.sampled_from([t.decode("utf-8", "ignore") for t in TRICKY])).map(
    "".join
) | st.text(max_size=100)


def in_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def lines_of(content: bytes) -> list[bytes]:
    """The lines of a file: they end with LF and with nothing else."""
    lines = content.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


# --- content is kept ----------------------------------------------------------------------


@some
@given(content=TEXT)
def test_any_text_is_on_disk_as_utf_8_and_reads_back_the_same(bench: Bench, content: str) -> None:
    written = bench.call("write_file", {"path": "f", "content": content})
    raw = content.encode()
    assert written.success and written.data["size"] == len(raw)
    assert (bench.root / "f").read_bytes() == raw, "no newline translated, nothing added"
    read = bench.call("read_file", {"path": "f"})
    assert read.data["content"] == read.data["contents"] == content
    assert read.data["size"] == len(raw) and read.data["truncated"] is False
    exact = bench.call("read_file", {"path": "f", "encoding": "base64"})
    assert exact.data["content"] == in_base64(raw)


@some
@given(content=RAW)
def test_any_bytes_are_on_disk_and_read_back_the_same(bench: Bench, content: bytes) -> None:
    arguments = {"path": "b", "content": in_base64(content), "encoding": "base64"}
    written = bench.call("write_file", arguments)
    assert written.success and written.data["size"] == len(content)
    assert (bench.root / "b").read_bytes() == content
    exact = bench.call("read_file", {"path": "b", "encoding": "base64"})
    assert base64.b64decode(exact.data["content"]) == content
    text = bench.call("read_file", {"path": "b"}).data["content"]
    assert text == content.decode("utf-8", "replace")


@some
@given(content=RAW, first=st.integers(1, 12), more=st.integers(0, 12))
def test_a_range_is_those_lines_of_the_file(
    bench: Bench, content: bytes, first: int, more: int
) -> None:
    (bench.root / "r").write_bytes(content)
    asked = {"path": "r", "line_range": [first, first + more], "encoding": "base64"}
    data = bench.call("read_file", asked).data
    assert base64.b64decode(data["content"]) == b"".join(
        lines_of(content)[first - 1 : first + more]
    )
    assert data["size"] == len(content) and data["truncated"] is False


@some
@given(content=RAW)
def test_all_ranges_of_one_line_together_are_the_file(bench: Bench, content: bytes) -> None:
    (bench.root / "r").write_bytes(content)
    parts = []
    for number in range(1, len(lines_of(content)) + 2):
        asked = {"path": "r", "line_range": [number, number], "encoding": "base64"}
        parts.append(base64.b64decode(bench.call("read_file", asked).data["content"]))
    assert b"".join(parts) == content and parts[-1] == b""


@some
@given(
    content=RAW.filter(bool),
    limit=st.integers(1, 60),
    lines=st.none() | st.tuples(st.integers(1, 5), st.integers(0, 5)),
)
def test_max_bytes_cuts_what_was_asked_for_and_says_so(
    bench: Bench, content: bytes, limit: int, lines: tuple[int, int] | None
) -> None:
    (bench.root / "m").write_bytes(content)
    asked = {"path": "m", "max_bytes": limit}
    wanted = content
    if lines:
        asked["line_range"] = [lines[0], lines[0] + lines[1]]
        wanted = b"".join(lines_of(content)[lines[0] - 1 : lines[0] + lines[1]])
    exact = bench.call("read_file", {**asked, "encoding": "base64"}).data
    assert base64.b64decode(exact["content"]) == wanted[:limit]
    assert exact["truncated"] == (len(wanted) > limit) and exact["size"] == len(content)
    text = bench.call("read_file", asked).data["content"]
    assert wanted.decode("utf-8", "replace").startswith(text)
    whole = len(wanted) <= limit
    assert len(wanted[:limit]) - len(text.encode()) <= (0 if whole else 3), "one character at most"


# --- edits (of files with CRLF: test_line_ends.py) -----------------------------------------


def naive(content: bytes | None, edits: list[dict[str, Any]]) -> bytes | None:
    """What the edits make of a file, or of None; None where one of them cannot be made."""
    for edit in edits:
        old, new = edit["old_str"].encode(), edit["new_str"].encode()
        if not old:
            content = (content or b"") + new
        elif content is None:
            return None
        else:
            places = [i for i in range(len(content)) if content.startswith(old, i)]
            if not places or (len(places) > 1 and not edit.get("replace_all")):
                return None
            content = content.replace(old, new)
    return content


SNIPPET = st.sampled_from(
    ["", "a", "b", "ab", "aa", "\n", "\r\n", "\r", "é", "🙂", "\0", "\ufeff", "a\n", "\nb", "x"]
)
EDIT = st.fixed_dictionaries(
    {"old_str": SNIPPET, "new_str": SNIPPET}, optional={"replace_all": st.booleans()}
)
EDITABLE = st.none() | st.lists(
    st.sampled_from(
        [b"a", b"b", b"\n", b"\r", b"\xc3\xa9", "🙂".encode(), b"\xff", b"\0", b"\xef\xbb\xbf"]
    ),
    max_size=8,
).map(b"".join)


@some
@given(content=EDITABLE, edits=st.lists(EDIT, min_size=1, max_size=4), alone=st.booleans())
def test_edits_are_what_the_rules_say_or_nothing_at_all(
    bench: Bench, content: bytes | None, edits: list[dict[str, Any]], alone: bool
) -> None:
    path = bench.root / "e"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    if alone:
        edits = edits[:1]
    arguments = edits[0] if alone else {"edits": edits}
    wanted = naive(content, edits)
    before = bench.tree()
    result = bench.call("edit_file", {"path": "e", **arguments})
    assert result.success == (wanted is not None), result.output
    if wanted is None:
        assert bench.tree() == before and result.files_changed == []
        assert result.error.code == (
            "FILE_NOT_FOUND" if content is None and edits[0]["old_str"] else "INVALID_ARGUMENTS"
        )
        return
    assert path.read_bytes() == wanted
    assert result.data == {
        "path": "e",
        "edits_applied": len(edits),
        "original_bytes": len(content or b""),
        "new_bytes": len(wanted),
    }
    assert {**before, "e": wanted} == bench.tree()


@some
@given(content=RAW.filter(bool), where=st.integers(0, 200), length=st.integers(1, 20))
def test_an_edit_forth_and_back_leaves_every_byte(
    bench: Bench, content: bytes, where: int, length: int
) -> None:
    """Of any file, whatever lies around the text."""
    marked = content[: where % len(content)] + b"<<marked>>" + content[where % len(content) :]
    (bench.root / "e").write_bytes(marked)
    forth = {"path": "e", "old_str": "<<marked>>", "new_str": "é" * length}
    assert bench.call("edit_file", forth).success
    wanted = marked.replace(b"<<marked>>", b"\xc3\xa9" * length)
    assert (bench.root / "e").read_bytes() == wanted
    back = {"path": "e", "old_str": "é" * length, "new_str": "<<marked>>"}
    result = bench.call("edit_file", back)
    if wanted.count(b"\xc3\xa9" * length) == 1 and result.success:
        assert (bench.root / "e").read_bytes() == marked


# --- writing, editing, moving and deleting, one after the other ---------------------------

NAMES = ["a", "b", "d", "d/a", "d/b", "d/e/a", "c/ü", "c/x y"]
PATHS = st.sampled_from(NAMES)
CONTENTS = st.sampled_from(["", "one\n", "two\r\n", "\ufeff", "no end", "\0"])


def appended(old: bytes, new: bytes) -> bytes:
    """What appending makes of a file: the lines end as the last line of a text with CRLF does."""
    *_, last = re.findall(rb"\r?\n", old) or [b"\n"]
    if last == b"\r\n" and b"\0" not in old:
        new = new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    return old + new


def above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


@dataclass
class Model:
    """What should be there: a path's content, None for a directory."""

    there: dict[str, bytes | None] = field(default_factory=dict)

    def below(self, path: str) -> set[str]:
        return {one for one in self.there if one.startswith(path + "/")}

    def can_hold(self, path: str) -> bool:
        return all(self.there.get(one) is None for one in above(path) if one in self.there)

    def put(self, path: str, content: bytes | None) -> None:
        for one in above(path):
            self.there.setdefault(one, None)
        self.there[path] = content


class Files(RuleBasedStateMachine):
    """Calls in any order against a dict of what there is."""

    make: Callable[[], Bench]

    @initialize()
    def begin(self) -> None:
        self.bench = self.make()
        self.model = Model()

    def outcome(self, tool: str, arguments: dict[str, Any], *, fits: bool) -> ToolResult:
        result = self.bench.call(tool, arguments)
        assert result.success == fits, (tool, arguments, result.output, self.model.there)
        return result

    @rule(path=PATHS, content=CONTENTS, parents=st.booleans())
    def write(self, path: str, content: str, parents: bool) -> None:
        there = self.model.there
        fits = self.model.can_hold(path) and not (path in there and there[path] is None)
        fits = fits and (parents or all(one in there for one in above(path)))
        arguments = {"path": path, "content": content, "createDirs": parents}
        result = self.outcome("write_file", arguments, fits=fits)
        if fits:
            assert result.data["created"] == (path not in there)
            self.model.put(path, content.encode())

    @rule(path=PATHS, content=CONTENTS)
    def append(self, path: str, content: str) -> None:
        there = self.model.there
        fits = self.model.can_hold(path) and not (path in there and there[path] is None)
        self.outcome("edit_file", {"path": path, "old_str": "", "new_str": content}, fits=fits)
        if fits:
            self.model.put(path, appended(there.get(path) or b"", content.encode()))

    @rule(path=PATHS, recursive=st.booleans())
    def delete(self, path: str, recursive: bool) -> None:
        gone = {path, *self.model.below(path)}
        fits = path in self.model.there and (recursive or len(gone) == 1)
        result = self.outcome("delete_file", {"path": path, "recursive": recursive}, fits=fits)
        if fits:
            assert sorted(result.data["deleted"]) == sorted(gone)
            for one in gone:
                del self.model.there[one]

    @rule(source=PATHS, onto=PATHS, overwrite=st.booleans())
    def move(self, source: str, onto: str, overwrite: bool) -> None:
        there, model = self.model.there, self.model
        fits = source in there and source != onto and not onto.startswith(source + "/")
        fits = fits and model.can_hold(onto) and source not in above(onto)
        if onto in there:
            fits = fits and overwrite and there[onto] is not None and there[source] is not None
        arguments = {"from": source, "to": onto, "overwrite": overwrite}
        result = self.outcome("move_file", arguments, fits=fits)
        if fits:
            assert result.data == {"from": source, "to": onto}
            moved = {one: there.pop(one) for one in (source, *model.below(source))}
            model.put(onto, moved.pop(source))
            for one, content in moved.items():
                there[onto + one.removeprefix(source)] = content

    @invariant()
    def disk_and_lists_are_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        there = self.model.there
        assert self.bench.tree() == there
        sizes = {path: len(content or b"") for path, content in there.items()}
        files = self.bench.call("list_files", {"recursive": True}).data["files"]
        assert {f["path"]: f["size"] for f in files} == sizes
        assert {f["path"] for f in files if f["is_dir"]} == {p for p in there if there[p] is None}
        listed = self.bench.call("list_directory", {"recursive": True}).data["entries"]
        assert {e["name"]: (e["type"], e["size"]) for e in listed} == {
            path: ("directory" if there[path] is None else "file", size)
            for path, size in sizes.items()
        }
        top = self.bench.call("list_directory", {"recursive": False}).data["entries"]
        assert [e["name"] for e in top] == sorted(p for p in there if "/" not in p)

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.assert_every_call_has_one_finish()
            self.bench.assert_log_agrees_with_disk()


@pytest.fixture
def machine(
    tmp_path: Path,
    new_bench: Callable[[Path], AbstractContextManager[Bench]],
    request: pytest.FixtureRequest,
) -> Iterator[type[Files]]:
    import contextlib
    import shutil

    stack = contextlib.ExitStack()
    count = iter(range(10**6))

    def make(_: Files) -> Bench:
        stack.close()
        folder = tmp_path / f"m{next(count)}"
        bench = stack.enter_context(new_bench(folder))
        bench.call("delete_file", {"path": "src", "recursive": True})
        bench.call("delete_file", {"path": "notes.txt"})
        request.addfinalizer(lambda: shutil.rmtree(folder, ignore_errors=True))
        return bench

    with stack:
        yield type("FilesHere", (Files,), {"make": make})


@pytest.mark.drawn
def test_calls_in_any_order_leave_what_a_dict_says(machine: type[Files]) -> None:
    run_state_machine_as_test(machine, settings=settings(examples(3, 12), stateful_step_count=12))


@pytest.mark.deep
@pytest.mark.drawn
def test_many_calls_in_any_order_leave_what_a_dict_says(machine: type[Files]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=150, stateful_step_count=40))


@settings(
    examples(10, 40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.from_regex(r"[a-zA-Z0-9 \n]{0,1000}", fullmatch=True))
def test_roundtrip_file_content(bench: Bench, content: str) -> None:
    (bench.root / "test.txt").write_text(content)
    result = bench.call("read_file", {"path": "test.txt"})
    assert result.data["contents"] == content
