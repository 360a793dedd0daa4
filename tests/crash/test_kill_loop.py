"""Several writers in one workspace, killed at random moments, again and again.

Several of which one is killed at a chosen moment are in test_many_sessions.py.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from loom_audit import open_store
from loom_audit.model.events import CallFinished
from tests.crash.programs.faults import (
    Stem,
    check_finishes,
    check_fold,
    check_log,
    fill,
    lines,
    wait_for,
    without_leftovers,
)
from tests.oracles.trees import tree_of

WRITERS = 3


@pytest.fixture(scope="module")
def stems(stem: Stem, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Stem]]:
    with ExitStack() as closing:
        others = [Stem(tmp_path_factory.mktemp("stem")) for _ in range(WRITERS - 1)]
        for other in others:
            closing.callback(other.close)
        yield [stem, *others]


def one_round(stems: list[Stem], folder: Path, n: int, chosen: random.Random) -> list[Any]:
    """Let all write, kill some of them at a random moment, let the others end; what they said."""
    stop = folder / f"stop-{n}"
    reports = [folder / f"said-{n}-{writer}" for writer in range(WRITERS)]
    for writer, (stem, report) in enumerate(zip(stems, reports, strict=True)):
        stem.begin(
            scenario="writer",
            home=str(folder / "home"),
            root=str(folder / "root"),
            report=str(report),
            stop=str(stop),
            name=f"writer-{writer}",
        )
    victims = chosen.sample(range(WRITERS), chosen.randint(1, WRITERS))
    wanted = chosen.randint(1, 25)
    for victim in victims:
        report = reports[victim]
        wait_for("calls", lambda report=report: len(lines(report)) > wanted or ended(report))
        os.kill(lines(report)[0]["pid"], signal.SIGKILL)
    stop.touch()
    statuses = [stem.end() for stem in stems]
    assert all(statuses[victim] == -signal.SIGKILL for victim in victims), statuses
    others = [status for n, status in enumerate(statuses) if n not in victims]
    assert not any(others), [lines(report)[-1] for report in reports]
    return [line for report in reports for line in lines(report)]


def ended(report: Path) -> bool:
    return any("end" in line or "error" in line for line in lines(report))


def loop(stems: list[Stem], folder: Path, rounds: int, seed: str, home: pytest.MonkeyPatch) -> None:
    home.setenv("LOOM_AUDIT_HOME", str(folder / "home"))
    chosen = random.Random(seed)
    fill(folder / "root", 5)
    with open_store() as store:
        store.attach(folder / "root")
    calls: Counter[bool] = Counter()
    for n in range(rounds):
        said = one_round(stems, folder, n, chosen)
        calls += Counter(line["success"] for line in said if "call" in line)
        check_round(folder, said)
    assert calls[True] >= rounds * 3
    assert not calls[False], calls


def check_round(folder: Path, said: list[Any]) -> None:
    """Everything that was acknowledged in the round is there, and recovery closes the rest."""
    acked = {(line["session"], line["call"]): line for line in said if "call" in line}
    for line in acked.values():
        assert line["success"], line
    with open_store() as store:
        workspace = store.workspace(folder / "root")
        check_log(workspace, [])
        finished = {
            (event.session, event.fact.call_id): event
            for event in workspace.log.read()
            if isinstance(event.fact, CallFinished)
        }
        for key, line in acked.items():
            assert key in finished, f"lost: {line}"
            assert finished[key].seq <= line["head"]
        before = without_leftovers(workspace, tree_of(folder / "root"))
        assert not any(one.waiting for one in workspace.recover())
        assert tree_of(folder / "root") == before
        check_finishes(workspace)
        status = workspace.status()
        assert (status.drift, status.open_calls, status.interrupted) == ((), (), ())
        check_fold(workspace, before)


@pytest.mark.deep
def test_writers_that_are_killed_lose_nothing(
    stems: list[Stem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str
) -> None:
    loop(stems, tmp_path, 3, seed, monkeypatch)


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_writers_that_are_killed_often_lose_nothing(
    stems: list[Stem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str
) -> None:
    loop(stems, tmp_path, 40, seed, monkeypatch)
