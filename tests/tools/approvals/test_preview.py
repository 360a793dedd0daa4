"""A call happens as it was shown to the one who was asked, or it is asked about again."""

import os
import re
from typing import Any

import pytest

from loom_audit.history.ground.questions import ApprovalRequest
from loom_audit.tools.approvals.asking_gate import AskingGate
from loom_audit.tools.approvals.policy import read_policy
from loom_audit.tools.calls.gate import Decision
from tests.tools.approvals.person import NO, OVERWRITE, YES, Person, answers, questions
from tests.tools.conftest import Bench


def test_modified_arguments_that_make_what_was_not_shown_are_asked_about_again(
    bench: Bench,
) -> None:
    other = {"path": "other.txt", "content": "x"}
    modified = Decision("allowed", "person:me", "", other)
    refused = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=Person(modified, NO)))
    assert not refused.success and not (bench.root / "other.txt").exists()
    assert questions(bench)[1].arguments == other and "+x" in questions(bench)[1].preview
    assert bench.call("write_file", OVERWRITE, gate=AskingGate(ask=Person(modified, YES))).success
    assert (bench.root / "other.txt").read_text() == "x"


def test_modified_arguments_that_touch_what_was_not_shown_are_asked_about_again(
    bench: Bench,
) -> None:
    elsewhere = {"path": "src/main.py", "content": "x"}
    person = Person(Decision("allowed", "person:me", "", elsewhere), YES)
    assert bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person)).success
    assert questions(bench)[1].arguments == elsewhere
    assert "print('one')" in questions(bench)[1].preview
    assert (bench.root / "src/main.py").read_text() == "x"


def test_what_moved_since_it_was_shown_is_asked_about_again(bench: Bench) -> None:
    notes = bench.root / "notes.txt"

    def edit_first(request: ApprovalRequest) -> Decision:
        notes.write_text("edited in between\n")
        return YES

    person = Person(edit_first, NO)
    assert not bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person)).success
    one, two = questions(bench)
    assert "edited in between" in two.preview and "edited in between" not in one.preview
    assert "changed since it was shown" in two.reason and one.state != two.state
    assert two.reason.startswith(one.reason)
    assert notes.read_text() == "edited in between\n"


def test_one_that_moves_every_time_is_denied_in_the_end(bench: Bench) -> None:
    def edit_first(request: ApprovalRequest) -> Decision:
        (bench.root / "notes.txt").write_text(f"{request.seq}")
        return YES

    result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=Person(*[edit_first] * 9)))
    assert result.error.code == "APPROVAL_DENIED" and len(questions(bench)) == 5
    assert answers(bench)[-1].by == "gate:asking"
    bench.assert_every_call_has_one_finish()


def test_a_file_is_not_made_in_another_folder_than_was_shown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = AskingGate.decide

    async def decide(self: AskingGate, *args: Any, **options: Any) -> Decision:
        answer = await wait(self, *args, **options)
        (bench.root / "new").rmdir()
        os.symlink("src", bench.root / "new")
        return answer

    (bench.root / "new").mkdir()
    monkeypatch.setattr(AskingGate, "decide", decide)
    gate = AskingGate(read_policy({"default": "ask"}), ask=Person(YES))
    result = bench.call("write_file", {"path": "new/a.py", "content": "x"}, gate=gate)
    assert result.error.code == "CONFLICT" and result.files_changed == []
    assert os.listdir(bench.root / "src") == ["main.py"]


def test_a_preview_that_is_cut_says_how_much_would_change(bench: Bench) -> None:
    for number in range(1500):
        (bench.root / "src" / f"{number:04}{'x' * 60}").write_text("")
    person = Person(NO)
    bench.call("delete_file", {"path": "src", "recursive": True}, gate=AskingGate(ask=person))
    [request] = person.asked
    assert "1502 paths would change in all" in request.preview.splitlines()[-1]
    assert len(request.preview.encode()) <= 64 * 1024


