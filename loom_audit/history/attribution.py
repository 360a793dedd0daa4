"""Which open calls may have made the changes that a look at the workspace finds."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import Corrupt
from loom_audit.history.attachment import Attachment
from loom_audit.history.questions import is_waiting
from loom_audit.model.applicable import in_applicable_order
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import CallRequested, CoverageLowered, Draft, Event, FilesChanged
from loom_audit.model.files import FileChange, Move, moves_among, parents
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter

OUTSIDE = "outside"
CLIENT_HOOKS = "shared: client hooks"


class Candidate(Struct, frozen=True):
    """A call that may be changing files; `paths` are the only ones, None when it does not say.

    `requested` is the seq of its request. One that has `ended` cannot own what is found later;
    one that has `outlived` its end may share it, or else have done what came from outside, and
    has a `number`.
    """

    requested: int
    call_id: str
    session: str
    actor: str
    paths: tuple[str, ...] | None = None
    ended: bool = False
    outlived: bool = False
    number: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The session and the id that the call is named by."""
        return (self.session, self.call_id)

    def owns(self, change: FileChange) -> bool:
        """Whether it said that it changes this path: named, below one, or a folder made for one."""
        if self.paths is None:
            return False
        if not {change.path, *parents(change.path)}.isdisjoint(self.paths):
            return True
        made = change.before is None and change.after and change.after.kind == "directory"
        return bool(made) and any(change.path in parents(path) for path in self.paths)


def request_event(attachment: Attachment, call: Call) -> tuple[Event, CallRequested]:
    """The event of a call's request, and its fact. Corrupt when there is another fact."""
    wanted = EventFilter.only(call.requested)
    for event in attachment.log.read(wanted):
        if isinstance(event.fact, CallRequested):
            return event, event.fact
    raise Corrupt(
        f"event {call.requested} is not the request of a call", hint="Run `loom-audit verify`."
    )


def changes_by_itself(attachment: Attachment, call: Call) -> bool:
    """Whether a call changes files that only a look at the workspace finds.

    One of effect write does not when it is ours: it is recorded step by step, and its request
    names no source.
    """
    if call.effect == "write":
        return bool(request_event(attachment, call)[0].source)
    return call.effect == "execute"


def contains_calls(attachment: Attachment, call: Call) -> bool:
    """Whether a call was ever requested within this one."""
    later = EventFilter(after=call.requested, kinds=(CallRequested.kind,))
    return any(
        isinstance(event.fact, CallRequested) and event.fact.within == call.requested
        for event in attachment.log.read(later)
    )


def candidates(
    attachment: Attachment, *, besides: tuple[str, str] | None = None
) -> list[Candidate]:
    """The open calls that may have changed files until now, besides one (session, id).

    Also those whose process has ended, until recovery closes them. A call that waits for an
    answer has not begun to act.
    """
    return innermost(attachment, acting_calls(attachment, besides=besides))


def candidates_with(
    attachment: Attachment, own: Call, open_calls: Iterable[Call], *, foreign: bool
) -> list[Candidate]:
    """The candidates for what is found at the end of a call, among those that are open.

    It is not among them itself when it contains one that goes on; `foreign` is whether another
    program reports it.
    """
    others = [call for call in open_calls if call.requested != own.requested]
    calls = [own, *_acting(attachment, others)]
    return innermost(attachment, calls, ours=None if foreign else own)


def ended_unseen(attachment: Attachment, one: Candidate) -> Candidate | None:
    """A candidate that has ended since, None when a look at its end found what it did."""
    call = attachment.projections.call_at(one.requested)
    return replace(one, ended=True) if call.coverage.level == "none" else None


def acting_calls(attachment: Attachment, *, besides: tuple[str, str] | None = None) -> list[Call]:
    """The open calls that may be changing files by themselves, besides one (session, id)."""
    calls = attachment.projections.open_calls()
    return _acting(attachment, [c for c in calls if (c.session, c.call_id) != besides])


