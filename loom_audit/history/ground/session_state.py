"""What the log says of a session: its client's lease, the session that contains it, its hold.

There is no table for it: it is read from the session's own events.
"""

from collections.abc import MutableMapping

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.model.events import Event, Lease, SessionHeld, SessionReleased, SessionStarted
from loom_audit.model.records import SessionHold
from loom_audit.ports import EventFilter, EventLog

_KINDS = (SessionStarted.kind, SessionHeld.kind, SessionReleased.kind)


class SessionState(Struct, frozen=True):
    """The state of a session after the event `checked`.

    `lease` is the one that a foreign session was given last, None for a session of ours. `parent`
    is the session that contains it, "" for none. `hold` is the event by which the session itself is
    held, None when it is not; `released` says that it was held earlier.
    """

    checked: int = 0
    lease: Lease | None = None
    parent: str = ""
    hold: Event | None = None
    released: bool = False


def session_state(
    log: EventLog, session: str, known: SessionState = SessionState()
) -> SessionState:
    """The state of a session now; from a `known` one on only what came since is read. Corrupt."""
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


def hold_of(
    log: EventLog, session: str, known: MutableMapping[str, SessionState] | None = None
) -> SessionHold | None:
    """The hold on a session: its own, else that of a session that contains it; None without one.

    States that are `known` are read on from, and kept there as they are now. Corrupt.
    """
    known = {} if known is None else known
    seen: set[str] = set()  # parents are as they were told, and may form a circle
    while session and session not in seen:
        seen.add(session)
        found = known[session] = session_state(log, session, known.get(session, SessionState()))
        if found.hold is not None and isinstance(found.hold.fact, SessionHeld):
            fact, event = found.hold.fact, found.hold
            return SessionHold(session, fact.by, fact.reason, event.at, event.seq)
        session = found.parent
    return None
