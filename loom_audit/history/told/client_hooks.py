"""Looks again once a client's other hooks have ended: a formatter that a person configured, say.

A client runs such hooks beside ours, when a call has ended. What they write is neither the call's
own nor left running by the call.
"""

from time import monotonic

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.survivors import Running
from loom_audit.history.record.call import exclusive
from loom_audit.history.record.drift import record_drift

_HOOKS_SECONDS = 10.0
"""Seconds for which the other hooks of a client are waited for after a call."""


class OtherHooks:
    """The hooks of a client beside ours in one workspace, which may write once a call has ended."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self._until: float | None = None

    def wait(self) -> None:
        """Wait for the other hooks from now on, since a call has ended; returns at once."""
        self._until = monotonic() + _HOOKS_SECONDS

    def look(self, *, at_once: bool = False) -> bool:
        """Record what the other hooks wrote, once they have ended; False while some still run.

        They count as ended after ten seconds, and with `at_once`.
        """
        if self._until is None:
            return True
        running = Running(self._attachment).hooks()
        if running and not at_once and monotonic() < self._until:
            return False
        self._until = None  # where this look fails, that of the next call finds what they wrote
        if running is not None:
            with exclusive(self._attachment):
                record_drift(self._attachment)
        return True
