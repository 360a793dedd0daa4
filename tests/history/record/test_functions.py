"""Python functions recorded as calls, of every shape."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from loom_audit.api.face import AuditedWorkspace


def paths_of(workspace: AuditedWorkspace, tool: str) -> list[list[str]]:
    """What each call of the tool changed, oldest first, and that it was seen whole."""
    calls = [call for call in workspace.timeline.calls() if call.tool == tool]
    assert all(call.coverage.level == "full" for call in calls)
    return [[c.path for c in workspace.timeline.changes_of(call)] for call in reversed(calls)]


def test_an_async_function_is_recorded_to_its_end(workspace: AuditedWorkspace, root: Path) -> None:
    with workspace.session("agent") as session:

        @session.tool
        async def later(name: str) -> str:
            await asyncio.sleep(0)
            (root / name).write_text("x")
            return name

        assert asyncio.run(later("made")) == "made"
    assert paths_of(workspace, "later") == [["made"]]


def test_a_generator_is_recorded_from_its_first_step_to_its_last(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:

        @session.tool
        def steps(*names: str) -> Iterator[str]:
            for name in names:
                (root / name).write_text("x")
                yield name

        given = steps("one", "two")
        (root / "mine").write_text("from outside")
        assert [*given] == ["one", "two"]
    assert paths_of(workspace, "steps") == [["one", "two"]]
    assert not workspace.status().drift


def test_a_generator_that_is_left_early_has_its_finish(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:

        @session.tool
        def endless() -> Iterator[int]:
            for number in range(1000):
                (root / f"n{number}").write_text("x")
                yield number

        given = endless()
        assert (next(given), next(given)) == (0, 1)
        given.close()  # type: ignore[attr-defined]
    assert paths_of(workspace, "endless") == [["n0", "n1"]]
    assert not workspace.timeline.open_calls()


def test_an_async_generator_is_recorded_too(workspace: AuditedWorkspace, root: Path) -> None:
    with workspace.session("agent") as session:

        @session.tool
        async def steps(*names: str) -> AsyncIterator[str]:
            for name in names:
                (root / name).write_text("x")
                yield name

        async def all_of() -> list[str]:
            return [name async for name in steps("one", "two")]

        assert asyncio.run(all_of()) == ["one", "two"]
    assert paths_of(workspace, "steps") == [["one", "two"]]


def test_a_callable_without_a_name_is_recorded_by_its_type(
    workspace: AuditedWorkspace, root: Path
) -> None:
    def make(name: str, text: str) -> None:
        (root / name).write_text(text)

    with workspace.session("agent") as session:
        session.tool(functools.partial(make, text="x"))("made")
    assert paths_of(workspace, "partial") == [["made"]]


def test_an_error_passes_through_and_is_on_record(workspace: AuditedWorkspace, root: Path) -> None:
    with workspace.session("agent") as session:

        @session.tool
        def failing() -> None:
            (root / "made").write_text("x")
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            failing()
    (call,) = workspace.timeline.calls()
    assert (call.status, "ValueError: no" in call.error) == ("error", True)
    assert paths_of(workspace, "failing") == [["made"]]
