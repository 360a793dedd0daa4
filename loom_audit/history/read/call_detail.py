"""One call as it is shown: what it was asked, what came of it, and which files it changed."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from loom_audit.model.events import CallDecided, ChangesAttributed, Event
from loom_audit.model.files import FileChange, Move
from loom_audit.model.records import Call, RecordedChange


class CallDetail(Struct, frozen=True):
    """One call with its request, decision, result and net changes.

    `events` are its own, also what was reported about it after its finish. `recorded` are the
    changes of which the net ones are made, at the paths that lists have; `maybe` are those that it
    may have made, on record as another call's or as from outside.
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

    @property
    def shared(self) -> Mapping[str, tuple[int, ...]]:
        """Which of its own changes are only maybe so: by path the others that may have made it.

        By their requests; 0 is somebody whom nobody saw.
        """
        found: dict[str, tuple[int, ...]] = {}
        for one in self.recorded:
            others = {*found.get(one.change.path, ()), *one.causes} - {self.call.requested}
            if others:
                found[one.change.path] = tuple(sorted(others))
        return found

    @property
    def as_before(self) -> tuple[str, ...]:
        """The paths that it changed and left as they had been."""
        changed = {change.path for change in self.changes}
        return tuple(sorted({one.change.path for one in self.recorded} - changed))

    @property
    def to_choose(self) -> tuple[str, ...]:
        """The paths that only a choice takes back with it: it may have changed them."""
        told = (path for fact in self.told_later for path in fact.paths)
        return tuple(sorted({*told, *(one.change.path for one in self.maybe)}))

    @property
    def told_later(self) -> tuple[ChangesAttributed, ...]:
        """Which changes that are on record otherwise it may have made, as was told later."""
        facts = (event.fact for event in self.events)
        return tuple(fact for fact in facts if isinstance(fact, ChangesAttributed))


def net_changes(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    """Changes in log order, folded to one per path, without those that cancel out."""
    folded: dict[str, FileChange] = {}
    for one in changes:
        first = folded.get(one.path)
        before = first.before if first else one.before
        folded[one.path] = FileChange(one.path, before, one.after)
    changed = (change for change in folded.values() if change.before != change.after)
    return tuple(sorted(changed, key=lambda change: change.path))
