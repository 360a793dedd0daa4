"""Sessions that are held: the same in every log of a store, and in what hooks read of them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from loom_audit.errors import NotFound
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.session_state import hold_of, session_state
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record import hold as holding
from loom_audit.model.events import SessionHeld
from loom_audit.ports import EventFilter
from loom_audit.wiring.adapters import Adapters


def follow(adapters: Adapters, attachment: Attachment, session: str) -> None:
    """Hold a session that has just begun here when it is held in another workspace."""
    if adapters.held.get(session) is None or attachment.hold(session):
        return
    for log in other_logs(adapters, attachment.stored.log.id, session):
        held = hold_of(adapters.log(log), session)
        if held is not None:
            holding.hold(Writer(attachment, session, held.by), held.reason)
            return


def other_logs(adapters: Adapters, id: str, session: str) -> Iterator[str]:
    """The logs besides the one of this id in which a session is open or held."""
    for entry in adapters.workspaces():
        if entry.id != id:
            with suppress(NotFound):
                found = adapters.projections(entry.id).session(session)
                log = adapters.log(entry.id)
                if found.ended is None or session_state(log, session).hold is not None:
                    yield entry.id


class OfStore(Protocol):
    """A store, or a workspace of it."""

    @property
    def adapters(self) -> Adapters:
        """The adapters that the store was opened with."""


def agree(of: OfStore) -> Sequence[str]:
    """Make what hooks read of held sessions what the logs say.

    Returned are the ids of the sessions of which it was not. After a kill between an event and its
    file the two differ; the log is right.
    """
    adapters = of.adapters
    wanted: dict[str, str | None] = {}
    for entry in adapters.workspaces():
        log = adapters.log(entry.id)
        sessions = {one.id for one in adapters.projections(entry.id).open_sessions()}
        sessions |= {event.session for event in log.read(EventFilter(kinds=(SessionHeld.kind,)))}
        for session in sessions:
            held = hold_of(log, session)
            said = held.refusal if held else None
            wanted[session] = said or wanted.get(session)
    unlike = sorted(one for one, text in wanted.items() if adapters.held.get(one) != text)
    for session in unlike:
        if (text := wanted[session]) is not None:
            adapters.held.keep(session, text)
        else:
            adapters.held.discard(session)
    return unlike
