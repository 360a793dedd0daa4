"""Cycles are not looked for in work on very many objects, and are again after it."""

import gc
from collections.abc import Iterator

import pytest

from loom_audit.history.ground.without_gc import without_gc


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    was = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was else gc.disable)()


def test_collection_is_off_inside_and_on_again_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), without_gc():
        assert not gc.isenabled()
        1 / 0  # noqa: B018
    assert gc.isenabled()


def test_blocks_that_overlap_leave_collection_on() -> None:
    first, second = without_gc(), without_gc()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    with without_gc():
        pass
    assert not gc.isenabled()
