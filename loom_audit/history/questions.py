"""Reads questions about calls, and their answers, from one log."""

from msgspec import Struct

from loom_audit.model.events import ApprovalRequested, CallDecided, Event
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter, EventLog

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


def is_waiting(log: EventLog, call: Call) -> bool:
    """Whether an open call waits for an answer, and so has not begun to act."""
    return approval_state(log, call.session, call.call_id, after=call.requested).is_waiting


def find_lasting_answer(
    log: EventLog, session: str, tool: str, rule: str, reason: str
) -> Event | None:
    """The newest answer for the whole session to a question of the same rule or reason, or None."""
    asked: dict[str, bool] = {}
    found: Event | None = None
    for event in log.read(EventFilter(kinds=_KINDS, session=session)):
        fact = event.fact
        if isinstance(fact, ApprovalRequested):
            same = (fact.rule == rule) if rule else (not fact.rule and fact.reason == reason)
            # a repeated question has a longer reason, so the first one's counts
            asked.setdefault(fact.call_id, fact.tool == tool and same)
        elif isinstance(fact, CallDecided) and fact.lasting and asked.get(fact.call_id):
            found = event
    return found
