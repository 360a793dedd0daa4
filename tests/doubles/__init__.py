"""Doubles in memory that pass the same contract tests as the real adapters."""

from tests.doubles.locks import MemoryChangeIndex, MemoryLock
from tests.doubles.log import MemoryBlobStore, MemoryEventLog
from tests.doubles.projections import MemoryProjections
from tests.doubles.workspace import MemoryWorkspace

__all__ = [
    "MemoryBlobStore",
    "MemoryChangeIndex",
    "MemoryEventLog",
    "MemoryLock",
    "MemoryProjections",
    "MemoryWorkspace",
]
