"""Definitions and words are found in what is on record, however it came to be so."""

import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from loom_audit.errors import AuditError
from loom_audit.history.ground.code_index import read_code, update_code_listing
from loom_audit.model.text.code import chunks, definitions, language_of
from loom_audit.ports.code import FoundCode
from loom_audit.sql.code_index import SqlCodeIndex
from loom_audit.sql.ground.driver import connect
from tests.tools.conftest import Bench


def find(bench: Bench, query: str, **arguments: Any) -> list[tuple[str, int, str, str]]:
    result = bench.call("search_code", {"query": query, **arguments})
    assert result.success, result.output
    return [(m["path"], m["line"], m["kind"], m["name"]) for m in result.data["matches"]]


def put(bench: Bench, path: str, content: str) -> None:
    assert bench.call("write_file", {"path": path, "content": content}).success


PYTHON = '''"""def not_this(): in a text
class NorThis:
"""
LIMIT_OF_ALL = 7
class HttpServer:
    def handle_request(self, x):
        return parse(x)
async def parse(text):
    "splits at the semicolon"
'''


def test_definitions_stand_before_text_and_the_same_name_before_others(bench: Bench) -> None:
    put(bench, "server.py", PYTHON)
    put(bench, "other.py", "def parse_all(): pass\n# parse what there is\n")
    assert find(bench, "parse")[:2] == [
        ("server.py", 8, "function", "parse"),
        ("other.py", 1, "function", "parse_all"),
    ]
    assert find(bench, "parse")[2:] == [("server.py", 7, "text", "")]
    assert find(bench, "handle_request", kind="symbol") == [
        ("server.py", 6, "method", "handle_request")
    ]
    assert find(bench, "not_this", kind="symbol") == []
    assert find(bench, "LIMIT", kind="symbol") == [("server.py", 4, "constant", "LIMIT_OF_ALL")]
    assert find(bench, "semicolon") == [("server.py", 9, "text", "")]
    assert find(bench, "server", kind="text") == [("server.py", 5, "text", "")]
    assert (
        'server.py:9: [text] "splits at the semicolon"'
        in bench.call("search_code", {"query": "splits semicolon"}).output
    )


def test_the_index_follows_edits_undo_and_what_commands_do(bench: Bench) -> None:
    put(bench, "a.py", "def first(): pass\n")
    assert find(bench, "first", kind="symbol")
    put(bench, "a.py", "def second(): pass\n")
    assert find(bench, "first", kind="symbol") == []
    bench.workspace.carry_out(bench.workspace.plan_undo())
    assert find(bench, "first", kind="symbol") == [("a.py", 1, "function", "first")]
    bench.call("shell_execute", {"command": "mkdir deep; mv a.py deep/b.py"})
    assert find(bench, "first", kind="symbol") == [("deep/b.py", 1, "function", "first")]
    assert find(bench, "first", kind="symbol", path="src") == []
    bench.call("delete_file", {"path": "deep", "recursive": True})
    assert find(bench, "first", kind="symbol") == []


def test_what_holds_all_the_words_comes_before_what_holds_some(bench: Bench) -> None:
    put(bench, "a.py", "def send_mail_later(): pass\ndef send(): pass\n")
    put(bench, "b.txt", "later the mail is sent to all\n" + "\n" * 80 + "the mail alone\n")
    result = bench.call("search_code", {"query": "send mail later"})
    assert result.output.split("\n") == [
        "a.py:1: [function send_mail_later] def send_mail_later(): pass",
        "[these hold some of the words:]",
        "a.py:2: [function send] def send(): pass",
        "b.txt:1: [text] later the mail is sent to all",
        "b.txt:82: [text] the mail alone",
    ]
    none = bench.call("search_code", {"query": "send nowhere_at_all"})
    assert none.output.startswith("[these hold some of the words:]\na.py:2: [function send]")
    assert bench.call("search_code", {"query": "nowhere_at_all"}).data["count"] == 0


def test_a_line_with_most_of_the_words_does_not_wait_for_each_name_with_one(bench: Bench) -> None:
    put(bench, "many.py", "".join(f"def help_{n}(): pass\n" for n in range(50)))
    put(bench, "utils.py", 'def shorten(text):\n    """Return a condensed version of it."""\n')
    put(bench, "close.py", "def condensed_help_version(): pass\n")
    found = find(bench, "condensed version of help text", limit=3)
    assert found == [
        ("close.py", 1, "function", "condensed_help_version"),
        ("many.py", 1, "function", "help_0"),
        ("utils.py", 2, "text", ""),
    ]


