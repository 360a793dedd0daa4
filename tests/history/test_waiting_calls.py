"""Calls that wait for an answer while others work, and when their process dies."""

import anyio

from loom_audit.history import approvals
from loom_audit.history.recorder import Recorder
from loom_audit.model.events import ApprovalRequested
from loom_audit.tools.approvals.asking_gate import AskingGate
from loom_audit.tools.approvals.policy import read_policy
from loom_audit.tools.calls.gate import Decision

ASK = read_policy({"rule": [{"tool": "shell_execute", "action": "ask"}]})


def test_what_others_change_while_a_command_waits_is_not_its_doing(session, root, workspace):
    async def ask(request):
        (root / "a.txt").write_text("by a person\n")
        other = workspace.session("other")
        with other:
            assert (await other.call("write_file", {"path": "a.txt", "content": "x"})).success
        (root / "late.txt").write_text("by a person\n")
        return Decision("allowed", "person:me")

    session.gate = AskingGate(ASK, ask=ask)
    result = anyio.run(session.call, "shell_execute", {"command": "echo x > made.txt"})
    assert result.files_changed == ["made.txt"]
    found = {c.change.path: c.origin for c in workspace.timeline.projections.changes()}
    assert found["late.txt"] == "outside" and found["made.txt"] == "command"
    assert workspace.timeline.history("a.txt")[1].origin == "outside"
    assert all(call.coverage.level == "full" for call in workspace.timeline.calls())


def test_a_call_that_waits_in_a_dead_process_is_closed_and_nothing_is_its_doing(workspace, root):
    """The session of this recorder holds no lock, as that of a dead process."""
    recorder = Recorder(workspace.attachment, session="gone", actor="agent:gone")
    call = recorder.begin("shell_execute", {"command": "rm a.txt"}, "execute", call_id="c1")
    question = ApprovalRequested("c1", "shell_execute", {"command": "rm a.txt"}, "rule 1")
    asked = approvals.ask(call, question, requested=0)
    (root / "a.txt").write_text("by a person\n")
    (waiting,) = approvals.pending(workspace.attachment)
    assert waiting.seq == asked.seq and not waiting.alive
    (closed,) = workspace.recover()
    assert closed.call.status == "interrupted" and closed.call.coverage.level == "full"
    assert "before it had an answer" in closed.call.error
    assert approvals.pending(workspace.attachment) == []
    assert [change.path for change in workspace.status().drift] == ["a.txt"]
    assert workspace.verify().findings == ()
