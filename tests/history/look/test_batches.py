"""Looks of several batches: what is on record in one of them is known in the others."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.history.look import batches
from loom_audit.model.events import FilesChanged
from tests.given.ticks import wait_a_tick
from tests.oracles.trees import tree_of


def becomes_a_folder(root: Path) -> None:
    (root / "b.txt").rename(root / "z.txt")
    (root / "b.txt").mkdir()


def becomes_a_folder_with_it_inside(root: Path) -> None:
    (root / "b.txt").rename(root / "aside")
    (root / "b.txt").mkdir()
    (root / "aside").rename(root / "b.txt" / "inside")


def has_one_name_more(root: Path) -> None:
    os.link(root / "b.txt", root / "z.txt")


def has_two_names_more(root: Path) -> None:
    os.link(root / "b.txt", root / "a-name")
    os.link(root / "b.txt", root / "z.txt")


@pytest.mark.parametrize("most", [1, 2 * batches.ROW_BYTES, 8 << 20])
@pytest.mark.parametrize(
    "changes",
    [becomes_a_folder, becomes_a_folder_with_it_inside, has_one_name_more, has_two_names_more],
)
def test_a_recorded_file_is_known_at_its_new_place_and_goes_back(
    workspace: AuditedWorkspace,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: Callable[[Path], None],
    most: int,
) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", most)
    with workspace.session("agent") as session:
        with session.recording("make"):
            (root / "b.txt").write_text("b")
        wait_a_tick()
        before = tree_of(root)
        with session.recording("change") as call:
            changes(root)
            (root / "c.txt").write_text("c")
    assert call.coverage.level == "full"
    facts = [event.fact for event in workspace.log.read()]
    assert not any(fact.arrived for fact in facts if isinstance(fact, FilesChanged))
    workspace.carry_out(workspace.plan_undo())
    assert tree_of(root) == before
