"""What a client's call leaves running that is none of it: the client's hooks beside ours."""

from time import monotonic

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.survivors import Running
from loom_audit.history.record.call import exclusive
from loom_audit.history.record.drift import record_drift

_HOOKS_SECONDS = 10.0
"""For how long the other hooks of a client are waited for after a call."""


class HooksBeside:
    """The other hooks of a client in one workspace, which may write when its call has ended."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self._until: float | None = None

    def wait(self) -> None:
        """A call has ended."""
        self._until = monotonic() + _HOOKS_SECONDS

    def look(self, *, at_once: bool = False) -> bool:
        """Look at what they wrote once they have ended; whether none is waited for any more."""
        if self._until is None:
            return True
        running = Running(self._attachment).hooks()
        if running and not at_once and monotonic() < self._until:
            return False
        self._until = None  # where the look fails the next call's finds it
        if running is not None:
            with exclusive(self._attachment):
                record_drift(self._attachment)
        return True
