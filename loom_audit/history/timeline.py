"""The reader: sessions, calls, trees, histories and points of one log."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from loom_audit.errors import Conflict, InvalidArguments, NotFound, TooLarge
from loom_audit.model.events import (
    CallDecided,
    CallFinished,
    CallReported,
    CallRequested,
    Event,
    FilesChanged,
)
from loom_audit.model.files import FileChange, FileState, Move, diff
from loom_audit.model.records import Call, Checkpoint, RecordedChange, Session
from loom_audit.ports import BlobStore, CallFilter, EventFilter, EventLog, Projections

_NUMBER = re.compile(r"[0-9]{1,100}")
_BACK = re.compile(r"head~([0-9]{1,100})")


@dataclass(frozen=True, slots=True)
class CallDetail:
    """One call with its request, decision, result and net changes.

    `events` are its own, also what was reported about it after its finish.
    """

    call: Call
    arguments: Any
    result: Any
    decision: CallDecided | None
    changes: tuple[FileChange, ...]
    moves: tuple[Move, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Reads one workspace's log; changes nothing."""

    log: EventLog
    projections: Projections
    blobs: BlobStore

    # --- points ---------------------------------------------------------------------------

    def point(self, text: str | int) -> int:
        """The seq that a point names: `42`, `head`, `head~3` (calls back), an RFC 3339 time,
        `@checkpoint`, `session:ID` (its start). NotFound, InvalidArguments.

        The earlier one of the two that a time may mean where clocks went back.
        """
        return self.meanings(text)[0]

    def exact_point(self, text: str | int) -> int:
        """The seq that a point names; Conflict for a time that may mean two."""
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
        """The two seqs that a point may mean, in order: they differ for a time around which
        clocks went back. NotFound, InvalidArguments.
        """
        text = str(text).strip()
        if _is_named(text):
            seq = self._named(text)
            return seq, seq
        return self.log.around(_time(text))

    def _named(self, text: str) -> int:
        head = self.log.head()
        if text == "head":
            return head
        if _NUMBER.fullmatch(text):
            if int(text) > head:
                raise NotFound(
                    f"point {text} does not exist", hint=f"The log ends at {head} (`head`)."
                )
            return int(text)
        if back := _BACK.fullmatch(text):
            return self._calls_back(int(back[1]), head)
        if text.startswith("@"):
            for checkpoint in self.projections.checkpoints():
                if checkpoint.name == text[1:]:
                    return checkpoint.point
            raise NotFound(f"no checkpoint {text}", hint="`loom-audit checkpoint` lists them.")
        return self.projections.session(text.removeprefix("session:")).started

    def _calls_back(self, count: int, head: int) -> int:
        if count == 0:
            return head
        calls = self.projections.calls(CallFilter(limit=count + 1))
        numbers = sorted((call.seq for call in calls if call.seq), reverse=True)
        if len(numbers) > count:
            return numbers[count]
        if len(numbers) == count:
            return min(call.requested for call in calls) - 1
        raise NotFound(f"head~{count} does not exist", hint=f"There are {len(numbers)} calls.")

    # --- lists ----------------------------------------------------------------------------

    def sessions(self, *, before: int | None = None, limit: int = 100) -> Sequence[Session]:
        return self.projections.sessions(before=before, limit=limit)

    def session(self, id: str) -> Session:
        return self.projections.session(id)

    def calls(self, filter: CallFilter = CallFilter()) -> Sequence[Call]:
        return self.projections.calls(filter)

    def open_calls(self) -> Sequence[Call]:
        return self.projections.open_calls()

    def checkpoints(self) -> Sequence[Checkpoint]:
        return self.projections.checkpoints()

    def events(self, filter: EventFilter = EventFilter()) -> Iterator[Event]:
        return self.log.read(filter)

    # --- one call -------------------------------------------------------------------------

    def call(self, seq: int) -> CallDetail:
        """The call that the event `seq` belongs to. NotFound when it is not a call's event."""
        call = self.projections.call_at(seq)
        arguments: Any = None
        result: Any = None
        decision: CallDecided | None = None
        moves: list[Move] = []
        wanted = EventFilter(
            after=call.requested - 1,
            before=call.seq + 1 if call.seq else None,
            call_id=call.call_id,
        )
        found = [*self.log.read(wanted), *self._reports(call)]
        events = [event for event in found if event.session == call.session]
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
            call, arguments, result, decision, self.changes_of(call), tuple(moves), tuple(events)
        )

    def _reports(self, call: Call) -> Iterator[Event]:
        """What was reported about a call after its finish."""
        if call.seq is None:
            return iter(())
        session, kinds = call.session or None, (CallReported.kind,)
        return self.log.read(
            EventFilter(after=call.seq, kinds=kinds, session=session, call_id=call.call_id)
        )

    def call_of(self, recorded: RecordedChange) -> Call:
        """The call that a change is listed with. NotFound for a change without a call."""
        return self.projections.call(recorded.session, recorded.call_id or "")

    def changes_of(self, call: Call) -> tuple[FileChange, ...]:
        """The net effect of one call: per path its first before and its last after."""
        listed = self.projections.changes(after=call.requested, calls=(call.requested,))
        return net_changes(listed)

    # --- trees and files ------------------------------------------------------------------

    def tree(self, at: int | None = None) -> dict[str, FileState]:
        return self.projections.tree(at)

    def state(self, path: str, at: int | None = None) -> FileState | None:
        return self.projections.state(path, at)

    def content(self, state: FileState) -> bytes:
        """The bytes of a file or of a symlink's target. TooLarge when only the hash was kept."""
        if state.blob is None:
            raise InvalidArguments(
                "a directory does not have content", hint="`loom-audit ls` lists what was in it."
            )
        if state.blob not in self.blobs:
            raise TooLarge(
                "the content was over the limit and recorded by hash only",
                hint="`loom-audit init --max-file-bytes N` raises the limit for what comes later.",
                details={"sha256": state.blob, "size": state.size},
            )
        return self.blobs.get(state.blob)

    def history(
        self, path: str, *, below: bool = False, before: int | None = None, limit: int = 100
    ) -> Sequence[RecordedChange]:
        return self.projections.history(path, below=below, before=before, limit=limit)

    def diff(self, old: int, new: int) -> tuple[FileChange, ...]:
        """What differs between the trees of two points, in either order."""
        if old <= new and new - old < 5_000:
            return net_changes(self.projections.changes(after=old, until=new))
        return diff(self.tree(old), self.tree(new))


def _is_named(text: str) -> bool:
    """Whether a point is named otherwise than by a time."""
    return (
        text == "head"
        or text.startswith(("@", "session:"))
        or bool(_NUMBER.fullmatch(text) or _BACK.fullmatch(text))
    )


def net_changes(recorded: Iterator[RecordedChange]) -> tuple[FileChange, ...]:
    """Changes in log order, folded to one per path, without those that cancel out."""
    folded: dict[str, FileChange] = {}
    for one in recorded:
        first = folded.get(one.change.path)
        before = first.before if first else one.change.before
        folded[one.change.path] = FileChange(one.change.path, before, one.change.after)
    changed = (change for change in folded.values() if change.before != change.after)
    return tuple(sorted(changed, key=lambda change: change.path))


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidArguments(
            f"{text[:100]!r} is not a point",
            hint="A point is 42, head, head~3, an RFC 3339 time, @checkpoint or session:ID.",
        ) from None
