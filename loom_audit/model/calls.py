"""Calls as lists show them, made of the events of a log."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from loom_audit.model.coverage import FULL, Coverage, Status
from loom_audit.model.events import (
    CallFinished,
    CallReported,
    CallRequested,
    CoverageLowered,
    Event,
    FilesChanged,
)
from loom_audit.model.plans.taken_back import taken_back
from loom_audit.model.records import Call
from loom_audit.model.text.summaries import failure, plain_text, summarize

CALL_KINDS = frozenset(
    {CallRequested.kind, CallFinished.kind, CallReported.kind, CoverageLowered.kind}
)
"""The kinds of which calls are made, besides what files they changed."""

LISTED_PATHS, LOOKED_AT = 20, 80
"""So many paths of a call are listed, the first of so many changes."""


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


def took_back(fact: CallFinished) -> Sequence[int]:
    """The calls and events that a call took back, each once."""
    return [*dict.fromkeys(fact.reverts)] if fact.status == "ok" else []


IN_PART = "in_part"
"""Where the result of an undo, revert or rollback has the paths that it took back of calls which it
did not take back as a whole: by the numbers of the calls, as texts."""


def took_back_in_part(fact: CallFinished) -> Mapping[int, Sequence[str]]:
    """The paths that a call took back of calls which it did not take back as a whole."""
    said = fact.result.get(IN_PART) if isinstance(fact.result, dict) else None
    if fact.status != "ok" or not isinstance(said, dict):
        return {}
    return {
        int(number): [path for path in paths if isinstance(path, str)]
        for number, paths in said.items()
        if re.fullmatch("[0-9]{1,18}", number) and isinstance(paths, list | tuple)
    }


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
        self._taken_back: list[tuple[int, int]] = []

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
        self._taken_back += [(event.seq, target) for target in took_back(fact)]
        call = self._calls.get(key)
        if call is None:
            self.ended.setdefault(key, (event.seq, fact))
        if call is None or call.seq is not None:
            return
        self._calls[key] = replace(call, seq=event.seq, **ended(fact))

    def reverted(self) -> dict[int, int]:
        """Number of what was taken back → number of the call that did, while that one stands."""
        return taken_back(reversed(self._taken_back))

    def call(self, session: str, call_id: str) -> Call | None:
        """The call, as far as the events say."""
        return self._calls.get((session, call_id))

    def calls(self, keep: Callable[[Call], bool] = lambda _: True) -> list[Call]:
        """The calls to keep, in order of their requests."""
        reverted = self.reverted()
        kept = [call for call in self._calls.values() if keep(call)]
        return sorted(self._completed(kept, reverted), key=lambda call: call.requested)

    def coverage(self, number: int, captured: Coverage) -> Coverage:
        """The coverage of a finished call after what was found later."""
        return captured.lowered_by(self._lowered.get(number, ()))

    def status(self, number: int, status: Status) -> Status:
        """How a finished call ended, after what was told later where that was inferred."""
        told: Status = self._told[number]["status"] if number in self._told else status
        return told

    def _completed(self, calls: Iterable[Call], reverted: dict[int, int]) -> Iterable[Call]:
        for call in calls:
            paths = self._changed.get((call.session, call.call_id), [])
            yield replace(
                call,
                **self._told.get(call.seq or 0, {}),
                coverage=self.coverage(call.seq or 0, call.coverage),
                paths=first_paths(paths),
                changed=len(set(paths)),
                undone_by=None if call.seq is None else reverted.get(call.seq),
            )
