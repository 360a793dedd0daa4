"""What a program writes, through a descriptor from before, into a file that a call displaced."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, AuditUnavailable, Conflict, Session, ToolResult
from loom_audit.disk.access import late_writers
from loom_audit.disk.writing import reversal
from loom_audit.history.record import carrying_out
from loom_audit.history.record.call import OpenCall
from loom_audit.history.record.carrying_out import Step
from loom_audit.model.events import ContentFound
from loom_audit.model.scope import TEMPORARY

LINE = b"a late line\n"


def found(workspace: AuditedWorkspace) -> dict[str, bytes]:
    """What is on record as found, by path."""
    facts = [e.fact for e in workspace.log.read() if isinstance(e.fact, ContentFound)]
    assert {fact.reason for fact in facts} <= {carrying_out.WRITTEN_LATE}
    return {f.path: workspace.blobs.get(f.state.blob) for f in facts if f.state.blob}


def temporaries(root: Path) -> list[str]:
    return [name for _, _, files in os.walk(root) for name in files if name.startswith(TEMPORARY)]


@pytest.fixture
def late(
    root: Path, workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., None]]:
    """Opens files; a line is appended to each when a call has looked at what it displaced."""
    opened: list[int] = []
    look = Step.look_for_results

    def write_then(*given: Any) -> None:
        look(*given)
        while opened:
            descriptor = opened.pop()
            os.write(descriptor, LINE)
            os.close(descriptor)

    monkeypatch.setattr(Step, "look_for_results", write_then)

    def open_files(*paths: str) -> None:
        opened.extend(os.open(root / path, os.O_WRONLY | os.O_APPEND) for path in paths)

    yield open_files
    assert not opened, "the moment never came"
    assert temporaries(root) == []
    assert workspace.status().drift == ()
    assert workspace.verify().findings == ()


Call = Callable[..., ToolResult]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"path": "a.txt", "content": "ours\n"}),
        ("delete_file", {"path": "a.txt"}),
        ("move_file", {"from": "a.txt", "to": "b.txt"}),
    ],
)
def test_a_line_that_comes_after_the_look_is_on_record(
    workspace: AuditedWorkspace, call: Call, late: Callable[..., None], tool: str, arguments: Any
) -> None:
    late("a.txt")
    call(tool, **arguments)
    assert found(workspace) == {"a.txt": b"one\ntwo\nthree\n" + LINE}
    (event,) = [e for e in workspace.log.read() if isinstance(e.fact, ContentFound)]
    listed = workspace.timeline.calls()[0]
    assert isinstance(event.fact, ContentFound)
    assert (event.fact.call_id, event.session) == (listed.call_id, listed.session)
    assert (event.actor, listed.status, listed.coverage.level) == ("outside", "ok", "full")


@pytest.mark.parametrize("count", [1, 30])
def test_lines_that_come_in_a_rollback_are_on_record(
    workspace: AuditedWorkspace, root: Path, call: Call, late: Callable[..., None], count: int
) -> None:
    start = workspace.log.head()
    (root / "d").mkdir()
    for n in range(count):
        call("write_file", path=f"d/{n}.txt", content=f"{n}\n")
    late(*(f"d/{n}.txt" for n in range(count)))
    workspace.carry_out(workspace.plan_rollback(start))
    assert not list(root.glob("d/*.txt"))
    assert found(workspace) == {f"d/{n}.txt": f"{n}\n".encode() + LINE for n in range(count)}


def test_what_is_displaced_in_a_folder_that_goes_is_kept_beside_the_one_that_stays(
    workspace: AuditedWorkspace, root: Path, call: Call, late: Callable[..., None]
) -> None:
    call("write_file", path="src/new/deep/file.txt", content="x\n")
    late("src/new/deep/file.txt")
    workspace.carry_out(workspace.plan_undo())
    assert not (root / "src/new").exists() and (root / "src").exists()
    assert found(workspace) == {"src/new/deep/file.txt": b"x\n" + LINE}


@contextmanager
def asked(monkeypatch: pytest.MonkeyPatch, then: Callable[[int], None]) -> Iterator[list[bool]]:
    """Tells how often it was asked whether a file is open for writing, and with what answer."""
    answers: list[bool] = []
    whole = late_writers.is_open_for_writing

    def ask(descriptor: int) -> bool:
        then(len(answers))
        answers.append(whole(descriptor))
        return answers[-1]

    with monkeypatch.context() as patched:
        patched.setattr(late_writers, "is_open_for_writing", ask)
        yield answers


def test_a_program_that_is_about_to_write_is_waited_for(
    workspace: AuditedWorkspace, root: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptor = os.open(root / "a.txt", os.O_WRONLY | os.O_APPEND)

    def write_the_third_time(times: int) -> None:
        if times == 2:
            os.write(descriptor, LINE)
            os.close(descriptor)

    with asked(monkeypatch, write_the_third_time) as answers:
        call("write_file", path="a.txt", content="ours\n")
    assert answers == [True, True, False]
    assert found(workspace) == {"a.txt": b"one\ntwo\nthree\n" + LINE}
    assert temporaries(root) == []


def test_a_program_that_keeps_a_file_open_holds_nobody_up_for_long(
    workspace: AuditedWorkspace, root: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (root / "a.txt").open("ab"):
        workspace.attachment.on_disk.workspace._beneath.patience.seconds = 0.004  # type: ignore[attr-defined]
        with asked(monkeypatch, lambda _: None) as answers:
            call("write_file", path="a.txt", content="ours\n")
    patience = workspace.attachment.on_disk.workspace._beneath.patience  # type: ignore[attr-defined]
    assert set(answers) == {True} and patience.seconds == 0.002
    assert found(workspace) == {} and temporaries(root) == []


def test_what_cannot_be_recorded_stays_under_its_temporary_name(
    workspace: AuditedWorkspace, root: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AuditUnavailable("the log cannot be written")

    descriptor = os.open(root / "a.txt", os.O_WRONLY | os.O_APPEND)
    look = Step.look_for_results

    def write_then(*given: Any) -> None:
        look(*given)
        os.write(descriptor, LINE)
        os.close(descriptor)

    monkeypatch.setattr(Step, "look_for_results", write_then)
    with monkeypatch.context() as patched:
        patched.setattr(carrying_out, "_record_late_content", refuse)
        call("write_file", path="a.txt", content="ours\n")
    (left,) = temporaries(root)
    assert (root / left).read_bytes() == b"one\ntwo\nthree\n" + LINE
    assert workspace.leftovers() == [left]


def test_somebody_who_takes_the_temporary_away_has_it(
    workspace: AuditedWorkspace, root: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Step.look_for_results

    def take_then(*given: Any) -> None:
        look(*given)
        (name,) = temporaries(root)
        (root / name).rename(root.parent / "taken")

    monkeypatch.setattr(Step, "look_for_results", take_then)
    call("write_file", path="a.txt", content="ours\n")
    assert (root.parent / "taken").read_bytes() == b"one\ntwo\nthree\n"
    assert (root / "a.txt").read_bytes() == b"ours\n" and found(workspace) == {}


def test_an_edit_in_between_that_goes_on_while_it_is_stored_is_recorded_as_it_was_stored(
    workspace: AuditedWorkspace, root: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = reversal.PathReversal.open

    def append(*given: Any) -> Any:
        with (root / workspace.leftovers()[0]).open("ab") as file:
            file.write(LINE)
        return whole(*given)

    def edit_meanwhile(old: bytes | None) -> bytes:
        (root / "a.txt").write_bytes(b"theirs\n")
        return b"ours\n"

    monkeypatch.setattr(reversal.PathReversal, "open", append)
    with (
        pytest.raises(Conflict),
        OpenCall(session.writer, "edit", {}, "write", call_id="e") as call,
    ):
        call.edit("a.txt", edit_meanwhile, final=True)
    assert (root / "a.txt").read_bytes() == b"theirs\n" + LINE
    recorded = workspace.timeline.history("a.txt")[0].change.after
    assert recorded and recorded.blob
    assert workspace.blobs.get(recorded.blob) == b"theirs\n" + LINE
    assert workspace.status().drift == () and workspace.verify().findings == ()
