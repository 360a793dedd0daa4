"""One call as it is shown: what it was asked, what came of it, and which files it changed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from loom_audit.model.events import CallDecided, ChangesAttributed, Event
from loom_audit.model.files import FileChange, Move
from loom_audit.model.git.record import GitChanged
from loom_audit.model.git.ways import goes_back
from loom_audit.model.git_points import GitPoints
from loom_audit.model.records import Call, RecordedChange
from loom_audit.ports import EventFilter, EventLog


class CallDetail(Struct, frozen=True):
    """One call with its request, decision, result and net changes.

    `arguments`, `result` and `decision` are None where no event has them. `changes` are the net
    ones, one per path. `events` are the call's own, also what was reported about it after its
    finish. `recorded` are the changes that were folded to the net ones, as lists have them. `maybe`
    are changes that it may have made, listed with another call or as from outside.
    """

    call: Call
    arguments: Any
    result: Any
    decision: CallDecided | None
    changes: tuple[FileChange, ...]
    moves: tuple[Move, ...]
    events: tuple[Event, ...]
    recorded: tuple[RecordedChange, ...] = ()
    maybe: tuple[RecordedChange, ...] = ()
    taken_back_in_part: Mapping[str, int] = {}
    """The paths that were taken back though the call as a whole was not, and by which call each."""

    @property
    def shared(self) -> Mapping[str, tuple[int, ...]]:
        """The other calls that may have made its own changes, by path and by their requests.

        0 stands for somebody who is not on record. A path that surely is the call's is left out.
        """
        found: dict[str, tuple[int, ...]] = {}
        for one in self.recorded:
            others = {*found.get(one.change.path, ()), *one.causes} - {self.call.requested}
            if others:
                found[one.change.path] = tuple(sorted(others))
        return found

    @property
    def as_before(self) -> tuple[str, ...]:
        """The paths that the call changed and changed back, sorted."""
        changed = {change.path for change in self.changes}
        return tuple(sorted({one.change.path for one in self.recorded} - changed))

    @property
    def to_choose(self) -> tuple[str, ...]:
        """The paths that it may have changed, sorted: an undo takes them back only when chosen."""
        told = (path for fact in self.told_later for path in fact.paths)
        return tuple(sorted({*told, *(one.change.path for one in self.maybe)}))

    @property
    def git(self) -> tuple[GitChanged, ...]:
        """What changed of git by this call, or also by it."""
        facts = (event.fact for event in self.events)
        return tuple(fact for fact in facts if isinstance(fact, GitChanged))

    @property
    def told_later(self) -> tuple[ChangesAttributed, ...]:
        """What its client told later: changes it may have made that are on record as of others."""
        facts = (event.fact for event in self.events)
        return tuple(fact for fact in facts if isinstance(fact, ChangesAttributed))


def net_changes(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    """Changes in log order, folded to one per path; without the paths that are as they were."""
    folded: dict[str, FileChange] = {}
    for one in changes:
        first = folded.get(one.path)
        before = first.before if first else one.before
        folded[one.path] = FileChange(one.path, before, one.after)
    changed = (change for change in folded.values() if change.before != change.after)
    return tuple(sorted(changed, key=lambda change: change.path))


def git_now(log: EventLog) -> GitPoints:
    """The repositories as the log has them at its head. Corrupt."""
    points = GitPoints()
    points.follow(log.read(EventFilter(kinds=(GitChanged.kind,))))
    return points


def git_of(log: EventLog, calls: Sequence[Call]) -> Mapping[int, Sequence[GitChanged]]:
    """What some calls changed of git, or may have, by their requests. Corrupt."""
    found: dict[int, list[GitChanged]] = {}
    if not calls:
        return found
    named = {(call.session, call.call_id): call.requested for call in calls}
    listed = {call.requested for call in calls}
    window = EventFilter(
        after=min(call.requested for call in calls),
        before=max(call.seq or log.head() for call in calls) + 1,
        kinds=(GitChanged.kind,),
    )
    for event in log.read(window):
        if isinstance(event.fact, GitChanged) and event.fact.call_id is not None:
            own = named.get((event.session, event.fact.call_id), 0)
            for requested in {own, *event.fact.causes} & listed:
                found.setdefault(requested, []).append(event.fact)
    return found


def changed_git_alone(log: EventLog, call: Call, *, settings: bool = False) -> bool:
    """Whether a call, and no other, changed something of git that can be taken back, also where
    that is its `settings`. Corrupt.
    """
    told = git_of(log, [call]).get(call.requested, ())
    own = [
        one
        for one in told
        if goes_back(one, settings=settings) and {*one.causes} <= {call.requested}
    ]
    return bool(own) and not {one.folder for one in own} <= git_now(log).with_refs_elsewhere
