"""Which cases of a test `make test` runs; `make test-deep` runs the others.

Both ways take cases that are as far apart as they can be, so that they are of different kinds.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest


def some(cases: Sequence[Any], most: int) -> list[Any]:
    """The cases of a test, of which all but so many are marked deep: those last too long for CI."""
    kept = _far_apart(len(cases), most)
    return [one if n in kept else _deep(one) for n, one in enumerate(cases)]


def _deep(case: Any) -> pytest.ParameterSet:
    if isinstance(case, pytest.ParameterSet):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.deep])
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.deep)


def _far_apart(many: int, most: int) -> set[int]:
    return {int(n * many / most) for n in range(most)}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("loom-audit")
    group.addoption("--whole", action="store_true", help="run the cases that `few` leaves out, too")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as deep what `few` leaves out of a test's cases, before deep tests are deselected.

    UsageError where a test has deep cases and none of the others would stay: it has a quick one.
    """
    if config.getoption("--whole"):
        return
    cases = defaultdict[str, list[pytest.Item]](list)
    most = dict[str, int]()
    with_deep = set[str]()
    for item in items:
        if few := item.get_closest_marker("few"):
            name = item.nodeid.partition("[")[0]
            (most[name],) = few.args
            if item.get_closest_marker("deep"):
                with_deep.add(name)
            else:
                cases[name].append(item)
    for name, those in cases.items():
        if not most[name] and name in with_deep:
            raise pytest.UsageError(f"{name}: few(0) leaves out its quick cases too; use few(1)")
        kept = _far_apart(len(those), most[name])
        for n, item in enumerate(those):
            if n not in kept:
                item.add_marker("deep")
