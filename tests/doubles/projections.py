"""Projections computed from the whole log at every question: slow, and easy to believe."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from loom_audit.errors import NotFound
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.conversation import MessageReceived, PromptSubmitted, Role
from loom_audit.model.coverage import FULL, NOT_FAILED
from loom_audit.model.events import (
    CallFinished,
    CallReported,
    CallRequested,
    CheckpointMarked,
    CoverageLowered,
    Event,
    FilesChanged,
    PathsUntracked,
    ScopeAccepted,
    SessionEnded,
    SessionStarted,
    TreeRelisted,
    WorkspaceAttached,
)
from loom_audit.model.files import FileChange, FileState, apply, parents
from loom_audit.model.plans.taking_back.taken_back import TakenBack, TakingBack
from loom_audit.model.records import (
    Call,
    Checkpoint,
    FoundKind,
    FoundPlace,
    FoundPlaces,
    OutsideChange,
    RecordedChange,
    Session,
    Spoken,
    Tally,
)
from loom_audit.model.scope import Scope
from loom_audit.model.text.naming import Typed, choose_reading, read_typed
from loom_audit.model.text.summaries import plain_text
from loom_audit.ports import CallFilter, EventFilter, EventLog, WordsFilter

_LISTED = 20


class MemoryProjections:
    """What a log says, folded anew each time."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def sessions(
        self, *, before: int | None = None, limit: int = 100, outermost: bool = False
    ) -> Sequence[Session]:
        known = self._sessions()
        found = sorted(known.values(), key=lambda s: s.started, reverse=True)
        if outermost:
            found = [s for s in found if not s.parent or s.parent not in known]
        return [s for s in found if before is None or s.started < before][:limit]

    def session(self, id: str) -> Session:
        found = self._sessions().get(id)
        if found is None:
            raise NotFound(f"There is no session {id}")
        return found

    def open_sessions(self) -> Sequence[Session]:
        return [session for session in self._sessions().values() if session.ended is None]

    def sessions_within(self, session: str) -> Sequence[Session]:
        whole = self._sessions().get(session)
        found = [one for one in self._sessions().values() if whole and one.parent == session]
        return sorted(
            (one for one in found if whole and one.started > whole.started),
            key=lambda one: one.started,
        )

    def spoken(
        self,
        session: str,
        *,
        roles: Sequence[Role] = (),
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> Sequence[Spoken]:
        found = []
        for event in self._log.read(EventFilter(after=after, before=before, session=session)):
            if isinstance(event.fact, PromptSubmitted):
                found.append(Spoken(event.seq, "prompt"))
            elif isinstance(event.fact, MessageReceived):
                found.append(Spoken(event.seq, event.fact.role))
        found = [one for one in found if not roles or one.role in roles]
        return (found[::-1] if newest_first else found)[:limit]

    def scope(self) -> Scope:
        scope = Scope()
        for event in self._log.read():
            if isinstance(event.fact, WorkspaceAttached):
                scope = Scope(event.fact.ignore, event.fact.max_file_bytes)
            elif isinstance(event.fact, ScopeAccepted):
                scope = replace(scope, ignore=event.fact.ignore)
        return scope

    def calls(self, filter: CallFilter = CallFilter()) -> Sequence[Call]:
        typed = None if filter.typed is None else self._reading(filter.typed)
        found = [
            call
            for call in self._calls()
            if _matches(call, filter, self._paths(call))
            and (filter.words is None or self._says(call, filter.words))
            and (typed is None or self._meant_by(call, typed))
        ]
        found.sort(key=lambda call: call.requested, reverse=filter.newest_first)
        return found[: filter.limit]

    def call_at(self, seq: int) -> Call:
        for event in self._log.read():
            call_id = getattr(event.fact, "call_id", None)
            if event.seq == seq and call_id is not None:
                return self.call(event.session, call_id)
        raise NotFound(f"Event {seq} belongs to no call")

    def call(self, session: str, call_id: str) -> Call:
        for call in self._calls():
            if (call.session, call.call_id) == (session, call_id):
                return call
        raise NotFound(f"There is no call {call_id} in session {session}")

    def open_calls(self) -> Sequence[Call]:
        return [call for call in self._calls() if call.seq is None]

    def changes(
        self,
        *,
        after: int = 0,
        until: int | None = None,
        paths: Iterable[str] | None = None,
        calls: Iterable[int] | None = None,
    ) -> Iterator[RecordedChange]:
        named = None if paths is None else set(paths)
        asked = None if calls is None else set(calls)
        for change in self._changes():
            if (
                change.seq > after
                and (until is None or change.seq <= until)
                and (named is None or change.change.path in named)
                and (asked is None or asked & {change.requested, *change.causes})
            ):
                yield change

    def history(
        self, path: str, *, below: bool = False, before: int | None = None, limit: int = 100
    ) -> Sequence[RecordedChange]:
        found = [
            change
            for change in self._changes()
            if _is_at(change.change.path, path, below) and (before is None or change.seq < before)
        ]
        return found[::-1][:limit]

    def tree(self, at: int | None = None) -> dict[str, FileState]:
        return self._tree_and_untracked(at)[0]

    def untracked(self, at: int | None = None) -> set[str]:
        return self._tree_and_untracked(at)[1]

    def _tree_and_untracked(self, at: int | None) -> tuple[dict[str, FileState], set[str]]:
        if at is not None and not 0 <= at <= self._log.head():
            raise NotFound(f"There is no event {at}")
        tree: dict[str, FileState] = {}
        marks: set[str] = set()
        listed: list[FileChange] = []
        for event in self._log.read():
            fact = event.fact
            gone: list[str] = []
            if at is not None and event.seq > at:
                break
            if isinstance(fact, FilesChanged):
                tree = apply(tree, fact.changes)
                marks -= {one.path for one in fact.changes}
                opaque = [p for p, state in tree.items() if state.kind == "opaque"]
                tree = {p: s for p, s in tree.items() if not set(parents(p)) & set(opaque)}
                marks = {p for p in marks if not set(parents(p)) & set(opaque)}
            elif isinstance(fact, PathsUntracked) and not fact.kept:
                gone = [one.path for one in fact.paths]
            elif isinstance(fact, ScopeAccepted):
                gone = [*fact.untracked]
            elif isinstance(fact, TreeRelisted):
                listed = [*(listed if fact.part > 1 else []), *fact.changes]
                if fact.last:
                    tree, marks = apply({}, listed), {one.path for one in fact.untracked}
            tree = {p: s for p, s in tree.items() if not {p, *parents(p)} & set(gone)}
            marks = {p for p in marks if not {p, *parents(p)} & set(gone)} | set(gone)
        return tree, marks

    def state(self, path: str, at: int | None = None) -> FileState | None:
        return self.tree(at).get(path)

    def tree_since(self, point: int, paths: Collection[str]) -> dict[str, FileState | None]:
        then, now = (self.tree(point) if point else {}), self.tree()
        unlike = {path for path in then.keys() | now.keys() if then.get(path) != now.get(path)}
        return {path: now.get(path) for path in unlike.union(paths)}

    def followed(self) -> int:
        return self._log.head()

    def keyframes(self, at: int) -> Sequence[int]:
        return []

    def keyframe(self, point: int) -> tuple[dict[str, FileState], set[str]]:
        raise NotFound(f"There is no keyframe of event {point}")

    def checkpoints(self) -> Sequence[Checkpoint]:
        found: dict[str, Checkpoint] = {}
        for event in reversed(list(self._log.read())):
            fact = event.fact
            if isinstance(fact, CheckpointMarked) and fact.name not in found:
                found[fact.name] = Checkpoint(fact.name, fact.point, event.seq, event.at, fact.note)
        return list(found.values())

    def actors(self, numbers: Collection[int]) -> Mapping[int, str]:
        ended = [one for one in self.calls(CallFilter(limit=None)) if one.seq in numbers]
        return {one.seq: one.actor for one in ended if one.seq}

    def taken_back(self, of: Collection[int] | None = None) -> TakenBack:
        doings: list[TakingBack] = []
        for event in self._log.read():
            fact = event.fact
            if isinstance(fact, CallFinished) and fact.status == "ok":
                said = fact.result.get("in_part", {}) if isinstance(fact.result, dict) else {}
                for target in {*fact.reverts, *map(int, said)}:
                    paths = frozenset(said[str(target)]) if str(target) in said else None
                    doings.append(TakingBack(event.seq, target, target in fact.reverts, paths))
        return TakenBack(doings) if of is None else TakenBack(doings).concerning(of)

    def lowered(self, number: int) -> Sequence[int]:
        found = []
        for event in self._log.read(EventFilter(after=number)):
            if isinstance(event.fact, CoverageLowered) and event.fact.coverage.reasons:
                found += [event.seq] * (number in event.fact.calls)
        return found

    # --- the fold -------------------------------------------------------------------------

    def _changes(self) -> Iterator[RecordedChange]:
        numbers = {
            (event.session, event.fact.call_id): event.seq
            for event in self._log.read()
            if isinstance(event.fact, CallFinished)
        }
        for event in self._log.read():
            fact = event.fact
            if isinstance(fact, FilesChanged):
                own = self._meant(event, fact.call_id, other=False) if fact.call_id else None
                causes = self._causes(event, fact, own)
                for change in fact.changes:
                    yield RecordedChange(
                        event.seq,
                        event.at,
                        event.session,
                        event.actor,
                        fact.origin,
                        fact.call_id,
                        causes,
                        change,
                        numbers.get((event.session, fact.call_id or "")),
                        own,
                    )

    def _causes(self, event: Event, fact: FilesChanged, own: int | None) -> tuple[int, ...]:
        """The requests of the calls that are named by them, or by their ids."""
        ids = [cause for cause in fact.causes if isinstance(cause, str)]
        if not ids:
            return tuple(cause for cause in fact.causes if isinstance(cause, int))
        others = {self._meant(event, id) for id in ids if id != fact.call_id} - {None}
        known = [*([own] if own else []), *sorted(seq for seq in others if seq)]
        return (*known, *[0] * (len(ids) - len(known)))

    def _meant(self, event: Event, call_id: str, *, other: bool = True) -> int | None:
        """The newest request of this id before the event: of its session, or else of another."""
        found = [
            (asked.session == event.session, asked.seq)
            for asked in self._log.read()
            if asked.seq < event.seq
            and isinstance(asked.fact, CallRequested)
            and asked.fact.call_id == call_id
            and (other or asked.session == event.session)
        ]
        return max(found)[1] if found else None

    def _paths(self, call: Call) -> list[str]:
        own = (
            change.change.path
            for change in self._changes()
            if (change.session, change.call_id) == (call.session, call.call_id)
        )
        return list(dict.fromkeys(own))

    def tally(self, after: int, since: datetime) -> Tally:
        calls = [one for one in self._calls() if one.requested > after and one.at >= since]
        ended = [one for one in calls if one.seq is not None]
        outside = self.outside(after=after, limit=1_000_000)
        counts = (
            sum(one.status not in NOT_FAILED for one in ended),
            sum(one.status == "denied" for one in ended),
            sum(one.coverage.level != "full" for one in calls),
            sum(one.at >= since and one.actor == OUTSIDE for one in outside),
        )
        return Tally(*(min(count, 1_001) for count in counts))

    def index_words(self, most: int | None = None) -> int:
        return self._log.head()

    def places(self, wanted: WordsFilter) -> FoundPlaces:
        found = [
            FoundPlace(
                seq=call.seq or call.requested,
                kind="call",
                session=call.session,
                actor=call.actor,
                requested=call.requested,
                tool=call.tool,
                status=call.status,
            )
            for call in self._calls()
            if self._says(call, wanted.words)
        ]
        for event in self._log.read():
            kind: FoundKind = "prompt" if isinstance(event.fact, PromptSubmitted) else "message"
            said = isinstance(event.fact, PromptSubmitted | MessageReceived) and event.fact.text
            if said and _says(said, wanted.words):
                found.append(FoundPlace(event.seq, kind, event.session, event.actor))
        for change in self.outside(limit=1_000_000):
            if _says(" ".join(change.paths), wanted.words):
                found.append(FoundPlace(change.seq, "outside", "", "outside"))
        failed = ("", "open", "ok", "running", "unknown")
        found = [
            one
            for one in sorted(found, key=lambda one: one.seq, reverse=True)
            if (wanted.before is None or one.seq < wanted.before)
            and wanted.kind in (None, one.kind)
            and wanted.tool in (None, one.tool)
            and (
                wanted.status in (None, one.status)
                or (wanted.status == "failed" and one.status not in failed)
            )
            and wanted.actor in (None, one.actor)
            and wanted.session in (None, one.session)
        ]
        some = tuple(found[: wanted.limit])
        return FoundPlaces(some, some[-1].seq if len(some) < len(found) else None)

    def _says(self, call: Call, words: str) -> bool:
        said = [call.tool, *self._paths(call)]
        for event in self._log.read():
            if (event.session, getattr(event.fact, "call_id", None)) == (
                call.session,
                call.call_id,
            ):
                said += [*_texts(getattr(event.fact, "arguments", None))]
                said += [*_texts(getattr(event.fact, "result", None))]
        return _says(" ".join(said), words)

    def ends(
        self, paths: Sequence[str], after: int
    ) -> Mapping[str, tuple[RecordedChange, RecordedChange]]:
        found: dict[str, tuple[RecordedChange, RecordedChange]] = {}
        for one in self.changes(after=after, paths=paths):
            first = found[one.change.path][0] if one.change.path in found else one
            found[one.change.path] = first, one
        return found

    def outside(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        typed: str | None = None,
        limit: int = 100,
    ) -> Sequence[OutsideChange]:
        found: dict[int, list[RecordedChange]] = {}
        for one in self._changes():
            if (one.session, one.origin) == ("", "outside") and one.seq > after:
                found.setdefault(one.seq, []).append(one)
        listed = []
        for seq, some in sorted(found.items(), reverse=True):
            names = [one.change.path for one in some]
            if typed is not None:
                reading = self._reading(typed)
                if not any(map(reading.finds, names)):
                    continue
                names.sort(key=lambda path: not reading.finds(path))
            if before is None or seq < before:
                one, paths = some[0], tuple(names[:_LISTED])
                listed.append(OutsideChange(seq, one.at, one.actor, paths, len(some)))
        return listed[:limit]

    def _reading(self, text: str) -> Typed:
        said = [plain_text(call.summary) for call in self._calls()]

        def named(typed: Typed) -> bool:
            return any(map(typed.finds_in, said))

        paths = {one.change.path for one in self._changes()}
        return choose_reading(read_typed(text), paths, named)

    def _meant_by(self, call: Call, typed: Typed) -> bool:
        return any(map(typed.finds, self._paths(call))) or typed.finds_in(plain_text(call.summary))

    def _calls(self) -> list[Call]:
        found: dict[tuple[str, str], Call] = {}
        back = self.taken_back()
        told = set[int]()
        for event in self._log.read():
            fact = event.fact
            if isinstance(fact, CallRequested):
                found[event.session, fact.call_id] = _requested(event, fact)
            elif isinstance(fact, CallFinished):
                call = found[event.session, fact.call_id]
                found[event.session, fact.call_id] = replace(
                    call,
                    seq=event.seq,
                    status=fact.status,
                    coverage=fact.coverage,
                    error=_failure(fact),
                    reverts=fact.reverts,
                    duration=fact.duration,
                    sandbox=fact.sandbox,
                )
            elif isinstance(fact, CallReported) and fact.replaces is not None:
                for key, call in found.items():
                    if call.seq == fact.replaces and call.seq not in told:
                        told.add(call.seq)
                        found[key] = replace(call, status=fact.status, error=_failure(fact))
            elif isinstance(fact, CoverageLowered):
                for key, call in found.items():
                    if call.seq in fact.calls:
                        reasons, level = fact.coverage.reasons, fact.coverage.level
                        lowered = call.coverage.lowered(*reasons, level=level)
                        found[key] = replace(call, coverage=lowered)
        calls = []
        for call in found.values():
            paths = self._paths(call)
            undone = back.of(call.seq or 0, paths)
            call = replace(call, undone_by=undone.whole)
            call = replace(call, undone_in_part_by=tuple(sorted({*undone.paths.values()})))
            calls.append(replace(call, paths=tuple(paths[:_LISTED]), changed=len(paths)))
        return sorted(calls, key=lambda call: call.requested)

    def _sessions(self) -> dict[str, Session]:
        found: dict[str, Session] = {}
        touched: dict[str, set[str]] = {}
        for event in self._log.read():
            if not event.session:
                continue
            session = found.get(event.session) or Session(
                event.session, "", event.actor, "", event.seq, event.at, None, None, "open", 0, 0, 0
            )
            found[event.session] = _after(session, event, touched)
        return found


def _requested(event: Event, fact: CallRequested) -> Call:
    return Call(
        call_id=fact.call_id,
        seq=None,
        requested=event.seq,
        at=event.at,
        session=event.session,
        actor=event.actor,
        tool=fact.tool,
        effect=fact.effect,
        status="open",
        coverage=FULL,
        summary=_summary(fact.arguments),
        error="",
        paths=(),
        changed=0,
        reverts=(),
        duration=0,
        within=fact.within,
    )


def _summary(arguments: Any) -> str:
    """The plain cases only; what summaries say of others is tested with the real ones."""
    if isinstance(arguments, dict):
        for name in ("command", "path"):
            if isinstance(arguments.get(name), str):
                return str(arguments[name])
    return ""


def _failure(fact: CallFinished | CallReported) -> str:
    error = fact.result.get("error") if isinstance(fact.result, dict) else None
    if fact.status == "ok" or error is None:
        return ""
    return str(error["message"]) if isinstance(error, dict) else str(error)


def _after(session: Session, event: Event, touched: dict[str, set[str]]) -> Session:
    fact = event.fact
    if isinstance(fact, SessionStarted):
        again = replace(session, ended=None, ended_at=None, status="open")
        return replace(again, agent=fact.agent, title=fact.title, parent=fact.parent)
    if isinstance(fact, SessionEnded):
        return replace(session, ended=event.seq, ended_at=event.at, status=fact.status)
    if isinstance(fact, CallRequested):
        return replace(session, calls=session.calls + 1)
    if isinstance(fact, CallFinished) and fact.status not in ("ok", "running", "unknown"):
        return replace(session, errors=session.errors + 1)
    if isinstance(fact, CallReported) and fact.replaces is not None:
        failed = [one not in ("ok", "running", "unknown") for one in (fact.status, fact.inferred)]
        return replace(session, errors=session.errors + failed[0] - failed[1])
    if isinstance(fact, FilesChanged) and fact.call_id is not None:
        paths = touched.setdefault(session.id, set())
        paths.update(change.path for change in fact.changes)
        return replace(session, files=len(paths))
    return session


def _says(text: str, words: str) -> bool:
    tokens = _tokens(text)
    *whole, begun = _tokens(words) or [""]
    return (
        bool(begun)
        and all(word in tokens for word in whole)
        and any(token.startswith(begun) for token in tokens)
    )


def _tokens(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif value is not None:
        yield str(value)


def _is_at(path: str, place: str, below: bool) -> bool:
    return path == place or (below and (not place or path.startswith(place + "/")))


def _matches(call: Call, filter: CallFilter, paths: Sequence[str]) -> bool:
    return (
        call.requested > filter.after
        and (filter.before is None or call.requested < filter.before)
        and (filter.session is None or call.session == filter.session)
        and (filter.tool is None or call.tool == filter.tool)
        and (filter.actor is None or call.actor == filter.actor)
        and (filter.status is None or call.status == filter.status)
        and (filter.since is None or call.at >= filter.since)
        and (filter.until is None or call.at <= filter.until)
        and (filter.ended_after is None or (call.seq or 0) > filter.ended_after)
        and (not filter.changed_only or call.changed > 0)
        and (not filter.failed_only or (call.seq is not None and call.status not in NOT_FAILED))
        and (not filter.partial_only or call.coverage.level != "full")
        and (filter.only is None or call.requested in filter.only)
        and (filter.numbers is None or call.seq in filter.numbers)
        and (filter.path is None or any(_is_at(path, filter.path, True) for path in paths))
    )
