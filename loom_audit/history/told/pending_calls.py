"""Keeps what hooks and the transcript told of calls, until it is on record how the calls ended."""

from time import monotonic

from msgspec import Struct, field

from loom_audit.clients.reports import CallBegan, CallEnded
from loom_audit.model.events import CallRequested

_HOOK_SECONDS = 1.0
"""Seconds for which a hook after a call is waited for once the transcript has told the end."""


class PendingCalls(Struct):
    """What was told of the calls of one session, each by its id on record.

    Hooks and the transcript tell the same calls, each of them maybe only the begin or the end, and
    in any order. So what each of them told is kept apart.
    """

    transcript_begins: dict[str, CallBegan] = field(default_factory=dict)
    """The requests that the transcript told, until the calls have their finish."""
    transcript_ends: dict[str, CallEnded] = field(default_factory=dict)
    """The ends that the transcript told, until they are on record."""
    hook_requests: dict[str, CallRequested] = field(default_factory=dict)
    """The requests that a hook told, until the calls have their finish."""
    hook_ends: dict[str, CallEnded] = field(default_factory=dict)
    """The ends that a hook told, until it is on record how the calls ended."""
    present_ends: set[str] = field(default_factory=set)
    """The calls whose end is told by the hook that is being answered."""
    waiting_since: dict[str, float] = field(default_factory=dict)
    """Since when the hook after a call is waited for, in seconds of the monotonic clock."""
    inferred: set[str] = field(default_factory=set)
    """The calls whose status nobody told."""
    background: dict[str, str] = field(default_factory=dict)
    """The call that left something running, by the client's name of that."""
    naming_elsewhere: set[str] = field(default_factory=set)
    """The calls that also name paths which no workspace holds."""

    def hook_may_come(self, call_id: str) -> bool:
        """Whether the hook after a call, whose end the transcript has told, may come still.

        It may for a second, where a hook told the begin: the look that it brings is in time.
        """
        if (
            call_id not in self.hook_requests
            or call_id in self.hook_ends
            or call_id in self.inferred
        ):
            return False
        since = self.waiting_since.setdefault(call_id, monotonic())
        return monotonic() - since < _HOOK_SECONDS
