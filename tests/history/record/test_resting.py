"""When a path is looked at at which something happened."""

from itertools import pairwise

from loom_audit.history.record.observed.resting import (
    LATEST,
    MINUTE,
    MOST_A_MINUTE,
    RESTED,
    Resting,
)


def waited(resting: Resting, path: str, now: float) -> float:
    """When a path is due at which something happens every tenth of a second from now on."""
    while path not in resting.due(now):
        resting.note(path, now)
        now = round(now + 0.1, 1)
    return now


def test_a_path_is_due_once_it_has_rested() -> None:
    resting = Resting()
    resting.note("a", 1.0)
    resting.note("a", 1.2)
    assert resting.due(1.2 + RESTED - 0.01) == []
    assert resting.next_due() == 1.2 + RESTED
    assert resting.due(1.2 + RESTED) == ["a"]


def test_a_path_that_does_not_rest_is_due_five_seconds_after_it_began() -> None:
    resting = Resting()
    assert waited(resting, "log", 10.0) == 10.0 + LATEST


def test_each_path_rests_for_itself() -> None:
    resting = Resting()
    resting.note("a", 1.0)
    resting.note("b", 1.25)
    assert resting.due(1.3) == ["a"]
    resting.looked_at(["a"], 1.3)
    assert [*resting] == ["b"] and resting.due(1.6) == ["b"]


def test_a_path_that_changes_more_than_ten_times_a_minute_is_due_once_a_minute() -> None:
    resting, now, times = Resting(), 0.0, list[float]()
    while now < 10 * MINUTE:
        now = waited(resting, "log", now)
        times.append(now)
        resting.looked_at(["log"], now)
    often = MOST_A_MINUTE + 1
    assert times[:often] == [round(n * LATEST, 1) for n in range(1, often + 1)]
    later = [round(after - before, 1) for before, after in pairwise(times[often:])]
    assert later and set(later) == {MINUTE}


def test_a_restless_path_that_rested_for_a_minute_is_due_soon_again() -> None:
    resting, now = Resting(), 0.0
    for _ in range(MOST_A_MINUTE + 1):
        resting.note("log", now)
        now += RESTED
        resting.looked_at(resting.due(now), now)
    resting.note("log", now)
    assert resting.next_due() == now + MINUTE
    resting.looked_at(["log"], now + MINUTE)
    resting.note("log", now + 2 * MINUTE)
    assert resting.next_due() == now + 2 * MINUTE + RESTED


def test_a_path_of_which_nothing_is_to_be_recorded_waits_no_more() -> None:
    resting = Resting()
    resting.note("a", 1.0, renewed=True)
    resting.note("a", 1.1)
    assert resting.is_renewed("a")
    resting.drop(["a"])
    assert not len(resting) and resting.next_due() is None and not resting.is_renewed("a")
