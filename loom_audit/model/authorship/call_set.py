"""Which calls are asked about: those of a session, of a turn, between two points, or one."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace


class CallSet(Struct, frozen=True):
    """Some calls, and the two points between which they are looked at.

    The state before is the tree after event `after`, the end is the tree after event `until`. Of
    what was changed between them that of these calls is meant: with a request in `requests`, of a
    session in `sessions`, and of those `within` them; None means all. For `everyone` the two states
    are compared, whoever changed what.
    """

    after: int
    until: int
    requests: frozenset[int] | None = None
    sessions: frozenset[str] | None = None
    within: bool = True
    everyone: bool = False

    def has(self, request: int, session: str) -> bool:
        """Whether a call is meant, by its request and its session."""
        return (self.requests is None or request in self.requests) and (
            self.sessions is None or session in self.sessions
        )


class Turn(Struct, frozen=True):
    """What an agent did from one prompt to the next: the events after `seq`, up to `until`.

    `seq` is the event of the prompt; of what came before the first one it is the session's start,
    with the `number` 0.
    """

    session: str
    seq: int
    until: int
    at: datetime
    prompt: str
    number: int

    def has(self, seq: int) -> bool:
        """Whether an event came in it."""
        return self.seq < seq <= self.until


def everyone(calls: CallSet) -> CallSet:
    """Return the same two points, for the plain difference of their states."""
    return replace(calls, everyone=True)
