"""What the log itself has of a session and of those within it, read once from their events.

The tables suggest where these sessions begin and end, and what came of their calls later. All that
is given is made of events, each of which was checked, and of the stretch that is read none is
missing. Corrupt names the event where the tables hide a session, or say that there is one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.history.read.call_lookup import CallLookup
from loom_audit.history.read.flagged import command_in
from loom_audit.history.read.verified import (
    NEAR,
    VerifiedReading,
    has_fact,
    listed_error,
    may_take_back,
)
from loom_audit.model.calls import LISTED_PATHS, CallFold
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.coverage import NOT_FAILED
from loom_audit.model.events import (
    CallDecided,
    CallFinished,
    CallReported,
    CallRequested,
    CoverageLowered,
    Event,
    FilesChanged,
    SessionEnded,
    SessionStarted,
)
from loom_audit.model.git.record import GitChanged
from loom_audit.model.records import Call, OutsideChange, RecordedChange, Session, Spoken
from loom_audit.model.text.summaries import plain_text
from loom_audit.ports import CallFilter, EventFilter, Projections

_OWN = frozenset(
    one.kind
    for one in (
        *(CallRequested, CallDecided, CallFinished, CallReported),
        *(PromptSubmitted, MessageReceived, SessionEnded),
    )
)
_ALWAYS = frozenset({SessionStarted.kind, CoverageLowered.kind, GitChanged.kind})


class RecordedSession(Struct, frozen=True):
    """The sessions, oldest first after the outermost; their calls in order; what was said, by
    session; and of the calls, by request, the changes of git, the answers and the commands.

    `codes` are the exit codes that finishes tell, by number. `outside` are the changes without a
    call, oldest first. `changed` are the events that changed files, with the session and id of
    their call. Every event up to `read_to` was read; of what came later that which the tables name.
    """

    sessions: tuple[Session, ...]
    head: int
    read_to: int
    calls: tuple[Call, ...]
    said: Mapping[str, Sequence[Spoken]]
    changes: tuple[RecordedChange, ...]
    outside: tuple[OutsideChange, ...]
    changed: Sequence[tuple[int, str, str]]
    decided: Mapping[int, CallDecided]
    git: Mapping[int, Sequence[GitChanged]]
    commands: Mapping[int, str]
    codes: Mapping[int, int | None]


def read_session(
    proven: ProvenLog,
    projections: Projections,
    verified: VerifiedReading,
    listed: Sequence[Session],
) -> RecordedSession:
    """Read what the log has of a session, the first of these, and of all that are within it.

    `listed` are as the tables have them. Corrupt.
    """
    head = proven.head()
    first = listed[0]
    last = max(first.ended or head, *(one.ended or 0 for one in listed))
    read = _Read({one.id for one in listed}, min(head, last + NEAR))
    for event in proven.events(first.started - 1, read.to, read.wants):
        read.add(event)
    _check_begin(proven, read, first)
    sessions = [_checked(proven, read, verified, one) for one in listed]
    _check_none_hidden(read, verified)
    calls = read.fold.calls(lambda call: call.session in read.ids)
    if head > read.to:
        later = _later_events(proven, projections, read, calls)
        for event in later:
            read.add(event)
        calls = read.fold.calls(lambda call: call.session in read.ids) if later else calls
    return _record(proven, projections, read, sessions, calls, head)


class _Read:
    """What was read of a stretch of the log, up to the event `to`."""

    def __init__(self, ids: set[str], to: int) -> None:
        self.ids = ids
        self.to = to
        self.fold = CallFold()
        self.said: dict[str, list[Spoken]] = {}
        self.decided: dict[tuple[str, str], CallDecided] = {}
        self.git: list[tuple[Event, GitChanged]] = []
        self.files: list[tuple[Event, FilesChanged]] = []
        self.changed: list[tuple[int, str, str]] = []
        self.commands: dict[int, str] = {}
        self.codes: dict[int, int | None] = {}
        self.told: dict[str, Session] = {}
        """Sessions that begin here, as their own events tell."""
        self.begun: dict[str, Event] = {}
        """The first event of each session."""
        self._met: set[str] = set()

    def wants(self, envelope: Mapping[str, Any]) -> bool:
        """Whether an event tells something of these sessions, by its envelope."""
        kind, session = envelope.get("kind"), envelope.get("session", "")
        own = session in self.ids
        if kind == FilesChanged.kind:
            call_id = envelope.get("call_id")
            self.changed.append((int(envelope["seq"]), session, call_id or ""))
            if own:
                self._met.add(session)
            return own or call_id is None or "causes" in envelope or has_fact(envelope)
        if kind == CallFinished.kind and not own:
            return may_take_back(envelope)
        if own and session not in self._met:
            self._met.add(session)
            return True
        return kind in _ALWAYS or (own and kind in _OWN)

    def add(self, event: Event) -> None:
        """Take the next event that was wanted."""
        fact, session = event.fact, event.session
        own = session in self.ids
        if own or isinstance(fact, SessionStarted):
            self.begun.setdefault(session, event)
        if own or isinstance(fact, CallFinished | CoverageLowered):
            self.fold.add(event)
        match fact:
            case CallRequested() if own and fact.effect == "execute":
                if text := command_in(fact.arguments):
                    self.commands[event.seq] = text
            case CallFinished() if own:
                self.codes[event.seq] = code_in(event)
            case CallDecided() if own:
                self.decided[session, fact.call_id] = fact
            case PromptSubmitted():
                self.said.setdefault(session, []).append(Spoken(event.seq, "prompt"))
            case MessageReceived(role=role):
                self.said.setdefault(session, []).append(Spoken(event.seq, role))
            case FilesChanged():
                self.files.append((event, fact))
            case GitChanged():
                self.git.append((event, fact))
            case SessionStarted() | SessionEnded():
                self._follow(event)

    def _follow(self, event: Event) -> None:
        """Follow how a session began and ended, as its table does."""
        known, fact = self.told.get(event.session), event.fact
        if isinstance(fact, SessionStarted):
            first = self.begun[event.session]
            self.told[event.session] = Session(
                id=event.session,
                agent=plain_text(fact.agent),
                actor=plain_text(first.actor),
                title=plain_text(fact.title),
                started=first.seq,
                started_at=first.at,
                ended=None,
                ended_at=None,
                status="open",
                calls=0,
                errors=0,
                files=0,
                parent=fact.parent,
            )
        elif isinstance(fact, SessionEnded) and known:
            self.told[event.session] = replace(
                known, ended=event.seq, ended_at=event.at, status=fact.status
            )


def _check_begin(proven: ProvenLog, read: _Read, first: Session) -> None:
    """Refuse a session of which there are events before the one that is listed as its first."""
    event = read.begun.get(first.id)
    if event is None or event.seq != first.started:
        raise listed_error(first.started)
    fact = event.fact
    if isinstance(fact, SessionStarted) and fact.lease is None:
        return  # one of ours is begun once
    before = max(0, first.started - 1 - NEAR)
    for earlier in proven.events(before, first.started - 1, lambda e: e.get("session") == first.id):
        raise listed_error(earlier.seq)


def _checked(proven: ProvenLog, read: _Read, verified: VerifiedReading, listed: Session) -> Session:
    """A session as its events tell. Corrupt where it is listed otherwise."""
    told = read.told.get(listed.id)
    if told is None:
        return verified.session(listed.id)
    if _bounds(told) == _bounds(listed):
        return told
    kinds = SessionStarted.kind, SessionEnded.kind
    for _ in proven.log.read(EventFilter(after=read.to, kinds=kinds, session=listed.id)):
        return verified.session(listed.id)  # it went on later
    raise listed_error(told.started)


def _bounds(one: Session) -> tuple[object, ...]:
    return one.started, one.actor, one.agent, one.title, one.parent, one.ended


def _check_none_hidden(read: _Read, verified: VerifiedReading) -> None:
    """Refuse tables that do not have a session that began within one of these: Corrupt."""
    for id, told in read.told.items():
        around = read.begun.get(told.parent or "")
        if id in read.ids or told.parent not in read.ids or around is None:
            continue
        # it may have been told otherwise since, of which the tables know
        if around.seq < told.started and verified.session(id).parent == told.parent:
            raise listed_error(told.started)


def _later_events(
    proven: ProvenLog, projections: Projections, read: _Read, calls: Sequence[Call]
) -> list[Event]:
    """The events past those that were read of which the tables say that they tell of these calls
    and sessions.
    """
    made = {call.requested: call for call in calls}
    rows = {
        row.requested: row
        for id in read.ids
        for row in projections.calls(CallFilter(session=id, limit=None))
    }
    unlike = [made.get(n) or rows[n] for n in {*made, *rows} if made.get(n) != rows.get(n)]
    seqs = {seq for row in rows.values() for seq in (row.requested, row.seq or 0)}
    numbers = {one.seq for one in unlike if one.seq}
    if numbers:
        seqs |= {one.number for one in projections.taken_back(numbers).doings}
        changes = projections.changes(after=read.to, calls=[one.requested for one in unlike])
        seqs |= {one.seq for one in changes}
    for one in unlike:
        row = rows.get(one.requested)
        if one.seq and (row is None or one.coverage != row.coverage):
            seqs.update(projections.lowered(one.seq))
        if row is None or one.status != row.status:
            told = EventFilter(read.to, None, (CallReported.kind,), one.session, one.call_id)
            seqs |= {event.seq for event in proven.log.read(told)}
    for id in read.ids:
        seqs |= {one.seq for one in projections.spoken(id, after=read.to)}
    head = proven.head()
    return [proven.event(seq) for seq in sorted(seqs) if read.to < seq <= head]


def _record(
    proven: ProvenLog,
    projections: Projections,
    read: _Read,
    sessions: Sequence[Session],
    calls: Sequence[Call],
    head: int,
) -> RecordedSession:
    requests = {(call.session, call.call_id): call.requested for call in calls}
    decided = {requests[key]: fact for key, fact in read.decided.items() if key in requests}
    return RecordedSession(
        sessions=(*(_counted(one, read, calls) for one in sessions),),
        head=head,
        read_to=read.to,
        calls=(*calls,),
        said=read.said,
        changes=(*_changes(proven, projections, read, sessions[0].started - 1, calls),),
        outside=(*map(_outside, filter(_is_outside, read.files)),),
        changed=read.changed,
        decided=decided,
        git=_git(read, requests),
        commands=read.commands,
        codes=read.codes,
    )


def _counted(session: Session, read: _Read, calls: Sequence[Call]) -> Session:
    own = [call for call in calls if call.session == session.id]
    paths = {
        change.path
        for event, fact in read.files
        if event.session == session.id and fact.call_id
        for change in fact.changes
    }
    errors = sum(call.seq is not None and call.status not in NOT_FAILED for call in own)
    return replace(session, calls=len(own), errors=errors, files=len(paths))


def _changes(
    proven: ProvenLog,
    projections: Projections,
    read: _Read,
    after: int,
    calls: Sequence[Call],
) -> Iterator[RecordedChange]:
    """The changes of these calls, and those that they may have made."""
    lookup = CallLookup(proven, projections, read.fold, after)
    changing = {call.requested for call in calls if call.changed}
    for event, fact in read.files:
        whose = lookup.of(event, fact)
        if not changing.isdisjoint((whose.requested or 0, *whose.causes)):
            yield from map(whose.recorded, fact.changes)


def _is_outside(one: tuple[Event, FilesChanged]) -> bool:
    event, fact = one
    return not event.session and fact.origin == "outside"


def _outside(one: tuple[Event, FilesChanged]) -> OutsideChange:
    event, fact = one
    paths = (*(change.path for change in fact.changes[:LISTED_PATHS]),)
    return OutsideChange(event.seq, event.at, plain_text(event.actor), paths, len(fact.changes))


def _git(read: _Read, requests: Mapping[tuple[str, str], int]) -> Mapping[int, list[GitChanged]]:
    found: dict[int, list[GitChanged]] = {}
    listed = {*requests.values()}
    for event, fact in read.git:
        if fact.call_id is not None:
            own = requests.get((event.session, fact.call_id), 0)
            for requested in {own, *fact.causes} & listed:
                found.setdefault(requested, []).append(fact)
    return found


def code_in(event: Event) -> int | None:
    """The exit code that a finish tells; None where it tells none."""
    result = event.fact.result if isinstance(event.fact, CallFinished) else None
    data = result.get("data") if isinstance(result, Mapping) else None
    code = data.get("exit_code") if isinstance(data, Mapping) else None
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def count_calls(proven: ProvenLog, listed: Sequence[Session]) -> int:
    """How many calls these sessions, of which the first is the outermost, requested until its end;
    no more of an event is read than its leaf. Corrupt.
    """
    ids, count = {one.id for one in listed}, 0

    def note(envelope: Mapping[str, Any]) -> bool:
        nonlocal count
        count += envelope.get("kind") == CallRequested.kind and envelope.get("session", "") in ids
        return False

    for _ in proven.events(listed[0].started - 1, listed[0].ended or proven.head(), note):
        pass
    return count
