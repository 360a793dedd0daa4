"""Trees, states, changes and single calls, read from the log itself.

The tables are a cache that whoever has the file can alter, so they only suggest where to look.
What is given is made of events, each of which was checked. Where a table says something else than
the log, Corrupt names the event.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import Conflict, Corrupt, NotFound
from loom_audit.history.ground.kept_contents import KeptContents
from loom_audit.history.ground.proven_listings import ProvenListings
from loom_audit.history.ground.proven_log import ProvenLog, changes_trees
from loom_audit.history.ground.verified_tree import VerifiedTree
from loom_audit.history.read.call_lookup import CallLookup, Whose, with_told_later
from loom_audit.model.calls import CALL_KINDS, UNDO_TOOLS, CallFold
from loom_audit.model.continuity import TREE_FACTS
from loom_audit.model.events import (
    CallFinished,
    CallReported,
    ChangesAttributed,
    CheckpointMarked,
    CoverageLowered,
    Event,
    FilesChanged,
    SessionEnded,
    SessionStarted,
    TreeRelisted,
)
from loom_audit.model.files import FileState, Move
from loom_audit.model.records import Call, RecordedChange, Session
from loom_audit.model.text.summaries import plain_text
from loom_audit.ports import CallFilter, EventFilter, Projections, Wanted


class RecordedCall(Struct, frozen=True):
    """One call with its events and the changes that are listed with it.

    `maybe` are changes that it may have made, and that are listed with another call or as from
    outside. `undone` has the paths that were taken back though not all of the call was, each with
    the number of the call that did.
    """

    call: Call
    events: tuple[Event, ...]
    changes: tuple[RecordedChange, ...]
    maybe: tuple[RecordedChange, ...] = ()
    undone: Mapping[str, int] = {}


NEAR = 1_000
"""All of so many events after a call's request are read for what concerns the call."""

_KEPT = 20_000
"""The number of events up to which what was read of a stretch is kept until the log grows."""

_FEW = 50
"""The number of events that are read one by one; more are read with all that lies between them."""


class _Stretch(Struct, frozen=True):
    """What was read of a stretch of the log: the events that changed files, those from which trees
    are folded, and what was told later of who made the changes.
    """

    changed: Sequence[Whose] = ()
    folded: Sequence[Event] = ()
    told: Sequence[ChangesAttributed] = ()


