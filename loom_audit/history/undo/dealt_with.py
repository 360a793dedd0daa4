"""Which changes of the calls that are to be taken back leave nothing to do: they are already."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct, field

from loom_audit.history.ground.attachment import StoredLog
from loom_audit.history.read.timeline import Timeline
from loom_audit.history.undo.limits import MovedSince, is_below_any
from loom_audit.model.plans.taking_back.taken_back import TakenBack
from loom_audit.model.records import RecordedChange
from loom_audit.ports import CallFilter


class DealtWith(Struct, frozen=True):
    """What is taken back already: by the numbers of calls and events the call that did so, and the
    number and the path of each change.

    `overtaken` are those of changes which took back what stays taken back without them.
    """

    calls: Mapping[int, int] = field(default_factory=dict)
    paths: frozenset[tuple[int, str]] = frozenset()
    overtaken: frozenset[tuple[int, str]] = frozenset()

    def without(self, paths: Collection[str]) -> "DealtWith":
        """What is taken back already, without the changes of some paths."""
        some = (self.paths, self.overtaken)
        left = [frozenset(one for one in changes if one[1] not in paths) for changes in some]
        return DealtWith(self.calls, *left)


def dealt_with(
    stored: StoredLog,
    timeline: Timeline,
    back: TakenBack,
    changes: Iterable[RecordedChange],
    numbers: Collection[int] = (),
    within: Sequence[str] = (),
) -> DealtWith:
    """What is taken back already of these changes, by calls that are not to be taken back now.

    To be taken back are the calls and events that made the changes, and those with these numbers;
    of all only the changes `within` some paths, where there are any. A change that a call left as
    it was which took back all of its call can be taken back again.
    """
    changed: dict[int, set[str]] = {}
    for one in changes:
        number = one.number if one.call_id else one.seq
        if number is not None:
            changed.setdefault(number, set()).add(one.change.path)
    taken = {*changed, *numbers}
    before = Before(stored, timeline, back.concerning(back.below(taken)), changed, taken, within)
    calls = {number: before.all.without(taken).of(number, own) for number, own in changed.items()}
    each = [(number, path) for number, own in changed.items() for path in own]
    paths = frozenset(one for one in each if before.is_taken_back(*one))
    return DealtWith(
        {number: by.whole for number, by in calls.items() if by.whole is not None},
        paths,
        frozenset(one for one in each if one not in paths and before.is_overtaken(*one)),
    )


def dealt_with_elsewhere(
    back: TakenBack, changes: Iterable[RecordedChange], within: Sequence[str], since: int
) -> DealtWith:
    """What is taken back already of changes after a point that lie beyond the paths of a rollback.

    Not by a call of which the rollback takes back all that is left: it is taken back as a whole,
    and what it took back beyond these paths is not by it any more.
    """
    own: dict[int, set[str]] = {}
    beyond: dict[int, set[str]] = {}
    for one in changes if within else ():
        if one.number is not None:
            there = own if is_below_any(within, one.change.path) else beyond
            if there is beyond or (one.requested or 0) > since:
                there.setdefault(one.number, set()).add(one.change.path)
    took = {one.number for one in back.doings}
    whole, stays, found = set[int](), back, set[tuple[int, str]]()
    for number in sorted({*own, *beyond}, reverse=True):
        left = {path for path in beyond.get(number, ()) if number not in stays.at(path)}
        found.update((number, path) for path in beyond.get(number, set()) - left)
        if number in own and number in took and not left:
            whole.add(number)
            stays = back.without(whole)
    return DealtWith(paths=frozenset(found))


class Before:
    """What was taken back before: all, and at a path what is without the calls taken back now."""

    def __init__(
        self,
        stored: StoredLog,
        timeline: Timeline,
        back: TakenBack,
        changed: Mapping[int, Collection[str]],
        taken: Collection[int],
        within: Sequence[str],
    ) -> None:
        self.all = back
        self._timeline = timeline
        self._changed = changed
        self._taken = frozenset(taken)
        self._within = within
        self._on_record = ChangedPaths(stored)
        self._without: dict[frozenset[int], TakenBack] = {}

    @cached_property
    def _moved(self) -> MovedSince:
        oldest = min(self.all.below(self._taken), default=0)
        self._on_record.paths(oldest)  # all that is asked for later lies in what is read for this
        return MovedSince(self._timeline, oldest)

    def stays(self, path: str) -> TakenBack:
        """What is taken back at a path without the calls that are taken back there."""
        taken = self._taken
        if not is_below_any(self._within, path):
            taken = frozenset()
        elif self._within:
            names = self._moved.all_names((path,))
            taken = frozenset(n for n in taken if not names.isdisjoint(self._changed.get(n, ())))
        if taken not in self._without:
            self._without[taken] = self.all.without(taken)
        return self._without[taken]

    def is_taken_back(self, number: int, path: str) -> bool:
        """Whether a call is taken back at a path already, and the path was changed for it.

        It need not have been where all that was in effect there before the call that did so, was
        after it, too.
        """
        stays = self.stays(path)
        by = stays.at(path).get(number)
        if by is None:
            return False
        if stays.names(by, number) or path in self._on_record.paths(by):
            return True
        return self._made_no_difference(by, number, path) or self.is_overtaken(number, path)

    def _made_no_difference(self, by: int, number: int, path: str) -> bool:
        """Whether a call by which this one is taken back left in effect at a path what had been.

        Of what this one did there: it, or what it took back, and so on.
        """
        before, after = self.all.before(by), self.all.before(by + 1)
        took = {one.number for one in after.doings}
        names = self._moved.names(path, number)
        each = [(n, name) for n in self.all.below((number,)) - took for name in self._at(n, names)]
        return bool(each) and all((n in before.at(at)) == (n in after.at(at)) for n, at in each)

    def is_overtaken(self, number: int, path: str) -> bool:
        """Whether all that a call took back at a path stays taken back without it, by others.

        What was taken back before it, and was there all the same, it alone took from there.
        """
        targets, stays = self.all.targets(number, path), self.stays(path)
        if stays.never_took(targets):
            return False
        names = self._moved.names(path, number)
        there = [(target, name) for target in targets for name in self._at(target, names)]
        before = self.all.before(number)
        return bool(there) and all(
            target in stays.at(name) and target not in before.at(name) for target, name in there
        )

    def _at(self, target: int, names: Collection[str]) -> Collection[str]:
        """At which names of a file a call changed it, or else those did that it took back."""
        found = {target}
        for one in sorted(self.all.below(found), reverse=True):
            if one in found:
                if there := self._on_record.paths(one).intersection(names):
                    return there
                found.update(t for name in names for t in self.all.targets(one, name))
        return ()


class ChangedPaths:
    """Which paths calls and events changed, read from the log as they are asked for."""

    def __init__(self, stored: StoredLog) -> None:
        self._stored = stored
        self._known: dict[int, frozenset[str]] = {}

    def paths(self, number: int) -> frozenset[str]:
        """The paths that the call with a number changed, or the event of no call. Corrupt."""
        return self.of_each([number])[number]

    def of_each(self, numbers: Collection[int]) -> Mapping[int, frozenset[str]]:
        """The paths that each of these changed, in one reading of the log. Corrupt."""
        for number, changes in changes_by(self._stored, {*numbers} - self._known.keys()).items():
            self._known[number] = frozenset(one.change.path for one in changes)
        return {number: self._known[number] for number in sorted(numbers)}


def changes_by(
    stored: StoredLog, numbers: Collection[int]
) -> Mapping[int, Sequence[RecordedChange]]:
    """The changes of the calls with these numbers, and of the events of no call. Corrupt."""
    found: dict[int, list[RecordedChange]] = {number: [] for number in sorted(numbers)}
    if not found:
        return found
    calls = stored.tables.calls(CallFilter(numbers=tuple(found), limit=None))
    ended = {call.seq for call in calls}
    if calls:
        for one in stored.reading.changes(calls=[call.requested for call in calls]):
            if one.number in ended:
                found[one.number or 0].append(one)
    if events := found.keys() - ended:
        for one in stored.reading.changes(after=min(events) - 1, until=max(events)):
            if one.seq in events:
                found[one.seq].append(one)
    return found


def changes_before(
    stored: StoredLog,
    timeline: Timeline,
    back: TakenBack,
    changes: Sequence[RecordedChange],
    paths: Collection[str],
) -> Sequence[RecordedChange]:
    """The changes before these of the files at some paths, from the first on of a call which one of
    these took back.

    Without them it is not known what took others back leaves there. Corrupt.
    """
    took = {one.number for one in back.doings}
    first = begin = min((one.seq for one in changes), default=0)
    found: Sequence[RecordedChange] = ()
    while took and changes:
        names = MovedSince(timeline, begin - 1).all_names(paths)
        there = {one.number for one in (*found, *changes) if one.change.path in names}
        older = tuple(sorted(n for n in back.below(took & there) if n < begin))
        calls = stored.reading.calls(CallFilter(numbers=older, limit=None)) if older else ()
        targets = stored.reading.changes(calls=[call.requested for call in calls]) if calls else ()
        earliest = min((one.seq for one in targets), default=begin)
        if earliest >= begin:
            break
        begin = earliest
        names = MovedSince(timeline, begin - 1).all_names(paths)
        found = [*stored.reading.changes(after=begin - 1, until=first - 1, paths=names)]
    return found


def paths_reached(changed: ChangedPaths, back: TakenBack, number: int) -> Collection[str]:
    """The paths at which a call changed something, or what it took back did. Corrupt."""
    reached = dict[int, frozenset[str]]()
    paths = changed.of_each(back.below((number,)))
    for one, own in paths.items():  # each took back older ones
        took = back.took(one)
        below = (path for each in took for path in reached[each.target] if each.covers(path))
        reached[one] = own.union(below)
    return reached[number]
