"""Runs work that makes very many objects without the pauses of the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_gc() -> Iterator[None]:
    """Switch Python's search for cycles off in the block, and on again when it was on.

    The more objects are made, the more often the search runs, over all of them: a baseline or a
    rollback of 10,000 files spends a fifth of its time on it and finds nothing (Mercurial's
    `util.nogc` is there for the same reason).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