@pytest.mark.parametrize("how", ["content", "mode", "deleted", "symlink"])
def test_an_edit_between_the_last_look_and_the_write_is_a_conflict(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The gate has looked for the last time: only the write itself can find it."""
    notes, wait = bench.root / "notes.txt", AskingGate.decide

    async def decide(self: AskingGate, *args: Any, **options: Any) -> Decision:
        answer = await wait(self, *args, **options)
        if how == "content":
            notes.write_bytes(b"FIRST\r\nsecond\r\nthird")
        elif how == "mode":
            notes.chmod(0o600)
        elif how == "deleted":
            notes.unlink()
        else:
            notes.unlink()
            os.symlink("src/main.py", notes)
        return answer

    monkeypatch.setattr(AskingGate, "decide", decide)
    result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=Person(YES)))
    assert result.error.code == "CONFLICT" and result.files_changed == []
    assert (bench.root / "src/main.py").read_text().startswith("import os")
    assert not notes.exists() or b"new" not in notes.read_bytes()
    bench.assert_every_call_has_one_finish()
    assert bench.call("list_directory", {}).success


def test_a_folder_is_deleted_as_it_was_shown_or_not_at_all(bench: Bench) -> None:
    def add_first(request: ApprovalRequest) -> Decision:
        (bench.root / "src" / "late.py").write_text("late")
        return YES

    person = Person(add_first, NO)
    arguments = {"path": "src", "recursive": True}
    assert not bench.call("delete_file", arguments, gate=AskingGate(ask=person)).success
    one, two = questions(bench)
    assert "late.py" in two.preview and "late.py" not in one.preview
    assert "delete directory src" in one.preview and "-print('one')" in one.preview
    assert bench.call("delete_file", arguments, gate=AskingGate(ask=Person(YES))).success
    assert not (bench.root / "src").exists()
    bench.assert_log_agrees_with_disk()


def test_overwriting_by_moving_asks_with_what_would_be_lost(bench: Bench) -> None:
    move = {"from": "src/main.py", "to": "notes.txt", "overwrite": True}
    assert bench.call("move_file", move, gate=AskingGate(ask=Person(YES))).success
    (asked,) = questions(bench)
    assert "rename src/main.py to notes.txt" in asked.preview and "-first" in asked.preview
    assert asked.arguments == move


def test_the_scratch_directory_is_named_and_the_workspace_stays(bench: Bench) -> None:
    write = {"path": "scratch://a.txt", "content": "one"}
    assert bench.call("write_file", write, gate=AskingGate(wait=False)).success
    gate = AskingGate(ask=Person(YES, YES))
    assert bench.call("write_file", write | {"content": "two"}, gate=gate).success
    assert bench.call("delete_file", {"path": "scratch://a.txt"}, gate=gate).success
    assert all("scratch directory" in fact.preview for fact in questions(bench))
    bench.assert_log_agrees_with_disk()


def test_hostile_text_and_large_content_are_asked_about_whole_and_shown_bounded(
    bench: Bench,
) -> None:
    hostile = "\x1b[31m\u202e<script>\udcff"
    content = (hostile[:-1] + "\n") * 20_000
    arguments = {"path": "notes.txt", "content": content}
    assert not bench.call("write_file", arguments, gate=AskingGate(ask=Person(NO))).success
    (asked,) = questions(bench)
    assert asked.arguments["content"] == content
    assert len(asked.preview.encode("utf-8", "surrogatepass")) <= 64 * 1024
    assert bench.workspace.verify().findings == ()


def test_what_would_be_deleted_or_moved_is_listed_by_path(bench: Bench) -> None:
    names = [f"{n * 37 % 100:02}" for n in range(60)]
    for name in names:
        (bench.root / "many" / name[0]).mkdir(parents=True, exist_ok=True)
        (bench.root / "many" / name[0] / f"{name}.txt").write_text(f"{name}\n")
    delete = {"path": "many", "recursive": True}
    assert not bench.call("delete_file", delete, gate=AskingGate(ask=Person(NO))).success
    (asked,) = questions(bench)
    shown = re.findall(r"^(?:diff --git a/|delete directory )(\S+)", asked.preview, re.MULTILINE)
    assert shown == sorted(shown) and len(shown) == len(names) + 11
