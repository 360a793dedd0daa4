"""Work on very many objects that no cycle holds.

Python looks for garbage in cycles as often as objects are made, and at all of them: a baseline
or a rollback of 10,000 files spends a fifth of its time on that and finds nothing (Mercurial's
`util.nogc` is there for the same reason).
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nogc() -> Iterator[None]:
    """Look for no cycles in the block; whoever found that switched on switches it on again."""
    switched_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if switched_on:
            gc.enable()
