"""Why a call was made, by what its own session was asked, and what stands out in a session."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from loom_audit import AuditedWorkspace, Session
from loom_audit.api.review.conversation import Why, conversation_of
from loom_audit.errors import Corrupt
from loom_audit.history.read.flagged import flags_of
from loom_audit.history.read.review import review_session
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from tests.history.read.lines.test_net_change import run
from tests.integrity.test_verified_reads import forge


def why(workspace: AuditedWorkspace) -> Why:
    """Why the newest call was made."""
    return conversation_of(workspace).why(workspace.timeline.calls()[0])


def test_what_was_asked_after_a_subagent_began_is_not_a_reason_of_its_calls(
    workspace: AuditedWorkspace, session: Session
) -> None:
    session.writer.record(PromptSubmitted("the reason"))
    with workspace.session("part", parent=session.id) as part:
        session.writer.record(PromptSubmitted("something else"))
        run(part, "write_file", path="new", content="new\n")
    found = why(workspace).prompt
    assert found and found.text == "the reason"


@pytest.mark.parametrize("role", ["prompt", "assistant"])
def test_a_row_that_gives_a_session_what_another_was_told_is_corrupt(
    role: str, workspace: AuditedWorkspace, session: Session
) -> None:
    with workspace.session("other") as other:
        other.writer.record(PromptSubmitted("the other's"))
        other.writer.record(MessageReceived("assistant", "the other's words"))
    run(session, "write_file", path="new", content="new\n")
    number = f"(SELECT number FROM session WHERE id = '{session.id}')"
    forge(workspace, f"UPDATE spoken SET session = {number} WHERE role = '{role}'")
    with pytest.raises(Corrupt, match="not what the log says"):
        why(workspace)


def test_a_row_that_puts_a_session_into_another_gives_it_no_reason(
    workspace: AuditedWorkspace, session: Session
) -> None:
    with workspace.session("other") as other:
        other.writer.record(PromptSubmitted("the other's"))
    with workspace.session("alone") as alone:
        run(alone, "write_file", path="new", content="new\n")
    forge(workspace, f"UPDATE session SET parent = '{other.id}' WHERE id = '{alone.id}'")
    assert why(workspace).prompt is None


def test_files_that_were_moved_are_not_deleted(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    for n in range(12):
        (root / f"m{n}").write_text(f"{n}\n")
    run(session, "shell_execute", command="mkdir d && mv m* d")
    deleting = run(session, "shell_execute", command="mv d/m0 m0; rm -r d")
    timeline = workspace.timeline
    flagged = review_session(timeline, session.id).flagged["deletions"]
    assert {call.seq for call in timeline.calls() if call.requested in flagged} == {deleting}


def test_a_call_that_was_denied_was_not_allowed_the_network(
    workspace: AuditedWorkspace, session: Session
) -> None:
    run(session, "write_file", path="new", content="new\n")
    call = replace(workspace.timeline.calls()[0], effect="network")
    for status, found in (("ok", {call.requested}), ("denied", set())):
        assert flags_of([replace(call, status=status)], (), {}, {})["network"] == found
