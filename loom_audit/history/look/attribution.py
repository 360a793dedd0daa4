"""Which calls may have made the changes that a look at the workspace finds, and the facts of it.

A look says what changed, not who changed it. So each call that was open then, and may have been
acting, is a candidate; a change with several is shared, and one with none is from outside.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType

from msgspec.structs import replace

from loom_audit.errors import AuditError, Corrupt
from loom_audit.history.ground.attachment import CLIENT_UNSEEN, TOOL, Attachment, StoredLog
from loom_audit.history.ground.questions import is_waiting
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.doers import UNKNOWN, Candidate, Doers, Look, Told, by_doers
from loom_audit.history.look.timing import look_between
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.applicable import in_applicable_order
from loom_audit.model.backgrounds import BackgroundStarted, WritableFolder
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import CallRequested, CoverageLowered, Draft, Event, FilesChanged
from loom_audit.model.files import FileChange, Move, moves_among, parents
from loom_audit.model.records import Call
from loom_audit.model.text.display import visible
from loom_audit.ports import EventFilter

_NAMED = 5
"""Most paths that a reason of less coverage names."""

CLIENT_HOOKS = "shared: client hooks"
"""Why a call that had declared its paths has less coverage: one of them changed after its end."""


def request_event(stored: StoredLog, call: Call) -> tuple[Event, CallRequested]:
    """The event of a call's request, and its fact. Corrupt where the event has another fact."""
    wanted = EventFilter.only(call.requested)
    for event in stored.log.read(wanted):
        if isinstance(event.fact, CallRequested):
            return event, event.fact
    raise Corrupt(
        f"event {call.requested} is not the request of a call", hint="Run `loom-audit verify`."
    )


def background_of(stored: StoredLog, call: Call) -> BackgroundStarted | None:
    """What goes on in the background of a call, as it was started; None where nothing does."""
    wanted = EventFilter(
        after=call.requested,
        before=call.seq,
        kinds=(BackgroundStarted.kind,),
        session=call.session,
        call_id=call.call_id,
    )
    return next(
        (e.fact for e in stored.log.read(wanted) if isinstance(e.fact, BackgroundStarted)), None
    )


def writable_by(attachment: Attachment, call: Call) -> tuple[str, ...] | None:
    """The folders that what a call left running can write; None where it is not held to any.

    Nor is it where one of them is not known to be at its place: with a folder that is moved
    elsewhere moves what may be written. Files that were moved out of the folders are among them:
    what has one open writes on. NotFound, Corrupt.
    """
    started = background_of(attachment.stored, call)
    if started is None or not all(_is_in_place(attachment, one) for one in started.writes):
        return None
    folders = tuple(one.path for one in started.writes)
    return (*folders, *sorted(_moved_out(attachment, call, folders))) if folders else ()


def _moved_out(attachment: Attachment, call: Call, folders: Sequence[str]) -> frozenset[str]:
    """Where files are now that were in these folders since a call began, as the log tells."""
    log, known = attachment.stored.log, attachment.process.moved_out
    after, found = known.get(call.requested, (call.requested, frozenset()))
    head, inside = log.head(), {*folders, *found}
    for event in log.read(EventFilter(after, before=head + 1, kinds=(FilesChanged.kind,))):
        moves = event.fact.moves if isinstance(event.fact, FilesChanged) else ()
        for move in moves:
            if not inside.isdisjoint((move.source, *parents(move.source))):
                inside.add(move.target)
    moved = frozenset(inside.difference(folders))
    known[call.requested] = head, moved
    return moved


def _is_in_place(attachment: Attachment, folder: WritableFolder) -> bool:
    """Whether it is certain that a folder is where it was; some filesystems tell no identity."""
    with suppress(AuditError):  # a folder above may forbid to look
        return folder.identity in {attachment.on_disk.workspace.identity(folder.path)} - {""}
    return False


def changes_by_itself(stored: StoredLog, call: Call) -> bool:
    """Whether a call changes files by itself, so that only a look at the workspace finds them.

    A call of effect `write` of ours does not: each step of it is recorded, and its request names no
    source, or that it is an undo which a model called as a tool. A client's call of effect `write`
    does, and every call of effect `execute`. Corrupt.
    """
    if call.effect == "write":
        return request_event(stored, call)[0].source not in ("", TOOL)
    return call.effect == "execute"


def contains_calls(stored: StoredLog, call: Call) -> bool:
    """Whether any call was requested within this one. Corrupt."""
    later = EventFilter(after=call.requested, kinds=(CallRequested.kind,))
    return any(
        isinstance(event.fact, CallRequested) and event.fact.within == call.requested
        for event in stored.log.read(later)
    )


