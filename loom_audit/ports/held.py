"""The sessions that are held, as a hook reads them when no process of ours answers it."""

from typing import Protocol


class HeldSessions(Protocol):
    """The sessions that are held, as files that a hook finds by the client's id of its session.

    The files are a copy of what the log says, and never evidence. StorageFailed, PermissionDenied.
    """

    def keep(self, session: str, text: str) -> None:
        """Keep the reason why a session is held, durably; nothing is written where it is kept."""
        ...

    def get(self, session: str) -> str | None:
        """The reason why a session is held; None when it is not."""
        ...

    def discard(self, session: str) -> None:
        """Forget a session that is held no more, durably."""
        ...
