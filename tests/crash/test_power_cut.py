"""Power cuts at any instant of a long run: no acknowledged event is ever lost."""

import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_audit import AuditError, open_store
from loom_audit.history.check.verification import verify
from loom_audit.sql.evidence.evidence import open_evidence
from tests.crash.programs.faults import Stem, fill, naive_root, needs_strace
from tests.crash.programs.power import Disk, Op, lay, record

COUNT = 120
"""Acknowledged calls in the run: enough for more than one checkpoint of the write-ahead log."""


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """In memory where possible: every state is a store that is opened once."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="power-cut-", dir=memory))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def run(stem: Stem, scratch: Path, name: str, *, unsafe: bool) -> tuple[list[Op], Path]:
    """A recorded run, and the store as it was before it."""
    needs_strace()
    folder = scratch / name
    home, root = folder / "home", folder / "root"
    home.mkdir(parents=True, mode=0o700)
    fill(root, 5)
    os.environ["LOOM_AUDIT_HOME"] = str(home)
    with open_store() as store:
        store.attach(root)
    shutil.copytree(home, folder / "start")
    order = {"root": str(root), "scenario": "appends", "count": COUNT, "unsafe": unsafe}
    ops, _ = record(stem, home, folder, **order)
    (folder / "trace").unlink()
    return ops, folder / "start"


@pytest.fixture(scope="module")
def safe(stem: Stem, scratch: Path) -> tuple[list[Op], Path]:
    return run(stem, scratch, "safe", unsafe=False)


def violation(state: dict[str, bytes], acks: list[bytes], home: Path, *, whole: bool) -> str:
    """What is wrong with a state, or nothing."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True, mode=0o700)
    lay(state, home)
    words = [json.loads(ack) for ack in acks]
    acked = [word for word in words if "ack" in word]
    try:
        with open_store() as store:
            entries = store.workspaces()
            if not entries:
                return "the workspace is lost" if acked else ""
            entry = entries[0]
            with store.adapters.database.connections.reading() as connection:
                rows = connection.execute("SELECT seq, leaf_hash FROM event").fetchall()
            leaves = [leaf for _, leaf in sorted(rows)]
            if [seq for seq, _ in sorted(rows)] != list(range(1, len(rows) + 1)):
                return "the order has gaps"
            if acked and acked[-1]["ack"] > len(leaves):
                return f"{acked[-1]['ack']} acknowledged, {len(leaves)} there"
            if acked and naive_root(leaves[: acked[-1]["ack"]]).hex() != acked[-1]["root"]:
                return "acknowledged events are not what they were"
            evidence = open_evidence(store.adapters.database, entry.id)
            heads = store.adapters.kept_heads(entry.id)
            try:
                checked = verify(evidence, quick=not whole, heads=heads)
            finally:
                evidence.close()
            return "; ".join(finding.message for finding in checked.findings)
    except AuditError as error:
        return f"{error.code}: {error}"


def explore(
    ops: list[Op], start: Path, scratch: Path, states: int, seed: str
) -> Iterator[tuple[int, str]]:
    """What is wrong with each of many states: all instants, each several times, at random."""
    chosen = random.Random(seed)
    # an instant right after an acknowledgement is where a loss would show
    marks = [n for n, op in enumerate(ops) if op.kind == "ack"]
    instants = sorted(
        chosen.choice(marks) + 1 if chosen.random() < 0.3 else chosen.randrange(len(ops))
        for _ in range(states)
    )
    disk, done = Disk(start), 0
    for n, instant in enumerate(instants):
        for op in ops[done:instant]:
            disk.do(op)
        done = max(done, instant)
        state = disk.cut(chosen)
        yield instant, violation(state, disk.acks, scratch / "state", whole=n % 10 == 0)


def lost(
    recorded: tuple[list[Op], Path],
    scratch: Path,
    states: int,
    seed: str,
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[int, str]]:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(scratch / "state"))
    ops, start = recorded
    assert sum(op.kind == "ack" for op in ops) >= 100
    assert sum(op.kind == "sync" for op in ops) >= 100
    return [(at, wrong) for at, wrong in explore(ops, start, scratch, states, seed) if wrong]


@pytest.mark.few(0)
def test_no_power_cut_loses_what_was_acknowledged(
    safe: tuple[list[Op], Path], scratch: Path, monkeypatch: pytest.MonkeyPatch, seed: str
) -> None:
    assert lost(safe, scratch, 20, seed, monkeypatch) == []


def test_a_power_cut_while_a_store_is_made_leaves_one_that_opens(
    stem: Stem, scratch: Path, monkeypatch: pytest.MonkeyPatch, seed: str
) -> None:
    needs_strace()
    home, root, start = (scratch / "made" / name for name in ("home", "root", "start"))
    for folder in (home, start):
        folder.mkdir(parents=True, mode=0o700)
    fill(root, 30)
    ops = record(stem, home, scratch / "made", root=str(root), scenario="attach")[0]
    assert sum(op.kind == "ack" for op in ops) == 2
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(scratch / "state"))
    found = [(at, wrong) for at, wrong in explore(ops, start, scratch, 40, seed) if wrong]
    assert found == []


@pytest.mark.deep
def test_a_less_durable_setting_is_found_out(
    stem: Stem, scratch: Path, monkeypatch: pytest.MonkeyPatch, seed: str
) -> None:
    """The control: with synchronous=NORMAL the same run must lose what it acknowledged."""
    unsafe = run(stem, scratch, "unsafe", unsafe=True)
    ops, start = unsafe
    assert sum(op.kind == "ack" for op in ops) >= 100
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(scratch / "state"))
    states = explore(ops, start, scratch, 100, seed)
    assert any("acknowledged" in wrong for _, wrong in states)


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_no_power_cut_of_many_loses_what_was_acknowledged(
    safe: tuple[list[Op], Path],
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: str,
    part: int,
) -> None:
    assert lost(safe, scratch, 1000, f"{seed}/{part}", monkeypatch) == []
