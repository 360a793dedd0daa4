"""ripgrep, grep and Python find the same: the first two only leave out what cannot match."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_audit.tools.bundled.search import search_files as search
from loom_audit.tools.bundled.search import search_narrow
from loom_audit.tools.bundled.search.search_narrow import weaker

PROGRAMS = {name: os.path.realpath(path) for name in ("rg", "grep") if (path := shutil.which(name))}


@pytest.fixture(params=["rg", "grep"])
def program(request):
    if request.param not in PROGRAMS:
        if os.environ.get("CI"):
            pytest.fail(f"{request.param} is not installed: .ci/needs installs it")
        pytest.skip(f"{request.param} is not installed (apt-get install ripgrep)")
    return PROGRAMS[request.param]


def ask(folder, pattern, program, narrow_from=0, **more):
    """The lines of JSON that the program prints, the last apart."""
    request = {
        "pattern": pattern,
        "path": "",
        "glob": None,
        "skip": [".git"],
        "max_matches": 1000,
        "max_text": 300,
        "max_file": 1 << 20,
        "seconds": 10,
        "program": program,
        "narrow_from": narrow_from,
        **more,
    }
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", search._PROGRAM, search._FOLDER],
        input=json.dumps(request).encode(),
        capture_output=True,
        cwd=folder,
        check=True,
    )
    *matches, end = map(json.loads, done.stdout.splitlines())
    return matches, end


# --- a corpus with everything that the programs see differently ----------------------------

PIECES = [
    b"import os", b"foo_bar", b"Foo", b"FOO", b"kelvin \xe2\x84\xaa", b"\xc5\xbf", b"\xc4\xb0",
    b"\xc4\xb1", b"caf\xc3\xa9", b"CAF\xc3\x89", b"\xf0\x9f\x99\x82", b"\xff\xfe", b"\xc3",
    b"\xe2\x80",
    b"\xed\xa0\x80", b"12", b"\xd9\xa3", b" ", b"\t", b"\x0b", b"\x0c", b"\x1c", b"\xc2\x85",
    b"\xc2\xa0",
    b"\xe2\x80\xa8", b"\r", b"\r\n", b"\n", b"\n\n", b"\0", b"[", b"]", b"^", b"$", b"-", b"\\",
    b"(a)",
    b"a.b", b"a|b", b"{2}", b"*", b"+", b"?", b"#", b"'", b'"', b"aaa", b"ab", b"\xef\xbb\xbf",
    b"\xef\xbf\xbd", b"x" * 3000, b"\x7f", b"\x80",
]  # fmt: skip
SMALL = st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Files in which every piece stands alone, beside every other, and in three places."""
    folder = tmp_path_factory.mktemp("corpus")
    for number, piece in enumerate(PIECES):
        (folder / f"one{number:02}").write_bytes(piece)
        (folder / f"in{number:02}").write_bytes(b"first\nx" + piece + b"y\r\nlast")
        (folder / f"all{number:02}").write_bytes(b"~\n".join(piece + other for other in PIECES))
    (folder / "utf16").write_bytes("import os\n".encode("utf-16"))
    (folder / "bom16").write_bytes(b"\xff\xfei\nimport os\n")
    (folder / "late-nul").write_bytes(b"-" * 9000 + b"\nfoo\0bar aaa\n")
    (folder / "binary").write_bytes(b"foo\0")
    (folder / "large").write_bytes(b"foo\n" * (1 << 18) + b"more")
    (folder / "empty").touch()
    (folder / "-e").write_bytes(b"foo_bar -e\n")
    (folder / ".gitignore").write_bytes(b"*\n")
    (folder / ".hidden").write_bytes(b"foo\n")
    (folder / "sub.d").mkdir()
    (folder / "sub.d" / os.fsdecode(b"caf\xe9\n")).write_bytes(b"foo aaa 12\n")
    return folder


# --- patterns -----------------------------------------------------------------------------

