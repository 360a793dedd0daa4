"""`kill -9` at every system call of a recorder at work, and what the next one finds."""

import os
import random
import sys
from collections import Counter
from dataclasses import replace

import anyio
import pytest

from loom_audit import AuditedWorkspace, open_store
from loom_audit.errors import NoWorkspace
from loom_audit.history.record.listings.baseline import baseline_end
from loom_audit.model.events import ChangeIntended
from loom_audit.model.plans.planning import Plan
from tests.crash.programs.faults import (
    STAGES,
    SYSCALLS,
    Arena,
    Ended,
    Point,
    Stage,
    check_files,
    check_finishes,
    check_fold,
    check_intended,
    check_log,
    check_prior,
    remove_leftovers,
    without_leftovers,
)
from tests.oracles.trees import Entry, differences, tree_of

Tree = dict[bytes, Entry]
NEXT = {
    "shell_execute": {"command": "true"},
    "write_file": {"path": "old.txt", "content": "the next session\n"},
}
READS = ("openat", "openat2")
"""Mostly readings, of which a baseline does thousands: past 40 every seventh is taken."""


def survives(arena: Arena, point: Point) -> bool:
    """Run into the fault and check everything. False when the scenario ended before it."""
    before = arena.prepare(point.scenario)
    ended = arena.run(point, point.scenario, point.stage)
    if not ended.hit:
        assert ended.status == 0, ended.said
        return False
    assert ended.status == -9, ended.said
    if point.scenario == "attach":
        check_attaching(arena, ended, before)
    else:
        check_working(arena, point, ended, before)
    return True


def check_attaching(arena: Arena, ended: Ended, before: Tree) -> None:
    with open_store() as store:
        try:
            workspace = store.workspace(arena.root)
        except NoWorkspace:
            assert not ended.acks
        else:
            check_log(workspace, ended.acks)
        workspace = store.attach(arena.root)
        assert tree_of(arena.root) == before
        assert baseline_end(workspace.attachment.stored)
        check_fold(workspace, before)
        check_log(workspace, ended.acks)
        goes_on(workspace, before)


def check_working(arena: Arena, point: Point, ended: Ended, before: Tree) -> None:
    after = arena.outcome(point.scenario)
    with open_store() as store:
        workspace = store.workspace(arena.root)
        check_log(workspace, ended.acks)
        now = without_leftovers(workspace, tree_of(arena.root))
        check_prior(workspace, before, now)
        if point.scenario != "shell":  # which is not ours, and may leave anything
            check_files(before, after, now)
        if sum(call["success"] for call in ended.calls) == calls_of(point.scenario):
            assert now == after
        check_intended(workspace, before, now)
        waiting = [one for one in workspace.recover() if one.waiting]
        assert tree_of(arena.root) == now
        check_finishes(workspace, waiting=bool(waiting))
        if waiting and point.nth % 2:
            begun = any(
                isinstance(event.fact, ChangeIntended) and event.seq > waiting[0].call.requested
                for event in workspace.log.read()
            )
            workspace.recover("continue")
            assert tree_of(arena.root) == (after if begun else now)
        elif waiting:
            workspace.recover("abandon")
            assert tree_of(arena.root) == now
        goes_on(workspace, after if point.scenario == "rollback" else before)
        check_log(workspace, ended.acks)


def calls_of(scenario: str) -> int:
    """How many calls the scenario makes."""
    return {"writes": 5, "attach": 0}.get(scenario, 1)


def goes_on(workspace: AuditedWorkspace, start: Tree, *, gaps: bool = False) -> None:
    """Nothing is left open or unrecorded, the next session works, and the start is restored.

    With `gaps` changes may be unrecorded where the call says that they could not be seen.
    """
    check_finishes(workspace)
    status = workspace.status()
    assert (status.open_calls, status.interrupted) == ((), ())
    told = any(call.coverage.reasons for call in workspace.timeline.calls())
    told = told or any(event.kind == "paths.untracked" for event in workspace.log.read())
    if not (gaps and told):
        assert status.drift == ()
        check_fold(workspace, without_leftovers(workspace, tree_of(workspace.root)))
    if gaps:
        remove_leftovers(workspace)  # no process died, so nothing was recovered
    assert workspace.leftovers() == []
    with workspace.session("next") as session:
        for tool, arguments in NEXT.items():
            result = anyio.run(session.call, tool, arguments)
            assert result.success, result.error
    point = 0 if not workspace.timeline.checkpoints() else "@start"
    if point:
        plan = workspace.plan_rollback(point, outside=True)
        stays = {os.fsencode(path) for path in unrestored(workspace, plan)} if gaps else set()
        workspace.carry_out(plan)
        assert differences(tree_of(workspace.root), start).keys() <= stays


def unrestored(workspace: AuditedWorkspace, plan: Plan) -> set[str]:
    """The paths of which the plan says that it does not restore them.

    What was not seen to move from a recorded place may have come from any, and stays. What could
    not be read before a command that deleted it had left the tree: nobody saw that it was deleted.
    """
    return {note.path for note in (*plan.irreversible, *plan.kept)}


def points(arena: Arena, scenario: str, stage: Stage, syscall: str = "") -> list[Point]:
    """Every occurrence of the system calls (of one) in a run without faults."""
    return [
        Point(scenario, stage, name, n)
        for name, occurrences in arena.count(scenario, stage).items()
        for n in occurrences
        if syscall in ("", name) and (name not in READS or n <= 40 or n % 7 == 0)
    ]


@pytest.mark.few(0)
def test_a_kill_before_a_file_of_a_rollback_changes_places_loses_nothing(arena: Arena) -> None:
    _, second, third, *_, last = points(arena, "rollback", "open", "renameat2")
    assert attempt(arena, second) and attempt(arena, third) and attempt(arena, last)


@pytest.mark.deep
def test_a_kill_at_a_sampled_system_call_loses_nothing(arena: Arena, seed: str) -> None:
    chosen = random.Random(seed)
    run: Counter[str] = Counter()
    for scenario, stages in STAGES.items():
        found = [point for stage in stages for point in points(arena, scenario, stage)]
        for point in chosen.sample(found, 1):
            run[scenario] += attempt(arena, point)
    assert run.total() >= 3, run


def test_a_store_whose_making_was_killed_before_its_journal_was_gone_is_opened(
    arena: Arena,
) -> None:
    assert attempt(arena, Point("attach", "open", "unlink", 1))


def attempt(arena: Arena, point: Point) -> bool:
    """As `survives`, the point named in what fails."""
    try:
        return survives(arena, point)
    except BaseException as error:
        error.add_note(str(point))
        raise


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("syscall", SYSCALLS)
@pytest.mark.parametrize(
    ("scenario", "stage"), [(name, stage) for name, stages in STAGES.items() for stage in stages]
)
def test_a_kill_at_any_system_call_loses_nothing(
    arena: Arena, scenario: str, stage: Stage, syscall: str
) -> None:
    found = points(arena, scenario, stage, syscall)
    hit = [attempt(arena, point) for point in found]
    sys.stdout.write(f"{scenario}/{stage}: {sum(hit)} kills at {syscall}\n")
    always = len(found) - arena.retried[syscall]
    assert sum(hit) >= always * 0.9, "the scenario does not repeat itself"
    if found:
        assert not survives(arena, replace(found[-1], nth=found[-1].nth + 1000))
