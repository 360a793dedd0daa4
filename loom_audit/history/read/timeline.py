"""Reads one log for people: its points, sessions, calls, trees, and the history of each file."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, BinaryIO

from msgspec import Struct

from loom_audit.errors import Conflict, InvalidArguments, NotFound
from loom_audit.history.ground.attachment import OBSERVED
from loom_audit.history.ground.client_ids import client_id
from loom_audit.history.ground.kept_contents import KeptContents
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.history.ground.session_state import hold_of, session_state
from loom_audit.history.read.call_detail import CallDetail, git_of, net_changes
from loom_audit.history.read.call_numbers import CallNumbers
from loom_audit.history.read.verified import VerifiedReading
from loom_audit.model.backgrounds import BackgroundFinished
from loom_audit.model.continuity import LOSING_KINDS, lost_by
from loom_audit.model.events import (
    BaselineFinished,
    CallDecided,
    CallFinished,
    CallReported,
    CallRequested,
    ChangeIntended,
    ChangesAttributed,
    ContentFound,
    Event,
    FilesChanged,
)
from loom_audit.model.files import FileChange, FileState, Move, Tree, diff, parents
from loom_audit.model.git.record import GitChanged
from loom_audit.model.records import (
    Call,
    Checkpoint,
    OutsideChange,
    RecordedChange,
    Session,
    SessionHold,
)
from loom_audit.model.text.times import check_year, time_flaw
from loom_audit.ports import BlobStore, CallFilter, EventFilter, EventLog, Projections

_NUMBER = re.compile(r"[0-9]{1,100}")
NEAR = 500
"""Points fewer events apart are compared by what happened between them, not by their trees."""
PIECE = 1024 * 1024
"""Bytes of a large content that are read at once."""
_TOLD_LATER = (CallReported, ChangesAttributed, BackgroundFinished)
_BACK = re.compile(r"head~([0-9]{1,100})")


class Timeline(Struct, frozen=True):
    """Reads one workspace's log; changes nothing.

    Lists are as the tables have them. A single call, a tree, a state and a difference are read from
    the log and checked: Corrupt where they are not as they were recorded. In an `imported` log
    events have a client's times beside those of the import.
    """

    log: EventLog
    projections: Projections
    blobs: BlobStore
    proven: ProvenLog
    verified: VerifiedReading
    numbers: CallNumbers
    imported: bool = False

    # --- points ---------------------------------------------------------------------------

    def point(self, text: str | int) -> int:
        """The seq that a point names: `42`, `head`, `head~3` (calls back), an RFC 3339 time,
        `@checkpoint`, `session:ID` (its start). NotFound, InvalidArguments, Corrupt.

        A time around which clocks went back may mean two; then it is the earlier one.
        """
        return self.meanings(text)[0]

    def exact_point(self, text: str | int) -> int:
        """The seq that a point names. Conflict for a time that may mean two; NotFound,
        InvalidArguments, Corrupt.
        """
        earlier, later = self.meanings(text)
        if earlier != later:
            raise Conflict(
                f"clocks went back around {text}: it is point {earlier} by the first event that is "
                f"later, and point {later} by the last one that is not",
                hint=f"Name one of the two by its number: {earlier} or {later}.",
                details={"points": [earlier, later]},
            )
        return earlier

    def meanings(self, text: str | int) -> tuple[int, int]:
        """The two seqs that a point may mean, the smaller first; they differ only for a time around
        which clocks went back. NotFound, InvalidArguments, Corrupt.
        """
        text = str(text).strip()
        if _is_named(text):
            seq = self._named(text)
            return seq, seq
        return self.proven.around(_time(text))

    def _named(self, text: str) -> int:
        head = self.proven.head()
        if text == "head":
            return head
        if _NUMBER.fullmatch(text):
            if int(text) > head:
                raise NotFound(
                    f"point {text} does not exist", hint=f"The log ends at {head} (`head`)."
                )
            return int(text)
        if back := _BACK.fullmatch(text):
            return self.numbers.back(int(back[1]))
        if text.startswith("@"):
            return self.verified.checkpoint(text[1:])
        return self.verified.session(text.removeprefix("session:")).started

    # --- lists ----------------------------------------------------------------------------

    def sessions(
        self, *, before: int | None = None, limit: int = 100, outermost: bool = False
    ) -> Sequence[Session]:
        """The sessions that started before an event, newest first, at most `limit`; `outermost`:
        those alone that are in no other session on record.
        """
        return self.projections.sessions(before=before, limit=limit, outermost=outermost)

    def session(self, id: str) -> Session:
        """One session, as lists have it. NotFound."""
        return self.projections.session(id)

    def open_sessions(self) -> Sequence[Session]:
        """The sessions without an end on record, oldest first."""
        return self.projections.open_sessions()

    def hold(self, session: str) -> SessionHold | None:
        """The hold on a session: its own, else that of a session that contains it; None without."""
        return hold_of(self.log, session)

    def holds(self) -> Sequence[SessionHold]:
        """The holds on open sessions, each once, the oldest first."""
        found = {self.hold(one.id) for one in self.open_sessions()} - {None}
        return sorted(filter(None, found), key=lambda held: held.seq)

    def last_heard(self, call: Call) -> datetime | None:
        """When the program that reports an open call last told anything; None for a call of ours,
        and for one that has ended.
        """
        if call.seq is not None or session_state(self.log, call.session).lease is None:
            return None
        for event in self.log.read(EventFilter(session=call.session, newest_first=True)):
            if event.actor == call.actor:
                return event.at
        return call.at

    def told_at(self, seq: int) -> datetime | None:
        """When an event happened by its client's clock; None where that is unknown, and in a log
        that was not imported.
        """
        if not self.imported:
            return None
        return next((one.occurred_at for one in self.log.read(EventFilter.only(seq))), None)

    def observed_at(self, seq: int) -> datetime | None:
        """When the last change of an event was made that a watcher recorded; None for others."""
        event = next(iter(self.log.read(EventFilter.only(seq))), None)
        return event.occurred_at if event is not None and event.source == OBSERVED else None

    def source_of(self, seq: int) -> str:
        """What an event came from, where that is not its actor; "" for its actor."""
        event = next(iter(self.log.read(EventFilter.only(seq))), None)
        return "" if event is None else event.source

    def calls(self, filter: CallFilter = CallFilter()) -> Sequence[Call]:
        """The calls that match, newest first, as lists have them."""
        return self.projections.calls(filter)

    def client_id(self, call: Call) -> str:
        """The id by which its client knows a call: one that was told later, else that on record."""
        return client_id(self.log, call)

    def open_calls(self) -> Sequence[Call]:
        """The calls without a finish on record, oldest first."""
        return self.projections.open_calls()

    def outside(
        self, *, after: int = 0, before: int | None = None, typed: str = "", limit: int = 100
    ) -> Sequence[OutsideChange]:
        """What changed without a call between two events, newest first, at most `limit`.

        `typed` is a path as people type it.
        """
        return self.projections.outside(
            after=after, before=before, typed=typed or None, limit=limit
        )

    def listed_changes(self, calls: Sequence[int]) -> Iterator[RecordedChange]:
        """The changes that these calls made or may have made, by their requests, in log order."""
        return self.projections.changes(calls=calls)

    def checkpoints(self) -> Sequence[Checkpoint]:
        """The names that were given to points, newest first, each with its newest point."""
        return self.projections.checkpoints()

    def events(self, filter: EventFilter = EventFilter()) -> Iterator[Event]:
        """The events that match, in order of seq unless the filter says otherwise. Corrupt."""
        return self.log.read(filter)

    # --- one call -------------------------------------------------------------------------

    def call(self, seq: int) -> CallDetail:
        """The call that the event `seq` belongs to. NotFound when it is not a call's event;
        Corrupt.
        """
        found = self.verified.record_at(seq)
        call = found.call
        arguments: Any = None
        result: Any = None
        decision: CallDecided | None = None
        moves: list[Move] = []
        events = [
            event
            for event in found.events
            if call.seq is None or event.seq <= call.seq or isinstance(event.fact, _TOLD_LATER)
        ]
        for event in events:
            fact = event.fact
            if isinstance(fact, CallRequested):
                arguments = fact.arguments
            elif isinstance(fact, CallDecided):
                decision = fact
            elif isinstance(fact, CallFinished):
                result = fact.result
            elif isinstance(fact, FilesChanged):
                moves += fact.moves
        return CallDetail(
            call=call,
            arguments=arguments,
            result=result,
            decision=decision,
            changes=net_changes(one.change for one in found.changes),
            moves=tuple(moves),
            events=tuple(events),
            recorded=found.changes,
            maybe=found.maybe,
            taken_back_in_part=found.undone,
        )

    def changes_of(self, call: Call) -> tuple[FileChange, ...]:
        """What a call changed, alone or shared with others: per path its first before and last
        after. NotFound, Corrupt.
        """
        found = self.verified.call_record(call.session, call.call_id)
        shared = (one for one in found.maybe if one.origin != "outside")
        both = sorted((*found.changes, *shared), key=lambda one: one.seq)
        return net_changes(one.change for one in both)

    def number(self, request: int) -> int:
        """The number of the call that was requested with an event; that event's seq while it is
        open. NotFound, Corrupt.
        """
        return self.verified.call_at(request).seq or request

    def listed_call(self, seq: int) -> Call:
        """The call that the event `seq` belongs to, as lists have it. NotFound."""
        return self.projections.call_at(seq)

    def call_of(self, recorded: RecordedChange) -> Call:
        """The call that a change is listed with. NotFound for a change without a call."""
        return self.projections.call(recorded.session, recorded.call_id or "")

    def taken_back_by_agents(self, calls: Iterable[Call]) -> Collection[int]:
        """The numbers of the calls that an agent, and no person, took back, as lists have it."""
        by = {call.seq: call.undone_by for call in calls if call.seq and call.undone_by is not None}
        actors = self.projections.actors({*by.values()}) if by else {}
        return {seq for seq, one in by.items() if actors.get(one, "").startswith("agent:")}

    def taken_back(self, changes: Sequence[RecordedChange]) -> Sequence[int | None]:
        """The number of the call that took back each change at its path, as lists have it."""
        numbers = [one.number or (None if one.call_id else one.seq) for one in changes]
        back = self.projections.taken_back({number for number in numbers if number})
        return [
            back.at(one.change.path).get(number) if number else None
            for one, number in zip(changes, numbers, strict=True)
        ]

    def git_of(self, calls: Sequence[Call]) -> Mapping[int, Sequence[GitChanged]]:
        """What these calls changed of git, or may have, by their requests. Corrupt."""
        return git_of(self.log, calls)

    # --- trees and files ------------------------------------------------------------------

    def tree(self, at: int | None = None) -> dict[str, FileState]:
        """The tree after event `at`, by default after the last. NotFound past the end; Corrupt."""
        return self.verified.tree(at)

    def state(self, path: str, at: int | None = None) -> FileState | None:
        """The state of one path in that tree, None where it has none. NotFound, Corrupt."""
        return self.verified.state(path, at)

    def found(self, path: str, at: int) -> FileState | None:
        """The state of a path that the event `at` itself kept, wherever the path is; else None.

        It is what a late writer gave a file, or what was there before a tool changed it, which is
        kept of paths that are out of scope, too.
        """
        for event in self.log.read(EventFilter.only(at)):
            match event.fact:
                case ContentFound(path=found, state=state) if found == path:
                    return state
                case ChangeIntended(changes=changes):
                    return next((one.before for one in changes if one.path == path), None)
        return None

    def is_unknown(self, path: str, at: int) -> bool:
        """Whether nobody knows what was at a path at which the tree after event `at` has nothing.

        It is so before the first listing was complete, and where the path's next change says that
        something was there already, or that it came from where nothing is recorded. NotFound,
        Corrupt.
        """
        if not self.is_listed(at):
            return True
        # the first change after the point tells what was there before it
        for recorded in self.projections.changes(after=at, paths=[path]):
            if recorded.change.before is not None or recorded.origin == "baseline":
                return recorded.origin == "baseline"
            facts = self.verified.files_changed({recorded.seq}).values()
            return any(path in fact.arrived for fact in facts)
        return False

    def unseen(self, *points: int) -> dict[str, str]:
        """The paths whose state after one of these events is not known, each with the reason.

        They could not be read, or had left the scope. Of what is below such a path nothing is known
        either. NotFound, Corrupt.
        """
        found: dict[str, str] = {}
        for at in points:
            lost = self.verified.untracked(at)
            reasons: dict[str, str] = {}
            newest_first = EventFilter(before=at + 1, kinds=LOSING_KINDS, newest_first=True)
            for event in self.events(newest_first) if lost else ():
                for path, reason in lost_by(event.fact):
                    reasons.setdefault(path, reason)
            for path in lost & reasons.keys():
                if not reasons[path].startswith("not a file"):
                    found.setdefault(path, reasons[path])
        return dict(sorted(found.items()))

    def why_unseen(self, path: str, at: int) -> str:
        """Why it is not known what was at a path after event `at`; "" where it is known.

        NotFound, Corrupt.
        """
        unseen = self.unseen(at)
        return next((unseen[one] for one in (path, *parents(path)) if one in unseen), "")

    def first_listing(self) -> int | None:
        """The event with which the workspace's first listing was complete; None before that."""
        wanted = EventFilter(kinds=(BaselineFinished.kind,), limit=1)
        return next((event.seq for event in self.events(wanted)), None)

    def is_listed(self, at: int) -> bool:
        """Whether the first listing was complete at a point: only then was what is not in the tree
        not there.
        """
        listed = self.first_listing()
        return listed is not None and listed <= at

    def check_listed(self, *points: int) -> None:
        """Refuse a point before the first listing was complete, with NotFound: what was there is
        not known.
        """
        if not all(map(self.is_listed, points)):
            raise NotFound(f"unknown: {self.unlisted()}", hint="Name a later point.")

    def unlisted(self) -> str:
        """Why it is not known what was there before the first listing was complete, in words."""
        listed = self.first_listing()
        if listed is None:
            return "the first listing is not finished; `loom-audit init` goes on with it"
        return f"nothing was on record before event {listed}"

    def unknown_entries(self, folder: str, at: int, tree: Tree) -> list[str]:
        """The left-out folders in a folder of which nobody knows whether they were there at `at`.

        `tree` is the tree of that point. They are in the tree now, and were first listed after it.
        Corrupt.
        """
        if at >= self.proven.head():
            return []
        return [
            path
            for path, state in sorted(self.tree().items())
            if state.kind == "opaque"
            and path not in tree
            and path.rpartition("/")[0] == folder
            and self.is_unknown(path, at)
        ]

    def content(self, state: FileState) -> bytes:
        """The bytes of a file, or those of a symlink's target.

        TooLarge when only the hash was kept, Corrupt where the content is gone or damaged, NotFound
        for an opaque entry, InvalidArguments for a directory.
        """
        if state.blob is None:
            if state.kind == "opaque":
                raise NotFound("what is in it is not on record", hint="Look at it on disk.")
            raise InvalidArguments(
                "a directory does not have content", hint="`loom-audit ls` lists what was in it."
            )
        self.check_kept({"": state})
        return self.blobs.get(state.blob)

    def stream(self, state: FileState) -> BinaryIO:
        """As `content`, as a stream. A large content is read twice, since it is checked as a whole
        before any of it is given. TooLarge, Corrupt, NotFound, InvalidArguments.
        """
        if state.blob is None or state.size <= PIECE:
            return BytesIO(self.content(state))
        self.check_kept({"": state})
        with self.blobs.open(state.blob) as stream:
            while stream.read(PIECE):
                pass
        return self.blobs.open(state.blob)

    def check_kept(self, states: Mapping[str, FileState]) -> None:
        """Refuse states, by path, without their content: TooLarge when it was recorded by hash
        only, Corrupt when it is gone.
        """
        KeptContents(self.log, self.blobs).check(states.items())

    def history(
        self, path: str, *, below: bool = False, before: int | None = None, limit: int = 100
    ) -> Sequence[RecordedChange]:
        """The changes of a path, or of all `below` it too, before an event; the newest first, at
        most `limit`.
        """
        return self.projections.history(path, below=below, before=before, limit=limit)

    def diff(self, old: int, new: int) -> tuple[FileChange, ...]:
        """What differs between the trees of two points, in either order. NotFound, Corrupt.

        Paths whose state is not known at one of the points are left out.
        """
        # once a path has left the tree, changes alone do not say of which paths the state is known
        losing = EventFilter(before=old + 1, kinds=LOSING_KINDS)
        lost = any(lost_by(event.fact) for event in self.events(losing))
        if 0 <= new - old < max(NEAR, self._since_listed(old)) and not lost:
            self.verified.tree(new)  # Corrupt where it is not known what is there
            folded = [event.fact for event in self.proven.folded(old, new)]
            changed = [fact for fact in folded if isinstance(fact, FilesChanged)]
            # any other fact takes paths from the tree, or begins it anew
            if len(changed) == len(folded):
                return net_changes(change for fact in changed for change in fact.changes)
        unknown, was = self.verified.untracked(old), self.tree(old)
        found, unknown = diff(was, self.tree(new)), unknown | self.verified.untracked(new)
        return tuple(one for one in found if unknown.isdisjoint((one.path, *parents(one.path))))

    def _since_listed(self, at: int) -> int:
        """How many events are folded for the tree after event `at`."""
        return at - next(iter(self.projections.keyframes(at)), 0)


def _is_named(text: str) -> bool:
    """Whether a text names a point otherwise than by a time."""
    return (
        text == "head"
        or text.startswith(("@", "session:"))
        or bool(_NUMBER.fullmatch(text) or _BACK.fullmatch(text))
    )


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidArguments(
            f"{text[:100]!r} is not a point{time_flaw(text)}",
            hint="A point is 42, head, head~3, @checkpoint, session:ID, or a time: 10:32, "
            "yesterday 17:00, 10 minutes ago, RFC 3339.",
        ) from None
    check_year(at)
    return at
