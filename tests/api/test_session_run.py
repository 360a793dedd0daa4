"""A command run in a session with the terminal passed through, as `loom-audit run` does."""

import sys

import pytest

from loom_audit import AuditedWorkspace, Conflict, ExecutionFailed


def test_a_command_is_one_call_with_what_it_changed(workspace: AuditedWorkspace) -> None:
    with workspace.session("tester") as session:
        ran = session.run(["sh", "-c", "echo more >> a.txt; exit 3"])
    assert ran.result.exit_code == 3
    assert (ran.files_changed, ran.coverage.level) == (("a.txt",), "full")
    detail = workspace.timeline.call(ran.event.seq)
    assert (detail.call.tool, detail.call.status, detail.call.paths) == ("run", "error", ("a.txt",))
    assert detail.arguments["argv"] == ["sh", "-c", "echo more >> a.txt; exit 3"]
    assert detail.result["data"] == {"exit_code": 3, "survivors": []}


def test_a_command_runs_where_and_with_what_the_session_says(workspace: AuditedWorkspace) -> None:
    program = "import os; open('made', 'w').write(os.environ['STAGE'])"
    with workspace.session("tester", cwd="src", environment={"STAGE": "test"}) as session:
        assert session.run([sys.executable, "-c", program]).files_changed == ("src/made",)
        session.run([sys.executable, "-c", program], cwd="")
    assert sorted(workspace.timeline.tree()) == ["a.txt", "made", "src", "src/made"]


def test_a_command_that_is_not_there_is_an_error_on_record(workspace: AuditedWorkspace) -> None:
    with workspace.session("tester") as session:
        with pytest.raises(ExecutionFailed) as refused:
            session.run(["no-such-program-anywhere"])
        assert refused.value.details["exit_code"] == 127
    (call,) = workspace.timeline.calls()
    assert (call.tool, call.status) == ("run", "error")


def test_no_command_runs_when_the_session_has_ended(workspace: AuditedWorkspace) -> None:
    with workspace.session("tester") as session:
        pass
    with pytest.raises(Conflict):
        session.run(["touch", "made"])
    assert not workspace.timeline.calls()
