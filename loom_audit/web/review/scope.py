"""Which part of a session a page is about: all of it, one turn, or what came since an event."""

from collections.abc import Sequence

from msgspec import Struct

from loom_audit.api.review.sessions import SessionReview
from loom_audit.errors import InvalidArguments
from loom_audit.model.records import Call
from loom_audit.web.shared.dependencies import number
from loom_audit.web.shared.urls import Fields, encoded

TURNS = 30

Pairs = tuple[tuple[str, str], ...]


class Turn(Struct, frozen=True):
    """What was done from one prompt to the next: events `after < seq < before`."""

    number: int
    seq: int
    before: int
    title: str


class Scope(Struct, frozen=True):
    """A `turn`, or what came `since` an event up to which somebody read; else the whole session.

    `fields` are those by which an address asks for it.
    """

    turn: Turn | None = None
    since: int | None = None

    @property
    def fields(self) -> Pairs:
        """Those by which an address asks for it."""
        if self.turn is not None:
            return (("turn", str(self.turn.seq)),)
        return () if self.since is None else (("since", str(self.since)),)

    def of(self, base: str) -> str:
        """An address of the session, for this scope."""
        return f"{base}?{encoded(self.fields)}" if self.fields else base

    def has(self, call: Call) -> bool:
        """Whether a call was requested in it."""
        if self.turn is not None:
            return self.turn.seq < call.requested < self.turn.before
        return self.since is None or call.requested > self.since


def scope_of(turns: Sequence[Turn], query: Fields) -> Scope:
    """The scope that an address asks for. InvalidArguments for a turn that there is not."""
    if (since := number(query, "since")) is not None:
        return Scope(since=since)
    return Scope(turn=chosen_turn(turns, query))


def fields_in(query: Fields) -> Pairs:
    """The fields of a scope in an address, of which no session is asked."""
    named = ((name, number(query, name)) for name in ("turn", "since"))
    return tuple((name, str(value)) for name, value in named if value is not None)[:1]


def turns_of(reviewed: SessionReview) -> list[Turn]:
    """The first turns of a session that was prompted more than once, oldest first."""
    if len(reviewed.prompts) < 2:
        return []
    ends = [*(said.seq for said in reviewed.prompts[1:]), reviewed.until + 1]
    return [
        Turn(n, said.seq, end, said.text.strip()[:200])
        for n, (said, end) in enumerate(zip(reviewed.prompts, ends, strict=True), 1)
    ][:TURNS]


def chosen_turn(turns: Sequence[Turn], query: Fields) -> Turn | None:
    """The turn that an address asks for. InvalidArguments for one that there is not."""
    wanted = number(query, "turn")
    if wanted is None:
        return None
    found = next((turn for turn in turns if turn.seq == wanted), None)
    if found is None:
        raise InvalidArguments(
            f"no turn that is shown begins at {wanted}",
            hint=f"A turn begins with a prompt of the session; the first {TURNS} are shown.",
        )
    return found
