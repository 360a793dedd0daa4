"""A move that is taken back and killed between its halves: nothing is at either path."""

import asyncio
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.model.files import Move
from tests.processes.ordinary_user import ordinary_session
from tests.processes.stopped import killed_after

HALF = (Move("moved.txt", "a.txt"),)


@pytest.fixture
def stopped(workspace: AuditedWorkspace, root: Path) -> AuditedWorkspace:
    with workspace.session("agent") as session:
        asyncio.run(session.call("move_file", {"from": "a.txt", "to": "moved.txt"}))
    killed_after(1, root, lambda one: one.carry_out(one.plan_undo()))
    assert not (root / "a.txt").exists() and not (root / "moved.txt").exists()
    return workspace


def test_it_is_said_to_be_half_moved_until_it_is_finished(
    stopped: AuditedWorkspace, root: Path
) -> None:
    assert stopped.status().halves == HALF
    [waiting] = stopped.recover()
    assert waiting.waiting and waiting.halves == HALF
    [done] = stopped.recover("continue")
    assert done.halves == () and stopped.status().halves == ()
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert stopped.verify().ok


def test_one_that_is_left_says_so_in_its_call_and_is_taken_back(
    stopped: AuditedWorkspace, root: Path
) -> None:
    [left] = stopped.recover("abandon")
    assert left.halves == HALF and stopped.status().halves == ()
    result = stopped.timeline.call(left.call.seq or 0).result
    assert result["data"]["half_moved"] == [["moved.txt", "a.txt"]]
    stopped.carry_out(stopped.plan_revert([left.call.seq or 0]))
    assert (root / "moved.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert stopped.verify().ok


def test_a_move_that_was_not_begun_is_none(workspace: AuditedWorkspace, root: Path) -> None:
    (root / "b.txt").write_text("b")
    with workspace.session("agent") as session:
        asyncio.run(session.call("write_file", {"path": "a.txt", "content": "new"}))
        asyncio.run(session.call("move_file", {"from": "b.txt", "to": "c.txt"}))
    killed_after(3, root, lambda one: one.carry_out(one.plan_rollback("head~2")))
    assert (root / "b.txt").exists() or (root / "c.txt").exists()
    assert workspace.status().halves == ()


def test_it_is_not_said_of_what_lies_where_nobody_may_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ordinary_session({"d/a.txt": "one\n"}, monkeypatch) as session:
        asyncio.run(session.call("move_file", {"from": "d/a.txt", "to": "d/b.txt"}))
        workspace, root = session.workspace, Path(session.workspace.root)
        killed_after(1, root, lambda one: one.carry_out(one.plan_undo()))
        assert workspace.status().halves == (Move("d/b.txt", "d/a.txt"),)
        (root / "d").chmod(0)
        assert workspace.status().halves == ()
        (root / "d").chmod(0o755)
        workspace.recover("continue")
        assert (root / "d" / "a.txt").read_text() == "one\n"
