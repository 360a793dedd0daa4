"""EIO, ENOSPC and EDQUOT at every system call, once and for ever: fail closed, lose nothing."""

import random
import sys
from collections import Counter
from dataclasses import replace

import pytest

from loom_audit import open_store
from loom_audit.errors import NoWorkspace
from tests.crash.programs.faults import (
    STAGES,
    SYSCALLS,
    Arena,
    Ended,
    Point,
    Stage,
    check_files,
    check_intended,
    check_log,
    check_prior,
    without_leftovers,
)
from tests.crash.test_kill_at_every_syscall import calls_of, goes_on, points
from tests.oracles.trees import tree_of

FAULTS = ("error=EIO", "error=ENOSPC", "error=EDQUOT")
FAILING = tuple(call for call in SYSCALLS if call != "flock")
CLEANING = ("unlink", "unlinkat", "rmdir", "openat", "openat2")
CLEAR = {"AUDIT_UNAVAILABLE", "IO"}
"""What a caller may be told."""


def withstands(arena: Arena, point: Point) -> bool:
    """Run with the fault and check everything. False when the scenario never met it."""
    before = arena.prepare(point.scenario)
    ended = arena.run(point, point.scenario, point.stage)
    if not ended.hit:
        assert ended.status == 0, ended.said
        return False
    check_answers(point, ended)
    with open_store() as store:
        try:
            workspace = store.workspace(arena.root)
        except NoWorkspace:
            assert point.scenario == "attach"
            assert not ended.acks
            workspace = store.attach(arena.root)
        if point.scenario == "attach":
            workspace = store.attach(arena.root)
        check_log(workspace, ended.acks)
        disk = tree_of(arena.root)
        now = without_leftovers(workspace, disk)
        check_prior(workspace, before, now)
        if point.syscall not in CLEANING and not point.for_ever:
            assert now == disk, "temporaries are left though they could be removed"
        after = arena.outcome(point.scenario)
        if point.scenario != "shell":
            check_files(before, after, now)
        succeeded = [call for call in ended.calls if call["success"]]
        if len(succeeded) == calls_of(point.scenario):
            assert now == after
        check_intended(workspace, before, now)
        waiting = [one for one in workspace.recover() if one.waiting]
        # recovery removes temporaries that could not be removed before, and nothing else
        assert without_leftovers(workspace, tree_of(arena.root)) == now
        if waiting:
            workspace.recover("abandon")
            assert without_leftovers(workspace, tree_of(arena.root)) == now
        goes_on(workspace, after if point.scenario == "rollback" else before, gaps=True)
        check_log(workspace, ended.acks)
    return True


def check_answers(point: Point, ended: Ended) -> None:
    """Whoever was told of a failure was told what failed, and nobody hung or crashed."""
    assert ended.status in (0, 1), ended.said
    # a command that could not be given to its process failed, and the store did not
    clear = CLEAR | ({"EXECUTION_ERROR"} if point.scenario == "shell" else set())
    if point.scenario == "rollback" and point.syscall in CLEANING:
        clear |= {"CONFLICT"}  # what cannot be looked at is in the way of a plan
    for call in ended.calls:
        assert call["success"] or (call["code"] in clear and call["message"]), call
    if ended.status:
        errors = [line for line in ended.said if "error" in line]
        told = bool(errors) and errors[-1]["error"] in CLEAR
        # with `for_ever` the report itself cannot be written by this thread
        assert told or (point.for_ever and point.syscall == "write"), ended.said


def attempt(arena: Arena, point: Point) -> bool:
    """As `withstands`, the point named in what fails."""
    try:
        return withstands(arena, point)
    except BaseException as error:
        error.add_note(str(point))
        raise


def test_a_commit_that_cannot_be_written_is_refused_and_loses_nothing(arena: Arena) -> None:
    [*_, point] = points(arena, "write", "call", "pwrite64")
    assert attempt(arena, replace(point, fault="error=EIO"))


def test_a_disk_that_stays_full_from_the_first_file_of_a_rollback_on_loses_nothing(
    arena: Arena,
) -> None:
    [point, *_] = points(arena, "rollback", "open", "renameat2")
    assert attempt(arena, replace(point, fault="error=ENOSPC", for_ever=True))


@pytest.mark.deep
def test_an_error_at_a_sampled_system_call_loses_nothing(arena: Arena, seed: str) -> None:
    chosen = random.Random(seed)
    run: Counter[str] = Counter()
    for scenario, stages in STAGES.items():
        found = [point for stage in stages for point in points(arena, scenario, stage)]
        for point in chosen.sample([p for p in found if p.syscall in FAILING], 1):
            fault, for_ever = chosen.choice(FAULTS), chosen.random() < 0.5
            run[fault] += attempt(arena, replace(point, fault=fault, for_ever=for_ever))
    assert run.total() >= 3, run


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for_ever"])
@pytest.mark.parametrize("syscall", FAILING)
@pytest.mark.parametrize(
    ("scenario", "stage"), [(name, stage) for name, stages in STAGES.items() for stage in stages]
)
def test_an_error_at_any_system_call_loses_nothing(
    arena: Arena, scenario: str, stage: Stage, syscall: str, for_ever: bool
) -> None:
    found = points(arena, scenario, stage, syscall)
    hit = 0
    for n, point in enumerate(found):
        hit += attempt(arena, replace(point, fault=FAULTS[n % len(FAULTS)], for_ever=for_ever))
    sys.stdout.write(f"{scenario}/{stage}: {hit} errors at {syscall}\n")
    assert hit >= (len(found) - arena.retried[syscall]) * 0.9, "the scenario does not repeat itself"
