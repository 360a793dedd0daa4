"""Two failures in one session of a client: what is on record claims no more than was seen.

The oracle is what the session did, as it knows itself; nothing of it is asked of the log.
"""

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, open_store
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.agents.launcher import write_launcher
from loom_audit.api.agents.reading import read_transcripts
from loom_audit.config import read_settings
from tests.crash.programs.failing_sessions import (
    FAILURES,
    LIES,
    MOMENTS,
    FailingSession,
    Journal,
    connect,
    discard,
)
from tests.places.made_store import lay_store
from tests.places.small_disks import fill_up, mounting

CLIENTS = ("claude-code", "codex")
PAIRS = [*itertools.product(CLIENTS, FAILURES, FAILURES)]
"""The client, what fails at each moment, and what else fails at a drawn one."""

MEBIBYTES = 320


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of the store: a filesystem of its own, as far as one can be made."""
    with mounting(tmp_path) as mount:
        yield mount("disk", MEBIBYTES)


@pytest.mark.deep
@pytest.mark.parametrize(("client", "first", "second"), PAIRS)
def test_no_call_is_missing_or_says_more_than_was_seen(
    tmp_path: Path,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    client: str,
    first: str,
    second: str,
) -> None:
    for moment in range(MOMENTS):
        place = tmp_path / str(moment)
        place.mkdir()
        with monkeypatch.context() as patch:
            play(place, disk, patch, client, first, second, moment)


def play(
    place: Path,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    client: str,
    first: str,
    second: str,
    moment: int,
) -> None:
    draw = random.Random(f"{client} {first} {second} {moment}")
    home, root, transcripts = disk / str(moment), place / "repository", place / "client"
    variable = "CLAUDE_CONFIG_DIR" if client == "claude-code" else "CODEX_HOME"
    lay_store(home)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(home))
    monkeypatch.setenv(variable, str(transcripts))
    (home / "hooks").mkdir()
    write_launcher(read_settings())
    kept = transcripts / ("projects/p" if client == "claude-code" else "sessions")
    kept.mkdir(parents=True)
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    connect(client, home, root)
    with open_store() as store:
        store.attach(root)
    fail_at: dict[int, set[str]] = {moment: {first}}
    fail_at.setdefault(draw.randrange(MOMENTS), set()).add(second)
    lie = draw.choice(LIES)

    def fill() -> Path:
        room = os.statvfs(disk)
        with (disk / "filler").open("wb") as file:  # most of it at once
            os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_bsize - (1 << 20))
        return fill_up(disk)

    session = FailingSession(client, home, root, kept, fail_at, lie, draw, fill)
    session.run()
    with open_store() as store:
        check(store, store.workspace(root), session.journal)
    discard(home)


def check(store: AuditStore, workspace: AuditedWorkspace, journal: Journal) -> None:
    """What is on record once all that waits is taken up and the session is settled."""
    hooks = Hooks(store)
    hooks.take_up(last=True)
    hooks.close()
    read_transcripts(workspace)
    workspace.recover()
    calls = {call.call_id: call for call in workspace.timeline.calls()}
    assert journal.told <= calls.keys(), "a call that the transcript tells is on record"
    assert "forged" not in calls, "nothing is believed that lies outside the client's folder"
    assert all(call.seq is not None for call in calls.values())
    for id, call in calls.items():
        if call.status == "ok":
            assert id not in journal.failed, f"{id} failed"
        if call.coverage.level == "full":
            assert {*call.paths} == {journal.paths[id]}, f"{id} is not as it was: {call}"
    assert workspace.verify().findings == ()
    if calls:
        plan = workspace.plan_rollback(f"session:{next(iter(calls.values())).session}")
        touched = {change.path for change in plan.changes}
        assert journal.persons.isdisjoint(touched), "what a person wrote is not a call's"
