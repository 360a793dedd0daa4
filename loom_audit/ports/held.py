"""What a hook of another program reads when no process of ours answers it."""

from typing import Protocol


class HeldSessions(Protocol):
    """The sessions that are held, as files that a hook finds by the client's id of its session.

    A copy of what the log says, and never evidence.
    """

    def keep(self, session: str, text: str) -> None:
        """Say why a session is held, durably. Nothing is written where that is said already."""
        ...

    def get(self, session: str) -> str | None:
        """What is said of a session; None for nothing."""
        ...

    def discard(self, session: str) -> None:
        """Say nothing of a session any more."""
        ...
