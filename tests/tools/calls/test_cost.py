"""What a call costs the store, counted and not timed: a new statement must be meant."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from loom_audit.api.face import open_store
from tests.given.traced import traced as traced


def statements_of(
    traced: list[str], folder: Path, tool: str, arguments: Callable[[int], dict[str, Any]]
) -> Counter[str]:
    """The statements of one call in a warm session, by their first word."""
    root = folder / "work"
    root.mkdir()
    (root / "file").write_text("0\n" * 50)
    store = open_store(str(folder / "store" / "audit.db"))
    with store, store.attach(root).session("counter") as session:

        async def calls() -> Counter[str]:
            for n in range(4):
                traced.clear()
                assert (await session.call(tool, arguments(n))).ok
            return Counter(statement.split()[0] for statement in traced)

        return anyio.run(calls)


def test_a_write_takes_two_transactions_and_so_many_statements(
    traced: list[str], tmp_path: Path
) -> None:
    def arguments(n: int) -> dict[str, Any]:
        return {"path": "file", "content": f"{n + 1}\n" * 50}

    counted = statements_of(traced, tmp_path, "write_file", arguments)
    assert counted["BEGIN"] == counted["COMMIT"] == 2, counted
    assert counted["SELECT"] <= 12, counted
    assert counted.total() <= 47, counted


def test_a_command_that_changes_nothing_takes_few_transactions_and_statements(
    traced: list[str], tmp_path: Path
) -> None:
    def arguments(n: int) -> dict[str, Any]:
        return {"command": "true"}

    counted = statements_of(traced, tmp_path, "shell_execute", arguments)
    assert counted["BEGIN"] == counted["COMMIT"] <= 4, counted
    assert counted["SELECT"] <= 15, counted
    assert counted.total() <= 36, counted


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"path": "file"}),
        ("bash", {"command": "true"}),
        ("run_code", {"language": "bash", "code": "true"}),
    ],
)
def test_a_call_hops_to_a_thread_at_most_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any]
) -> None:
    """Once for all that it does, and where it is a command once more for its finish."""
    hops: list[Any] = []
    hop = to_thread.run_sync

    async def counted(step: Any, **options: Any) -> Any:
        hops.append(step)
        return await hop(step, **options)

    monkeypatch.setattr(to_thread, "run_sync", counted)
    root = tmp_path / "work"
    root.mkdir()
    (root / "file").write_text("0\n")
    store = open_store(str(tmp_path / "store" / "audit.db"))
    with store, store.attach(root).session("counter") as session:
        for _ in range(2):  # at the first one git is asked who commits, and a sandbox looked for
            hops.clear()
            result = anyio.run(session.call, tool, arguments)
    if result.error is not None:
        pytest.skip(f"not where nothing confines a command: {result.error}")
    assert len(hops) == (1 if tool == "read_file" else 2)