LETTERS = st.text(
    "abfFoOkKsSiIéÉ🙂_1 -^]\\.'\u212a\u017f\ufffd\u0130\u0131\0\r\t٣", min_size=1, max_size=3
)
ATOMS = st.one_of(
    LETTERS.map(re.escape),
    st.sampled_from([
        r".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"[a-z]", r"[^a-z]", r"[A-Z_]", r"[^\s]",
        r"[\d-]", r"[\]^-]", r"[^\]]", r"[é-ü]", r"[^é]", r"[k]", r"[\x00-\x1f]", r"[\w.]",
        r"[^\W\d]", r"[+*?]", r"[\[:]", r"[-^]", r"[!-~]", r"[^\n]", r"[\n]", r"\x41", r"\u00e9",
        r"[\ufffd]", r"\x00",
    ]
    ),
    st.sampled_from([r"\b", r"\B", "^", "$", r"\A", r"\Z", "(?=a)", "(?!a)", "(?<=a)", "(?<!é)"]),
)  # fmt: skip


def combined(inner):
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{2,}", "*?", "+?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda text: f"({text})\\1"),
        inner.map(lambda text: f"(?i:{text})"),
        inner.map(lambda text: f"(?a:{text})"),
        inner.map(lambda text: f"(?>{text})"),
    )


def valid(pattern):
    try:
        re.compile(pattern)
    except (re.error, OverflowError):
        return False
    return True


FLAGS = st.sampled_from(["", "", "(?i)", "(?a)", "(?s)", "(?m)", "(?x)", "(?ai)"])
PATTERNS = st.tuples(FLAGS, st.recursive(ATOMS, combined, max_leaves=6)).map("".join).filter(valid)


@settings(max_examples=400, deadline=None)
@given(pattern=PATTERNS, content=SMALL)
def test_a_weaker_pattern_matches_every_line_that_the_pattern_matches(pattern, content):
    """The one for ripgrep, read by Python as a pattern of bytes."""
    weak = weaker(pattern, re.compile(pattern).flags, "rg")
    if weak is None:
        return
    said = re.compile(weak.removeprefix(b"(?-u)"))
    for line in content.split(b"\n"):
        if re.search(pattern, line.removesuffix(b"\r").decode("utf-8", "replace")):
            assert said.search(line), (pattern, weak, line)


def check_programs_agree(corpus, programs, pattern):
    """What Python finds alone, and how many files the programs left out."""
    plain, end = ask(corpus, pattern, None)
    assert end.pop("left_out") == 0
    left_out = 0
    for program in programs:
        narrowed, also = ask(corpus, pattern, program)
        left_out += also.pop("left_out")
        assert narrowed == plain and also == end
    return plain, left_out


@settings(max_examples=25, deadline=None)
@given(pattern=PATTERNS)
def test_any_pattern_finds_the_same_with_each_program(corpus, pattern):
    check_programs_agree(corpus, PROGRAMS.values(), pattern)


@pytest.mark.deep
@settings(max_examples=200, deadline=None)
@given(pattern=PATTERNS)
def test_many_patterns_find_the_same_with_each_program(corpus, pattern):
    check_programs_agree(corpus, PROGRAMS.values(), pattern)


KNOWN = [
    "import", r"^import\b", "foo_bar|aaa", "(?i)foo", "(?i)k", "(?i)s", "(?i)é", "é", "🙂",
    r"\d{2}",
    r"[\]^-]", r"[\^-]", r"\^", r"\\", r"\[", "]", r"\$", "-e", r"a\.b", r"\{2\}", r"(a)\1\1",
    "foo.bar",
    "\ufffd", "[\ufffd]~", "x{3000}", "(?x) f o o  # said", "(?:a|)b", "y$", r"(?<=x)\d+",
    "\xa0", "İ",
]  # fmt: skip


@pytest.mark.parametrize("pattern", KNOWN)
def test_patterns_of_all_kinds_find_the_same_and_files_are_left_out(corpus, program, pattern):
    plain, left_out = check_programs_agree(corpus, [program], pattern)
    assert plain, "a pattern that finds nothing shows little"
    assert left_out > 0 or "\ufffd" in pattern


@pytest.mark.parametrize("pattern", ["a*", "^", r"\b", "(?=a)", "", r"(a)?\1", "(?:a|)", "\ud800?"])
def test_a_pattern_that_may_match_nothing_leaves_out_no_file(pattern):
    assert weaker(pattern, re.compile(pattern).flags, "rg") is None


