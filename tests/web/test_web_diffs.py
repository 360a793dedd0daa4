"""What of a change is shown, and what waits for a click or a download."""

import hashlib

import pytest

from loom_audit.errors import TooLarge
from loom_audit.model.files import BlobId, FileChange, FileState, Move
from loom_audit.web.shared.budget import Budget
from loom_audit.web.shared.changes import LISTS, Changes, show_changes
from loom_audit.web.shared.diffs import (
    CONTEXT,
    MAX_BYTES,
    MAX_LINES,
    WIDER,
    Around,
    Row,
    joined,
    view_change,
)

STORE: dict[str, bytes] = {}
FOLDER = FileState("directory", None, 0o755, 0)


def state(content: bytes, mode: int = 0o644) -> FileState:
    blob = hashlib.sha256(content).hexdigest()
    STORE[blob] = content
    return FileState("file", BlobId(blob), mode, len(content))


def content(found: FileState) -> bytes:
    assert found.blob is not None
    if found.blob not in STORE:
        raise TooLarge("recorded by hash only")
    return STORE[found.blob]


def lines(count: int, word: str = "line") -> bytes:
    return "".join(f"{word} {n}\n" for n in range(count)).encode()


def test_a_small_change_shows_its_lines_with_numbers_and_signs() -> None:
    view = view_change(FileChange("a", state(b"one\ntwo\n"), state(b"one\n2\n")), content)
    assert (view.action, view.body, view.added, view.removed) == ("modified", "rows", 1, 1)
    assert [(row.kind, row.old, row.new) for row in view.rows] == [
        ("context", 1, 1),
        ("remove", 2, None),
        ("add", None, 2),
    ]
    assert "".join(text for text, _ in view.rows[2].pieces) == "2"


def test_what_is_longer_than_its_room_waits_for_a_click() -> None:
    change = FileChange("a", None, state(lines(500)))
    assert view_change(change, content).body == "later"
    assert view_change(change, content).added == 500
    assert view_change(change, content, whole=False).body == "rows"
    long = FileChange("a", None, state(b"".join(b"x" * 1_000 + b"\n" for _ in range(30))))
    assert view_change(long, content).body == "later"


def test_rows_from_anywhere_are_those_of_the_whole() -> None:
    old = lines(300)
    new = b"".join(b"x" * (n % 9 == 4) + line for n, line in enumerate(old.splitlines(True)))
    change = FileChange("a", state(old), state(new))
    whole = view_change(change, content, whole=False, space=10**9)
    assert whole.length == len(whole.rows) == whole.end and whole.remaining == 0
    seen: tuple[Row, ...] = ()
    while len(seen) < whole.length:
        part = view_change(change, content, whole=False, start=len(seen), space=3_000)
        assert part.rows and part.remaining == whole.length - len(seen) - len(part.rows)
        seen += part.rows
    assert seen == whole.rows
    assert any(changed for row in seen[-9:] for _, changed in row.pieces)


def test_a_row_that_is_larger_than_the_room_comes_alone() -> None:
    change = FileChange("a", None, state(b"".join(b"y" * 2_000 + b"\n" for _ in range(3))))
    assert len(view_change(change, content, whole=False, space=5).rows) == 1


def test_a_small_edit_of_a_long_file_comes_with_the_page() -> None:
    old = lines(9_000, "some text of the line")
    assert len(old) > 180_000
    view = view_change(FileChange("a", state(old), state(old + b"one more\n")), content)
    assert (view.body, view.added, view.removed) == ("rows", 1, 0)


@pytest.mark.parametrize("body", [b"\n" * (MAX_LINES + 1), b"x" * (MAX_BYTES + 1)])
def test_what_takes_too_long_to_compare_is_not_compared(body: bytes) -> None:
    change = FileChange("a", None, state(body))
    assert view_change(change, content, whole=False).body == "large"


def test_a_long_line_is_cut_and_says_so() -> None:
    change = FileChange("a", None, state(b"y" * 5_000 + b"\n"))
    row = view_change(change, content).rows[0]
    assert len("".join(text for text, _ in row.pieces)) == 2_000
    assert "5,001 bytes" in row.note


def test_control_characters_and_foreign_bytes_are_shown_as_escapes() -> None:
    change = FileChange("a", None, state(b"\x1b[31m \xff \xe2\x80\xae\n"))
    shown = "".join(text for text, _ in view_change(change, content).rows[0].pieces)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert shown.isprintable()


def test_binary_content_has_no_lines() -> None:
    assert view_change(FileChange("a", None, state(b"\0\1\2")), content).body == "binary"


def test_content_that_was_not_kept_says_why() -> None:
    gone = FileState("file", BlobId("0" * 64), 0o644, 10)
    view = view_change(FileChange("a", None, gone), content)
    assert view.body == "missing" and view.problem
    assert view.problem.message == "recorded by hash only"


