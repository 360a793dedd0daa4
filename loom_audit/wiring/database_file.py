"""The database file of a store, opened without its adapters."""

from loom_audit.sql.ground.driver import SAFE_SQLITE, connect, driver, write_error
from loom_audit.sql.schema import REVISION, triggers

__all__ = [
    "REVISION",
    "SAFE_SQLITE",
    "connect",
    "driver",
    "triggers",
    "write_error",
]
