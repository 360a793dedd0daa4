"""What a call may do, how it ended, and how completely its effects were captured."""

from collections.abc import Iterable
from typing import Literal, get_args

from msgspec import Struct

from loom_audit.errors import ApprovalDenied, ToolTimeout

Effect = Literal["read", "write", "execute", "network"]
Status = Literal[
    "ok", "error", "denied", "timeout", "cancelled", "interrupted", "unknown", "running"
]
"""`unknown`: nobody reported how it ended. `running`: it goes on in the background."""

Inferred = Literal["", "cancelled", "denied", "interrupted", "unknown"]
"""What is made of an end that nobody told or saw; "" where somebody did.

That a call `denied` by us did not run is inferred where another program was to heed it.
"""

NOT_FAILED: tuple[Status, ...] = ("ok", "running", "unknown")
"""How a call ends without having failed."""

FAILED = "failed"
STATUS_FILTERS = (*get_args(Status), "open", FAILED)
"""What lists of calls are narrowed to: a status, calls without an end, or all that failed."""

Level = Literal["full", "partial", "none"]
Origin = Literal["baseline", "tool", "command", "undo", "outside"]


class Coverage(Struct, frozen=True):
    """How completely a call's effects were captured within the scope, and why not fully.

    Reasons are short stable texts, such as `shared: 12, 15` or `too large: big.bin`.
    """

    level: Level = "full"
    reasons: tuple[str, ...] = ()

    def lowered(self, *reasons: str, level: Level = "partial") -> "Coverage":
        """Return this coverage lowered to the level for these reasons; unchanged without any."""
        if not reasons:
            return self
        worst: Level = "none" if "none" in (self.level, level) else "partial"
        return Coverage(worst, (*self.reasons, *(r for r in reasons if r not in self.reasons)))

    def lowered_by(self, later: "Iterable[Coverage]") -> "Coverage":
        """Return this coverage lowered by each of the `later` ones, which are in their order."""
        lowered = self
        for one in later:
            lowered = lowered.lowered(*one.reasons, level=one.level)
        return lowered


FULL = Coverage()


def status_of(error: BaseException) -> Status:
    """Return how a call ended that raised this; anything but an `Exception` cancels the call."""
    if isinstance(error, ApprovalDenied):
        return "denied"
    if isinstance(error, ToolTimeout):
        return "timeout"
    return "error" if isinstance(error, Exception) else "cancelled"
