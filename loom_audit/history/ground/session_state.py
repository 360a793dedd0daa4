"""What the log says of a session: by which process it lives, what contains it, whether it is held.

There is no table for it: it is read from the session's own events.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.model.events import Event, Lease, SessionHeld, SessionReleased, SessionStarted
from loom_audit.model.records import SessionHold
from loom_audit.ports import EventFilter, EventLog

_KINDS = (SessionStarted.kind, SessionHeld.kind, SessionReleased.kind)


class SessionState(Struct, frozen=True):
    """The state of a session after event `checked`.

    `lease` is the one that a foreign session was given last; None for a session of ours. `parent`
    is the session that contains it, "" for none. `hold` is the event by which it is held itself;
    `released` is true when it was held before and is not any more.
    """

    checked: int = 0
    lease: Lease | None = None
    parent: str = ""
    hold: Event | None = None
    released: bool = False


def session_state(
    log: EventLog, session: str, known: SessionState = SessionState()
) -> SessionState:
    """The state of a session now. From a known one it costs one look at what came since."""
    head, told = log.newest(_KINDS, known.checked) if known.checked else (log.head(), 1)
    found = replace(known, checked=head)
    if not session or not told:
        return found
    since = EventFilter(after=known.checked, before=head + 1, kinds=_KINDS, session=session)
    for event in log.read(since):
        match event.fact:
            case SessionStarted(lease=lease, parent=parent):
                found = replace(found, lease=lease, parent=parent or "")
            case SessionHeld() if found.hold is None:
                found = replace(found, hold=event, released=False)
            case SessionReleased():
                found = replace(found, hold=None, released=True)
    return found


def hold_of(state_of: Callable[[str], SessionState], session: str) -> SessionHold | None:
    """By what a session is held, itself or with one that contains it; None when it is not."""
    seen: set[str] = set()
    while session and session not in seen:
        seen.add(session)
        found = state_of(session)
        if found.hold is not None and isinstance(found.hold.fact, SessionHeld):
            fact, event = found.hold.fact, found.hold
            return SessionHold(session, fact.by, fact.reason, event.at, event.seq)
        session = found.parent
    return None
