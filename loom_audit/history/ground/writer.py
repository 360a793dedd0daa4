"""Who puts facts on record, and in which log."""

from collections.abc import Sequence
from datetime import datetime
from secrets import token_hex

from msgspec import Struct

from loom_audit.errors import Conflict, NotFound
from loom_audit.history.ground.attachment import Attachment
from loom_audit.model.events import Draft, Event, Fact
from loom_audit.ports import Workspace


class Writer(Struct, frozen=True):
    """An actor in a session, and the workspace whose log they write; "" for no session.

    `source` is where the facts come from, when that is not the actor itself, and `occurred_at`
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
        return self.attachment.on_disk.workspace

    def draft(self, fact: Fact) -> Draft:
        """The fact as a draft of this session, actor and source."""
        return Draft(
            fact, self.session, self.actor, occurred_at=self.occurred_at, source=self.source
        )

    def record(self, *facts: Fact) -> Sequence[Event]:
        """Put facts on record, durably."""
        return self.attachment.stored.log.append([self.draft(fact) for fact in facts])


def new_id() -> str:
    """A random id for a session or a call: 16 hexadecimal digits, which a log has once."""
    return token_hex(8)


def check_unused(writer: Writer, call_id: str) -> None:
    """Conflict when the session has a call of this id, which then stays as it is."""
    try:
        writer.attachment.stored.reading.call(writer.session, call_id)
    except NotFound:
        return
    raise Conflict(
        f"this session has a call {call_id} already",
        hint="Give every call an id of its own, or none.",
    )