def test_the_next_page_is_named_and_all_pages_are_everything_once(bench: Bench) -> None:
    put(bench, "many.py", "".join(f"def item_{n}(): pass\n" for n in range(50)))
    whole = find(bench, "item some", limit=100)
    pages: list[tuple[str, int, str, str]] = []
    offset: int | None = 0
    while offset is not None:
        asked = {"query": "item some", "limit": 7, "offset": offset}
        result = bench.call("search_code", asked)
        pages += [(m["path"], m["line"], m["kind"], m["name"]) for m in result.data["matches"]]
        following = result.data["next_offset"]
        if following is not None:
            assert f"[there are more: offset {following} gives the next]" in result.output
        offset = following
    assert pages == whole and len({*pages}) == len(pages) == 50
    behind = bench.call("search_code", {"query": "item some", "offset": 60})
    assert behind.output == "[the results end before offset 60]"


def test_a_directory_that_is_not_there_is_an_error_with_what_may_be_meant(bench: Bench) -> None:
    error = bench.call("search_code", {"query": "x", "path": "scr"}).error
    assert (error.code, error.hint) == ("FILE_NOT_FOUND", "Did you mean src?")


def test_the_bounds_of_a_search(bench: Bench) -> None:
    put(bench, "many.py", "".join(f"def item_{n}(): pass\n" for n in range(50)))
    result = bench.call("search_code", {"query": "item", "limit": 10})
    assert result.data["count"] == 10 and result.data["truncated"]
    for bad in (
        {"query": ""},
        {"query": "x", "limit": 0},
        {"query": "x", "limit": 101},
        {"query": "->"},
        {"query": "x", "kind": "all"},
        {},
    ):
        assert bench.call("search_code", bad).error.code == "INVALID_ARGUMENTS"
    assert bench.call("search_code", {"query": "x", "path": "../y"}).error.code == "INVALID_PATH"


@pytest.mark.parametrize("query", ['"', "a OR b", "text:x", "_", "NEAR(a b)", "a*", "é", "\ud800a"])
def test_a_query_is_words_and_no_language(bench: Bench, query: str) -> None:
    put(bench, "odd.txt", "some OR other NEAR a thing\n")
    result = bench.call("search_code", {"query": query})
    assert result.success or result.error.code == "INVALID_ARGUMENTS", result.output


def test_what_is_not_text_or_too_long_is_not_searched_and_odd_names_are(bench: Bench) -> None:
    odd = os.fsdecode(b"caf\xe9.py")
    (bench.root / odd).write_text("def odd_name(): pass\n")
    (bench.root / "binary.py").write_bytes(b"def hidden(): pass\n\0")
    (bench.root / "long.py").write_text("def hidden(): pass\n" + "#" * (1024 * 1024))
    (bench.root / "latin.py").write_bytes(b"def latin(): '\xe9'\n")
    (bench.root / "link.py").symlink_to("latin.py")
    bench.call("shell_execute", {"command": "true"})
    assert find(bench, "hidden") == []
    assert find(bench, "odd_name", kind="symbol") == [(odd, 1, "function", "odd_name")]
    assert find(bench, "latin", kind="symbol") == [("latin.py", 1, "function", "latin")]


def answers(
    bench: Bench, index: SqlCodeIndex
) -> list[tuple[Sequence[FoundCode], Sequence[FoundCode]]]:
    attachment = bench.workspace.attachment
    update_code_listing(attachment.stored, index)
    while read_code(attachment.stored, index):
        pass
    words = ["alpha", "beta", "gamma", "item", "Http", "one", "two_words"]
    return [(index.symbols([w], "", 50), index.text([w], "", 50)) for w in words]


