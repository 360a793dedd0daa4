"""Which part of a session a page is about: all of it, one turn, or what came since an event."""

from collections.abc import Sequence

from msgspec import Struct

from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.lines import Turn, lines_of
from loom_audit.api.review.sessions import Reviews
from loom_audit.errors import InvalidArguments
from loom_audit.web.shared.dependencies import number
from loom_audit.web.shared.urls import Fields, encoded

TURNS = 30
"""The number of turns to which a page has links."""

Pairs = tuple[tuple[str, str], ...]


class Scope(Struct, frozen=True):
    """A `turn`, or what came `since` an event up to which somebody read; else the whole session.

    `fields` are those by which an address asks for it.
    """

    turn: Turn | None = None
    since: int | None = None

    @property
    def fields(self) -> Pairs:
        """The fields by which an address asks for this scope."""
        if self.turn is not None:
            return (("turn", str(self.turn.seq)),)
        return () if self.since is None else (("since", str(self.since)),)

    def of(self, base: str) -> str:
        """An address of the session, for this scope."""
        return f"{base}?{encoded(self.fields)}" if self.fields else base

    def has(self, seq: int) -> bool:
        """Whether an event of the session came in it; of a call its request counts."""
        if self.turn is not None:
            return self.turn.has(seq)
        return self.since is None or seq > self.since


def scope_of(turns: Sequence[Turn], query: Fields) -> Scope:
    """The scope that an address asks for. InvalidArguments for a turn that there is not."""
    if (since := number(query, "since")) is not None:
        return Scope(since=since)
    return Scope(turn=chosen_turn(turns, query))


def fields_in(query: Fields) -> Pairs:
    """The fields of a scope in an address, of which no session is asked."""
    named = ((name, number(query, name)) for name in ("turn", "since"))
    return tuple((name, str(value)) for name, value in named if value is not None)[:1]


def turns_of(reviews: Reviews, workspace: AuditedWorkspace, session: str) -> tuple[Turn, ...]:
    """The turns of a session, oldest first, that before its first prompt among them. Corrupt."""
    return reviews.once(workspace, ("turns", session), lambda: lines_of(workspace).turns(session))


def shown_turns(turns: Sequence[Turn], chosen: Turn | None) -> tuple[Turn, ...]:
    """The TURNS with a prompt among which the chosen one is, or the first; none of a single one."""
    prompted = [turn for turn in turns if turn.number]
    if len(prompted) < 2:
        return ()
    start = (max(chosen.number - 1, 0) if chosen else 0) // TURNS * TURNS
    return (*prompted[start : start + TURNS],)


def chosen_turn(turns: Sequence[Turn], query: Fields) -> Turn | None:
    """The turn that an address asks for. InvalidArguments for one that there is not."""
    wanted = number(query, "turn")
    if wanted is None:
        return None
    found = next((turn for turn in turns if turn.seq == wanted), None)
    if found is None:
        raise InvalidArguments(
            f"no turn of this session begins at {wanted}",
            hint="A turn begins with a prompt of the session; its steps show them all.",
        )
    return found
