"""When a look at the workspace is made: in time or late, and which changes it can date.

A late look does not show by itself which of several calls made a change. The time of the change may
show it: the call must have run then. Nothing is dated where somebody set the clock meanwhile.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment, OnDisk
from loom_audit.history.look.doers import TIMELY, Candidate, Look
from loom_audit.model.files import FileChange

CLOCK_OF_FILES = 5 if sys.platform == "linux" else time.CLOCK_REALTIME
"""Linux's CLOCK_REALTIME_COARSE (clock_gettime(2)), before which no change is dated that is made
now.

It is up to a tick behind the usual clock, by which newer kernels (Linux 6.13) date some changes,
and after which none is dated that was made before: what has a time between both may be either.
"""

_CLOCK_SET = 1_000_000_000
"""A clock that drifts by more than so many ns while a session lasts was set by somebody."""


def look_between(
    attachment: Attachment,
    among: Sequence[Candidate],
    *,
    alive_session: str = "",
    within: int | None = None,
) -> Look:
    """A look between calls: before the next one, or at another moment than after a call.

    It is in time where a candidate is a call of ours that runs, and where none is open but the one
    that the next call is `within`. It is late where only other programs' calls are open: one of
    them may have ended, and nobody told of it. Corrupt.
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
    """A look that is made now.

    `alive_session` is one whose client is there, since it reports something at this moment. With
    `goes_on` each call of a living session is taken to run until now, unless its end was told.
    Corrupt.
    """
    if not late and len(among) < 2:
        return TIMELY  # with one candidate at most nothing has to be dated
    alive = frozenset(
        one.requested
        for one in among
        if one.session == alive_session or _is_there(attachment, one.session)
    )
    set_since = late and _is_clock_set(attachment, {one.session for one in among})
    running = frozenset(
        one.requested
        for one in among
        if goes_on and (one.requested in alive or attachment.is_session_alive(one.session))
    )
    now = None if set_since else time.time_ns()
    return Look(late, alive, running, changed_at(attachment.on_disk), now)


def note_begin(attachment: Attachment) -> None:
    """Note that a call begins now: what it makes is dated after the last look, also where that was
    made within this tick; the lock is held.
    """
    seen, before = attachment.process.last_seen, time.clock_gettime_ns(CLOCK_OF_FILES) - 1
    if seen.last_look is not None:
        seen.last_look = min(seen.last_look, before)
    for one in seen.git.repositories.values():
        one.looked = min(one.looked, before)
        if one.said is not None:
            one.said = replace(one.said, began=min(one.said.began, before))


def keep_clock(on_disk: OnDisk, session: str) -> None:
    """Note how the clock stands when a session begins, to see later whether somebody set it."""
    with suppress(AuditError):  # then nothing is dated
        on_disk.looks.keep(_clock_name(session), _clock())


def _is_there(attachment: Attachment, session: str) -> bool:
    """Whether the process of a session is seen to run."""
    lease = attachment.lease(session)
    if lease is None:
        return attachment.is_session_alive(session)
    return attachment.on_disk.processes.is_alive(lease) is True


def _is_clock_set(attachment: Attachment, sessions: Iterable[str]) -> bool:
    """Whether the clock was set since one of these clients' sessions began; True where unknown."""
    now = _clock()
    for session in filter(attachment.lease, sessions):
        kept = None
        with suppress(AuditError):  # a file that is not as it was written says nothing
            kept = attachment.on_disk.looks.get(_clock_name(session))
        if not isinstance(kept, int) or now is None or abs(now - kept) > _CLOCK_SET:
            return True
    return False


def _clock() -> int | None:
    """By how much the clock is ahead of the time since the boot, in ns; None where that is not
    known.
    """
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _clock_name(session: str) -> str:
    return f"{session}\0clock"


def changed_at(on_disk: OnDisk) -> Callable[[FileChange], int | None]:
    """A function that gives when the state of a path last changed, in ns since 1970, or None.

    A path that is gone has no time any more: its nearest folder that is there changed then.
    """
    asked = on_disk.workspace.changed_at

    def at(change: FileChange) -> int | None:
        path = change.path
        found = None if change.after is None else asked(path)
        while found is None and path and change.after is None:
            path = path.rpartition("/")[0]
            found = asked(path)
        return found

    return at