def candidates(
    attachment: Attachment,
    open_calls: Iterable[Call] | None = None,
    *,
    besides: tuple[str, str] | None = None,
) -> list[Candidate]:
    """The open calls that may have changed files until now, but for one, `besides` (session, id).

    A call whose process has ended is among them until recovery closes it. A call that waits for an
    answer is not: it has not begun to act. Corrupt.
    """
    return innermost(attachment.stored, acting_calls(attachment, open_calls, besides=besides))


def candidates_with(
    attachment: Attachment,
    own: Call,
    open_calls: Iterable[Call],
    *,
    request: Event | None,
    foreign: bool,
    told: Mapping[int, Told] = MappingProxyType({}),
) -> list[Candidate]:
    """The candidates for what is found at the end of the call `own`: it, and the open calls.

    It is not among them when it contains a call that goes on. `foreign` says that another program
    reports it. Its `request` is read where it is not given. `told` is what clients told of the ends
    of calls, by their requests. Corrupt.
    """
    others = [call for call in open_calls if call.requested != own.requested]
    calls = [own, *_acting(attachment, others)]
    known = {own.requested: request} if request else {}
    return innermost(
        attachment.stored, calls, ours=None if foreign else own, told=told, known=known
    )


def ended_unseen(stored: StoredLog, one: Candidate) -> Candidate | None:
    """A candidate that ended during another call, as one that has ended.

    None where the look at its own end found what it did; where nobody looked then, its coverage is
    `none`, and it stays a candidate. NotFound, Corrupt.
    """
    call = stored.reading.call_at(one.requested)
    return replace(one, ended=True) if call.coverage.level == "none" else None


def acting_calls(
    attachment: Attachment,
    open_calls: Iterable[Call] | None = None,
    *,
    besides: tuple[str, str] | None = None,
) -> list[Call]:
    """The open calls that may be changing files by themselves, but for one (session, id)."""
    calls = attachment.stored.tables.open_calls() if open_calls is None else open_calls
    return _acting(attachment, [c for c in calls if (c.session, c.call_id) != besides])


def _acting(attachment: Attachment, calls: Iterable[Call]) -> list[Call]:
    # of a client's call that has ended, a look has found what it did, though it is open on record
    return [
        call
        for call in calls
        if (call.session, call.call_id) not in attachment.process.ended_calls
        and changes_by_itself(attachment.stored, call)
        and not is_waiting(attachment.stored.log, call)
    ]


def innermost(
    stored: StoredLog,
    calls: Sequence[Call],
    *,
    ours: Call | None = None,
    told: Mapping[int, Told] = MappingProxyType({}),
    known: Mapping[int, Event] = MappingProxyType({}),
) -> list[Candidate]:
    """These calls as candidates, without each call that contains another of them, at any depth.

    A call that contains others made what changes between them, and not what changes during them.
    A call that lies between two of these may have ended, so each one above is followed. The call
    that is `ours` is known not to say which paths it changes: only those of other programs do.
    `told` is what clients told of the ends of calls, by their requests; `known` are requests that
    were read already. NotFound, Corrupt.
    """
    containing: set[int] = set()
    for call in calls:
        within = call.within
        while within is not None and within not in containing:
            containing.add(within)
            within = stored.reading.call_at(within).within
    return [
        _candidate(
            known.get(call.requested) or request_event(stored, call)[0],
            call,
            says=call is not ours,
            told=told.get(call.requested, Told()),
        )
        for call in calls
        if call.requested not in containing
    ]


def _candidate(event: Event, call: Call, *, says: bool, told: Told) -> Candidate:
    request = event.fact
    assert isinstance(request, CallRequested)
    # where nobody looked when a call began, the time of its event says only when it was told
    begun = in_ns(event.at)
    if event.source == CLIENT_UNSEEN:
        begun = in_ns(event.occurred_at) or told.begun
    return Candidate(
        requested=call.requested,
        call_id=call.call_id,
        session=call.session,
        actor=call.actor,
        paths=request.paths if says else None,
        named=request.names or (),
        begun=begun,
        told=told,
        seen=event.source != CLIENT_UNSEEN,
    )


