"""What an interruption let earlier releases record twice."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from loom_audit import AuditedWorkspace, AuditStore, open_store
from loom_audit.model.events import CallFinished, Draft, Event, FilesChanged
from loom_audit.model.repeats import REPEATED
from loom_audit.model.stored import codec
from tests.oracles.trees import tree_of

PROGRAM = Path(__file__).parents[2] / "loom_audit" / "verify_alone.py"
Change = Callable[[list[Draft]], list[Draft]]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditStore]:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    with open_store() as store:
        yield store


@pytest.fixture
def workspace(
    store: AuditStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AuditedWorkspace:
    monkeypatch.setattr(codec, "FORMAT", "2.0")
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("old\n")
    (root / "kept").write_text("kept\n")
    workspace = store.attach(root)
    workspace.checkpoint("start")
    return workspace


def record_twice(
    workspace: AuditedWorkspace,
    monkeypatch: pytest.MonkeyPatch,
    *,
    version: str = "2.0",
    change: Change = lambda last: last,
) -> int:
    """An undo that was interrupted as 0.2.0 was: what it did stands twice; the seq of the second.

    The last append of the undo is what the interrupted process made, `change`d: once more what
    had happened, and the finish.
    """
    monkeypatch.setattr(codec, "FORMAT", version)
    with workspace.session("agent") as session:
        session.run(["sh", "-c", "echo new > a; echo made > made"])
    log = workspace.attachment.stored.log
    first: list[Event] = []
    second: list[int] = []
    append = type(log).append

    def interrupted(self: object, drafts: list[Draft]) -> object:
        facts = [draft.fact for draft in drafts]
        if first and any(isinstance(fact, CallFinished) for fact in facts):
            [finish] = [one for one in drafts if isinstance(one.fact, CallFinished)]
            fact = finish.fact
            assert isinstance(fact, CallFinished)
            cancelled = CallFinished(
                fact.call_id, fact.tool, fact.effect, "cancelled", fact.result, fact.coverage
            )
            event = first.pop()
            again = Draft(event.fact, event.session, event.actor)
            made = append(log, change([again, Draft(cancelled, finish.session, finish.actor)]))
            second.extend(one.seq for one in made if isinstance(one.fact, FilesChanged))
            return made
        made = append(log, drafts)
        first.extend(
            one for one in made if isinstance(one.fact, FilesChanged) and one.fact.intention
        )
        return made

    monkeypatch.setattr(type(log), "append", interrupted)
    workspace.carry_out(workspace.plan_undo())
    monkeypatch.setattr(type(log), "append", append)
    monkeypatch.setattr(codec, "FORMAT", "2.1")
    return second[-1]


def alone(workspace: AuditedWorkspace) -> tuple[int, str]:
    store = Path(os.environ["LOOM_AUDIT_HOME"]) / "audit.db"
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), str(store)], capture_output=True, text=True
    )
    return done.returncode, done.stdout


def test_a_record_made_twice_is_named_so_and_is_not_damage(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = record_twice(workspace, monkeypatch)
    found = workspace.verify()
    assert [(one.seq, one.grade) for one in found.findings] == [(second, "harmless")]
    assert REPEATED in found.findings[0].message
    assert found.ok and found.exit_code in (0, 3)
    code, said = alone(workspace)
    assert code == 0 and f"event {second}: it was {REPEATED}" in said


def test_it_changes_nothing_in_any_tree_and_tables_are_made_anew_from_it(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = record_twice(workspace, monkeypatch)
    disk = tree_of(workspace.root)
    timeline = workspace.timeline
    assert timeline.tree(second - 1) == timeline.tree(second) == timeline.tree()
    workspace.rebuild()
    assert workspace.differences() == []
    assert timeline.tree(second - 1) == timeline.tree()
    assert workspace.status().drift == () and tree_of(workspace.root) == disk
    assert workspace.verify().ok


def test_what_was_interrupted_then_is_taken_back_like_any_other_call(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = record_twice(workspace, monkeypatch)
    number = workspace.timeline.calls()[0].seq
    assert number == second + 1
    workspace.carry_out(workspace.plan_revert([number]))
    assert (Path(workspace.root) / "a").read_text() == "new\n"
    assert (Path(workspace.root) / "made").read_text() == "made\n"
    workspace.carry_out(workspace.plan_rollback("@start"))
    assert (Path(workspace.root) / "a").read_text() == "old\n"
    assert workspace.verify().ok


def with_status(status: str) -> Change:
    def change(last: list[Draft]) -> list[Draft]:
        again, finish = last
        fact = finish.fact
        assert isinstance(fact, CallFinished)
        return [
            again,
            Draft(
                CallFinished(fact.call_id, fact.tool, fact.effect, status, fact.result),  # type: ignore[arg-type]
                finish.session,
                finish.actor,
            ),
        ]

    return change


def a_third(last: list[Draft]) -> list[Draft]:
    return [last[0], *last]


def another_between(last: list[Draft]) -> list[Draft]:
    fact = last[0].fact
    assert isinstance(fact, FilesChanged)
    nothing = FilesChanged((), "undo", fact.call_id)
    return [Draft(nothing, last[0].session, last[0].actor), *last]


def after_the_finish(last: list[Draft]) -> list[Draft]:
    return last[::-1]


def of_another_call(last: list[Draft]) -> list[Draft]:
    fact = last[0].fact
    assert isinstance(fact, FilesChanged)
    return [replace(last[0], fact=replace(fact, call_id="another")), *last[1:]]


def of_another_session(last: list[Draft]) -> list[Draft]:
    return [replace(last[0], session="another"), *last[1:]]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("version", "change"),
    [
        ("2.1", lambda last: last),
        ("2.0", with_status("ok")),
        ("2.0", with_status("interrupted")),
        ("2.0", a_third),
        ("2.0", another_between),
        ("2.0", after_the_finish),
        ("2.0", of_another_call),
        ("2.0", of_another_session),
    ],
    ids=[
        "written now",
        "ended well",
        "interrupted",
        "a third",
        "another between",
        "too late",
        "another call",
        "another session",
    ],
)
def test_any_other_second_record_is_damage(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch, version: str, change: Change
) -> None:
    second = record_twice(workspace, monkeypatch, version=version, change=change)
    found = workspace.verify()
    assert found.exit_code == 1
    assert (second, "event.intention") in {(one.seq, one.code) for one in found.findings}
    code, said = alone(workspace)
    assert code == 1 and "wrong" in said


def test_what_is_recorded_after_the_upgrade_explains_nothing_below_it_away(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first event of 2.1 ends it for all that follow, also of the old version."""
    monkeypatch.setattr(codec, "FORMAT", "2.1")
    workspace.checkpoint("now")
    record_twice(workspace, monkeypatch)
    assert workspace.verify().exit_code == 1
    assert alone(workspace)[0] == 1
