"""Search against the same search written in three lines, and what stops it."""

import os
import re
import subprocess
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_audit.tools.bundled.search import search_files as search
from loom_audit.tools.bundled.search.search_files import SearchFiles
from loom_audit.tools.bundled.search.search_program import matcher, required_texts
from tests.given.examples import examples
from tests.tools.conftest import Bench


def test_matches_are_listed_by_path_and_line(bench: Bench) -> None:
    result = bench.call("search_files", {"pattern": r"pr\w+\("})
    assert result.output == "src/main.py:3: print('one')\nsrc/main.py:4: print('two')"
    assert result.data["matches"][0] == {"path": "src/main.py", "line": 3, "text": "print('one')"}
    assert result.data["count"] == 2 and result.data["truncated"] is False


def test_no_match_is_a_success_that_says_so(bench: Bench) -> None:
    result = bench.call("search_files", {"pattern": "nowhere"})
    assert result.success and result.data["files"] == 2
    assert result.output == "[no matches in 2 files; with (?i) before it, case does not matter]"


def test_line_ends_are_not_part_of_a_line(bench: Bench) -> None:
    result = bench.call("search_files", {"pattern": "d$", "path": "notes.txt"})
    assert [m["line"] for m in result.data["matches"]] == [2, 3]


def test_a_directory_a_file_and_an_absolute_path_can_be_searched(bench: Bench) -> None:
    for path in ("src", "src/main.py", str(bench.root / "src"), "src/"):
        result = bench.call("search_files", {"pattern": "import", "path": path})
        assert result.output == "src/main.py:1: import os"


def test_lines_around_a_match_are_shown_once_and_stretches_apart(bench: Bench) -> None:
    lines = [f"line {n}" for n in range(1, 21)]
    (bench.root / "a.txt").write_text("\n".join(lines))
    asked = {"path": "a.txt", "pattern": "line (3|5|15)$", "context": 2}
    result = bench.call("search_files", asked)
    wanted = [*range(1, 8), None, *range(13, 18)]
    assert result.output.split("\n") == [
        "--" if n is None else f"a.txt{s}{n}{s} line {n}"
        for n in wanted
        for s in [":" if n in (3, 5, 15) else "-"]
    ]
    assert [m["line"] for m in result.data["matches"]] == [3, 5, 15]
    assert [m["line"] for m in result.data["around"]] == [1, 2, 4, 6, 7, 13, 14, 16, 17]
    assert result.data["count"] == 3


def test_files_alone_are_named_and_counted(bench: Bench) -> None:
    (bench.root / "b.py").write_text("print(1)\n")
    named = bench.call("search_files", {"pattern": "print", "files_only": True})
    assert named.output == "b.py\nsrc/main.py" and named.data["matches"] == []
    counted = bench.call("search_files", {"pattern": "print", "count": True})
    assert counted.output == "b.py: 1\nsrc/main.py: 2" and counted.data["count"] == 3
    assert counted.data["matching_files"][1] == {"path": "src/main.py", "count": 2}
    for two in ({"files_only": True, "count": True}, {"count": True, "context": 1}):
        refused = bench.call("search_files", {"pattern": "x", **two})
        assert refused.error.code == "INVALID_ARGUMENTS" and "give one of" in refused.output


@pytest.mark.parametrize("before", [0, 50, 250, 5_000])
def test_of_a_long_line_the_match_is_in_view(bench: Bench, before: int) -> None:
    (bench.root / "long").write_text("x" * before + "needle" + "y" * 4_000)
    result = bench.call("search_files", {"path": "long", "pattern": "needle"})
    [match] = result.data["matches"]
    assert "needle" in match["text"] and len(match["text"]) <= 300
    assert match["text"].startswith("…") == (before > 200) and match["text"].endswith("…")


def test_lines_around_so_many_matches_that_no_answer_holds_them_are_cut_and_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_PRINTED", 100_000)
    (bench.root / "many").write_text(("x" + "🙂" * 250 + "\n" + "y" * 250 + "\n" * 9) * 300)
    result = bench.call("search_files", {"pattern": "^x", "context": 4})
    assert result.success and result.data["truncated"] is True
    lines = [m["line"] for m in result.data["matches"]]
    assert 5 < len(lines) < 300 and lines == [*range(1, 10 * len(lines), 10)]