def in_ns(at: datetime | None) -> int | None:
    """A time in ns since 1970, as files have theirs; None for no time."""
    if at is None:
        return None
    passed = at - datetime(1970, 1, 1, tzinfo=UTC)
    return ((passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds) * 1_000


def is_shared(causes: Sequence[int | str]) -> bool:
    """Whether the causes of a change name another call than the one under which it is listed."""
    listed = [cause for cause in causes if cause != UNKNOWN]
    return len(listed) > 1 or (bool(listed) and UNKNOWN not in causes)


def changes_fact(
    doers: Doers,
    changes: Iterable[FileChange],
    moves: Iterable[Move] = (),
    arrived: Iterable[str] = (),
) -> FilesChanged:
    """Changes that a look found, as a fact that names the calls that may have made them.

    Of `moves` and `arrived` those are taken that these changes are about.
    """
    listed = tuple(changes)
    return FilesChanged(
        listed,
        "outside" if doers.outside else "command",
        None if doers.outside else doers.among[0].call_id,
        moves_among(listed, moves),
        causes=doers.causes,
        arrived=_arrived_among(listed, arrived),
    )


def outside_draft(
    changes: Iterable[FileChange],
    moves: Iterable[Move] = (),
    arrived: Iterable[str] = (),
    survivors: Iterable[Candidate] = (),
) -> Draft:
    """Changes from outside as a draft; `survivors` may have made them and are named as causes."""
    doers = Doers(tuple(survivors), outside=True)
    return Draft(changes_fact(doers, changes, moves, arrived), "", OUTSIDE)


def _arrived_among(changes: Iterable[FileChange], arrived: Iterable[str]) -> tuple[str, ...]:
    known = set(arrived)
    return tuple(change.path for change in changes if change.path in known)


def attributed(
    attachment: Attachment, batch: Batch, among: Sequence[Candidate], look: Look | None = None
) -> Iterator[tuple[Doers, list[Draft]]]:
    """What a look found, by the calls that may have made it, each with the drafts that record it.

    The first draft has the changes. A second one lowers the coverage of calls that have ended:
    where a path that such a call had declared changed after its end, or where the look after a call
    missed a change. The look is one between calls, unless another is given.
    """
    look = look or look_between(attachment, among)
    if batch.missed:
        look = replace(look, missed=batch.missed, unchecked=unchecked(attachment))
    for doers, part in in_applicable_order(by_doers(batch.changes, among, look)):
        fact = changes_fact(doers, part, batch.moves, batch.arrived)
        if not doers.outside:
            yield doers, [Draft(fact, doers.among[0].session, doers.among[0].actor)]
            continue
        # a change from outside is in no call's record, so an ended call's coverage tells of it
        drafts = [Draft(fact, "", OUTSIDE)]
        ended = () if doers.unknown else doers.among
        declared = tuple(one.number for one in ended if one.paths is not None and one.number)
        if doers.missed:
            drafts.append(lowered_draft(doers.among, _late_changes(part)))
        elif declared:
            lowered = CoverageLowered(declared, Coverage("partial", (CLIENT_HOOKS,)))
            drafts.append(Draft(lowered, "", OUTSIDE))
        yield doers, drafts


def attributed_drafts(
    attachment: Attachment, batch: Batch, among: Sequence[Candidate], look: Look | None = None
) -> list[Draft]:
    """The drafts of `attributed`, in the order in which they apply."""
    return [draft for _, some in attributed(attachment, batch, among, look) for draft in some]


def unchecked(attachment: Attachment) -> tuple[Candidate, ...]:
    """The calls since the last look at everything: after each, only what the watch told was read.

    Each may have made a change that the kernel did not tell of. NotFound, Corrupt.
    """
    calls = (
        attachment.stored.reading.call_at(n) for n in sorted(attachment.process.last_seen.unchecked)
    )
    return tuple(map(ended_candidate, calls))


def ended_candidate(call: Call) -> Candidate:
    """A call that has ended, as a candidate for what is found later, as a survivor's call is."""
    return Candidate(
        call.requested,
        call.call_id,
        call.session,
        call.actor,
        ended=True,
        is_survivor=True,
        number=call.seq,
    )


def lowered_draft(calls: Iterable[Candidate], why: str) -> Draft:
    """A draft that lowers the coverage of ended calls to `partial`, for this reason."""
    numbers = tuple(one.number for one in calls if one.number is not None)
    return Draft(CoverageLowered(numbers, Coverage("partial", (why,))), "", OUTSIDE)


def _late_changes(changes: Sequence[FileChange]) -> str:
    """The reason that names changes which the look after a call missed."""
    shown = ", ".join(visible(one.path) for one in changes[:_NAMED])
    more = len(changes) - _NAMED
    return f"found later: {shown}" + (f" and {more} more" if more > 0 else "")
