"""Calls that another program reports, when the folder of the workspace is gone."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ForeignSession, NoWorkspace, open_store


@pytest.fixture
def foreign(workspace: AuditedWorkspace) -> ForeignSession:
    foreign = workspace.start_foreign_session("client", id="s", pid=os.getpid())
    foreign.begin_call("c1", "Bash")
    return foreign


def test_the_end_of_a_call_is_recorded_and_nothing_of_what_it_changed(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    root.rename(root.with_name("away"))
    ended = foreign.end_call("c1", "ok", "done")
    call = workspace.timeline.call(ended.seq).call
    assert (call.status, call.paths, call.coverage.level) == ("ok", (), "none")
    assert call.coverage.reasons == ("the workspace is gone",)
    foreign.end()
    assert workspace.timeline.session("s").status == "completed"
    assert workspace.verify().findings == ()


def test_a_call_that_deletes_the_workspace_owns_that(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    tree = set(workspace.timeline.tree())
    shutil.rmtree(root)
    ended = foreign.end_call("c1", "ok", "done")
    call = workspace.timeline.call(ended.seq).call
    assert (call.status, set(call.paths), call.coverage.level) == ("ok", tree, "partial")
    assert call.coverage.reasons == ("the workspace's own folder was deleted",)
    foreign.end()
    workspace.carry_out(workspace.plan_undo())
    assert set(workspace.timeline.tree()) == tree and workspace.status().drift == ()


@pytest.mark.parametrize("reopened", [False, True])
def test_a_session_is_ended_with_its_open_calls(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path, reopened: bool
) -> None:
    root.rename(root.with_name("away"))
    with open_store() as store:
        (store.workspace(workspace.id) if reopened else workspace).end_session("s")
    [call] = workspace.timeline.calls()
    assert (call.status, call.coverage.level) == ("unknown", "none")
    assert "the workspace is gone" in call.coverage.reasons
    assert workspace.timeline.session("s").status == "interrupted"
    assert workspace.verify().findings == ()


def test_calls_of_a_client_that_died_are_closed_when_the_workspace_is_back(
    workspace: AuditedWorkspace,
    foreign: ForeignSession,
    root: Path,
    client: subprocess.Popen[bytes],
) -> None:
    other = workspace.start_foreign_session("client", id="other", pid=client.pid)
    other.begin_call("c2", "Bash")
    client.kill()
    client.wait()
    away = root.rename(root.with_name("away"))
    with pytest.raises(NoWorkspace):
        workspace.recover()
    foreign.end_call("c1")
    away.rename(root)
    (root / "made").touch()
    [closed] = workspace.recover()
    assert (closed.call.status, closed.call.paths) == ("interrupted", ())
