"""What of a change is shown, and what waits for a click or a download."""

import hashlib

import pytest

from loom_audit.errors import TooLarge
from loom_audit.model.files import BlobId, FileChange, FileState, Move
from loom_audit.web.diffs import FILES_PER_PAGE, joined, view_change, view_changes

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


def test_over_400_lines_wait_for_a_click() -> None:
    change = FileChange("a", None, state(lines(500)))
    assert view_change(change, content).body == "later"
    assert view_change(change, content).added == 500
    assert view_change(change, content, forced=True).body == "rows"


def test_over_20_kib_wait_for_a_click() -> None:
    change = FileChange("a", None, state(b"x" * 30_000 + b"\n"))
    assert view_change(change, content).body == "later"


def test_a_small_edit_of_a_long_file_comes_with_the_page() -> None:
    old = lines(9_000, "some text of the line")
    assert len(old) > 180_000
    view = view_change(FileChange("a", state(old), state(old + b"one more\n")), content)
    assert (view.body, view.added, view.removed) == ("rows", 1, 0)


@pytest.mark.parametrize("body", [lines(20_001, ""), b"x" * (1024 * 1024 + 1)])
def test_what_a_browser_cannot_bear_is_never_shown(body: bytes) -> None:
    change = FileChange("a", None, state(body))
    assert view_change(change, content, forced=True).body == "large"


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
    assert [row.note for row in view.rows] == ["", "CRLF"]
    view = view_change(FileChange("a", state(b"x\n"), state(b"x")), content)
    assert [row.note for row in view.rows] == ["", "no newline at end"]


def test_a_rename_is_one_line() -> None:
    same = state(b"same\n")
    changes = (FileChange("new", None, same), FileChange("old", same, None))
    (view,) = view_changes(changes, content, moves=[Move("old", "new")])
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


def test_ten_thousand_files_come_in_pages() -> None:
    changes = tuple(FileChange(f"f{n:05}", None, state(b"x\n")) for n in range(10_000))
    assert len(view_changes(changes, content)) == FILES_PER_PAGE
    assert view_changes(changes, content, start=9_950)[0].path == "f09950"


def test_a_page_of_many_middling_diffs_is_bounded() -> None:
    changes = tuple(
        FileChange(f"f{n:03}", None, state(lines(300, "a" * 40 + str(n)))) for n in range(100)
    )
    bodies = [view.body for view in view_changes(changes, content)]
    assert bodies[0] == "rows"
    assert bodies[-1] == "later"
