"""Reads questions about calls, and their answers, from one log."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from loom_audit.model.events import ApprovalRequested, CallDecided, Event
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter, EventLog

TOGETHER = 50
"""Calls with fewer events between them are looked up together."""

OPEN = 1_000
"""So many events behind the request of an open call are looked at."""

_KINDS = (ApprovalRequested.kind, CallDecided.kind)


class ApprovalState(Struct, frozen=True):
    """The newest question about a call and the answer to it, or None for each."""

    question: Event | None = None
    answer: Event | None = None

    @property
    def is_waiting(self) -> bool:
        return self.question is not None and self.answer is None


def approval_state(log: EventLog, session: str, call_id: str, *, after: int) -> ApprovalState:
    """The approval state of a call, from its events after the seq `after`."""
    question: Event | None = None
    answer: Event | None = None
    wanted = EventFilter(after=after, kinds=_KINDS, call_id=call_id)
    for event in log.read(wanted):
        if event.session != session:
            continue
        if isinstance(event.fact, ApprovalRequested):
            question, answer = event, None
        elif isinstance(event.fact, CallDecided) and answer is None:
            answer = event
    return ApprovalState(question, answer)


class NewestAnswer:
    """The seq of the newest answer to any question in a log, as of the last `look`; 0 for none.

    Each look reads what was appended since the one before.
    """

    def __init__(self, log: EventLog, *, after: int) -> None:
        self.newest = 0
        self._log = log
        self._seen = after

    def look(self) -> int:
        head = self._log.head()
        if head > self._seen:
            kinds = (CallDecided.kind,)
            for event in self._log.read(EventFilter(self._seen, head + 1, kinds)):
                self.newest = max(self.newest, event.seq)
            self._seen = head
        return self.newest


def is_waiting(log: EventLog, call: Call) -> bool:
    """Whether an open call waits for an answer, and so has not begun to act."""
    return approval_state(log, call.session, call.call_id, after=call.requested).is_waiting


def last_decisions(log: EventLog, calls: Sequence[Call]) -> Mapping[int, CallDecided]:
    """By its request, the last answer about each of these calls that has one."""
    requests = {(call.session, call.call_id): call.requested for call in calls}
    found: dict[int, CallDecided] = {}
    for after, before in _spans(calls):
        for event in log.read(EventFilter(after, before, (CallDecided.kind,))):
            if isinstance(event.fact, CallDecided):
                requested = requests.get((event.session, event.fact.call_id))
                if requested is not None and requested < event.seq:
                    found[requested] = event.fact
    return found


def _spans(calls: Sequence[Call]) -> Sequence[tuple[int, int]]:
    """Between which events these calls ran, one span for those that nearly follow each other."""
    spans: list[tuple[int, int]] = []
    for call in sorted(calls, key=lambda call: call.requested):
        end = call.seq or call.requested + OPEN
        if spans and call.requested < spans[-1][1] + TOGETHER:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            spans.append((call.requested, end))
    return spans


def find_lasting_answer(
    log: EventLog, session: str, tool: str, rule: str, reason: str
) -> tuple[int, CallDecided] | None:
    """The newest answer for the whole session to a question of the same rule or reason, and its
    seq; None where there is none."""
    asked: dict[str, bool] = {}
    found: tuple[int, CallDecided] | None = None
    for event in log.read(EventFilter(kinds=_KINDS, session=session)):
        fact = event.fact
        if isinstance(fact, ApprovalRequested):
            same = (fact.rule == rule) if rule else (not fact.rule and fact.reason == reason)
            # a repeated question has a longer reason, so the first one's counts
            asked.setdefault(fact.call_id, fact.tool == tool and same)
        elif isinstance(fact, CallDecided) and fact.lasting and asked.get(fact.call_id):
            found = event.seq, fact
    return found
