"""Recorded changes as versions of files: who made each, and what an undo took back with it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.history.read.call_lookup import CallLookup, Whose
from loom_audit.model.authorship.versions import TookBack, Version, Writer
from loom_audit.model.events import (
    CallFinished,
    CallRequested,
    ChangesAttributed,
    Event,
)
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.records import RecordedChange
from loom_audit.model.text.summaries import plain_text
from loom_audit.ports import EventFilter, Projections

BASELINE = "it was there when it was first recorded"
ARRIVED = "it came from where nothing is recorded"


_NEAR = 64
"""A call's request, change and finish that lie so near to each other are read in one go."""


class RecordedSteps:
    """Makes versions of what events of one log say, each event checked."""

    def __init__(self, proven: ProvenLog, suggested: Projections) -> None:
        self._proven = proven
        self._read: dict[int, Event] = {}
        self.lookup = CallLookup(proven, suggested, read=self._read)
        self._numbers: dict[int, int] = {}
        self._taken: dict[int, TookBack | None] = {}
        self._told: Mapping[int, Mapping[str, tuple[int, ...]]] | None = None

    def read(self, listed: Iterable[RecordedChange]) -> None:
        """Read the events of these changes and of their calls, before each is asked for. Corrupt.

        Those that were read before are forgotten. Of a call its place is enough: what it was given
        may be a whole file, and is read of what took something back only.
        """
        wanted: set[int] = set()
        spans: list[tuple[int, int]] = []
        for one in listed:
            seqs = sorted({one.seq, *filter(None, (one.requested, one.number))})
            wanted.update(seqs)
            near = seqs[-1] - seqs[0] <= _NEAR
            spans += [(seqs[0], seqs[-1])] if near else [(seq, seq) for seq in seqs]
        head = self._proven.head()
        joined = [(first - 1, min(last, head)) for first, last in _joined(spans) if first <= head]
        self._read.clear()
        requests: dict[tuple[str, str], int] = {}

        def is_read(envelope: Mapping[str, Any]) -> bool:
            seq, kind = int(envelope["seq"]), envelope.get("kind")
            if seq not in wanted or kind not in (CallRequested.kind, CallFinished.kind):
                return seq in wanted
            key = envelope.get("session", ""), envelope.get("call_id", "")
            if kind == CallRequested.kind:
                requests[key] = seq
            elif key in requests:
                self.lookup.know(*key, requests[key], seq)
            return envelope.get("tool") == "rollback" or bool(envelope.get("reverts"))

        for event in self._proven.several(joined, is_read):
            self._read[event.seq] = _small(event)

    def event(self, seq: int) -> Event:
        """One event. Corrupt where it is missing."""
        return self._read.get(seq) or self._proven.event(seq)

    def version(
        self, whose: Whose, change: FileChange, old_path: str, before: FileState | None
    ) -> Version:
        """The step of one file, which was at `old_path` before. Corrupt."""
        fact, path = whose.fact, change.path
        own = () if whose.requested is None else (whose.requested,)
        named = (*own, *whose.causes, *self._told_later(whose, path))
        outside = fact.call_id is None
        candidates = tuple(dict.fromkeys(named)) or (() if outside else (0,))
        sure = not candidates if outside else candidates == own
        taken = self._taken_back(whose) if fact.origin == "undo" and sure else None
        unknown = {"baseline": BASELINE}.get(fact.origin, "")
        if path in fact.arrived:
            unknown = ARRIVED
        return Version(
            seq=whose.event.seq,
            path=path,
            after=change.after,
            old_path=old_path,
            before=before,
            writer=self._writer(whose, candidates, sure, unknown),
            requested=whose.requested if sure else None,
            candidates=() if sure else candidates,
            taken_back=taken,
        )

    def _writer(
        self, whose: Whose, candidates: tuple[int, ...], sure: bool, unknown: str
    ) -> Writer:
        event = whose.event
        if unknown:
            return Writer("unknown", event.seq, event.at, reason=unknown)
        outside = whose.fact.call_id is None
        if not sure:
            numbers = tuple(sorted(map(self.number, candidates)))
            return Writer("one of", event.seq, event.at, calls=numbers, outside=outside)
        if outside:
            return Writer("outside", event.seq, event.at, actor=plain_text(event.actor))
        return Writer(
            kind="call",
            event=event.seq,
            at=event.at,
            call=whose.number or whose.requested or 0,
            open=whose.number is None,
            session=event.session,
            actor=plain_text(event.actor),
        )

    def number(self, request: int) -> int:
        """The number of the call with this request; the request while it is open, 0 for none."""
        if request not in self._numbers:
            event = self.event(request) if 0 < request <= self._proven.head() else None
            fact = event.fact if event else None
            number = None
            if event and isinstance(fact, CallRequested):
                number = self.lookup.finish(event.session, fact.call_id)
            self._numbers[request] = number or request
        return self._numbers[request]

    def _taken_back(self, whose: Whose) -> TookBack | None:
        """What the call took back. Of a rollback it is all that came after its point."""
        request = whose.requested
        if request is None:
            return TookBack(frozenset(whose.fact.reverts))
        if request not in self._taken:
            numbers = set(whose.fact.reverts)
            asked, point = self.event(request).fact, None
            if isinstance(asked, CallRequested) and asked.tool == "rollback":
                point = _point(asked)
            if whose.number is not None:
                ended = self.event(whose.number).fact
                numbers |= set(ended.reverts) if isinstance(ended, CallFinished) else set()
            self._taken[request] = TookBack(frozenset(numbers), point)
        return self._taken[request]

    def _told_later(self, whose: Whose, path: str) -> tuple[int, ...]:
        """The calls of which it was told later that they may have changed a path.

        It is told of what is on record as from outside, or as shared.
        """
        if whose.told_later:
            return whose.told_later.get(path, ())
        if whose.fact.call_id is not None and not whose.causes:
            return ()
        if self._told is None:
            told: dict[int, dict[str, tuple[int, ...]]] = {}
            for fact in self._attributed():
                calls = told.setdefault(fact.event, {})
                for one in fact.paths:
                    calls[one] = (*calls.get(one, ()), fact.call)
            self._told = told
        return self._told.get(whose.event.seq, {}).get(path, ())

    def _attributed(self) -> Iterator[ChangesAttributed]:
        for event in self._proven.log.read(EventFilter(kinds=(ChangesAttributed.kind,))):
            if isinstance(event.fact, ChangesAttributed):
                yield event.fact


def _small(event: Event) -> Event:
    """An event without what its call was given and gave, of which a rollback's point is needed."""
    fact = event.fact
    if isinstance(fact, CallRequested) and fact.tool != "rollback":
        return replace(event, fact=replace(fact, arguments=None))
    if isinstance(fact, CallFinished):
        return replace(event, fact=replace(fact, result=None))
    return event


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans from a first to a last seq in order, with those joined that touch and are short.

    What a call was given may be a megabyte, and all of a span is read at once.
    """
    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        short = joined and max(last, joined[-1][1]) - joined[-1][0] < _NEAR
        if joined and (short or first <= joined[-1][1]) and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined


def _point(asked: CallRequested) -> int | None:
    """The point of a rollback, as its call's arguments have it."""
    arguments = asked.arguments
    targets = arguments.get("targets") if isinstance(arguments, dict) else None
    text = str(targets[0]) if isinstance(targets, list) and targets else ""
    return int(text) if text.isdecimal() and len(text) < 19 else None
