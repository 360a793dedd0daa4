"""Which open calls may have made the changes that a look at the workspace finds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

from msgspec.structs import replace

from loom_audit.errors import Corrupt
from loom_audit.history.ground.attachment import CLIENT_UNSEEN, Attachment, StoredLog
from loom_audit.history.ground.questions import is_waiting
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.doers import UNKNOWN, Candidate, Doers, Look, Told, by_doers
from loom_audit.history.look.timing import look_between
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import (
    OUTSIDE,
    CallRequested,
    CoverageLowered,
    Draft,
    Event,
    FilesChanged,
)
from loom_audit.model.files import FileChange, Move, moves_among
from loom_audit.model.plans.applicable import in_applicable_order
from loom_audit.model.records import Call
from loom_audit.model.text.display import visible_path
from loom_audit.ports import EventFilter

_NAMED = 5
CLIENT_HOOKS = "shared: client hooks"


def request_event(stored: StoredLog, call: Call) -> tuple[Event, CallRequested]:
    """The event of a call's request, and its fact. Corrupt when there is another fact."""
    wanted = EventFilter.only(call.requested)
    for event in stored.log.read(wanted):
        if isinstance(event.fact, CallRequested):
            return event, event.fact
    raise Corrupt(
        f"event {call.requested} is not the request of a call", hint="Run `loom-audit verify`."
    )


def changes_by_itself(stored: StoredLog, call: Call) -> bool:
    """Whether a call changes files that only a look at the workspace finds.

    One of effect write does not when it is ours: it is recorded step by step, and its request
    names no source.
    """
    if call.effect == "write":
        return bool(request_event(stored, call)[0].source)
    return call.effect == "execute"


def contains_calls(stored: StoredLog, call: Call) -> bool:
    """Whether a call was ever requested within this one."""
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
    """The open calls that may have changed files until now, besides one (session, id).

    Also those whose process has ended, until recovery closes them. A call that waits for an
    answer has not begun to act.
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
    """The candidates for what is found at the end of a call, among those that are open.

    It is not among them itself when it contains one that goes on; `foreign` is whether another
    program reports it. Its `request` is read where it is not given.
    """
    others = [call for call in open_calls if call.requested != own.requested]
    calls = [own, *_acting(attachment, others)]
    known = {own.requested: request} if request else {}
    return innermost(
        attachment.stored, calls, ours=None if foreign else own, told=told, known=known
    )


def ended_unseen(stored: StoredLog, one: Candidate) -> Candidate | None:
    """A candidate that has ended since, None when a look at its end found what it did."""
    call = stored.reading.call_at(one.requested)
    return replace(one, ended=True) if call.coverage.level == "none" else None


def acting_calls(
    attachment: Attachment,
    open_calls: Iterable[Call] | None = None,
    *,
    besides: tuple[str, str] | None = None,
) -> list[Call]:
    """The open calls that may be changing files by themselves, besides one (session, id)."""
    calls = attachment.stored.tables.open_calls() if open_calls is None else open_calls
    return _acting(attachment, [c for c in calls if (c.session, c.call_id) != besides])


def _acting(attachment: Attachment, calls: Iterable[Call]) -> list[Call]:
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
    """These calls as candidates, without those that contain another of them at any depth.

    What changes between the calls that one contains is its own, and what changes during them is
    not. A call between two of them may have ended. The one that is `ours` is known not to say
    which paths it changes: only other programs do. `told` is what was told of their ends,
    `known` are those of their requests that need not be read.
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
    # where nobody looked when it began, that is known only from what was told
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
    """A time as files have it, in ns since 1970."""
    if at is None:
        return None
    passed = at - datetime(1970, 1, 1, tzinfo=UTC)
    return ((passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds) * 1_000


def is_shared(causes: Sequence[int | str]) -> bool:
    """Whether by its causes another call than the one it is listed under may have made a change."""
    listed = [cause for cause in causes if cause != UNKNOWN]
    return len(listed) > 1 or (bool(listed) and UNKNOWN not in causes)


def changes_fact(
    doers: Doers,
    changes: Iterable[FileChange],
    moves: Iterable[Move] = (),
    arrived: Iterable[str] = (),
) -> FilesChanged:
    """Changes that a look found, as those of who may have made them."""
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
    """Changes from outside, as a draft; or by what calls that have ended left running."""
    doers = Doers(tuple(survivors), outside=True)
    return Draft(changes_fact(doers, changes, moves, arrived), "", OUTSIDE)


def _arrived_among(changes: Iterable[FileChange], arrived: Iterable[str]) -> tuple[str, ...]:
    known = set(arrived)
    return tuple(change.path for change in changes if change.path in known)


def attributed(
    attachment: Attachment, batch: Batch, among: Sequence[Candidate], look: Look | None = None
) -> Iterator[tuple[Doers, list[Draft]]]:
    """What a look found, by who may have made it: of the candidates, or else from outside.

    Each with its drafts: the changes, and with how much less coverage a call ends by them, where
    they were made later at a path that it had declared, or where the look after it missed them.
    The look is one between calls, unless another is given.
    """
    look = look or look_between(attachment, among)
    if batch.missed:
        look = replace(look, missed=batch.missed, unchecked=unchecked(attachment))
    for doers, part in in_applicable_order(by_doers(batch.changes, among, look)):
        fact = changes_fact(doers, part, batch.moves, batch.arrived)
        if not doers.outside:
            yield doers, [Draft(fact, doers.among[0].session, doers.among[0].actor)]
            continue
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
    """The calls after which not everything was looked at, since the last look at everything."""
    calls = (
        attachment.stored.reading.call_at(n) for n in sorted(attachment.process.last_seen.unchecked)
    )
    return tuple(
        Candidate(
            one.requested,
            one.call_id,
            one.session,
            one.actor,
            ended=True,
            is_survivor=True,
            number=one.seq,
        )
        for one in calls
    )


def lowered_draft(calls: Iterable[Candidate], why: str) -> Draft:
    """Less coverage for ended calls, as a draft."""
    numbers = tuple(one.number for one in calls if one.number is not None)
    return Draft(CoverageLowered(numbers, Coverage("partial", (why,))), "", OUTSIDE)


def _late_changes(changes: Sequence[FileChange]) -> str:
    shown = ", ".join(visible_path(one.path) for one in changes[:_NAMED])
    more = len(changes) - _NAMED
    return f"found later: {shown}" + (f" and {more} more" if more > 0 else "")
