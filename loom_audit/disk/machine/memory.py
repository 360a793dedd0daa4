"""Giving memory back to the system that is not used any more."""

import ctypes
import gc
import sys


def give_back_memory() -> None:
    """Collect what nothing refers to, and let the C library give free pages back (malloc_trim(3)).

    Elsewhere than with glibc it keeps them.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
