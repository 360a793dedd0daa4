"""read_file where an answer does not hold all: how to go on, and what is not text."""

import base64
import hashlib
import re
from typing import Any

import anyio
import pytest

from loom_audit.tools.approvals.asking_gate import AskingGate
from loom_audit.tools.approvals.policy import Policy
from loom_audit.tools.bundled.files.reading import MAX_IMAGE
from loom_audit.tools.bundled.files.shown import MAX_SHOWN, MAX_TAIL
from loom_audit.tools.calls.gate import Decision
from loom_audit.tools.calls.result import MAX_OUTPUT
from tests.given.pictures import PNG
from tests.tools.conftest import Bench


def paged(bench: Bench, path: str, **more: object) -> str:
    """A file as somebody reads it who only follows what each answer says."""
    pages, offset = list[str](), 0
    while True:
        result = bench.call("read_file", {"path": path, "offset": offset, **more})
        assert result.success and len(result.output.encode()) <= MAX_OUTPUT
        said = re.search(r"\n\[bytes (\d+) to (\d+) of \d+; offset (\d+) goes on\]$", result.output)
        if said is None:
            assert result.data["truncated"] is False and result.data["next_offset"] is None
            return "".join([*pages, result.output.removesuffix("[the file is empty]")])
        assert int(said[2]) == int(said[3]) == result.data["next_offset"] > offset
        assert result.data["truncated"] is True
        pages.append(result.output[: said.start()])
        offset = int(said[3])


@pytest.mark.parametrize(
    "text",
    ["x" * 49_000, "".join(f"line {n}: ü€🙂\n" for n in range(3_000)), "🙂" * 9_999, "short", ""],
    ids=["one line", "lines", "four bytes each", "short", "empty"],
)
@pytest.mark.parametrize("limit", [None, 4_099])
def test_a_file_is_read_to_its_end_by_following_its_answers(
    bench: Bench, text: str, limit: int | None
) -> None:
    (bench.root / "long.txt").write_text(text)
    assert paged(bench, "long.txt", **({"limit": limit} if limit else {})) == text


def test_a_long_file_is_shown_with_head_and_tail_and_where_what_is_left_out_begins(
    bench: Bench,
) -> None:
    text = "".join(f"{n:06} ü\n" for n in range(6_000))
    (bench.root / "long.txt").write_text(text)
    result = bench.call("read_file", {"path": "long.txt"})
    assert result.data["truncated"] is False and result.data["contents"] == text
    assert result.message_truncated is True
    assert len(result.output.encode()) <= MAX_OUTPUT and "\ufffd" not in result.output
    head, said, tail = re.split(r"\[… (.*) …\]\n", result.output)
    first, last = head.count("\n") + 1, 6_000 - tail.count("\n")
    assert said == f"lines {first} to {last} of 6000 are left out: line_offset {first} goes on"
    assert tail.startswith(f"{last + 1:>6}\t{last:06} ü\n") and tail.endswith("  6000\t005999 ü\n")
    assert (result.data["next_line"], result.data["next_offset"]) == (first, (first - 1) * 10)
    asked = {"path": "long.txt", "line_offset": first, "line_limit": 2}
    assert bench.call("read_file", asked).output == (
        f"{first:>6}\t{first - 1:06} ü\n{first + 1:>6}\t{first:06} ü\n"
        f"[lines {first} to {first + 1} of 6000; line_offset {first + 2} goes on]"
    )


def pages_of_lines(bench: Bench, path: str, **more: object) -> str:
    """A file as somebody reads it who only follows what each answer says of lines."""
    text, at = "", 1
    while True:
        result = bench.call("read_file", {"path": path, "line_offset": at, **more})
        assert result.success and len(result.output.encode()) <= MAX_OUTPUT
        body, _, said = result.output.partition("[lines ")
        assert all(line.split("\t")[0].strip().isdigit() for line in body.splitlines())
        text += "".join(line.partition("\t")[2] for line in body.splitlines(keepends=True))
        following = result.data["next_line"]
        if following is None:
            return text
        assert said.endswith(f"line_offset {following} goes on]") and following > at
        at = following


@pytest.mark.parametrize("limit", [None, 7, 5_000])
def test_a_file_is_read_to_its_end_by_following_its_answers_in_lines(
    bench: Bench, limit: int | None
) -> None:
    text = "".join(f"line {n}: ü€🙂{'x' * (n % 90)}\n" for n in range(700)) + "the end"
    (bench.root / "long.txt").write_text(text)
    more = {"line_limit": limit} if limit else {}
    assert pages_of_lines(bench, "long.txt", **more) == text


