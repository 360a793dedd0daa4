"""What matters of a log, read from the log itself.

The tables only suggest where to look. Trees, states, changes and single calls are made of events,
each checked; where a table says something else, it is Corrupt and the event named.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import Conflict, Corrupt, NotFound
from loom_audit.history.ground.kept_contents import KeptContents
from loom_audit.history.ground.proven_log import ProvenLog, changes_trees
from loom_audit.history.ground.verified_tree import VerifiedTree
from loom_audit.history.read.call_lookup import CallLookup, Whose, with_told_later
from loom_audit.model.calls import CALL_KINDS, CallFold
from loom_audit.model.continuity import TREE_FACTS
from loom_audit.model.events import (
    CallFinished,
    CallReported,
    ChangesAttributed,
    CheckpointMarked,
    CoverageLowered,
    Event,
    FilesChanged,
    SessionStarted,
    TreeRelisted,
)
from loom_audit.model.files import FileState
from loom_audit.model.records import Call, RecordedChange, Session
from loom_audit.ports import CallFilter, EventFilter, Projections, Wanted


class RecordedCall(Struct, frozen=True):
    """One call with its events and the changes that are listed as its own.

    `maybe` are those that it may have made, and that are listed with another call or as from
    outside.
    """

    call: Call
    events: tuple[Event, ...]
    changes: tuple[RecordedChange, ...]
    maybe: tuple[RecordedChange, ...] = ()


NEAR = 1_000
"""So many events behind a call's request are all looked at for what concerns it."""

_KEPT = 20_000
"""What changed files in a stretch up to so long is kept until the log grows."""

_FEW = 50
"""Up to so many events are read one by one."""


class _Stretch(Struct, frozen=True):
    """What was read of a stretch: what changed files, what trees are folded from, and what was
    told later of changes."""

    changed: Sequence[Whose] = ()
    folded: Sequence[Event] = ()
    told: Sequence[ChangesAttributed] = ()