class VerifiedReading:
    """A `ports.Reading` for what must not be forged: plans, and what is shown as recorded.

    `contents` tells whether contents are still stored. `near` is how many events after a call's
    request are all read for it.
    """

    def __init__(
        self,
        proven: ProvenLog,
        suggested: Projections,
        contents: KeptContents,
        *,
        near: int = NEAR,
        listings: ProvenListings | None = None,
    ) -> None:
        self._near = near
        self._proven = proven
        self._contents = contents
        self._suggested = suggested
        self._trees = VerifiedTree(proven, suggested, self._folded, listings)
        self._read: tuple[int, int, _Stretch] = 0, 0, _Stretch()
        """The stretch that was read last."""

    # --- made of events -------------------------------------------------------------------

    def tree(self, at: int | None = None) -> dict[str, FileState]:
        """The tree after event `at`, by default after the last. NotFound past the end; Corrupt."""
        return dict(self._trees.at(at))

    def state(
        self, path: str, at: int | None = None, *, may_be_broken: bool = False
    ) -> FileState | None:
        """The state of one path in that tree, which `may_be_broken` by a change that does not apply
        to the tree before it; None where the tree has none. NotFound, Corrupt.
        """
        return self._trees.fold(at, may_be_broken=may_be_broken).states.get(path)

    def untracked(self, at: int | None = None) -> set[str]:
        """The paths that had left that tree and may have been on disk, with all below them.

        NotFound, Corrupt.
        """
        return set(self._trees.untracked(at))

    def changes(
        self,
        *,
        after: int = 0,
        until: int | None = None,
        paths: Iterable[str] | None = None,
        calls: Iterable[int] | None = None,
    ) -> Iterator[RecordedChange]:
        """The changes with `after < seq <= until` in log order; of all paths and calls by default.

        `calls` are requests: given are the changes of these calls and those that they may have
        made. The calls that were requested or ended in what is read are compared with the tables.
        Conflict where the tree was listed anew since; Corrupt.
        """
        wanted = None if calls is None else frozenset(calls)
        # a call changes nothing before its request, but it may be told later of earlier changes
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

    def moves(self, after: int) -> Iterator[tuple[int, Move]]:
        """The moves after an event, each with the seq of its own. Conflict, Corrupt."""
        for whose in self._since(after).changed:
            yield from ((whose.event.seq, move) for move in whose.fact.moves)

    def _folded(self, after: int, until: int) -> Iterable[Event]:
        """The events from which trees are folded; those of the last stretch are not read again."""
        first, last, read = self._read
        if first <= after and until <= last:
            return [one for one in read.folded if after < one.seq <= until]
        return self._proven.folded(after, until)

    def _since(self, after: int) -> _Stretch:
        """What the log has after an event, up to the head; its calls are compared with the tables.

        Conflict where the tree was listed anew; Corrupt.
        """
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
                # a change before it says nothing of the tree after it, so no plan can follow it
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
        # a plan may bring back what these changes led from, so none of it may be gone
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
        """The facts of those of these events that say how files changed, by seq. Corrupt.

        Events that `changes` read last are not read again.
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
        """The call that the event of this seq belongs to. NotFound where it is of none; Corrupt."""
        return self.record_at(seq).call

    def record_at(self, seq: int) -> RecordedCall:
        """As `call_at`, with the call's events and changes. NotFound, Corrupt."""
        with suppress(NotFound):  # what the tables do not have may still be in the log
            listed = self._suggested.call_at(seq)
            found = self.call_record(listed.session, listed.call_id, listed)
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
        """One call by its session and id. NotFound, Corrupt."""
        return self.call_record(session, call_id).call

    def call_record(self, session: str, call_id: str, listed: Call | None = None) -> RecordedCall:
        """One call, its events, with what was reported about it later, and its changes; `listed`
        is the call as the tables have it, where they were asked already.

        The log is read from the call's request to its finish, and at least `near` events. Any later
        event may have taken the call back, lowered its coverage, reported of it, or say that a
        change is its work. Of those only the ones that the tables suggest are read, and checked as
        every event. NotFound, Corrupt.
        """
        matters = _may_be_about(session, call_id)
        listed = listed or self._listed(session, call_id)
        # most often what the tables suggest is right, and then one stretch is all there is to read
        read = self._around(listed, matters)
        by_seq = {one.seq: one for one in read[2]}
        lookup = CallLookup(self._proven, self._suggested, read=by_seq, listed=listed)
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
        undone = fold.taken_back().of(call.seq or 0, fold.changed(session, call_id)).paths
        made, maybe = list[RecordedChange](), list[RecordedChange]()
        for whose in found:
            own = whose.requested == start
            to, whose = (made, replace(whose, number=call.seq)) if own else (maybe, whose)
            to += map(whose.recorded, whose.fact.changes)
        return RecordedCall(call, tuple(events), tuple(made), tuple(maybe), undone)

    def _listed(self, session: str, call_id: str) -> Call | None:
        """A call as the tables have it; None where they do not."""
        try:
            return self._suggested.call(session, call_id)
        except NotFound:
            return None

    def _around(self, listed: Call | None, wanted: Wanted) -> tuple[int, int, Sequence[Event]]:
        """The wanted events from a call's request, as the tables have it, to the last near event,
        with the seqs of those two.

        Nothing is read where the tables do not have the call, where the log cannot have it there,
        or where its finish is far from its request.
        """
        if listed is None:
            return 0, 0, ()
        start, head = listed.requested, self._proven.head()
        near = min(head, max(start + self._near, listed.seq or head))
        if not 0 < start <= near <= start + self._near:
            return 0, 0, ()
        return start, near, [*self._proven.events(start - 1, near, wanted)]

    def _suggested_after(
        self, near: int, start: int, call: Call | None, fold: CallFold
    ) -> Sequence[int]:
        """The seqs after `near` of events that may concern the call with this request, `start`."""
        seqs = {one.seq for one in self._suggested.changes(after=near, calls=(start,))}
        if call is not None and call.seq is not None:
            told = EventFilter(near, None, (CallReported.kind,), call.session, call.call_id)
            seqs |= {event.seq for event in self._proven.log.read(told)}
            later_told = EventFilter(near, None, (ChangesAttributed.kind,), call.session)
            seqs |= {event.seq for event in self._proven.log.read(later_told)}
            near_takers = fold.taken_back().concerning({call.seq}).doings
            numbers = {call.seq, *(one.number for one in near_takers)}
            takers = self._suggested.taken_back(numbers).takers(numbers)
            later = (*self._suggested.lowered(call.seq), *takers)
            seqs |= {seq for seq in later if seq > near}
        return sorted(seqs)

    def check_calls(self, after: int) -> None:
        """Refuse tables that do not have the calls since an event as the log has them: Corrupt."""
        fold = CallFold()
        for event in self._proven.events(after, self._proven.head(), _of_calls_and_changes):
            fold.add(event)
        self._compare(after, fold)

    def _compare(self, after: int, fold: CallFold) -> None:
        """Refuse tables that do not have the calls after an event as these events say: Corrupt.

        Compared are the calls requested, those that ended, and which call took back which.
        """
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
        # what an earlier call took back is in no event of these
        back = [one for one in self._suggested.taken_back().doings if one.number > after]
        if back != (taken := fold.taken_back().doings):
            odd = [one for one in (*back, *taken) if one not in back or one not in taken]
            raise listed_error(max(one.number for one in odd))

    # --- points ---------------------------------------------------------------------------

    def checkpoint(self, name: str) -> int:
        """The seq of the point that a checkpoint's name means now. NotFound, Corrupt."""
        listed = (one.seq for one in self._suggested.checkpoints() if one.name == name)
        # the table suggests where to begin; where it is wrong, the log is read from its start
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
        """One session as it is listed, once the log has said that it began and ended there, and
        whose it is. NotFound where the log does not have it; Corrupt where log and tables differ.
        """
        try:
            listed = self._suggested.session(id)
        except NotFound:
            head = self._proven.head()
            for event in self._proven.events(0, head, lambda one: one.get("session") == id):
                raise listed_error(event.seq) from None
            raise
        if self._bounds(id) != (
            *(listed.started, listed.actor),
            *(listed.agent, listed.title, listed.parent, listed.ended),
        ):
            raise Corrupt(
                f"Session {id} is not listed as the log has it",
                hint="Run `loom-audit verify`, then `loom-audit db rebuild`.",
                details={"session": id, "seq": listed.started},
            )
        return listed

    def _bounds(self, id: str) -> tuple[object, ...]:
        """Of a session in the log: its first event and whose that is, then agent, title and parent
        as last told, and the event that ended it, None while it is open. Corrupt.
        """
        found: tuple[object, ...] = ()
        kinds = EventFilter(kinds=(SessionStarted.kind, SessionEnded.kind), session=id)
        for event in self._proven.log.read(kinds):
            fact = self._proven.event(event.seq).fact
            first = found[:2] or (event.seq, plain_text(event.actor))
            match fact:
                case SessionStarted(agent=agent, title=title, parent=parent):
                    # a session that is opened again after its end is open
                    found = (*first, plain_text(agent), plain_text(title), parent, None)
                case SessionEnded() if found:
                    found = (*found[:-1], event.seq)
        return found

    # --- suggested ------------------------------------------------------------------------

    def calls(self, filter: CallFilter = CallFilter()) -> Sequence[Call]:
        """The calls that match, as they are listed; Corrupt where log and tables differ.

        Compared are an empty answer, all calls of a session, and which calls ended after an event.
        """
        found = self._suggested.calls(filter)
        if filter.ended_after is not None:
            for call in found:
                lookup = CallLookup(self._proven, self._suggested, listed=call)
                if lookup.finish(call.session, call.call_id) != call.seq:
                    raise listed_error(call.requested)
        narrow = filter.after or filter.partial_only or filter.ended_after is not None
        whole_session = filter.session is not None and filter.limit is None
        if whole_session or (not found and not narrow):
            self.check_calls(0)
        return found


