"""A signal that asks for an end, right before and after each commit: nothing is recorded twice."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from loom_audit import open_store
from loom_audit.model.events import CallFinished, SessionEnded
from tests.crash.programs.faults import Stem
from tests.crash.programs.places import NATIVE, Place, check_whole
from tests.given.cases import some

PROGRAM = Path(__file__).parents[2] / "loom_audit" / "verify_alone.py"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WHENS: tuple[Literal["before", "after"], ...] = ("before", "after")


@pytest.fixture
def place(tmp_path: Path, stem: Stem, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    return Place(tmp_path, stem)


@pytest.mark.few(1)
@pytest.mark.parametrize("way", some(NATIVE, 2))
def test_who_is_told_to_end_at_a_commit_ends_what_was_begun_and_records_it_once(
    place: Place, way: str
) -> None:
    seen = 0
    for nth in range(1, 30):
        for n, when in enumerate(WHENS):
            place.bring_back()
            number = SIGNALS[(nth * 2 + n) % 3]
            if not place.run(way, commit=nth, when=when, signal=number):
                assert seen > 4
                return
            seen += 1
            try:
                check_told(place, seen)
            except BaseException as error:
                error.add_note(f"{number.name} {when} commit {nth} of {way}")
                raise
    raise AssertionError("it does not end")


def check_told(place: Place, n: int) -> None:
    """Every call and session has ended by itself, and both verifiers find nothing."""
    with open_store() as store:
        workspace = store.workspace(place.root)
        start = workspace.timeline.calls()[-1].seq or 0
        assert workspace.timeline.open_calls() == [], "its own process ends it"
        assert workspace.timeline.open_sessions() == []
        check_whole(workspace, since=start)
        assert workspace.recover() == [] and workspace.leftovers() == []
        ends = [event.fact for event in workspace.log.read()]
        assert {e.status for e in ends if isinstance(e, CallFinished)} <= {
            "ok",
            "error",
            "cancelled",
        }
        assert {e.status for e in ends if isinstance(e, SessionEnded)} <= {"completed", "failed"}
    alone = [sys.executable, "-I", str(PROGRAM), str(place.home / "audit.db")]
    done = subprocess.run(alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
