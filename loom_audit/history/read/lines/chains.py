"""The files that a set of calls changed, each with all its steps between two points.

Every event between the points is read and checked; nothing is taken from the tables.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.history.ground.proven_log import ProvenLog, changes_trees
from loom_audit.history.read.lines.descent import RELISTED, moved_from
from loom_audit.history.read.lines.recorded_steps import RecordedSteps
from loom_audit.model.authorship.call_set import CallSet
from loom_audit.model.authorship.net import FileSteps
from loom_audit.model.authorship.versions import Version, Writer, has_same_content
from loom_audit.model.continuity import leaving
from loom_audit.model.events import (
    CallFinished,
    CallRequested,
    ChangesAttributed,
    Event,
    FilesChanged,
    SessionStarted,
    TreeRelisted,
)
from loom_audit.model.files import FileChange, FileState, is_within

UNTRACKED = "it was not recorded for a while"
UNLIKE = "what was there before is not what was on record"

_KINDS = frozenset({ChangesAttributed.kind, SessionStarted.kind})


Before = Callable[[str], FileState | None]
"""Gives the state of a path at the point before."""


class _Between(Struct):
    """What the log has between two points."""

    events: list[Event] = field(default_factory=list)
    """The events by which the tree changed."""
    changed: list[tuple[Event, FilesChanged]] = field(default_factory=list)
    told: list[ChangesAttributed] = field(default_factory=list)
    calls: dict[tuple[str, str], int] = field(default_factory=dict)
    """The requests of the calls by session and id."""
    sessions: set[str] = field(default_factory=set)


def files_changed_by(
    proven: ProvenLog, steps: RecordedSteps, calls: CallSet, before: Before
) -> tuple[CallSet, list[FileSteps]]:
    """Return the files that the calls changed, or may have, with the set of calls itself.

    To the sessions of the set those within them are added that began between the points. Of calls
    of a session that began before, what they changed between the points counts. Corrupt.
    """
    between = _read(proven, steps, calls)
    if calls.sessions is not None:
        calls = replace(calls, sessions=frozenset(between.sessions))
    requests = {seq for (session, _), seq in between.calls.items() if calls.has(seq, session)}
    requests |= _begun_before(between, steps, calls)
    names = _names(between, calls, requests)
    chains = _Chains(steps, names, before)
    for event in sorted(between.events, key=lambda one: one.seq):
        chains.follow(event)
    return calls, [_file_steps(chain, calls, requests) for chain in chains.all() if chain]


def _read(proven: ProvenLog, steps: RecordedSteps, calls: CallSet) -> _Between:
    between = _Between(sessions=set(calls.sessions or ()))
    happened: set[int] = set()

    def wanted(envelope: Mapping[str, Any]) -> bool:
        # of a call its place is enough, and what it was given need not be read
        if envelope.get("kind") in (CallRequested.kind, CallFinished.kind):
            key = envelope.get("session", ""), envelope.get("call_id", "")
            seq = int(envelope["seq"])
            if envelope["kind"] == CallRequested.kind:
                between.calls[key] = seq
            elif key in between.calls:
                steps.lookup.know(key[0], key[1], between.calls[key], seq)
        return changes_trees(envelope) or envelope.get("kind") in _KINDS

    for event in proven.events(calls.after, calls.until, wanted):
        match event.fact:
            case FilesChanged() as fact:
                if fact.intention is None or fact.intention not in happened:
                    between.events.append(event)
                    between.changed.append((event, fact))
                happened |= {fact.intention} if fact.intention else set()
            case ChangesAttributed() as told:
                between.told.append(told)
            case SessionStarted(parent=parent) if calls.within and parent in between.sessions:
                between.sessions.add(event.session)
            case SessionStarted():
                continue
            case _:
                between.events.append(event)
    return between


def _begun_before(between: _Between, steps: RecordedSteps, calls: CallSet) -> set[int]:
    """The requests before the points of the calls that may have changed something between them."""
    if calls.requests is not None:
        return set()
    causes = {one for _, fact in between.changed for one in fact.causes if isinstance(one, int)}
    named = causes.union(told.call for told in between.told)
    earlier = (seq for seq in named if 0 < seq <= calls.after)
    return {seq for seq in earlier if calls.has(seq, steps.event(seq).session)}


def _names(between: _Between, calls: CallSet, requests: set[int]) -> set[str]:
    """The paths that these calls changed or may have changed, over the moves of their files."""
    anybody = calls.everyone or (calls.requests is None and calls.sessions is None)
    names: set[str] = set()
    for event, fact in between.changed:
        request = between.calls.get((event.session, fact.call_id or ""), 0)
        own = fact.call_id is not None and calls.has(request, event.session)
        if own or anybody or not requests.isdisjoint(one for one in fact.causes if one):
            names.update(change.path for change in fact.changes)
    for told in between.told:
        if told.call in requests:
            names.update(told.paths)
    moves = [(move.source, move.target) for _, fact in between.changed for move in fact.moves]
    while True:
        more = {end for pair in moves if not names.isdisjoint(pair) for end in pair} - names
        if not more:
            return names
        names |= more


class _Chains:
    """The steps of the files at some paths, as events follow each other."""

    def __init__(self, steps: RecordedSteps, names: set[str], before: Before) -> None:
        self._steps = steps
        self._names = names
        self._before = before
        self._at: dict[str, list[Version]] = {}
        self._ended: list[list[Version]] = []
        self._listed: set[str] = set()
        self._changed: set[str] = set()

    def all(self) -> Iterable[list[Version]]:
        """The steps of each file."""
        return [*self._ended, *self._at.values()]

    def follow(self, event: Event) -> None:
        """Go on with the next event by which the tree changed."""
        fact = event.fact
        if not isinstance(fact, FilesChanged):
            self._lose(event)
            return
        changes = [change for change in fact.changes if change.path in self._names]
        sources = {
            change.path: source
            for change in changes
            if (source := moved_from(fact.changes, fact.moves, change))
        }
        if not changes:
            return
        self._changed.update(change.path for change in changes)
        whose = self._steps.lookup.of(event, fact)
        moved = {source.path for source in sources.values()}
        now: dict[str, list[Version]] = {}
        replaced = {*sources}
        for change in changes:
            path = change.path
            source = sources.get(path, change)
            if source is change and path in moved and change.after is None:
                continue  # the file goes on at another path
            version = self._steps.version(whose, change, source.path, source.before)
            revived = self._revived(version) if source is change else None
            if revived or (source is change and path in moved):  # the file here is another one
                now[path] = [*(revived or ()), replace(version, before=None)]
                replaced.add(path)
                continue
            now[path] = [*self._at.get(source.path, ()), version]
            _join(now[path])
        for path in moved | replaced:
            gone = self._at.pop(path, [])
            if path in moved:
                continue
            # what was at the path to which another file came
            change = next(change for change in changes if change.path == path)
            if gone or change.before is not None:
                last = self._steps.version(whose, change, path, change.before)
                self._ended.append([*gone, replace(last, after=None)])
        self._at.update(now)

    def _revived(self, version: Version) -> list[Version] | None:
        """The steps of the file that an undo brought back to where another had come."""
        for n, steps in enumerate(self._ended) if version.taken_back else ():
            last = steps[-1]
            if last.path == version.path and has_same_content(last.before, version.after):
                return self._ended.pop(n)
        return None

    def _lose(self, event: Event) -> None:
        fact = event.fact
        if isinstance(fact, TreeRelisted):
            self._listed |= {change.path for change in fact.changes}
            for change in fact.changes:
                if change.path in self._names:
                    self._gap(event, change, RELISTED)
            if fact.last:
                for path in self._at.keys() - self._listed:
                    self._gap(event, FileChange(path, None, None), RELISTED)
                self._listed.clear()
        lost = leaving(fact)
        for path in sorted(self._names) if lost else ():
            if is_within(path, lost):
                self._gap(event, FileChange(path, None, None), UNTRACKED)

    def _gap(self, event: Event, change: FileChange, why: str) -> None:
        path = change.path
        steps = self._at.get(path, [])
        known = steps or path in self._changed  # what was there may be at another path since
        was = steps[-1].after if steps else None if known else self._before(path)
        if not steps and was is None:
            return
        writer = Writer("unknown", event.seq, event.at, reason=why)
        version = Version(event.seq, path, change.after, path, was, writer, gap=why)
        self._at[path] = [*steps, version]


def _join(steps: list[Version]) -> None:
    """Say of the last step where it does not follow from the one before it."""
    if len(steps) < 2 or steps[-2].after == steps[-1].before:
        return
    was, last = steps[-2].after, steps[-1]
    same = was is not None and last.after is not None and was.blob == last.after.blob
    steps[-1] = replace(last, before=was) if same else replace(last, gap=last.gap or UNLIKE)


def _file_steps(chain: Sequence[Version], calls: CallSet, requests: set[int]) -> FileSteps:
    numbered = [*enumerate(chain)]
    if calls.everyone:
        own, shared = frozenset(range(len(chain))), frozenset[int]()
    else:
        own = frozenset(
            n
            for n, one in numbered
            if (one.writer.kind == "call" and calls.has(one.requested or 0, one.writer.session))
            or _is_of_some(one, requests)
        )
        maybe = (n for n, one in numbered if not requests.isdisjoint(one.candidates))
        shared = frozenset(maybe) - own
    return FileSteps(tuple(chain), -1, own, shared, calls.everyone)


def _is_of_some(step: Version, requests: set[int]) -> bool:
    """Whether it is one of these calls that made a step, whichever of them it is."""
    candidates = step.candidates
    return bool(candidates) and not step.writer.outside and requests.issuperset(candidates)
