"""What another program reports about a call after its end."""

import os
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, ForeignSession
from loom_audit.model.events import CallReported
from loom_audit.ports import EventFilter


@pytest.fixture
def foreign(workspace: AuditedWorkspace) -> ForeignSession:
    return workspace.start_foreign_session("client", id="s", pid=os.getpid())


def test_it_is_found_by_the_call(workspace: AuditedWorkspace, foreign: ForeignSession) -> None:
    foreign.begin_call("c1", "Bash")
    ended = foreign.end_call("c1", "running")
    foreign.begin_call("c2", "Bash")
    foreign.end_call("c2")
    reported = foreign.end_call("c1", "ok", "done at last")
    foreign.begin_call("c3", "Bash")
    foreign.end_call("c3")
    own = [event.seq for event in workspace.timeline.events(EventFilter(call_id="c1"))]
    assert own[-2:] == [ended.seq, reported.seq]
    for seq in (ended.seq, reported.seq):
        detail = workspace.timeline.call(seq)
        assert (detail.call.call_id, detail.call.status) == ("c1", "running")
        assert [event.seq for event in detail.events] == own
        assert [e.fact.status for e in detail.events if isinstance(e.fact, CallReported)] == ["ok"]
    for filter, found in [
        (EventFilter(call_id="c1", before=reported.seq), own[:-1]),
        (EventFilter(call_id="c1", kinds=("call.reported",)), own[-1:]),
        (EventFilter(call_id="c1", kinds=("call.finished",)), [ended.seq]),
        (EventFilter(call_id="c1", newest_first=True, limit=1), own[-1:]),
    ]:
        assert [event.seq for event in workspace.timeline.events(filter)] == found


def test_it_is_not_another_session_s_call_of_the_same_id(
    workspace: AuditedWorkspace, foreign: ForeignSession
) -> None:
    other = workspace.start_foreign_session("client", id="other", pid=os.getpid())
    for one in (foreign, other):
        one.begin_call("c1", "Bash")
    mine = foreign.end_call("c1", "running")
    theirs = other.end_call("c1")
    reported = foreign.end_call("c1", "error")
    assert workspace.timeline.call(mine.seq).events[-1].seq == reported.seq
    assert workspace.timeline.call(theirs.seq).events[-1].seq == theirs.seq


@pytest.mark.parametrize(
    ("status", "failed"),
    [("ok", 0), ("running", 0), ("unknown", 0), ("error", 1), ("denied", 1), ("cancelled", 1)],
)
def test_a_call_that_goes_on_or_whose_end_is_not_known_has_not_failed(
    workspace: AuditedWorkspace, foreign: ForeignSession, status: Any, failed: int
) -> None:
    foreign.begin_call("c1", "Bash")
    foreign.end_call("c1", status)
    assert workspace.timeline.session("s").errors == failed
    workspace.rebuild()
    assert workspace.timeline.session("s").errors == failed
