"""What is left of a store that was cut off, which SQLite would take for an empty database."""

import os

from loom_audit.errors import AuditUnavailable

_SMALLEST = 512
"""Bytes of the smallest database that SQLite makes."""


def refuse_remains(path: str) -> None:
    """AuditUnavailable where SQLite would write over it.

    It deletes the write-ahead log of a file without a byte, and all that is committed in there.
    """
    try:
        size = os.stat(path).st_size
        cut_off = 0 < size < _SMALLEST or (not size and os.stat(path + "-wal").st_size > 0)
    except OSError:
        return  # SQLite says what is the matter with a file that is not there
    if cut_off:
        raise AuditUnavailable(
            f"The store {path} was cut off: of its file {size} bytes are left",
            hint="Restore it from a backup. `loom-audit salvage --to DIR` saves what is readable.",
            details={"cause": "damaged"},
        )
