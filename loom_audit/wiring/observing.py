"""What tells of a workspace as it happens; who imports this loads the library that does."""

from loom_audit.disk.looking.observer import DiskObserver
from loom_audit.disk.machine.memory import give_back_memory

__all__ = ["DiskObserver", "give_back_memory"]
