"""Whether the store's disk has space for what is about to be recorded."""

from loom_audit.errors import AuditUnavailable
from loom_audit.history.ground.attachment import StoredLog
from loom_audit.model.text.display import size_text

MIN_FREE_BYTES = 256 * 1024 * 1024
"""With fewer free bytes no session and no listing begins."""


def space_shortage(stored: StoredLog) -> str:
    """How little space is free where the store lies, in words; "" where it is enough."""
    free = stored.free_bytes()
    return "" if free >= MIN_FREE_BYTES else f"only {size_text(free)} are left where the store lies"


def check_free_space(stored: StoredLog, stopped: str, hint: str = "") -> None:
    """Refuse to go on where too little space is free: AuditUnavailable.

    `stopped` says in the message what does not go on; `hint` is added to the hint.
    """
    if shortage := space_shortage(stored):
        raise AuditUnavailable(
            f"{shortage}, of {size_text(MIN_FREE_BYTES)} that are wanted; {stopped}",
            hint="Free some space there, or move the store to another disk and name it with"
            f" --store.{hint}",
            details={"cause": "full", "free_bytes": stored.free_bytes()},
        )
