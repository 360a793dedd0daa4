"""What verify says of logs that are in order, and how it counts."""

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import pytest

from loom_audit.errors import NotFound, StorageFailed
from loom_audit.history.check.log_check import Finding, Grade
from loom_audit.history.check.verification import Verification, verify
from loom_audit.model.events import Draft, Fact, SessionEnded, SessionStarted, TreeHead
from loom_audit.model.stored.merkle import EMPTY_ROOT, root
from loom_audit.ports import Evidence, Progress
from loom_audit.sql.evidence.evidence import open_evidence
from tests.integrity.conftest import Recorded


def test_a_log_in_order_is_checked_whole(master: Recorded) -> None:
    found = master.verify()
    assert found.findings == ()
    assert (found.exit_code, found.unanchored, found.size) == (0, 0, master.heads[-1].size)
    assert found.root == master.heads[-1].root
    assert found.checked["events"] == found.size
    assert found.checked["nodes"] == found.size >> 8
    assert found.checked["payloads"] > found.size
    assert found.checked["by_hash"] == 1
    assert found.checked["contents"] > 100


def test_quick_looks_at_leaves_and_tree_only(master: Recorded) -> None:
    found = master.verify(quick=True)
    assert found.findings == ()
    assert set(found.checked) == {"events", "nodes"}
    assert found.root == master.heads[-1].root


@pytest.mark.parametrize("wanted", [0, 1, 50, 100_000])
def test_a_sample_looks_at_so_many_events_and_the_first(master: Recorded, wanted: int) -> None:
    found = master.verify(sample=wanted)
    assert (found.findings, found.exit_code) == ((), 0)
    assert found.checked["sampled"] == min(wanted, found.size)
    assert (found.checked["payloads"] > 0) == bool(found.size)


def test_events_no_head_vouches_for_are_counted(master: Recorded) -> None:
    old = master.heads[1]
    found = master.verify(heads=[old])
    assert found.ok
    assert (found.anchored, found.unanchored) == (old.size, master.heads[-1].size - old.size)
    assert found.exit_code == 3
    assert master.verify(heads=[], quick=True).anchored == 0


def test_every_head_is_compared_also_within_a_tree_node(master: Recorded) -> None:
    with closing(master.open()) as database:
        log = database.event_log(master.log)
        hashes = [event.leaf_hash for event in log.read()]
    heads = [TreeHead(log.id, size, root(hashes[:size])) for size in range(0, len(hashes) + 1, 5)]
    found = master.verify(heads=reversed(heads), quick=True)
    assert found.ok and found.anchored == heads[-1].size


def test_an_empty_log_is_in_order(store: Recorded) -> None:
    with closing(store.open()) as database:
        id = database.create_log()
        with closing(open_evidence(database, id)) as evidence:
            found = verify(evidence, heads=[TreeHead(id, 0, EMPTY_ROOT)])
    assert (found.findings, found.size, found.exit_code) == ((), 0, 0)


def test_two_logs_of_one_store_are_checked_apart(store: Recorded) -> None:
    with closing(store.open()) as database:
        other = database.create_log()
        facts: list[Fact] = [SessionStarted("x"), SessionEnded()]
        database.event_log(other).append([Draft(fact, "s", "a") for fact in facts])
        with closing(open_evidence(database, other)) as evidence:
            assert verify(evidence).findings == ()
    assert store.verify().findings == ()


def test_verifying_sees_one_moment_while_others_append(store: Recorded) -> None:
    with closing(store.open()) as database, closing(open_evidence(database, store.log)) as evidence:
        before = database.event_log(store.log).head()
        rows = evidence.events()
        next(rows)
        database.event_log(store.log).append([Draft(SessionStarted("x"), "late", "a")])
        assert verify(evidence, heads=store.heads).size == before
    found = store.verify()
    assert (found.size, found.unanchored, found.ok) == (before + 1, 1, True)


def test_progress_is_told(master: Recorded) -> None:
    seen: list[Progress] = []
    master.verify(progress=seen.append)
    assert "events" in {one.stage for one in seen}
    assert seen[-1].done <= master.heads[-1].size


def test_a_log_that_is_not_there_is_an_error(store: Recorded) -> None:
    with closing(store.open()) as database, pytest.raises(NotFound):
        open_evidence(database, "0" * 32)


@pytest.mark.parametrize(
    ("grades", "anchored", "code"),
    [
        ((), 5, 0),
        ((), 4, 3),
        (("incomplete",), 5, 3),
        (("unreadable", "incomplete"), 5, 4),
        (("unreadable", "tampered"), 5, 1),
    ],
)
def test_exit_codes_say_the_worst(grades: tuple[Grade, ...], anchored: int, code: int) -> None:
    findings = tuple(Finding(1, "x", "x", grade) for grade in grades)
    assert Verification("l", 5, b"", findings, anchored, {}).exit_code == code


class Broken:
    """Evidence that fails where it is told to."""

    def __init__(self, evidence: Evidence, *, name: str, after: int) -> None:
        self.evidence, self.name, self.after = evidence, name, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.evidence, name)
        if name != self.name:
            return found

        def reading(*args: object) -> Iterator[object]:
            yield from islice(found(*args), self.after)
            raise StorageFailed("disk I/O error")

        return reading


@pytest.mark.parametrize(
    "name",
    ["events", "payloads", "nodes", "references", "differences", "damage", "empty_logs"],
)
@pytest.mark.parametrize("after", [0, 1])
def test_what_cannot_be_read_is_reported_and_the_rest_is_checked(
    master: Recorded, name: str, after: int
) -> None:
    with closing(master.open()) as database, closing(open_evidence(database, master.log)) as real:
        found = verify(Broken(real, name=name, after=after))
    unread = [one for one in found.findings if one.grade == "unreadable"]
    assert unread and all("disk I/O" in one.message for one in unread)
    assert found.exit_code in (1, 4)
    assert found.size == master.heads[-1].size or name == "events"