def test_a_change_of_mode_alone_is_named() -> None:
    view = view_change(FileChange("a", state(b"x"), state(b"x", 0o755)), content)
    assert view.body == "none"
    assert view.notes == ("mode 0644 → 0755", "content identical")


def test_line_endings_that_differ_are_named() -> None:
    view = view_change(FileChange("a", state(b"x\n"), state(b"x\r\n")), content)
    assert [row.note for row in view.rows] == ["line endings only", "CRLF"]
    view = view_change(FileChange("a", state(b"x\n"), state(b"x")), content)
    assert [row.note for row in view.rows] == ["white space only", "no newline at end"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"if x:\n  y\n", b"if x:\n    y\n", "white space only"),
        (b"a b\nc\n", b"a\nb c\n", "white space only"),
        (b"a\r\nb\r\n", b"a\nb\n", "line endings only"),
        (b"a\nb\n", b"a\n\n \nb\n", "blank lines only"),
        (b"a\nb\n", b"a\nB\n", ""),
        (b"a\n", b"a\nb\n", ""),
        (b"a\xc2\xa0b\n", b"a b\n", ""),
    ],
)
def test_a_part_that_differs_in_white_space_only_says_so(old: bytes, new: bytes, said: str) -> None:
    view = view_change(FileChange("a", state(old), state(new)), content)
    first = next(row for row in view.rows if row.kind != "context")
    assert first.note.partition(",")[0] == said
    assert view.notes == ((said,) if said else ())


def test_a_file_with_other_changes_too_is_not_said_to_differ_in_white_space_only() -> None:
    body = [b"line %d\n" % n for n in range(40)]
    new = [b"  " + body[0], *body[1:-1], b"other\n"]
    view = view_change(FileChange("a", state(b"".join(body)), state(b"".join(new))), content)
    notes = [row.note for row in view.rows if row.kind == "remove"]
    assert notes == ["white space only", ""] and view.notes == ()


def test_more_context_is_shown_as_far_as_the_file_goes() -> None:
    old = lines(300)
    change = FileChange("a", state(old), state(old.replace(b"line 150\n", b"LINE\n")))
    counts = []
    for context in (CONTEXT, *WIDER):
        view = view_change(change, content, whole=False, space=10**9, around=Around(context))
        counts.append(sum(row.kind == "context" for row in view.rows))
        assert (view.added, view.removed) == (1, 1)
    assert counts == [6, 50, 299]


def test_a_rename_is_one_line() -> None:
    same = state(b"same\n")
    changes = (FileChange("new", None, same), FileChange("old", same, None))
    ((change, source),) = joined(changes, [Move("old", "new")])
    view = view_change(change, content, source=source)
    assert (view.action, view.source, view.path, view.body) == ("moved", "old", "new", "none")


def test_what_takes_the_old_name_of_a_rename_is_shown_beside_it() -> None:
    same = state(b"same\n")
    changes = (FileChange("new", None, same), FileChange("old", same, state(b"another\n")))
    shown = joined(changes, [Move("old", "new")])
    assert [(change.path, source) for change, source in shown] == [("new", "old"), ("old", None)]


def test_a_folder_is_left_out_when_something_in_it_says_the_same() -> None:
    changes = (
        FileChange("d", None, FOLDER),
        FileChange("d/e", None, FOLDER),
        FileChange("d/f", None, state(b"x")),
        FileChange("empty", None, FOLDER),
    )
    shown = joined(changes, ())
    assert [change.path for change, _ in shown] == ["d/e", "d/f", "empty"]


def shown(count: int, size: int, **query: str) -> Changes:
    changes = tuple(
        FileChange(f"f{n:05}", None, state(lines(size, f"text {n}"))) for n in range(count)
    )
    fields = {name: (value,) for name, value in query.items()}
    return show_changes(changes, content, fields, Budget(fields, LISTS), "/base")


def test_ten_thousand_files_come_in_parts() -> None:
    found = shown(10_000, 1)
    assert (found.count, found.files.count, found.files.start) == (10_000, 10_000, 0)
    assert 20 < len(found.files.items) < 200
    later = shown(10_000, 1, of="files", **{"from": "9990"})
    assert [view.path for view in later.files.items] == [f"f{n:05}" for n in range(9_990, 10_000)]
    assert later.diffs.items == () and later.files.remaining == 0


def test_a_page_of_many_middling_diffs_is_bounded() -> None:
    found = shown(100, 40)
    assert 0 < len(found.diffs.items) < 20
    assert all(view.body == "rows" for view in found.diffs.items)
    assert found.diffs.remaining == 100 - len(found.diffs.items)
    assert all(row.sums.added == 40 for row in found.files.rows)


def test_few_files_need_no_list() -> None:
    assert shown(3, 5).files.count == 0
    assert len(shown(3, 5).diffs.items) == 3