class VerifiedReading:
    """A `ports.Reading` for what must not be forged: plans, and what is shown as recorded."""

    def __init__(
        self,
        proven: ProvenLog,
        suggested: Projections,
        contents: KeptContents,
        *,
        near: int = NEAR,
    ) -> None:
        self._near = near
        self._proven = proven
        self._contents = contents
        self._suggested = suggested
        self._trees = VerifiedTree(proven, suggested, self._folded)
        self._read: tuple[int, int, _Stretch] = 0, 0, _Stretch()
        """The stretch that was read last."""

    # --- made of events -------------------------------------------------------------------

    def tree(self, at: int | None = None) -> dict[str, FileState]:
        """The tree after event `at`, by default the head's."""
        return dict(self._trees.at(at))

    def state(self, path: str, at: int | None = None) -> FileState | None:
        """One path of that tree."""
        return self._trees.at(at).get(path)

    def untracked(self, at: int | None = None) -> set[str]:
        """The paths that had left that tree and may have been there, each with all below it."""
        return set(self._trees.untracked(at))

    def changes(
        self,
        *,
        after: int = 0,
        until: int | None = None,
        paths: Iterable[str] | None = None,
        calls: Iterable[int] | None = None,
    ) -> Iterator[RecordedChange]:
        """Changes in log order; the calls that were requested or ended since are compared too.

        With `calls` from the first of these requests on, and before it what was told later to be
        theirs.
        """
        wanted = None if calls is None else frozenset(calls)
        start = after
        if wanted is not None:
            start = max(after, min(wanted, default=self._proven.head()) - 1)
        found = self._since(start)
        if wanted is not None:
            told = (fact.event for fact in found.told if fact.call in wanted)
            earlier = max(after, min(told, default=start + 1) - 1)
            found = self._since(earlier) if earlier < start else found
        names = None if paths is None else frozenset(paths)
        for whose in found.changed:
            if until is not None and whose.event.seq > until:
                return
            for change in whose.fact.changes:
                if names is not None and change.path not in names:
                    continue
                one = whose.recorded(change)
                whole = (one.requested or 0, *one.causes, *one.told_later)
                if wanted is None or not wanted.isdisjoint(whole):
                    yield one

    def _folded(self, after: int, until: int) -> Iterable[Event]:
        """The events that trees are folded from; those read last are not read again."""
        first, last, read = self._read
        if first <= after and until <= last:
            return [one for one in read.folded if after < one.seq <= until]
        return self._proven.folded(after, until)

    def _since(self, after: int) -> _Stretch:
        """What was read after an event up to the head; calls since then are compared."""
        head = self._proven.head()
        first, last, read = self._read
        if last == head and first <= after:
            changed = [whose for whose in read.changed if whose.event.seq > after]
            return replace(read, changed=changed)
        fold, events = CallFold(), list[tuple[Event, FilesChanged]]()
        folded: list[Event] = []
        told: list[ChangesAttributed] = []
        for event in self._proven.events(after, head, _of_calls_and_changes):
            fold.add(event)
            if isinstance(event.fact, TreeRelisted):
                raise _listed_anew_error(event.seq)
            if isinstance(event.fact, TREE_FACTS):
                folded.append(event)
            if isinstance(event.fact, FilesChanged):
                events.append((event, event.fact))
            if isinstance(event.fact, ChangesAttributed):
                told.append(event.fact)
        self._compare(after, fold)
        lookup = CallLookup(self._proven, self._suggested, fold, after)
        changed = [lookup.of(event, fact) for event, fact in events]
        found = _Stretch(with_told_later(changed, told) if told else changed, folded, told)
        changes = [change for _, fact in events for change in fact.changes]
        self._contents.check_gone(
            (change.path, state)
            for change in changes
            for state in (change.before, change.after)
            if state
        )
        if head - after <= _KEPT:
            self._read = after, head, found
        return found

    def files_changed(self, seqs: Set[int]) -> Mapping[int, FilesChanged]:
        """What these events say of how files changed; those `changes` read last are not read again.

        Few are read one by one, many with all between them.
        """
        found = {one.event.seq: one.fact for one in self._read[2].changed if one.event.seq in seqs}
        left = seqs - found.keys()
        spans = [(seq - 1, seq) for seq in sorted(left)]
        if len(left) > _FEW:
            spans = [(min(left) - 1, max(left))]
        for after, until in spans:
            for event, fact in self._proven.changes(after, until):
                if event.seq in left:
                    found[event.seq] = fact
        return found

    def call_at(self, seq: int) -> Call:
        """The call that the event of this seq belongs to. NotFound when it belongs to none."""
        return self.record_at(seq).call

    def record_at(self, seq: int) -> RecordedCall:
        """As `call_at`, with all that belongs to it."""
        with suppress(NotFound):
            listed = self._suggested.call_at(seq)
            found = self.call_record(listed.session, listed.call_id)
            if any(event.seq == seq for event in found.events):
                return found
        head = self._proven.head()
        event = self._proven.event(seq) if 0 < seq <= head else None
        call_id = getattr(event.fact, "call_id", None) if event else None
        if event is None or call_id is None:
            raise NotFound(
                f"Event {seq} does not belong to a call"
                if event
                else f"There is no event {seq}: the log ends at {head}",
                hint="Run `loom-audit log` to list the calls.",
            )
        return self.call_record(event.session, call_id)

    def call(self, session: str, call_id: str) -> Call:
        """One call by its session and id. NotFound."""
        return self.call_record(session, call_id).call

    def call_record(self, session: str, call_id: str) -> RecordedCall:
        """One call, its events, also what was reported about it later, and its changes. NotFound.

        The log is read from its request to its finish and past `near` events. What took it back,
        lowered its coverage, was reported of it or may be its work can be anywhere behind that:
        there only what the tables suggest is read, and checked as every event.
        """

        def matters(envelope: Mapping[str, Any]) -> bool:
            if envelope.get("call_id") == call_id and envelope.get("session", "") == session:
                return True
            kind = envelope.get("kind")
            if kind == FilesChanged.kind:
                return "causes" in envelope or _has_fact(envelope)
            if kind == ChangesAttributed.kind:
                return bool(envelope.get("session", "") == session)
            return kind == CoverageLowered.kind or (
                kind == CallFinished.kind and ("reverts" in envelope or _has_fact(envelope))
            )

        # what is read at once where the tables suggest is most often all that there is to read
        read = self._around(session, call_id, matters)
        lookup = CallLookup(self._proven, self._suggested, read={one.seq: one for one in read[2]})
        start = lookup.request(session, call_id)
        if start is None:
            raise NotFound(
                f"There is no call {call_id} in session {session}",
                hint="Run `loom-audit log` to list the calls.",
            )
        fold, events, found = CallFold(), list[Event](), list[Whose]()
        head = self._proven.head()
        near = min(head, max(start + self._near, lookup.finish(session, call_id) or head))

        def add(event: Event) -> None:
            fold.add(event)
            if (event.session, getattr(event.fact, "call_id", None)) == (session, call_id):
                events.append(event)
            if isinstance(event.fact, ChangesAttributed) and event.fact.call == start:
                events.append(event)
            if isinstance(event.fact, FilesChanged):
                whose = lookup.of(event, event.fact)
                if start in (whose.requested, *whose.causes):
                    found.append(whose)

        whole = read[:2] == (start, near)
        for event in read[2] if whole else self._proven.events(start - 1, near, matters):
            add(event)
        if near < head:
            for seq in self._suggested_after(near, start, fold.call(session, call_id), fold):
                add(self._proven.event(seq))
        [call] = fold.calls(lambda one: (one.session, one.call_id) == (session, call_id))
        listed, maybe = list[RecordedChange](), list[RecordedChange]()
        for whose in found:
            own = whose.requested == start
            to, whose = (listed, replace(whose, number=call.seq)) if own else (maybe, whose)
            to += map(whose.recorded, whose.fact.changes)
        return RecordedCall(call, tuple(events), tuple(listed), tuple(maybe))

    def _around(
        self, session: str, call_id: str, wanted: Wanted
    ) -> tuple[int, int, Sequence[Event]]:
        """The wanted events from where the tables have a call's request to the last that is near,
        and these two; none where it is not listed, or where that is not in the log.
        """
        try:
            listed = self._suggested.call(session, call_id)
        except NotFound:
            return 0, 0, ()
        start, head = listed.requested, self._proven.head()
        near = min(head, max(start + self._near, listed.seq or head))
        if not 0 < start <= near <= start + self._near:
            return 0, 0, ()
        return start, near, [*self._proven.events(start - 1, near, wanted)]

    def _suggested_after(
        self, near: int, start: int, call: Call | None, fold: CallFold
    ) -> Sequence[int]:
        """The events after `near` that may say something of the call requested at `start`."""
        seqs = {one.seq for one in self._suggested.changes(after=near, calls=(start,))}
        if call is not None and call.seq is not None:
            told = EventFilter(near, None, (CallReported.kind,), call.session, call.call_id)
            seqs |= {event.seq for event in self._proven.log.read(told)}
            later_told = EventFilter(near, None, (ChangesAttributed.kind,), call.session)
            seqs |= {event.seq for event in self._proven.log.read(later_told)}
            listed = self._suggested.reverted()
            takers = listed.get(call.seq), listed.get(fold.reverted().get(call.seq, 0))
            later = (*self._suggested.lowered(call.seq), *takers)
            seqs |= {seq for seq in later if seq is not None and seq > near}
        return sorted(seqs)

    def check_calls(self, after: int) -> None:
        """Corrupt unless the tables have the calls since this event as the log has them."""
        fold = CallFold()
        for event in self._proven.events(after, self._proven.head(), _of_calls_and_changes):
            fold.add(event)
        self._compare(after, fold)

    def _compare(self, after: int, fold: CallFold) -> None:
        """Corrupt unless the lists have the calls of these events, and what took back what."""
        found = self._suggested.calls(CallFilter(after=after, newest_first=False, limit=None))
        # paths are shown only, and what changed is read from the log
        listed, made = ([replace(one, paths=()) for one in some] for some in (found, fold.calls()))
        if listed != made:
            unlike = (one for one, other in zip(made, listed, strict=False) if one != other)
            raise listed_error(next(unlike, [*made, *listed][-1]).requested)
        for (session, call_id), (number, fact) in fold.ended.items():
            coverage = fold.coverage(number, fact.coverage)
            try:
                one = self._suggested.call(session, call_id)
            except NotFound:
                raise listed_error(number) from None
            status = fold.status(number, fact.status)
            if (one.seq, one.status, one.coverage) != (number, status, coverage):
                raise listed_error(number)
        reverted = {n: by for n, by in self._suggested.reverted().items() if by > after}
        if reverted != fold.reverted():
            raise listed_error(min(reverted.items() ^ fold.reverted().items())[1])

    # --- points ---------------------------------------------------------------------------

    def checkpoint(self, name: str) -> int:
        """The point that a name means now. NotFound."""
        listed = (one.seq for one in self._suggested.checkpoints() if one.name == name)
        # the table suggests where to begin, and nothing is found behind a place that is forged
        for after in (max(next(listed, 1), 1) - 1, 0):
            points = [fact.point for fact in self._marks(after) if fact.name == name]
            if points:
                return points[-1]
        raise NotFound(f"no checkpoint @{name}", hint="`loom-audit checkpoint` lists them.")

    def _marks(self, after: int) -> Iterator[CheckpointMarked]:
        kind, head = CheckpointMarked.kind, self._proven.head()
        for event in self._proven.events(after, head, lambda envelope: envelope["kind"] == kind):
            if isinstance(event.fact, CheckpointMarked):
                yield event.fact

    def session(self, id: str) -> Session:
        """One session; that it began where it is listed is read from the log. NotFound."""
        try:
            listed = self._suggested.session(id)
        except NotFound:
            head = self._proven.head()
            for event in self._proven.events(0, head, lambda one: one.get("session") == id):
                raise listed_error(event.seq) from None
            raise
        event = self._proven.event(listed.started)
        if event.session != id or not isinstance(event.fact, SessionStarted):
            raise Corrupt(
                f"Event {listed.started} is not the start of session {id}, which is listed there",
                hint="Run `loom-audit verify`, then `loom-audit db rebuild`.",
                details={"seq": listed.started},
            )
        return listed

    # --- suggested ------------------------------------------------------------------------

    def calls(self, filter: CallFilter = CallFilter()) -> Sequence[Call]:
        """As they are listed. That none is listed, what a whole session did, and that what ended
        after an event did so is checked.
        """
        found = self._suggested.calls(filter)
        if filter.ended_after is not None:
            lookup = CallLookup(self._proven, self._suggested)
            for call in found:
                if lookup.finish(call.session, call.call_id) != call.seq:
                    raise listed_error(call.requested)
        narrow = filter.after or filter.partial_only or filter.ended_after is not None
        whole_session = filter.session is not None and filter.limit is None
        if whole_session or (not found and not narrow):
            self.check_calls(0)
        return found


def _listed_anew_error(seq: int) -> Conflict:
    """Of what lies before a whole listing: what came of it is not known."""
    return Conflict(
        f"the tree was listed anew with event {seq}: what happened before cannot be taken back",
        hint="`loom-audit cat PATH --at POINT` and `loom-audit replay POINT --to DIR` give what "
        "was there at an earlier point.",
        details={"seq": seq},
    )


def _of_calls_and_changes(envelope: Mapping[str, Any]) -> bool:
    kind = envelope.get("kind")
    return kind in CALL_KINDS or kind == ChangesAttributed.kind or changes_trees(envelope)


def _has_fact(envelope: Mapping[str, Any]) -> bool:
    """Whether fields that are too long for the envelope may stand in the payload `fact`."""
    return any(item["role"] == "fact" for item in envelope.get("payloads", ()))


def listed_error(seq: int) -> Corrupt:
    """Of an event of which the tables say something else than the log."""
    return Corrupt(
        f"What is listed of event {seq} is not what the log says",
        hint="Run `loom-audit verify`, then `loom-audit db rebuild`, which makes lists anew.",
        details={"seq": seq},
    )