def test_results_are_cut_at_the_same_match(corpus, program):
    plain, end = ask(corpus, "a", None, max_matches=20)
    narrowed, also = ask(corpus, "a", program, max_matches=20)
    assert len(plain) == 20 and plain == narrowed and end["truncated"] and also["truncated"]
    assert (end["files"], end["skipped"]) == (also["files"], also["skipped"])


def test_a_file_pattern_and_a_folder_are_the_same_with_each(corpus, program):
    for more in ({"glob": "all*"}, {"path": "sub.d"}, {"path": "one00"}, {"skip": ["sub.d"]}):
        plain, end = ask(corpus, "[aeiou]", None, **more)
        narrowed, also = ask(corpus, "[aeiou]", program, **more)
        assert plain == narrowed
        assert {**end, "left_out": 0} == {**also, "left_out": 0}


def test_a_few_small_files_start_no_other_program(corpus, program):
    assert ask(corpus, "import", program, narrow_from=1 << 40)[1]["left_out"] == 0


def test_a_program_that_fails_leaves_out_nothing(corpus, tmp_path):
    for number, body in enumerate(
        ("exit 2", "kill -9 $$", "printf '%s\\0' /proc/self/fd/9; exit 3")
    ):
        fake = tmp_path / str(number) / "grep"
        fake.parent.mkdir()
        fake.write_text(f"#!/bin/sh\n{body}\n")
        fake.chmod(0o755)
        check_programs_agree(corpus, [str(fake)], "import")
    check_programs_agree(corpus, [str(tmp_path / "no" / "grep")], "import")


def test_a_program_that_hangs_is_ended(tmp_path, monkeypatch):
    fake = tmp_path / "grep"
    fake.write_text("#!/bin/sh\nexec sleep 100\n")
    fake.chmod(0o755)
    monkeypatch.setattr(search_narrow, "_SECONDS", 0.2)
    narrow = search_narrow.narrower(re.compile("a"), str(fake))
    assert narrow is not None and narrow([0]) is None


def test_programs_in_the_workspace_and_in_relative_folders_are_not_used(tmp_path, monkeypatch):
    for folder in ("work/.venv/bin", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "rg").write_text("#!/bin/sh\n")
        (tmp_path / folder / "rg").chmod(0o755)
    work = str(tmp_path / "work")
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(search, "PROGRAMS", ("rg",))
    monkeypatch.setenv("PATH", f".:{work}/.venv/bin")
    assert search.installed([work]) is None
    (tmp_path / "links").mkdir()
    (tmp_path / "links/rg").symlink_to(f"{work}/.venv/bin/rg")
    monkeypatch.setenv("PATH", f"{tmp_path}/links")
    assert search.installed([work]) is None
    monkeypatch.setenv("PATH", f"{work}/.venv/bin:{tmp_path}/elsewhere")
    assert search.installed([work]) == str(Path(tmp_path / "elsewhere/rg").resolve())


def test_the_tool_says_the_same_with_each_program(bench, monkeypatch):
    monkeypatch.setattr(search, "NARROW_FROM", 0)
    (bench.root / "many").mkdir()
    for number in range(300):
        (bench.root / "many" / f"f{number}").write_text(f"line\nnumber {number}\r\n")
    said = []
    for programs in (("rg",), ("grep",), ()):
        monkeypatch.setattr(search, "PROGRAMS", programs)
        result = bench.call("search_files", {"pattern": r"\b\w+ber 1\d$|print"})
        assert result.success and result.data["count"] == 12 and result.data["files"] == 302
        said.append((result.output, result.data))
    assert said[0] == said[1] == said[2]


def test_a_line_that_takes_for_ever_ends_the_search_with_its_place(bench, monkeypatch):
    monkeypatch.setattr(search, "MAX_SECONDS", 1)
    (bench.root / "a").write_text("aaaa\n")
    (bench.root / "b").write_text("fine\n" + "a" * 60 + "!\n")
    result = bench.call("search_files", {"pattern": r"^(a+)+$"})
    assert result.error.code == "TIMEOUT" and "b:" in result.error.message
    assert [m["path"] for m in result.data["matches"]] == ["a"] and result.data["truncated"]
    bench.assert_every_call_has_one_finish()
