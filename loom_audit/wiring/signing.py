"""Where the keys of a store and its signed heads are."""

from loom_audit.config import Settings
from loom_audit.disk.machine.key_file import DiskKeys
from loom_audit.disk.machine.signed_heads import DiskHeadsFolder, DiskSignedHeads
from loom_audit.ports import Clock, SignedHeads, SigningKeys
from loom_audit.sql.ground.clock import SystemClock

__all__ = ["DiskHeadsFolder", "clock", "keys_of", "signed_heads_of"]


def keys_of(settings: Settings) -> SigningKeys:
    """The keys by which the heads of a store are signed."""
    return DiskKeys(settings.keys)


def signed_heads_of(settings: Settings, log: str) -> SignedHeads:
    """The heads of a log that are signed, outside the store."""
    return DiskSignedHeads(settings.heads, settings.keys, log)


def clock() -> Clock:
    """The time of day by which keys are made."""
    return SystemClock()
