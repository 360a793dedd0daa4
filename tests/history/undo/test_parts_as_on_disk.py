"""What is said to be taken back of calls, held against which of their lines are on disk."""

from pathlib import Path
from random import Random

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.errors import Conflict, NotFound

FILES = ("a", "b", "c")


def slot(path: str, n: int) -> str:
    return f"{path} {n}\n"


def write(workspace: AuditedWorkspace, root: Path, n: int, paths: list[str]) -> int:
    """Call n marks its own line of each of some files; its number."""
    with workspace.session("writer") as session, session.recording("work"):
        for path in paths:
            text = (root / path).read_text()
            (root / path).write_text(text.replace(slot(path, n), slot(path, n) + f"call {n}\n"))
    return workspace.timeline.calls()[0].seq or 0


@pytest.mark.parametrize(
    "seed", [5, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(6, 14))]
)
def test_a_line_is_on_disk_just_where_its_call_is_not_said_to_be_taken_back(
    workspace: AuditedWorkspace, root: Path, seed: int
) -> None:
    draw = Random(seed)
    for path in FILES:
        (root / path).write_text("".join(slot(path, n) + "\n\n\n" for n in range(3)))
    workspace.status()
    wrote = [draw.sample(FILES, draw.randint(1, 3)) for _ in range(3)]
    numbers = [write(workspace, root, n, paths) for n, paths in enumerate(wrote)]
    undos: list[int] = []
    for _ in range(5):
        target = draw.choice([*numbers, *undos])
        paths = draw.choice([(), (draw.choice(FILES),)])
        try:
            undos.append(
                workspace.carry_out(workspace.plan_revert([target], paths=paths)).call.seq or 0
            )
        except (NotFound, Conflict):
            continue
        for n, number in enumerate(numbers):
            detail = workspace.timeline.call(number)
            for path in wrote[n]:
                said = detail.call.undone_by is not None or path in detail.taken_back_in_part
                assert said == (f"call {n}\n" not in (root / path).read_text()), (number, path)
