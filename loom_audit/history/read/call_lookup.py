"""Which call did what an event says, and which others may have: found in the log itself."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import Corrupt, NotFound
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.model.calls import CallFold
from loom_audit.model.events import (
    CallFinished,
    CallRequested,
    ChangesAttributed,
    Event,
    Fact,
    FilesChanged,
)
from loom_audit.model.files import FileChange
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.text.summaries import plain_text
from loom_audit.ports import Projections


class Whose(Struct, frozen=True):
    """An event that says how files changed, and the calls it is of, by their requests.

    `told_later` are those that may have changed a path as was told later.
    """

    event: Event
    fact: FilesChanged
    requested: int | None
    number: int | None
    causes: tuple[int, ...]
    told_later: Mapping[str, tuple[int, ...]] = MappingProxyType({})

    def recorded(self, change: FileChange) -> RecordedChange:
        """One of its changes, as lists have it."""
        return RecordedChange(
            seq=self.event.seq,
            at=self.event.at,
            session=self.event.session,
            actor=plain_text(self.event.actor),
            origin=self.fact.origin,
            call_id=self.fact.call_id,
            causes=self.causes,
            change=change,
            number=self.number,
            requested=self.requested,
            told_later=self.told_later.get(change.path, ()),
        )


def with_told_later(events: Sequence[Whose], told: Iterable[ChangesAttributed]) -> list[Whose]:
    """The events, with the calls that were told later."""
    later: dict[int, dict[str, tuple[int, ...]]] = {}
    for fact in told:
        calls = later.setdefault(fact.event, {})
        for path in fact.paths:
            calls[path] = (*calls.get(path, ()), fact.call)
    return [replace(one, told_later=later.get(one.event.seq, {})) for one in events]


class CallLookup:
    """Finds calls: among those of a fold, else where the tables suggest, else from the start.

    `after` is the event after which the fold begins; `read` are some that were read from the
    log already, by seq.
    """

    def __init__(
        self,
        proven: ProvenLog,
        suggested: Projections,
        fold: CallFold | None = None,
        after: int | None = None,
        *,
        read: Mapping[int, Event] = MappingProxyType({}),
    ) -> None:
        self._proven = proven
        self._read = read
        self._suggested = suggested
        self._after = proven.head() if after is None else after
        self._known: dict[tuple[str, str], tuple[int, int | None]] = {}
        self._earlier: dict[str, dict[str, int]] | None = None
        self._later: dict[str, dict[str, int]] = {}
        ended = fold.ended if fold else {}
        self._ended = {key: number for key, (number, _) in ended.items()}
        for call in fold.calls() if fold else ():
            self._known[call.session, call.call_id] = call.requested, call.seq
            self._later.setdefault(call.call_id, {})[call.session] = call.requested

    def of(self, event: Event, fact: FilesChanged) -> Whose:
        """The calls of an event."""
        requested, number = None, None
        if fact.call_id is not None:
            found = self._find(event.session, fact.call_id)
            if found is not None and found[0] < event.seq:
                requested, number = found
        causes = self._causes(event, fact, requested)
        return Whose(event, fact, requested, number, causes)

    def request(self, session: str, call_id: str) -> int | None:
        """The event of a call's request; None when there is none."""
        found = self._find(session, call_id)
        return None if found is None else found[0]

    def finish(self, session: str, call_id: str) -> int | None:
        """The event of a call's finish; None while it is open."""
        found = self._find(session, call_id)
        return None if found is None else found[1]

    def _find(self, session: str, call_id: str) -> tuple[int, int | None] | None:
        key = session, call_id
        if key not in self._known:
            found = self._suggestion(session, call_id)
            if found is None:
                earlier = self._requests().get(call_id, {})
                if session not in earlier:
                    return None
                found = earlier[session], self._ended.get(key)
            self._known[key] = found
        return self._known[key]

    def _suggestion(self, session: str, call_id: str) -> tuple[int, int | None] | None:
        """The request and the number that the tables suggest, where the log says the same."""
        try:
            call = self._suggested.call(session, call_id)
        except NotFound:
            return None
        if not self._is_event_of(call, call.requested, CallRequested):
            return None
        if call.seq is not None and not self._is_event_of(call, call.seq, CallFinished):
            raise Corrupt(
                f"Call {call_id} is listed to have ended with event {call.seq}, and that is another"
                " event",
                hint="Run `loom-audit verify`, then `loom-audit db rebuild`.",
                details={"seq": call.seq},
            )
        return call.requested, call.seq

    def _is_event_of(self, call: Call, seq: int, kind: type[Fact]) -> bool:
        if not 0 < seq <= self._proven.head():
            return False
        event = self._read.get(seq) or self._proven.event(seq)
        same = isinstance(event.fact, kind) and event.session == call.session
        return same and getattr(event.fact, "call_id", None) == call.call_id

    def _causes(self, event: Event, fact: FilesChanged, own: int | None) -> tuple[int, ...]:
        """As `RecordedChange.causes`; what format 1 calls by ids is looked up."""
        if all(isinstance(cause, int) for cause in fact.causes):
            return tuple(int(cause) for cause in fact.causes)
        ids = [cause for cause in dict.fromkeys(fact.causes) if cause != fact.call_id]
        meant = (self._meant(event, str(cause)) for cause in ids)
        others = sorted(found for found in meant if found)
        known = others if own is None else [own, *others]
        return (*known, *(0 for _ in range(len(fact.causes) - len(known))))

    def _meant(self, event: Event, call_id: str) -> int | None:
        """The call that an id means in an event: of its session, else the newest before it."""
        earlier = {**self._requests().get(call_id, {}), **self._later.get(call_id, {})}
        before = {session: seq for session, seq in earlier.items() if seq < event.seq}
        if event.session in before:
            return before[event.session]
        return max(before.values(), default=None)

    def _requests(self) -> Mapping[str, Mapping[str, int]]:
        """By id and session, the requests of all calls before the fold's; also reads their ends."""
        if self._earlier is None:
            self._earlier = {}
            for event in self._proven.events(0, self._after, _begins_or_ends):
                if isinstance(event.fact, CallRequested):
                    self._earlier.setdefault(event.fact.call_id, {})[event.session] = event.seq
                if isinstance(event.fact, CallFinished):
                    self._ended.setdefault((event.session, event.fact.call_id), event.seq)
        return self._earlier


def _begins_or_ends(envelope: Mapping[str, Any]) -> bool:
    return envelope.get("kind") in (CallRequested.kind, CallFinished.kind)
