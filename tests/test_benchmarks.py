"""The benchmarks can be run, and say truly whether a target is met."""

from importlib import import_module

import pytest

from benchmarks.__main__ import BENCHMARKS
from benchmarks.figures import Figure, Sizes, interleaved
from benchmarks.projects import content


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_is_there(name: str) -> None:
    assert callable(import_module(f"benchmarks.{name}").measure)


@pytest.mark.parametrize(
    ("theirs", "most", "meets"),
    [(10.0, 3.0, True), (10.0, 2.9, False), (None, 30.0, True), (None, 29.0, False)],
)
def test_a_target_is_a_ratio_where_there_is_something_to_compare_with(
    theirs: float | None, most: float, meets: bool
) -> None:
    assert Figure("b", "n", 30.0, "ms", "floor", theirs, most).meets is meets


def test_a_figure_without_a_target_neither_meets_nor_misses() -> None:
    assert Figure("b", "n", 30.0, "ms", "floor", 10.0).meets is None


def test_everything_is_measured_as_often_and_in_turns() -> None:
    calls: list[str] = []
    interleaved(4, {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, warm=1)
    assert calls.count("a") == calls.count("b") == 5
    assert sorted(calls[:2]) == sorted(calls[2:4]) == ["a", "b"]


def test_versions_of_a_file_differ_in_a_little() -> None:
    one, two = (content(7, version).split(b"\n") for version in (1, 2))
    assert len(one) == len(two)
    assert 0 < sum(a != b for a, b in zip(one, two, strict=True)) <= 2
    assert Sizes().quick is False