def _listed_anew_error(seq: int) -> Conflict:
    """The error for changes before the event `seq`, with which the tree was listed anew."""
    return Conflict(
        f"the tree was listed anew with event {seq}: what happened before cannot be taken back",
        hint="`loom-audit cat PATH --at POINT` and `loom-audit replay POINT --to DIR` give what "
        "was there at an earlier point.",
        details={"seq": seq},
    )


def _of_calls_and_changes(envelope: Mapping[str, Any]) -> bool:
    kind = envelope.get("kind")
    return kind in CALL_KINDS or kind == ChangesAttributed.kind or changes_trees(envelope)


def _may_be_about(session: str, call_id: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether an event may say something of a call, by its envelope."""

    def matters(envelope: Mapping[str, Any]) -> bool:
        kind = envelope.get("kind")
        same = envelope.get("session", "") == session
        if same and envelope.get("call_id") == call_id:
            return True
        if kind == FilesChanged.kind:
            return "causes" in envelope or has_fact(envelope)
        if kind == CallFinished.kind:
            return may_take_back(envelope)
        return kind == CoverageLowered.kind or (kind == ChangesAttributed.kind and same)

    return matters


def may_take_back(envelope: Mapping[str, Any]) -> bool:
    """Whether a finish may be of a call that took something back, by its envelope."""
    return "reverts" in envelope or envelope.get("tool") in UNDO_TOOLS or has_fact(envelope)


def has_fact(envelope: Mapping[str, Any]) -> bool:
    """Whether fields that are too long for the envelope may stand in the payload `fact`."""
    return any(item["role"] == "fact" for item in envelope.get("payloads", ()))


def listed_error(seq: int) -> Corrupt:
    """The error for tables that say something else of the event `seq` than the log."""
    return Corrupt(
        f"What is listed of event {seq} is not what the log says",
        hint="Run `loom-audit verify`, then `loom-audit db rebuild`, which makes lists anew.",
        details={"seq": seq},
    )
