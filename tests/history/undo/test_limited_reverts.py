"""A revert limited to files, and of several calls at once, held against the trees that stood."""

import subprocess
from pathlib import Path
from random import Random

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.errors import NotFound
from loom_audit.model.plans.request import PlanRequest

FILES = ("a", "d/a", "d/b", "d/e/a", "e/a")


def write(workspace: AuditedWorkspace, root: Path, texts: dict[str, str]) -> int:
    """One call writes these files; its number."""
    with workspace.session("writer") as session, session.recording("work"):
        for path, text in texts.items():
            (root / path).write_text(text)
    return workspace.timeline.calls()[0].seq or 0


def texts(root: Path, folder: str) -> dict[str, str]:
    return {path: (root / folder / path).read_text() for path in FILES}


@pytest.mark.parametrize(
    "seed", [26, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(8))]
)
def test_some_files_of_several_calls_come_back_as_they_were_and_all_else_stays(
    workspace: AuditedWorkspace, root: Path, seed: int
) -> None:
    draw = Random(seed)
    for example in range(4):
        for path in FILES:
            (root / f"{example}" / path).parent.mkdir(parents=True, exist_ok=True)
            (root / f"{example}" / path).write_text(f"{path} at first\n")
        workspace.status()
        trees, written, numbers = [texts(root, f"{example}")], list[set[str]](), list[int]()
        for n in range(4):
            written.append({*draw.sample(FILES, draw.randint(1, 3))})
            made = {f"{example}/{path}": f"{path} by {n}\n" for path in sorted(written[-1])}
            numbers.append(write(workspace, root, made))
            trees.append(texts(root, f"{example}"))
        taken = draw.sample(range(4), draw.randint(1, 3))
        touched = sorted({path for n in taken for path in written[n]})
        limits = draw.sample([*touched, "d"], draw.randint(1, 2))
        limits = [one for one in limits if any(f"{p}/".startswith(f"{one}/") for p in touched)]
        limits = limits or touched[:1]

        def within(path: str, limits: list[str] = limits) -> bool:
            return any(f"{path}/".startswith(f"{one}/") for one in limits)

        wanted = dict(trees[-1])
        for path in filter(within, touched):
            first = min(n for n in taken if path in written[n])
            wanted[path] = trees[first][path]
        whole = {numbers[n] for n in taken if all(map(within, written[n]))}
        request = PlanRequest(
            "revert",
            tuple(numbers[n] for n in taken),
            paths=tuple(f"{example}/{path}" for path in limits),
            choices={"": "old"},
        )
        plan = workspace.plan(request)
        assert not plan.blocked
        workspace.carry_out(plan)
        assert texts(root, f"{example}") == wanted
        assert {*plan.reverts} == whole
        undone = {call.seq for call in workspace.timeline.calls() if call.undone_by}
        assert undone & {*numbers} == whole


def test_the_rest_of_a_call_and_then_all_of_it_can_be_taken_back_and_brought_again(
    workspace: AuditedWorkspace, root: Path
) -> None:
    number = write(workspace, root, {"a.txt": "1\n", "src/main.py": "1\n"})
    part = workspace.carry_out(
        workspace.plan(PlanRequest("revert", (number,), paths=("a.txt",)))
    ).call.seq
    assert (root / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert (root / "src/main.py").read_text() == "1\n"
    assert workspace.timeline.call(number).call.undone_by is None, "a part is not the call"
    plan = workspace.plan_revert([number])
    assert [change.path for change in plan.changes] == ["src/main.py"] and plan.reverts == (number,)
    workspace.carry_out(plan)
    assert (root / "src/main.py").read_text() == "print('hello')\n"
    assert part is not None
    workspace.carry_out(workspace.plan_revert([part]))
    assert (root / "a.txt").read_text() == "1\n"


def test_a_moved_file_comes_back_whole_by_either_of_its_names(
    workspace: AuditedWorkspace, root: Path
) -> None:
    for name in ("moved.txt", "a.txt"):
        with workspace.session("mover") as session, session.recording("work"):
            (root / "a.txt").rename(root / "moved.txt")
            (root / "src" / "main.py").write_text("changed\n")
        number = workspace.timeline.calls()[0].seq or 0
        plan = workspace.plan(PlanRequest("revert", (number,), paths=(name,)))
        workspace.carry_out(plan)
        assert (root / "a.txt").read_text() == "one\ntwo\nthree\n"
        assert not (root / "moved.txt").exists()
        assert (root / "src" / "main.py").read_text() == "changed\n"
        (root / "src" / "main.py").write_text("again\n")


def test_a_path_that_the_calls_did_not_change_is_refused(
    workspace: AuditedWorkspace, root: Path
) -> None:
    number = write(workspace, root, {"a.txt": "1\n"})
    with pytest.raises(NotFound, match="nothing that is to be reverted changed src"):
        workspace.plan(PlanRequest("revert", (number,), paths=("a.txt", "src")))


@pytest.mark.parametrize("name", ["a.txt", "b.txt", "src", "lib", "lib/main.py", "src/main.py"])
def test_a_rollback_takes_what_was_moved_back_by_any_of_its_names(
    workspace: AuditedWorkspace, root: Path, name: str
) -> None:
    point = workspace.log.head()
    with workspace.session("mover") as session:
        for command in (
            "mv a.txt b.txt; mv src lib",
            "echo more >> b.txt; echo more >> lib/main.py",
            "echo other > other.txt",
        ):
            with session.recording("work"):
                subprocess.run(command, shell=True, cwd=root, check=True)
    plan = workspace.plan_rollback(point, paths=[name])
    workspace.carry_out(plan)
    file = name.endswith(".txt")
    there = {str(one.relative_to(root)): one.read_text() for one in root.rglob("*.*")}
    first = {"a.txt": "one\ntwo\nthree\n"} if file else {"b.txt": "one\ntwo\nthree\nmore\n"}
    code = "lib/main.py" if file else "src/main.py"
    assert there == first | {code: "print('hello')\n" + "more\n" * file, "other.txt": "other\n"}
    workspace.carry_out(workspace.plan_undo())
    assert workspace.verify().findings == ()


def test_a_rollback_of_a_moved_file_takes_what_stands_in_its_old_place_out_of_the_way(
    workspace: AuditedWorkspace, root: Path
) -> None:
    point = workspace.log.head()
    with workspace.session("mover") as session:
        for command in ("mv a.txt b.txt", "echo another > a.txt"):
            with session.recording("work"):
                subprocess.run(command, shell=True, cwd=root, check=True)
    plan = workspace.plan_rollback(point, paths=["b.txt"])
    assert {one.path for one in plan.changes} == {"a.txt", "b.txt"}
    workspace.carry_out(plan)
    assert (root / "a.txt").read_text() == "one\ntwo\nthree\n" and not (root / "b.txt").exists()
