"""Giving memory back to the system that is not used any more."""

import gc
import sys

from loom_audit.disk.access.system import LIBC


def give_back_memory() -> None:
    """Collect what nothing refers to, and let the C library give free pages back (malloc_trim(3)).

    Elsewhere than with glibc it keeps them.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(LIBC, "malloc_trim", None)
        if trim is not None:
            trim(0)
