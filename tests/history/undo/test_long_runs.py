"""A plan that takes back what a command changed that ran for long, beside which people work."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace


def long_call(workspace: AuditedWorkspace, root: Path, seconds: int, effect: str) -> int:
    """A call of a client in whose time it and a person changed files; its number."""
    client = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    now = datetime.now(UTC)
    paths = None if effect == "execute" else ["made", "mine"]
    client.begin_call("c", "Bash", None, effect, at=now - timedelta(seconds=seconds), paths=paths)  # type: ignore[arg-type]
    (root / "made").write_text("by the command\n")
    (root / "mine").write_text("by a person\n")
    number = client.end_call("c", at=now).seq
    client.begin_call("d", "Read", None, "read")
    client.end_call("d")
    return number


def test_a_plan_says_that_edits_beside_a_long_command_count_as_its_own(
    workspace: AuditedWorkspace, root: Path
) -> None:
    number = long_call(workspace, root, 5880, "execute")
    plan = workspace.plan_revert([number])
    assert {change.path for change in plan.changes} == {"made", "mine"}
    [note] = plan.ran_long
    call = workspace.timeline.call(number).call
    assert note.reason == (
        f"call {number} ran for 1 h 38 min from {call.at:%Y-%m-%d %H:%M:%S} UTC on: what changed "
        "meanwhile and is of no other call counts as its own, with edits of yours and of other "
        "programs"
    )
    assert note.calls == (number,) and not plan.in_part
    workspace.carry_out(plan)
    assert not (root / "mine").exists()
    assert workspace.plan_undo().ran_long == ()


@pytest.mark.parametrize(("seconds", "effect"), [(59, "execute"), (5880, "write")])
def test_nothing_is_said_of_a_short_command_or_of_a_tool_that_names_its_paths(
    workspace: AuditedWorkspace, root: Path, seconds: int, effect: str
) -> None:
    number = long_call(workspace, root, seconds, effect)
    plan = workspace.plan_revert([number])
    assert plan.changes and plan.ran_long == ()


def test_a_rollback_says_it_of_the_long_commands_that_it_takes_back(
    workspace: AuditedWorkspace, root: Path
) -> None:
    start = workspace.log.head()
    number = long_call(workspace, root, 5880, "execute")
    plan = workspace.plan_rollback(str(start))
    assert [note.calls for note in plan.ran_long] == [(number,)]
    assert workspace.plan_rollback(str(workspace.log.head())).ran_long == ()
    workspace.carry_out(plan)
    assert not (root / "mine").exists() and workspace.verify().ok