def _acting(attachment: Attachment, calls: Iterable[Call]) -> list[Call]:
    return [
        call
        for call in calls
        if changes_by_itself(attachment, call) and not is_waiting(attachment.log, call)
    ]


def innermost(
    attachment: Attachment, calls: Sequence[Call], *, ours: Call | None = None
) -> list[Candidate]:
    """These calls as candidates, without those that contain another of them at any depth.

    What changes between the calls that one contains is its own, and what changes during them is
    not. A call between two of them may have ended. The one that is `ours` is known not to say
    which paths it changes: only other programs do.
    """
    containing: set[int] = set()
    for call in calls:
        within = call.within
        while within is not None and within not in containing:
            containing.add(within)
            within = attachment.projections.call_at(within).within
    return [
        Candidate(
            call.requested,
            call.call_id,
            call.session,
            call.actor,
            None if call is ours else request_event(attachment, call)[1].paths,
        )
        for call in calls
        if call.requested not in containing
    ]


def by_owners(
    changes: Iterable[FileChange], among: Sequence[Candidate]
) -> dict[tuple[Candidate, ...], list[FileChange]]:
    """The changes by the candidates that may have made them: () for those of nobody.

    A path that a call said it changes is its own until it ends; the others are shared by those
    that did not say.
    """
    found: dict[tuple[Candidate, ...], list[FileChange]] = {}
    for change in changes:
        saying = [one for one in among if one.owns(change)]
        shared = all(one.ended for one in saying)
        owners = tuple(one for one in among if one in saying or (shared and one.paths is None))
        found.setdefault(owners, []).append(change)
    return found


def found_fact(
    owners: Sequence[Candidate],
    changes: Iterable[FileChange],
    moves: Iterable[Move] = (),
    arrived: Iterable[str] = (),
) -> FilesChanged:
    """Changes that a look found, as the first owner's, with all of several as causes."""
    listed = tuple(changes)
    causes = tuple(one.requested for one in owners) if len(owners) > 1 else ()
    call_id = owners[0].call_id
    return FilesChanged(
        listed,
        "command",
        call_id,
        moves_among(listed, moves),
        causes=causes,
        arrived=_arrived_among(listed, arrived),
    )


def outside_draft(
    changes: Iterable[FileChange],
    moves: Iterable[Move] = (),
    arrived: Iterable[str] = (),
    outlived: Iterable[Candidate] = (),
) -> Draft:
    """Changes from outside, as a draft; or by what calls that have ended left running."""
    listed = tuple(changes)
    fact = FilesChanged(
        listed,
        "outside",
        moves=moves_among(listed, moves),
        causes=tuple(one.requested for one in outlived),
        arrived=_arrived_among(listed, arrived),
    )
    return Draft(fact, "", OUTSIDE)


def _arrived_among(changes: Iterable[FileChange], arrived: Iterable[str]) -> tuple[str, ...]:
    known = set(arrived)
    return tuple(change.path for change in changes if change.path in known)


def attributed_drafts(
    changes: Iterable[FileChange],
    among: Sequence[Candidate],
    moves: Sequence[Move] = (),
    arrived: Sequence[str] = (),
) -> list[Draft]:
    """Changes that a look found, as drafts: of the candidates, or else from outside.

    What was changed later at a path that an ended call declared lowers its coverage.
    """
    drafts = []
    for owners, part in in_applicable_order(by_owners(changes, among)):
        if not all(one.outlived for one in owners):
            fact = found_fact(owners, part, moves, arrived)
            drafts.append(Draft(fact, owners[0].session, owners[0].actor))
            continue
        drafts.append(outside_draft(part, moves, arrived, owners))
        declared = tuple(one.number for one in owners if one.paths is not None and one.number)
        if declared:
            lowered = CoverageLowered(declared, Coverage("partial", (CLIENT_HOOKS,)))
            drafts.append(Draft(lowered, "", OUTSIDE))
    return drafts
