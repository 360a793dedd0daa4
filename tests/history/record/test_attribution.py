"""What the call of a process that has ended changed is its own, until recovery closes it."""

import os
import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ForeignSession
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.call import OpenCall
from loom_audit.model.coverage import Coverage, Effect


def owners(workspace: AuditedWorkspace, path: str) -> tuple[str | None, tuple[str, ...]]:
    [*_, last] = workspace.attachment.stored.tables.changes(paths=[path])
    calls = workspace.attachment.stored.tables
    return last.call_id, tuple(calls.call_at(seq).call_id for seq in last.causes if seq)


def dead_call(workspace: AuditedWorkspace) -> None:
    """An open call of a session that holds no lock, as that of a process that was killed."""
    writer = Writer(workspace.attachment, session="gone", actor="agent:gone")
    OpenCall(writer, "sh", {}, "execute", call_id="dead").announce()


def test_what_a_command_finds_of_a_dead_call_is_that_one_s_and_what_follows_is_not(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:
        dead_call(workspace)
        (root / "its").touch()
        with session.recording("block"):
            (root / "mine").touch()
        (root / "later").touch()
        session.run(["true"])
    assert owners(workspace, "its") == (None, ("dead",)), "or a person's"
    assert owners(workspace, "mine")[1] == ()
    block = next(call for call in workspace.timeline.calls() if call.tool == "block")
    assert (block.paths, block.coverage.level) == (("mine",), "full")


def test_a_call_that_began_and_died_during_a_command_may_have_changed_what_it_finds(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session, session.recording("block"):
        dead_call(workspace)
        (root / "made").touch()
    assert "dead" in owners(workspace, "made")[1]


@pytest.mark.parametrize("ours", [True, False])
def test_an_undo_attributes_what_it_finds_before_it(
    workspace: AuditedWorkspace, root: Path, ours: bool
) -> None:
    with workspace.session("agent") as session:
        session.run(["touch", "made"])
    if ours:
        dead_call(workspace)
    (root / "found").touch()
    workspace.carry_out(workspace.plan_undo(session=None if not ours else session.id))
    assert owners(workspace, "found") == (None, ("dead",) if ours else ())


# --- calls that end during another ---------------------------------------------------------


def client(workspace: AuditedWorkspace, id: str, pid: int | None = None) -> ForeignSession:
    return workspace.start_foreign_session("client", id=id, pid=pid or os.getpid())


def test_what_changes_after_a_call_has_ended_is_not_its_own_though_it_named_the_path(
    workspace: AuditedWorkspace, root: Path
) -> None:
    foreign = client(workspace, "f")
    foreign.begin_call("w", "Write", effect="write", paths=["a"])
    with workspace.session("agent") as session, session.recording("r", call_id="r") as block:
        (root / "a").write_text("theirs")
        foreign.end_call("w")
        (root / "a").write_text("ours")
    assert owners(workspace, "a") == ("r", ())
    assert (list(block.files_changed), block.coverage.level) == (["a"], "full")
    assert block.finish_event
    workspace.carry_out(workspace.plan_revert([block.finish_event.seq]))
    assert (root / "a").read_text() == "theirs"


def test_what_a_call_named_is_shared_with_it_when_nobody_looked_at_its_end(
    workspace: AuditedWorkspace, root: Path
) -> None:
    foreign = client(workspace, "f")
    foreign.begin_call("w", "Write", effect="write", paths=["a"])
    with workspace.session("agent") as session, session.recording("r", call_id="r"):
        (root / "a").touch()
        foreign.end_call("w", look=False)
        (root / "b").touch()
    assert owners(workspace, "a") == ("r", ("r", "w"))
    assert owners(workspace, "b") == ("r", ())


def test_a_command_that_was_looked_at_when_it_ended_has_no_part_in_what_follows(
    workspace: AuditedWorkspace, root: Path
) -> None:
    foreign = client(workspace, "f")
    foreign.begin_call("sh", "Bash")
    with workspace.session("agent") as session, session.recording("r", call_id="r"):
        (root / "both").touch()
        foreign.end_call("sh")
        (root / "mine").touch()
    assert set(owners(workspace, "both")[1]) == {"sh", "r"}
    assert owners(workspace, "mine") == ("r", ())


# --- calls within others -------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "ended by hand"])
def test_a_container_that_is_closed_has_no_part_in_what_a_call_within_it_changes(
    workspace: AuditedWorkspace, root: Path, how: str
) -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        outer, inner = client(workspace, "outer", process.pid), client(workspace, "inner")
        run = outer.begin_call("run", "run")
        inner.begin_call("i", "Bash", within=run.seq)
        (root / "x").touch()
        if how == "ended by hand":
            outer.end()
        process.kill()
    workspace.recover()
    inner.end_call("i")
    assert owners(workspace, "x")[1] == ("i",)
    call = workspace.attachment.stored.tables.call("inner", "i")
    assert call.coverage == Coverage("partial", ("looked at late",))


@pytest.mark.parametrize(("effect", "ended"), [("read", False), ("execute", True)])
def test_a_container_of_a_container_has_no_part_in_it_whatever_the_one_between_does(
    workspace: AuditedWorkspace, root: Path, effect: Effect, ended: bool
) -> None:
    foreign = client(workspace, "f")
    top = foreign.begin_call("top", "run")
    middle = foreign.begin_call("middle", "Task", effect=effect, within=top.seq)
    foreign.begin_call("low", "Bash", within=middle.seq)
    if ended:
        foreign.end_call("middle")
    (root / "x").touch()
    foreign.end_call("low")
    assert owners(workspace, "x") == ("low", ())