def test_the_tail_is_the_real_end_of_a_file_of_which_not_all_is_read(bench: Bench) -> None:
    text = "".join(f"{n:07}\n" for n in range(300_000))
    (bench.root / "long.log").write_text(text)
    result = bench.call("read_file", {"path": "long.log"})
    assert result.output.endswith("299999\t0299998\n300000\t0299999\n")
    assert result.data["truncated"] is True and len(result.data["content"]) == 2**20
    assert " of 300000 are left out: line_offset " in result.output


def test_a_cut_inside_a_line_names_bytes(bench: Bench) -> None:
    (bench.root / "m.js").write_text("var a=1;" * 6_000)
    result = bench.call("read_file", {"path": "m.js"})
    assert result.data["next_line"] is None
    begin = result.data["next_offset"]
    assert f"\n[… bytes {begin} to {48_000 - MAX_TAIL} of 48000 are left out: " in result.output
    assert f": offset {begin} goes on …]\n" in result.output


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a\r\nb\r\n", "[the lines end with CRLF]"),
        (b"a\r\nb\n", "[some lines end with CRLF, some with LF]"),
        (b"", "[the file is empty]"),
    ],
)
def test_what_cannot_be_seen_of_a_text_is_said(bench: Bench, content: bytes, said: str) -> None:
    (bench.root / "f").write_bytes(content)
    result = bench.call("read_file", {"path": "f"})
    assert result.output.endswith(said) and result.data["content"] == content.decode()


def test_lines_that_are_too_long_for_an_answer_say_the_offset_in_the_file(bench: Bench) -> None:
    (bench.root / "long.txt").write_text("first\n" + "y" * 30_000 + "\nlast\n")
    result = bench.call("read_file", {"path": "long.txt", "line_range": [2, 2]})
    assert result.data["offset"] == 6
    begin = result.data["next_offset"]
    assert f"bytes {begin} to " in result.output and 6 < begin < 30_000
    assert result.output.startswith("     2\tyyy")


@pytest.mark.parametrize(
    "arguments",
    [
        {"line_range": [1, 2], "offset": 0},
        {"line_range": [1, 2], "limit": 5},
        {"line_range": [1, 2], "line_offset": 1},
        {"line_limit": 2, "limit": 5},
    ],
)
def test_lines_and_bytes_together_are_refused(bench: Bench, arguments: dict[str, object]) -> None:
    result = bench.call("read_file", {"path": "notes.txt", **arguments})
    assert result.error.code == "INVALID_ARGUMENTS" and "not several" in result.output


def test_behind_the_end_there_is_nothing_and_that_is_said(bench: Bench) -> None:
    (bench.root / "a").write_text("one\n")
    assert bench.call("read_file", {"path": "a", "offset": 99}).output == (
        "[nothing there: a has 4 bytes]"
    )
    assert bench.call("read_file", {"path": "a", "line_range": [5, 6]}).output == (
        "[nothing there: a has 1 line]"
    )


def test_base64_is_whole_or_refused_with_its_size(bench: Bench) -> None:
    raw = bytes(range(256)) * 100
    (bench.root / "raw").write_bytes(raw)
    asked = {"path": "raw", "encoding": "base64"}
    refused = bench.call("read_file", asked)
    most = MAX_SHOWN * 3 // 4
    assert refused.output == (
        f"[25600 bytes do not fit into an answer as base64: read them in parts, with limit {most} "
        "and from offset 0]"
    )
    assert refused.message_truncated and not refused.data["truncated"]
    assert base64.b64decode(refused.data["content"]) == raw
    parts, rest = b"", [0]
    while rest:
        found = bench.call("read_file", {**asked, "offset": rest.pop(), "limit": most})
        parts += base64.b64decode(found.output.partition("\n")[0], validate=True)
        rest += [found.data["next_offset"]] if found.data["truncated"] else []
    assert parts == raw


def test_a_binary_file_is_named_by_type_size_and_hash(bench: Bench) -> None:
    raw = b"PK\x03\x04" + b"\0" * 3_000_000
    (bench.root / "a.zip").write_bytes(raw)
    result = bench.call("read_file", {"path": "a.zip"})
    digest = hashlib.sha256(raw).hexdigest()
    assert result.output == (
        f"[zip archive, 3000004 bytes, SHA-256 {digest}; encoding base64 gives its bytes, "
        f"{MAX_SHOWN * 3 // 4} at a time, with offset and limit]"
    )
    assert result.image is None


