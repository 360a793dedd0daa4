"""A log that holds what cannot have been: read up to it, and listed anew from what is on disk."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult, open_store, verify_alone
from loom_audit.errors import Conflict, Corrupt
from loom_audit.history.look import batches
from loom_audit.model.coverage import Origin
from loom_audit.model.events import Draft, FilesChanged, TreeRelisted
from loom_audit.model.files import FileChange, FileState
from tests.history.record.test_continuity import impossible
from tests.integrity.test_verified_reads import again
from tests.oracles.trees import tree_of

Call = Callable[..., ToolResult]
FOLDER = FileState("directory", None, 0o755, 0)


def record(workspace: AuditedWorkspace, *changes: FileChange, origin: Origin = "outside") -> int:
    """What another release might have recorded: into the log itself, past what checks it."""
    log = workspace.adapters.database.event_log(workspace.id)
    [event] = log.append([Draft(FilesChanged(changes, origin), "", "outside")])
    return event.seq


IMPOSSIBLE: dict[str, Callable[[dict[str, FileState]], tuple[FileChange, ...]]] = {
    "another content before": lambda tree: (FileChange("a.txt", tree["src/main.py"], None),),
    "something where nothing was": lambda tree: (FileChange("new", tree["a.txt"], None),),
    "nothing where something was": lambda tree: (FileChange("a.txt", None, tree["src/main.py"]),),
    "in no folder": lambda tree: (FileChange("no/folder", None, tree["a.txt"]),),
    "in a file": lambda tree: (FileChange("a.txt/in", None, tree["a.txt"]),),
    "a folder that is not empty": lambda tree: (FileChange("src", tree["src"], None),),
    "a file in the place of one": lambda tree: (FileChange("src", tree["src"], tree["a.txt"]),),
    "another mode before": lambda tree: (
        FileChange("src", FileState("directory", None, 0o700, 0), FOLDER),
    ),
}


@pytest.fixture
def broken(workspace: AuditedWorkspace, root: Path) -> tuple[int, dict[str, FileState]]:
    """The last event that fits, and the tree after it; the next one says what cannot be."""
    with workspace.session("before") as session, session.recording("run"):
        (root / "b.txt").write_text("b")
    tree = workspace.timeline.tree()
    before = workspace.log.head()
    record(workspace, *IMPOSSIBLE["a folder that is not empty"](tree))
    return before, tree


@pytest.mark.parametrize("how", IMPOSSIBLE)
def test_an_event_that_cannot_have_been_is_named_by_every_check(
    how: str, workspace: AuditedWorkspace, root: Path
) -> None:
    seq = record(workspace, *IMPOSSIBLE[how](workspace.timeline.tree()))
    found = workspace.verify()
    assert [(one.seq, one.code, one.grade) for one in found.findings if one.seq] == [
        (seq, "tree.impossible", "inconsistent")
    ]
    assert found.exit_code == 3 and not found.ok
    done = subprocess.run(
        [sys.executable, verify_alone.__file__, str(workspace.adapters.settings.file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stdout
    told = [line for line in done.stdout.splitlines() if line.startswith("inconsistent: ")]
    assert told and all(f"event {seq}:" in line for line in told)


def test_points_up_to_it_are_read_and_later_ones_are_not(
    workspace: AuditedWorkspace, broken: tuple[int, dict[str, FileState]], tmp_path: Path
) -> None:
    before, tree = broken
    seen = again(workspace)
    assert seen.timeline.tree(before) == tree
    seen.replay(before, tmp_path / "replayed")
    for point in (before + 1, "head"):
        with pytest.raises(Corrupt, match=f"Event {before + 1} says of src what cannot be"):
            seen.timeline.tree(seen.timeline.point(point))
    with pytest.raises(Corrupt):
        seen.timeline.diff(before, before + 1)
    with pytest.raises(Corrupt):
        seen.plan_undo()
    with pytest.raises(Corrupt):
        seen.plan_rollback(before)


def test_nothing_is_recorded_until_all_is_listed_anew(
    workspace: AuditedWorkspace,
    broken: tuple[int, dict[str, FileState]],
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", 2 * batches.ROW_BYTES)
    before, tree = broken
    (root / "d").mkdir()
    (root / "d" / "new").write_text("since")
    for _ in range(2):
        with closing(open_store()) as store:
            found = store.workspace(root)
            stopped = found.why_stopped()
            assert isinstance(stopped, Corrupt) and "--relist" in stopped.hint
            with pytest.raises(Corrupt), found.session("no") as session, session.recording("r"):
                pytest.fail("it ran")
            assert found.log.head() == before + 1
    event = workspace.relist(actor="person:ann")
    assert isinstance(event.fact, TreeRelisted) and event.fact.last and event.fact.part > 1
    assert event.actor == "person:ann" and workspace.why_stopped() is None
    with workspace.session("yes") as session, session.recording("run"):
        (root / "d" / "new").write_text("more")
    number = workspace.timeline.calls()[0].seq
    seen = again(workspace)
    assert seen.timeline.projections.tree() == seen.timeline.tree()
    assert seen.status().drift == ()
    assert impossible_since(workspace, event.seq) == []
    seen.replay("head", tmp_path / "replayed")
    assert tree_of(tmp_path / "replayed") == tree_of(root)
    assert seen.timeline.tree(before) == tree
    with pytest.raises(Corrupt):  # between the two nobody knows
        seen.timeline.tree(event.seq - 1)
    assert [one.grade for one in seen.verify().findings] == ["inconsistent"]
    # what is since then is taken back, what was before is not
    with pytest.raises(Conflict, match="listed anew"):
        seen.plan_rollback(before)
    plan = seen.plan_revert([number or 0])
    seen.carry_out(plan)
    assert (root / "d" / "new").read_text() == "since"
    workspace.rebuild()
    assert again(workspace).timeline.tree() == workspace.timeline.projections.tree()


def impossible_since(workspace: AuditedWorkspace, seq: int) -> list[tuple[int, str]]:
    """What the oracle finds from a whole listing on, which it takes for the first event."""
    before = [event for event in workspace.log.read() if event.seq <= seq]
    parts = [event.fact for event in before if isinstance(event.fact, TreeRelisted)]
    listed = {one.path: one.after for part in parts for one in part.changes}
    found = [*impossible(workspace)]
    assert listed.keys() >= {"d", "d/new", "a.txt"}
    return [one for one in found if one[0] > seq and one[1] not in listed]


def test_a_listing_that_was_interrupted_changes_nothing(
    workspace: AuditedWorkspace,
    broken: tuple[int, dict[str, FileState]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", 1)
    appended: list[int] = []
    log = workspace.attachment.stored.log
    whole = log.append

    def twice(drafts: Any) -> Any:
        appended.append(1)
        if len(appended) > 2:
            raise KeyboardInterrupt
        return whole(drafts)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(log, "append", twice)
        workspace.relist()
    with pytest.raises(Corrupt):
        again(workspace).timeline.tree()
    assert workspace.why_stopped() is not None
    event = workspace.relist()
    assert isinstance(event.fact, TreeRelisted)
    assert again(workspace).timeline.tree(event.seq) == workspace.timeline.projections.tree()
    assert workspace.why_stopped() is None


def test_nothing_is_listed_anew_where_all_fits(workspace: AuditedWorkspace) -> None:
    head = workspace.log.head()
    with pytest.raises(Conflict, match="nothing is to be listed"):
        workspace.relist()
    assert workspace.log.head() == head


def test_the_commands_say_it_first(
    workspace: AuditedWorkspace, broken: tuple[int, dict[str, FileState]], root: Path
) -> None:
    def run(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "loom_audit", *words],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr + done.stdout

    code, said = run("status")
    assert code != 0 and "NOTHING IS RECORDED" in said.splitlines()[0]
    code, said = run("doctor")
    assert code != 0 and "nothing is recorded: Event" in said
    code, said = run("run", "--", "touch", "new")
    assert code != 0 and not (root / "new").exists()
    assert run("recover", "--relist")[0] == 0
    assert run("run", "--", "touch", "new")[0] == 0
    assert "NOTHING" not in run("status")[1]


def test_a_call_that_is_open_is_waited_for(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    whole = workspace.timeline.projections.tree()
    with session.recording("open"):
        record(workspace, *IMPOSSIBLE["in no folder"](whole))
        with pytest.raises(Conflict, match="still running"):
            workspace.relist()
        fact = TreeRelisted(tuple(FileChange(p, None, s) for p, s in sorted(whole.items())))
        workspace.log.append([Draft(fact, "", "outside")])
    assert [one.grade for one in workspace.verify().findings] == ["inconsistent"]
