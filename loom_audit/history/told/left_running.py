"""What a foreign call leaves running: work of its own, and its client's hooks beside ours."""

from collections.abc import Callable, Collection
from time import monotonic

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.kept_looks import running_at
from loom_audit.history.look.survivors import Activity, hooks_left, settled_tasks_left
from loom_audit.history.record.call import exclusive
from loom_audit.history.record.drift import record_drift
from loom_audit.model.records import Call

_ENDING_SECONDS = 0.06
_HOOKS_SECONDS = 10.0
"""For how long the other hooks of a client are waited for after a call."""


def tasks_and_hooks_left(
    attachment: Attachment, call: Call, asking: Callable[[], Collection[int]], *, goes_on: bool
) -> tuple[Activity, Activity, bool]:
    """What a call leaves running as its own, what of it are other hooks of the client; is it known?

    Those are all, where the call runs no command: what else the client starts meanwhile is no
    work of the call either. None are, where the client says that the call `goes_on`.
    """
    left, settled = _tasks_left(attachment, call, asking)
    if goes_on:
        return left, {}, settled
    if call.effect == "write":
        return {}, left, True
    if not left:
        return {}, left, settled
    hooks = attachment.processes.beside(left, asking())
    own = {task: done for task, done in left.items() if task not in hooks}
    return own, {task: done for task, done in left.items() if task in hooks}, settled


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
        running = hooks_left(self._attachment)
        if running and not at_once and monotonic() < self._until:
            return False
        self._until = None  # where the look fails the next call's finds it
        if running is not None:
            with exclusive(self._attachment):
                record_drift(self._attachment)
        return True


def _tasks_left(
    attachment: Attachment, call: Call, asking: Callable[[], Collection[int]]
) -> tuple[Activity, bool]:
    """What a call leaves running below its client's process, as far as that can be seen.

    What ends by itself in a moment, as a hook beside ours does, is waited for.
    """
    lease = attachment.lease(call.session)
    running = running_at(attachment, call)
    if lease is None or not running or not attachment.processes.is_alive(lease):
        return {}, True
    others = (
        running_at(attachment, other)
        for other in attachment.projections.open_calls()
        if other.session == call.session and other.requested != call.requested
    )
    return settled_tasks_left(
        attachment,
        running,
        (),
        by=lease.pid,
        beside=[*filter(None, others)],
        reporting=asking,
        patience=_ENDING_SECONDS,
    )