def test_a_picture_goes_to_models_that_take_pictures_as_each_vendor_wants_it(bench: Bench) -> None:
    (bench.root / "a.png").write_bytes(PNG)
    batch = bench.session.batch(
        [
            {"id": "c1", "name": "read_file", "arguments": {"path": "a.png"}},
            {"id": "c2", "name": "read_file", "arguments": {"path": "notes.txt"}},
        ]
    )
    done = anyio.run(batch.run)
    encoded = base64.b64encode(PNG).decode()
    address = f"data:image/png;base64,{encoded}"
    text = done.results[0].output
    assert text.startswith("[PNG image, 1 × 1, ")
    for dialect in ("openai", "openai-flat", "anthropic"):
        assert encoded not in str(done.messages(dialect))
    first, second, third = done.messages("openai", images=True)
    assert first == {"role": "tool", "tool_call_id": "c1", "content": text}
    assert second["role"] == "tool"
    assert third == {
        "role": "user",
        "content": [
            {"type": "text", "text": "The picture of call c1:"},
            {"type": "image_url", "image_url": {"url": address}},
        ],
    }
    assert done.messages("openai-flat", images=True)[0] == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": [
            {"type": "input_text", "text": text},
            {"type": "input_image", "image_url": address},
        ],
    }
    [message] = done.messages("anthropic", images=True)
    assert message["content"][0]["content"] == [
        {"type": "text", "text": text},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded}},
    ]
    assert encoded not in str(bench.last().result["output"])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("edit_file", {"path": "main.py", "old_str": "a", "new_str": "b"}),
        ("delete_file", {"path": "main.py"}),
        ("move_file", {"from": "main.py", "to": "b.py"}),
        ("search_files", {"path": "main.py", "pattern": "x"}),
        ("search_code", {"path": "main.py", "query": "x"}),
        ("list_directory", {"path": "main.py"}),
        ("shell_execute", {"command": "true", "cwd": "main.py"}),
        ("run_tests", {"paths": ["main.py"]}),
        ("format_code", {"paths": ["main.py"]}),
    ],
)
@pytest.mark.parametrize("asked", [False, True])
def test_one_rule_says_in_all_tools_what_may_be_meant(
    bench: Bench, tool: str, arguments: dict[str, Any], asked: bool
) -> None:
    async def agree(request: object) -> Decision:
        return Decision("allowed", "person:me")

    gate = AskingGate(Policy(default="ask"), ask=agree) if asked else None
    error = bench.call(tool, arguments, gate=gate).error
    assert error.code == "FILE_NOT_FOUND"
    assert error.hint.startswith("Did you mean src/main.py?"), error.hint


def test_a_picture_that_is_too_large_for_a_model_is_named(bench: Bench) -> None:
    (bench.root / "a.png").write_bytes(PNG + bytes(MAX_IMAGE))
    asked = {"path": "a.png", "max_bytes": 2 * MAX_IMAGE}
    result = bench.call("read_file", asked)
    assert result.image is None and "PNG image" in result.output
    assert "too large to be shown" in result.output and "base64" not in result.output


def test_a_picture_larger_than_what_is_read_of_a_file_is_sent_whole(bench: Bench) -> None:
    (bench.root / "a.png").write_bytes(PNG + bytes(2**20))
    result = bench.call("read_file", {"path": "a.png"})
    assert result.image is not None and len(result.image.content) == len(PNG) + 2**20
    assert result.output.endswith("; it goes with this answer to a model that takes pictures]")
    part = bench.call("read_file", {"path": "a.png", "offset": 0, "limit": 100})
    assert part.image is None and "; read without offset and limit it is shown" in part.output


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("note.txt", "Did you mean notes.txt?"),
        ("src/mian.py", "Did you mean src/main.py?"),
        ("scr/main.py", "Did you mean src/main.py?"),
        ("scr/nothing.py", "Did you mean src?"),
        ("main.py", "Did you mean src/main.py?"),
        ("lib/main.py", "Did you mean src/main.py?"),
        ("src/notes.txt", "Did you mean notes.txt?"),
        ("src/zzzzzz", "In src/ are: main.py."),
        ("zzzzzz/a/b", "In the workspace are: notes.txt, src."),
        ("scratch://zzz", "In scratch:// are: kept."),
    ],
)
def test_of_what_is_not_there_the_answer_says_what_is(bench: Bench, path: str, hint: str) -> None:
    bench.call("write_file", {"path": "scratch://kept", "content": ""})
    for tool in ("read_file", "list_files"):
        error = bench.call(tool, {"path": path}).error
        assert (error.code, error.message, error.hint) == (
            "FILE_NOT_FOUND",
            f"File not found: {path}",
            hint,
        )