def test_links_binaries_and_heavy_folders_are_skipped(bench: Bench) -> None:
    (bench.root / "link").symlink_to("src/main.py")
    (bench.root / "out").symlink_to("/etc")
    (bench.root / "b.bin").write_bytes(b"\0import")
    (bench.root / "node_modules").mkdir()
    (bench.root / "node_modules/i.js").write_text("import")
    result = bench.call("search_files", {"pattern": "import|root"})
    assert [m["path"] for m in result.data["matches"]] == ["src/main.py"]
    assert result.data["skipped"] == 1


def test_a_very_deep_folder_is_searched_to_its_end(bench: Bench) -> None:
    folder = os.open(bench.root, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    with os.fdopen(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=folder), "w") as file:
        file.write("needle\n")
    os.close(folder)
    try:
        result = bench.call("search_files", {"pattern": "needle"})
    finally:  # Python's own rmtree gives up at that depth
        subprocess.run(["rm", "-rf", str(bench.root / "d")], check=True)
    assert [m["path"] for m in result.data["matches"]] == ["d/" * 1200 + "f"]


def test_search_is_bounded_and_says_so(bench: Bench) -> None:
    (bench.root / "many").write_text("x\n" * 3000)
    (bench.root / "long").write_text("x" * 10**6)
    result = bench.call("search_files", {"pattern": "x"})
    assert result.data["count"] == 1000 and result.data["truncated"] is True
    assert "[more than 1000 matches" in bench.last().result["output"]
    assert 290 < max(len(m["text"]) for m in result.data["matches"]) <= 300


def test_a_pattern_that_would_run_for_ever_is_stopped_with_what_was_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SearchFiles, "timeout_seconds", 6)
    (bench.root / "a").write_text("aaaa\n")
    (bench.root / "b").write_text("a" * 60 + "!\n")
    result = bench.call("search_files", {"pattern": r"^(a+)+$"})
    assert result.error.code == "TIMEOUT"
    assert [m["path"] for m in result.data["matches"]] == ["a"]
    assert bench.last().status == "timeout"
    bench.assert_every_call_has_one_finish()


def test_a_line_that_takes_for_ever_ends_the_search_with_its_place(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_SECONDS", 1)
    (bench.root / "a").write_text("aaaa\n")
    (bench.root / "b").write_text("fine\n" + "a" * 60 + "!\n")
    result = bench.call("search_files", {"pattern": r"^(a+)+$"})
    assert result.error.code == "TIMEOUT" and "b:" in result.error.message
    assert [m["path"] for m in result.data["matches"]] == ["a"] and result.data["truncated"]
    bench.assert_every_call_has_one_finish()


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.py", "a/b.py", True),
        ("*.py", "a.pyc", False),
        ("*.{js,ts}", "x/y.ts", True),
        ("*.{js,ts}", "x/y.tsx", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("src/**", "src/a/b.py", True),
        ("**/b.py", "b.py", True),
        ("src/**/b.py", "src/b.py", True),
        ("[ab].c", "x/a.c", True),
        ("[!ab].c", "a.c", False),
        ("./src/a?.py", "src/a1.py", True),
        ("a[.txt", "a[.txt", True),
    ],
)
def test_globs(glob: str, path: str, fits: bool) -> None:
    assert matcher(glob)(path) is fits


def test_a_file_pattern_limits_the_search(bench: Bench) -> None:
    result = bench.call("search_files", {"pattern": "s", "file_pattern": "*.txt"})
    assert {m["path"] for m in result.data["matches"]} == {"notes.txt"}


names = st.text("ab.", min_size=1, max_size=4).filter(lambda n: n.strip("."))
texts = st.text("ab \n\r", max_size=30)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    files=st.dictionaries(names, texts, max_size=5),
    pattern=st.sampled_from(["a+b", "^a", "b$", " ", "."]),
)
def test_search_finds_what_a_plain_loop_finds(
    bench: Bench, files: dict[str, str], pattern: str
) -> None:
    folder = bench.root / f"s{time.monotonic_ns()}"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    wanted = []
    for name in sorted(files):
        lines = files[name].split("\n")
        if lines[-1] == "":
            lines.pop()
        for number, line in enumerate(lines, 1):
            line = line[:-1] if line.endswith("\r") else line
            if re.search(pattern, line):
                wanted.append((f"{folder.name}/{name}", number, line))
    found = bench.call("search_files", {"pattern": pattern, "path": folder.name}).data["matches"]
    assert [(m["path"], m["line"], m["text"]) for m in found] == wanted


