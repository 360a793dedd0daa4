"""Calls as lists show them, made of the events of a log."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from loom_audit.model.coverage import FULL, Coverage, Effect, Status
from loom_audit.model.events import (
    CallFinished,
    CallReported,
    CallRequested,
    CoverageLowered,
    Event,
    FilesChanged,
)
from loom_audit.model.plans.taking_back.taken_back import TakenBack, TakingBack, UndoneBy
from loom_audit.model.records import Call
from loom_audit.model.text.summaries import failure, plain_text, summarize

CALL_KINDS = frozenset(
    {CallRequested.kind, CallFinished.kind, CallReported.kind, CoverageLowered.kind}
)
"""The kinds of which calls are made, besides what files they changed."""

LISTED_PATHS, LOOKED_AT = 20, 80
"""The numbers of paths of a call that are listed, and of changes from which these are taken."""


def asked(fact: CallRequested) -> dict[str, Any]:
    """What a request says of its call, by the fields of `Call`; the table has the same."""
    return {
        "call_id": fact.call_id,
        "tool": plain_text(fact.tool),
        "effect": fact.effect,
        "summary": summarize(fact.arguments),
        "within": fact.within,
    }


def ended(fact: CallFinished) -> dict[str, Any]:
    """What a finish says of its call, by the fields of `Call`; the table has the same."""
    return {
        "status": fact.status,
        "coverage": fact.coverage,
        "error": failure(fact.status, fact.result),
        "reverts": tuple(fact.reverts),
        "duration": fact.duration,
        "sandbox": plain_text(fact.sandbox),
    }


ASKED = tuple(asked(CallRequested("", "", {}, "read")))
ENDED = tuple(ended(CallFinished("", "", "read", "ok", None)))
"""The fields of `Call` that a request, and that a finish says."""


UNDO_TOOLS = frozenset({"undo", "redo", "revert", "rollback"})


def takes_back(tool: str, effect: Effect) -> bool:
    """Whether calls of this tool with this effect take back what is on record."""
    return tool in UNDO_TOOLS and effect == "write"


IN_PART = "in_part"
"""Where the result of an undo, revert or rollback has the paths that it took back of calls which it
did not take back as a whole, or of which others were taken back before: by the numbers of the
calls, as texts."""


def took_back(seq: int, fact: CallFinished) -> Sequence[TakingBack]:
    """What the call that the event `seq` finished took back, each target once, in its order."""
    if fact.status != "ok":
        return []
    found = {target: TakingBack(seq, target) for target in fact.reverts}
    said = fact.result.get(IN_PART) if isinstance(fact.result, dict) else None
    if takes_back(fact.tool, fact.effect) and isinstance(said, dict):
        for text, paths in said.items():
            listed = paths if isinstance(paths, list | tuple) else ()
            named = frozenset(path for path in listed if isinstance(path, str))
            if named and re.fullmatch("[0-9]{1,18}", text):
                found[int(text)] = TakingBack(seq, int(text), int(text) in found, named)
    return [*found.values()]


def in_part_by(undone: UndoneBy) -> tuple[int, ...]:
    """The numbers of the calls that took some of a call back, as `Call` has them."""
    return tuple(sorted({*undone.paths.values()}))


def reported(seq: int, fact: CallReported) -> tuple[int, dict[str, Any]] | None:
    """The number of the finished call whose inferred end the event `seq` replaces, if there is one,
    and what it says of that call, by the fields of `Call`. The first report of a call counts.
    """
    if fact.replaces is None or fact.replaces >= seq:
        return None
    return fact.replaces, {"status": fact.status, "error": failure(fact.status, fact.result)}


def lowered(seq: int, fact: CoverageLowered) -> Sequence[int]:
    """The numbers of the calls whose coverage the event `seq` lowered: such as are finished."""
    if not fact.coverage.reasons:
        return []
    return [*dict.fromkeys(number for number in fact.calls if number < seq)]


def first_paths(changed: Iterable[str]) -> tuple[str, ...]:
    """The paths that are listed of a call, of those that it changed in the log's order."""
    return tuple(dict.fromkeys(islice(changed, LOOKED_AT)))[:LISTED_PATHS]


