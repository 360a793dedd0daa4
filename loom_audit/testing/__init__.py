"""Doubles in memory that pass the same contract tests as the real adapters."""

from loom_audit.testing.locks import MemoryChangeIndex, MemoryLock
from loom_audit.testing.log import MemoryBlobStore, MemoryEventLog
from loom_audit.testing.projections import MemoryProjections
from loom_audit.testing.workspace import MemoryWorkspace

__all__ = [
    "MemoryBlobStore",
    "MemoryChangeIndex",
    "MemoryEventLog",
    "MemoryLock",
    "MemoryProjections",
    "MemoryWorkspace",
]