# --- files that are left out unread by line -----------------------------------------------

PIECES = [
    b"import os",
    b"foo_bar",
    b"Foo",
    b"FOO",
    b"kelvin \xe2\x84\xaa",
    b"caf\xc3\xa9",
    b"\xff\xfe",
    b"\xc3",
    b"\xed\xa0\x80",
    b"12",
    b" ",
    b"\t",
    b"\xc2\xa0",
    b"\r",
    b"\n",
    b"\0",
    b"[",
    b"]",
    b"^",
    b"$",
    b"-",
    b"\\",
    b"(a)",
    b"a.b",
    b"a|b",
    b"{2}",
    b"{}",
    b"*",
    b"+",
    b"?",
    b"#",
    b"aaa",
    b"ab",
    b"\xef\xbf\xbd",
    b"A",
    b"b",
]
LINES = st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join)
LETTERS = st.text("abAFoOk1_ -^]\\.'{}#,é\u212a\ufffd\0\r\t\n", min_size=1, max_size=3)
ATOMS = st.one_of(
    LETTERS.map(re.escape),
    st.text("ab1 -{},", min_size=1, max_size=4),
    st.sampled_from(
        [
            ".",
            r"\d",
            r"\W",
            r"\s",
            "[a-z]",
            "[^a-z]",
            r"[^\s]",
            r"[\]^-]",
            "[]a]",
            "[^]a]",
            r"[^\]]",
            "[[]",
            "[é-ü]",
            "[+*?]",
            "[-^]",
            r"\x41",
            r"\u00e9",
            r"\101",
            r"\x00",
            r"\b",
            r"\B",
            "^",
            "$",
            r"\A",
            r"\Z",
            "(?=a)",
            "(?!a)",
            "(?<=a)",
        ]
    ),
)


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.tuples(
            inner,
            st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{,2}", "{2,}", "{}", "*?", "+?"]),
        ).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"(?i:{text})"),
    )


def valid(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, OverflowError):
        return False
    return True


PATTERNS = st.tuples(
    st.sampled_from(["", "", "(?i)", "(?x)"]), st.recursive(ATOMS, combined, max_leaves=6)
)


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@examples(80, 400)
@given(pattern=PATTERNS.map("".join).filter(valid), content=LINES)
def test_a_line_with_a_match_holds_what_the_pattern_requires(pattern: str, content: bytes) -> None:
    alternatives = required_texts(pattern)
    for line in content.split(b"\n"):
        if re.search(pattern, line.removesuffix(b"\r").decode("utf-8", "replace")):
            holds = (all(text in line for text in texts) for texts in alternatives)
            assert any(holds), (pattern, alternatives, line)


@pytest.mark.parametrize(
    ("pattern", "alternatives"),
    [
        ("NotImplementedError", [[b"NotImplementedError"]]),
        (r"def [a-z_]+_handler\(", [[b"def ", b"_handler"]]),
        (r"^\bclass \w{2,}Visitor\b", [[b"class ", b"Visitor"]]),
        ("colou?r", [[b"colo", b"r"]]),
        ("[]]x", [[b"x"]]),
        ("ab{2}c{}d", [[b"a", b"d"]]),
        (r"foo\|b|[|]bar|", [[b"foo", b"b"], [b"bar"], []]),
        ("a*", [[]]),
        ("café au lait", [[]]),
        ("é+ au lait", [[b" au lait"]]),
        ("(?i)todo", [[]]),
        ("(foo|x)?bar", [[]]),
        (r"\x41bc", [[]]),
        (r"\101bc", [[]]),
    ],
)
def test_what_a_pattern_requires_of_a_line(pattern: str, alternatives: list[list[bytes]]) -> None:
    assert required_texts(pattern) == alternatives


def test_a_file_that_lacks_a_required_text_is_searched_in_no_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_SECONDS", 1)
    (bench.root / "b").write_text("a" * 60 + "!\n")
    result = bench.call("search_files", {"pattern": r"a*a*a*a*a*a*a*a*a*a*$needle"})
    assert result.success and result.data["files"] == 3