class CallFold:
    """The calls of events that are added in order of seq.

    Whether a call is taken back, and its coverage lowered, depends on later events: `calls` is
    asked when all are added. What a call did before the first of them is not known: `ended` are
    those that were requested before it, by session and id, with their number and finish.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], Call] = {}
        self.ended: dict[tuple[str, str], tuple[int, CallFinished]] = {}
        self._changed: dict[tuple[str, str], list[str]] = {}
        self._lowered: dict[int, list[Coverage]] = {}
        self._told: dict[int, dict[str, Any]] = {}
        self._taken_back: list[TakingBack] = []

    def add(self, event: Event) -> None:
        """The next event; one that is about no call changes nothing."""
        match event.fact:
            case CallRequested() as request:
                self._calls[event.session, request.call_id] = Call(
                    seq=None,
                    requested=event.seq,
                    at=event.at,
                    session=event.session,
                    actor=plain_text(event.actor),
                    status="open",
                    coverage=FULL,
                    error="",
                    paths=(),
                    changed=0,
                    reverts=(),
                    duration=0,
                    **asked(request),
                )
            case CallFinished() as finish:
                self._finish(event, finish)
            case FilesChanged(call_id=str(call_id)) as fact:
                paths = self._changed.setdefault((event.session, call_id), [])
                paths += [change.path for change in fact.changes]
            case CallReported() as fact:
                if told := reported(event.seq, fact):
                    self._told.setdefault(*told)
            case CoverageLowered() as fact:
                for number in lowered(event.seq, fact):
                    self._lowered.setdefault(number, []).append(fact.coverage)

    def _finish(self, event: Event, fact: CallFinished) -> None:
        key = event.session, fact.call_id
        self._taken_back += took_back(event.seq, fact)
        call = self._calls.get(key)
        if call is None:
            self.ended.setdefault(key, (event.seq, fact))
        if call is None or call.seq is not None:
            return
        self._calls[key] = replace(call, seq=event.seq, **ended(fact))

    def taken_back(self) -> TakenBack:
        """What the calls took back."""
        return TakenBack(self._taken_back)

    def changed(self, session: str, call_id: str) -> Collection[str]:
        """The paths that a call changed."""
        return {*self._changed.get((session, call_id), ())}

    def call(self, session: str, call_id: str) -> Call | None:
        """The call, as far as the events say."""
        return self._calls.get((session, call_id))

    def calls(self, keep: Callable[[Call], bool] = lambda _: True) -> list[Call]:
        """The calls to keep, in order of their requests."""
        kept = [call for call in self._calls.values() if keep(call)]
        return sorted(self._completed(kept), key=lambda call: call.requested)

    def coverage(self, number: int, captured: Coverage) -> Coverage:
        """The coverage of a finished call after what was found later."""
        return captured.lowered_by(self._lowered.get(number, ()))

    def status(self, number: int, status: Status) -> Status:
        """How a finished call ended, after what was told later where that was inferred."""
        told: Status = self._told[number]["status"] if number in self._told else status
        return told

    def _completed(self, calls: Iterable[Call]) -> Iterable[Call]:
        back = self.taken_back()
        for call in calls:
            paths = self._changed.get((call.session, call.call_id), [])
            changed = self.changed(call.session, call.call_id)
            undone = UndoneBy() if call.seq is None else back.of(call.seq, changed)
            yield replace(
                call,
                **self._told.get(call.seq or 0, {}),
                coverage=self.coverage(call.seq or 0, call.coverage),
                paths=first_paths(paths),
                changed=len(changed),
                undone_by=undone.whole,
                undone_in_part_by=in_part_by(undone),
            )