@pytest.mark.few(0)
def test_after_any_edits_undo_and_rollback_it_answers_as_one_built_from_nothing(
    bench: Bench, tmp_path: Path
) -> None:
    chance = random.Random(7)
    kept = SqlCodeIndex(tmp_path / "kept.db")
    words = ["alpha", "beta", "gamma", "item", "HttpItem", "one", "two_words"]
    points, taken = [bench.workspace.log.head()], 0
    for round in range(30):
        name = f"d{chance.randrange(3)}/f{chance.randrange(4)}.{chance.choice(['py', 'txt', 'js'])}"
        lines = [
            chance.choice(["def {}(): pass", "# {} in a text", "function {}() {{"]).format(
                chance.choice(words)
            )
            for _ in range(chance.randrange(1, 90))
        ]
        step = chance.randrange(6)
        if step < 3:
            put(bench, name, "\n".join(lines))
        elif step == 3 and (bench.root / name).exists():
            bench.call("delete_file", {"path": name})
        else:
            with suppress(AuditError):  # nothing to take back, or nothing to change
                back = bench.workspace.plan_rollback(chance.choice(points))
                bench.workspace.carry_out(bench.workspace.plan_undo() if step == 4 else back)
                taken += 1
        points.append(bench.workspace.log.head())
        if round % 3 == 0:
            assert answers(bench, kept) == answers(bench, SqlCodeIndex(tmp_path / f"{round}.db"))
    assert answers(bench, kept) == answers(bench, SqlCodeIndex(tmp_path / "new.db"))
    assert taken >= 5


@pytest.mark.parametrize("damage", [b"", b"no database at all" * 100])
def test_an_index_that_is_gone_or_damaged_is_built_anew(bench: Bench, damage: bytes) -> None:
    put(bench, "a.py", "def findable(): pass\n")
    assert find(bench, "findable", kind="symbol")
    [path] = bench.workspace.adapters.settings.home.glob(f"index/{bench.workspace.id}.code.db")
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    path.write_bytes(damage)
    assert find(bench, "findable", kind="symbol") == [("a.py", 1, "function", "findable")]


def test_an_index_that_another_version_made_is_built_anew(bench: Bench) -> None:
    put(bench, "a.py", "def findable(): pass\n")
    assert find(bench, "findable", kind="symbol")
    [path] = bench.workspace.adapters.settings.home.glob(f"index/{bench.workspace.id}.code.db")
    raw = connect(str(path), "rw")
    raw.execute("DROP TABLE head")
    raw.execute("PRAGMA user_version=99")
    raw.close()
    assert find(bench, "findable", kind="symbol") == [("a.py", 1, "function", "findable")]


@pytest.mark.parametrize(
    ("name", "line", "kind", "symbol"),
    [
        ("a.ts", "export async function load(x: string) {", "function", "load"),
        ("a.tsx", "export const Button = (props) => {", "function", "Button"),
        ("a.ts", "export interface Shape {", "interface", "Shape"),
        ("a.js", "  render(props) {", "method", "render"),
        ("a.go", "func (s *Server) Serve(l net.Listener) error {", "method", "Serve"),
        ("a.go", "type Conn interface {", "interface", "Conn"),
        ("a.rs", "    pub(crate) async fn poll(&mut self) -> X {", "function", "poll"),
        ("a.rs", "impl<T> Foo for Bar {", None, None),
        (
            "A.java",
            "    public static Map<String, Integer> countAll(List<X> x) {",
            "method",
            "countAll",
        ),
        ("a.kt", "suspend fun load(id: Int): User {", "function", "load"),
        ("a.cs", "public sealed class Thing : Base", "class", "Thing"),
        ("a.c", "static int *parse_line(const char *s, size_t n)", "function", "parse_line"),
        ("a.cpp", "void Server::run(int n) {", "function", "Server::run"),
        ("a.c", "  return call(x)", None, None),
        ("a.h", "#define MAX_ITEMS 10", "constant", "MAX_ITEMS"),
        ("a.rb", "  def self.create!(x)", "method", "create!"),
        ("a.php", "    public function getName(): string", "function", "getName"),
        ("a.sh", "build_all() {", "function", "build_all"),
        ("a.sql", "create table if not exists users (", "type", "users"),
        ("README.md", "## How it works", "section", "How it works"),
        ("a.txt", "def nothing():", None, None),
    ],
)
def test_the_rules_of_each_language(
    name: str, line: str, kind: str | None, symbol: str | None
) -> None:
    found = [(d.kind, d.name) for d in definitions(line, language_of(name))]
    assert found == ([] if kind is None else [(kind, symbol)])


def test_no_content_takes_the_rules_very_long() -> None:
    lines = [
        "public " * 42,
        "a::" * 99,
        "a " * 149,
        "((" * 149,
        "<" * 299,
        "export " * 42,
        "x = " * 74,
        "const a" + " " * 290,
        "'''" * 99,
        '"""' * 99 + "'",
    ]
    for line in lines:  # without bounds: hours
        text = (line + "\n") * 300
        for suffix in ("py", "js", "go", "rs", "java", "c", "rb", "php", "sh", "sql", "md"):
            assert len([*definitions(text, language_of(f"a.{suffix}"))]) <= 300
        assert [*chunks(text)]
