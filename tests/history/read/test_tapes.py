"""Real histories as tapes, with a person who edits between the calls: what is read is what was.

What was is said by plain looks at the disk after every call and every edit.
"""

import random
import shutil
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.disk.machine.heads import head_line
from loom_audit.verify_alone import main as verify_alone
from tests.crash.programs.faults import check_finishes
from tests.tapes.plans import take_back_something, there_and_back, undo_and_redo
from tests.tapes.releases import PROJECTS, unpack_releases
from tests.tapes.tape import Tape, apart, look, recorded, recording

TAPES = [("iniconfig", 0), *((project, n) for n in range(1, 9) for project in PROJECTS)]
"""The first is short; the others are deep."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("project", "n"),
    [pytest.param(*one, marks=[pytest.mark.deep] if one[1] else []) for one in TAPES],
)
def test_a_tape_with_a_person_is_read_and_taken_back_exactly(
    store: AuditStore, home: Path, tmp_path: Path, project: str, n: int, seed: str
) -> None:
    releases = unpack_releases(project, tmp_path / "releases")
    root = tmp_path / "project"
    shutil.copytree(releases[0], root, symlinks=True)
    workspace = store.attach(root)
    chosen = random.Random(f"{seed} {project} {n}")
    calls, some, often = (14, 12, 0.5) if n else (7, 4, 0.3)

    def between(tape: Tape) -> None:
        if chosen.random() < often:
            take_back_something(tape)

    with recording(workspace, chosen, releases, "tape") as tape:
        tape.play(calls, between)
        undo_and_redo(tape, some)
        for point in chosen.sample(tape.points, some):
            there_and_back(tape, point)
        check_points(tape, tmp_path / "replayed", every=1 if n else 8)
    check_whole(workspace, home)
    assert sum(step.kind == "plan" for step in tape.steps) >= 2 * some
    assert sum(step.kind == "person" for step in tape.steps) >= calls


def check_points(tape: Tape, folder: Path, *, every: int) -> None:
    """Each point is read as it was, and some are written elsewhere as they were."""
    for n, point in enumerate(tape.points):
        now = recorded(tape.workspace, point.seq)
        assert now == point.tree, (point.seq, apart(now, point.tree))
        if n % every == 0:
            tape.workspace.replay(point.seq, folder)
            written = look(folder).tree
            wanted = {p: state for p, state in point.tree.items() if state[0] != "opaque"}
            assert written == wanted, (point.seq, apart(written, wanted))
            shutil.rmtree(folder)


def check_whole(workspace: AuditedWorkspace, home: Path) -> None:
    """One finish for each call, and nothing wrong for either verifier."""
    check_finishes(workspace)
    assert workspace.verify().findings == ()
    assert verify_alone([str(home / "audit.db"), "--head", head_line(workspace.head())]) == 0
