"""The readable rest of a database file that is damaged."""

from loom_audit.sql.salvage.salvage import Salvaged, salvage

__all__ = [
    "Salvaged",
    "salvage",
]
