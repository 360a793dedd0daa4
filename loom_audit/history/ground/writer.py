"""Puts facts on record: in which log, and as whose."""

from collections.abc import Sequence
from datetime import datetime
from secrets import token_hex

from msgspec import Struct

from loom_audit.errors import Conflict, NotFound
from loom_audit.history.ground.attachment import Attachment
from loom_audit.model.events import Draft, Event, Fact
from loom_audit.ports import Workspace


class Writer(Struct, frozen=True):
    """An actor in a session who writes the log of one workspace; `session` is "" for none.

    `source` says where the facts come from, when that is not the actor itself. `occurred_at` is
    when they happened, when that is not now. `scratch` is the session's scratch directory, whose
    files are not on record.
    """

    attachment: Attachment
    session: str
    actor: str
    source: str = ""
    occurred_at: datetime | None = None
    scratch: Workspace | None = None

    @property
    def workspace(self) -> Workspace:
        """The directory under audit."""
        return self.attachment.on_disk.workspace

    def draft(self, fact: Fact) -> Draft:
        """A fact as a draft of this session, actor and source."""
        return Draft(
            fact, self.session, self.actor, occurred_at=self.occurred_at, source=self.source
        )

    def record(self, *facts: Fact) -> Sequence[Event]:
        """Put facts on record as one durable transaction; their events. AuditUnavailable, Conflict,
        Corrupt, as an append raises them.
        """
        return self.attachment.stored.log.append([self.draft(fact) for fact in facts])


def new_id() -> str:
    """A random id for a session or a call, of 16 hexadecimal digits."""
    return token_hex(8)


def check_unused(writer: Writer, call_id: str) -> None:
    """Refuse an id that another call of the session has: Conflict; that call stays as it is."""
    try:
        writer.attachment.stored.reading.call(writer.session, call_id)
    except NotFound:
        return
    raise Conflict(
        f"this session has a call {call_id} already",
        hint="Give every call an id of its own, or none.",
    )
