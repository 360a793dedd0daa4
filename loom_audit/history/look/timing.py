"""How a look at the workspace was made: in time or late, and when changes were made."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment, OnDisk
from loom_audit.history.look.doers import TIMELY, Candidate, Look
from loom_audit.model.files import FileChange

_CLOCK_SET = 1_000_000_000
"""Nanoseconds by which the clock may drift while a session lasts; more, and somebody set it."""


def look_between(
    attachment: Attachment,
    among: Sequence[Candidate],
    *,
    alive_session: str = "",
    within: int | None = None,
) -> Look:
    """A look before the next call, or at another moment than after a call.

    For calls of ours that run it is in time, and for the one that the next is `within`. That
    another one of other programs is still open may also mean that nobody was told of its end.
    """
    living = [one for one in among if not one.is_survivor and one.requested != within]
    ours = any(
        attachment.lease(one.session) is None and attachment.is_session_alive(one.session)
        for one in living
    )
    late = bool(living) and not ours
    return look_made(attachment, among, late=late, alive_session=alive_session, goes_on=True)


def look_made(
    attachment: Attachment,
    among: Sequence[Candidate],
    *,
    late: bool,
    alive_session: str = "",
    goes_on: bool = False,
) -> Look:
    """A look that is made now; session `alive_session` tells something at this moment.

    Where it `goes_on` none of the calls is known to be over, but for what is told of it.
    """
    if not late and len(among) < 2:
        return TIMELY
    alive = frozenset(
        one.requested for one in among if one.session == alive_session or _is_there(attachment, one.session)
    )
    set_since = late and _is_clock_set(attachment, {one.session for one in among})
    running = frozenset(
        one.requested
        for one in among
        if goes_on and (one.requested in alive or attachment.is_session_alive(one.session))
    )
    now = None if set_since else time.time_ns()
    return Look(late, alive, running, _changed_at(attachment.on_disk), now)


def keep_clock(on_disk: OnDisk, session: str) -> None:
    """Keep how the clock stands, for when it is asked whether it was set since."""
    with suppress(AuditError):  # then nothing is dated
        on_disk.looks.keep(_clock_name(session), _clock())


def _is_there(attachment: Attachment, session: str) -> bool:
    """Whether the process of a session is seen to run."""
    lease = attachment.lease(session)
    if lease is None:
        return attachment.is_session_alive(session)
    return attachment.on_disk.processes.is_alive(lease) is True


def _is_clock_set(attachment: Attachment, sessions: Iterable[str]) -> bool:
    """Whether the clock was set since one of the clients' sessions began, or nobody knows."""
    now = _clock()
    for session in filter(attachment.lease, sessions):
        kept = None
        with suppress(AuditError):  # a file that is not as it was written says nothing
            kept = attachment.on_disk.looks.get(_clock_name(session))
        if not isinstance(kept, int) or now is None or abs(now - kept) > _CLOCK_SET:
            return True
    return False


def _clock() -> int | None:
    """By how much the clock is ahead of the time since the machine was started, in ns."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _clock_name(session: str) -> str:
    return f"{session}\0clock"


def _changed_at(on_disk: OnDisk) -> Callable[[FileChange], int | None]:
    """When the state of a path was last changed: of one that is gone, that of its folder."""
    asked = on_disk.workspace.changed_at

    def at(change: FileChange) -> int | None:
        path = change.path
        found = None if change.after is None else asked(path)
        while found is None and path and change.after is None:
            path = path.rpartition("/")[0]
            found = asked(path)
        return found

    return at
