"""Calls as lists show them, made of the events of a log."""

from collections.abc import Callable, Iterable
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

_LISTED = 20
_LOOKED_AT = 80
"""Of so many changes the first paths are listed."""


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
        self._lowered: list[tuple[int, CoverageLowered]] = []
        self._told: dict[int, CallReported] = {}
        self._taken_back: list[tuple[int, tuple[int, ...]]] = []

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
            case CallReported(replaces=int(number)) as told if number < event.seq:
                self._told.setdefault(number, told)
            case CoverageLowered() as fact if fact.coverage.reasons:
                self._lowered.append((event.seq, fact))

    def _finish(self, event: Event, fact: CallFinished) -> None:
        key = event.session, fact.call_id
        if fact.status == "ok" and fact.reverts:
            self._taken_back.append((event.seq, fact.reverts))
        call = self._calls.get(key)
        if call is None:
            self.ended.setdefault(key, (event.seq, fact))
        if call is None or call.seq is not None:
            return
        self._calls[key] = replace(call, seq=event.seq, **ended(fact))

    def reverted(self) -> dict[int, int]:
        """Number of what was taken back → number of the call that did, while that one stands."""
        newest_first = reversed(self._taken_back)
        return taken_back((number, one) for number, targets in newest_first for one in targets)

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
        for seq, fact in self._lowered:
            if number in fact.calls and number < seq:
                captured = captured.lowered(*fact.coverage.reasons, level=fact.coverage.level)
        return captured

    def status(self, number: int, status: Status) -> Status:
        """How a finished call ended, after what was told later where that was inferred."""
        return self._told[number].status if number in self._told else status

    def _completed(self, calls: Iterable[Call], reverted: dict[int, int]) -> Iterable[Call]:
        for call in calls:
            paths = self._changed.get((call.session, call.call_id), [])
            told = self._told.get(call.seq or 0)
            if told is not None:
                error = failure(told.status, told.result)
                call = replace(call, status=told.status, error=error)
            yield replace(
                call,
                coverage=self.coverage(call.seq or 0, call.coverage),
                paths=tuple(dict.fromkeys(paths[:_LOOKED_AT]))[:_LISTED],
                changed=len(set(paths)),
                undone_by=None if call.seq is None else reverted.get(call.seq),
            )
