"""Which call made the changes of an event, and which others may have made them, by the log itself.

An event names its call by session and id, so the call's request has to be looked up. Where the
tables suggest one, that event is read and compared; else the log is read from its start.
"""

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
    """An event that says how files changed, and whose the changes are; calls are named by requests.

    The event is listed with the call `requested`, whose number is `number`: both None for none.
    `causes` are as in `RecordedChange`. `told_later` has by path the calls that may have changed
    it, as their clients told later.
    """

    event: Event
    fact: FilesChanged
    requested: int | None
    number: int | None
    causes: tuple[int, ...]
    told_later: Mapping[str, tuple[int, ...]] = MappingProxyType({})

    def recorded(self, change: FileChange) -> RecordedChange:
        """One of the event's changes, as lists have it."""
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
    """The events, each with the calls of which was told later that they changed its paths."""
    later: dict[int, dict[str, tuple[int, ...]]] = {}
    for fact in told:
        calls = later.setdefault(fact.event, {})
        for path in fact.paths:
            calls[path] = (*calls.get(path, ()), fact.call)
    return [replace(one, told_later=later.get(one.event.seq, {})) for one in events]


class CallLookup:
    """Finds calls: among those of a fold, else where the tables suggest, else in the whole log.

    `after` is the event after which the fold begins, by default the last. `read` has events, by
    their seqs, that were read from the log already, and `listed` is a call as the tables have it.
    """

    def __init__(
        self,
        proven: ProvenLog,
        suggested: Projections,
        fold: CallFold | None = None,
        after: int | None = None,
        *,
        read: Mapping[int, Event] = MappingProxyType({}),
        listed: Call | None = None,
    ) -> None:
        self._proven = proven
        self._read = read
        self._listed = listed
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

    def know(self, session: str, call_id: str, requested: int, finished: int) -> None:
        """Remember the seqs of the request and the finish of a call, which the caller has read."""
        self._known[session, call_id] = requested, finished

    def of(self, event: Event, fact: FilesChanged) -> Whose:
        """The calls that made, or may have made, the changes of an event. Corrupt."""
        requested, number = None, None
        if fact.call_id is not None:
            found = self._find(event.session, fact.call_id)
            # a call does nothing before its request: one of the same id is another call
            if found is not None and found[0] < event.seq:
                requested, number = found
        causes = self._causes(event, fact, requested)
        return Whose(event, fact, requested, number, causes)

    def request(self, session: str, call_id: str) -> int | None:
        """The seq of a call's request; None where the log has none. Corrupt."""
        found = self._find(session, call_id)
        return None if found is None else found[0]

    def finish(self, session: str, call_id: str) -> int | None:
        """The seq of a call's finish; None while the call is open. Corrupt."""
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
        """The request and the number that the tables suggest; None where the log has another one.

        Corrupt where the suggested number is not that of the call's finish.
        """
        call = self._listed
        if call is None or (call.session, call.call_id) != (session, call_id):
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
        """The causes as `RecordedChange` has them: what format 1 names by ids is looked up."""
        if all(isinstance(cause, int) for cause in fact.causes):
            return tuple(int(cause) for cause in fact.causes)
        ids = [cause for cause in dict.fromkeys(fact.causes) if cause != fact.call_id]
        meant = (self._meant(event, str(cause)) for cause in ids)
        others = sorted(found for found in meant if found)
        known = others if own is None else [own, *others]
        return (*known, *(0 for _ in range(len(fact.causes) - len(known))))

    def _meant(self, event: Event, call_id: str) -> int | None:
        """The request of the call that an id means in an event: of the event's session, else the
        newest before the event, since format 1 does not name the session.
        """
        earlier = {**self._requests().get(call_id, {}), **self._later.get(call_id, {})}
        before = {session: seq for session, seq in earlier.items() if seq < event.seq}
        if event.session in before:
            return before[event.session]
        return max(before.values(), default=None)

    def _requests(self) -> Mapping[str, Mapping[str, int]]:
        """The requests of all calls before those of the fold, by id and session.

        Reads the log from its start, once, and notes the ends of these calls.
        """
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
