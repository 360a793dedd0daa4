"""What in a workspace waits for a person, as far as the log and the processes say."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from loom_audit.api.agents.failed_hooks import FailedSession, waiting_in
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.ground.questions import ApprovalRequest
from loom_audit.history.read.timeline import Timeline
from loom_audit.history.record.recovery import interrupted_calls
from loom_audit.model.events import CallDecided
from loom_audit.model.records import Call, SessionHold, Tally
from loom_audit.ports import EventFilter

COUNTED_EVENTS = 50_000
"""The number of the newest events that are looked at for what is counted."""
MOST_ALLOWED = 500


class Needs(Struct, frozen=True):
    """What waits for a person: `questions` about calls, sessions that are `held`, undos that were
    `stopped` before their end, calls whose process is `gone`, and `hooks` that failed.
    """

    questions: Sequence[ApprovalRequest]
    held: Sequence[SessionHold]
    stopped: Sequence[Call]
    gone: Sequence[Call]
    hooks: Sequence[FailedSession]

    @property
    def count(self) -> int:
        """How many things wait."""
        lists = (self.questions, self.held, self.stopped, self.gone, self.hooks)
        return sum(map(len, lists))


def needs_of(workspace: AuditedWorkspace) -> Needs:
    """What waits for a person, without a look at the files. Corrupt."""
    questions = workspace.questions.pending()
    asking = {one.requested for one in questions if one.alive}
    ended = [
        call for call in interrupted_calls(workspace.attachment) if call.requested not in asking
    ]
    stopped = [call for call in ended if workspace.attachment.waits_for_decision(call)]
    return Needs(
        questions=questions,
        held=workspace.timeline.holds(),
        stopped=stopped,
        gone=[call for call in ended if call not in stopped],
        hooks=waiting_in(workspace),
    )


def tally(timeline: Timeline, since: datetime) -> Tally:
    """What is counted of the calls and changes since a time, in the newest events."""
    return timeline.projections.tally(first_counted(timeline, since), since)


def allowed_by_people(timeline: Timeline, since: datetime) -> Sequence[int]:
    """The seqs of the requests of calls about which the last answer of a person since a time was
    yes; the newest 500 at most.
    """
    wanted = EventFilter(
        after=first_counted(timeline, since), kinds=(CallDecided.kind,), newest_first=True
    )
    found = list[int]()
    answered = set[tuple[str, str]]()
    for event in timeline.events(wanted):
        fact = event.fact
        if event.at < since or len(found) >= MOST_ALLOWED:
            break
        if not isinstance(fact, CallDecided) or (event.session, fact.call_id) in answered:
            continue
        answered.add((event.session, fact.call_id))
        if fact.is_allowed_by_person:
            found.append(timeline.projections.call(event.session, fact.call_id).requested)
    return found


def first_counted(timeline: Timeline, since: datetime) -> int:
    """The event behind which is counted what happened since a time."""
    return max(timeline.log.listed_before(since), timeline.log.head() - COUNTED_EVENTS, 0)
