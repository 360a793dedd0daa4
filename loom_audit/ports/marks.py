"""What people note of one log while they read it: never evidence, and in no event."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct


class UnreadSession(Struct, frozen=True):
    """A session whose calls changed files after the event `after`, up to which it was read.

    `parent` is the session that it is a part of, if any.
    """

    session: str
    parent: str | None
    after: int


class Marks(Protocol):
    """The marks of one log, by person. Safe to use from any thread.

    Writing is durable; AuditUnavailable when it cannot be done.
    """

    def key(self) -> bytes:
        """The store's random key by which parts of this log are named; b"" where it is gone."""
        ...

    def viewed(self, person: str, names: Collection[str]) -> frozenset[str]:
        """The names, of these, in hex, of parts that a person has viewed."""
        ...

    def view(self, person: str, names: Collection[str], *, viewed: bool = True) -> None:
        """Note that a person has viewed parts, or take that back; again changes nothing."""
        ...

    def read_to(self, person: str, sessions: Collection[str]) -> Mapping[str, int]:
        """The seq up to which a person has read each of these sessions, of those marked so."""
        ...

    def read(self, person: str, sessions: Mapping[str, int | None]) -> None:
        """Note up to which seq a person has read sessions; None takes the note back."""
        ...

    def unread(self, person: str, limit: int) -> Sequence[UnreadSession]:
        """The sessions with changes that a person has not read, newest first, at most `limit`.

        Those in which the person acted are not among them; of the others the newest 500 that
        changed files are looked at. What was on record before there were marks counts as read.
        """
        ...
