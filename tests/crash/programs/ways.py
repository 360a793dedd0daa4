"""What a child does that is killed before or after a commit: one call, by each way in."""

import functools
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio

from loom_audit import AuditedWorkspace
from loom_audit.api.control import holding
from loom_audit.errors import AuditError
from loom_audit.history.record.call import OpenCall
from loom_audit.sql.store.event_log import SqlEventLog

Order = Mapping[str, Any]


def die_at_commit(nth: int, when: str, number: int = signal.SIGKILL) -> None:
    """Be sent the signal right before the commit of this number, or right after it."""
    append = SqlEventLog.append
    count = 0

    @functools.wraps(append)
    def mortal(log: SqlEventLog, drafts: Any) -> Any:
        nonlocal count
        if not drafts:
            return append(log, drafts)
        count += 1
        if (count, when) == (nth, "before"):
            os.kill(os.getpid(), number)
        events = append(log, drafts)
        if (count, when) == (nth, "after"):
            os.kill(os.getpid(), number)
        return events

    setattr(SqlEventLog, "append", mortal)  # noqa: B010 - a method of a class


def tool(workspace: AuditedWorkspace, order: Order) -> None:
    with workspace.session("agent") as session:
        anyio.run(session.call, "write_file", {"path": "made", "content": "new\n"})


def shell(workspace: AuditedWorkspace, order: Order) -> None:
    with workspace.session("agent") as session:
        anyio.run(session.call, "shell_execute", {"command": "echo new > made"})


def run(workspace: AuditedWorkspace, order: Order) -> None:
    with workspace.session("agent") as session:
        session.run(["sh", "-c", "echo new > made"])


def recording(workspace: AuditedWorkspace, order: Order) -> None:
    with workspace.session("agent") as session, session.recording("block"):
        make(workspace)


def function(workspace: AuditedWorkspace, order: Order) -> None:
    with workspace.session("agent") as session:
        session.tool(make, effect="write", call_id="toolu_1")(workspace)


def steps(workspace: AuditedWorkspace, order: Order) -> None:
    """A call of ours of two steps and a failure."""
    with workspace.session("agent") as session:
        call = OpenCall(session.writer, "steps", {}, "write", call_id="c1")
        try:
            with call:
                call.edit("made", b"new\n")
                call.delete("old.txt")
                raise ValueError("no")
        except ValueError:
            pass


def undo(workspace: AuditedWorkspace, order: Order) -> None:
    workspace.carry_out(workspace.plan_undo())


def rollback(workspace: AuditedWorkspace, order: Order) -> None:
    workspace.carry_out(workspace.plan_rollback("@start"))


def rollback_held(workspace: AuditedWorkspace, order: Order) -> None:
    """With a foreign call open, begun before."""
    holding.hold_all(workspace, "going back")
    holding.carry_out(workspace, workspace.plan_rollback("@start", running=True))


def reports(workspace: AuditedWorkspace, order: Order) -> None:
    """Steps of a foreign session, in this order; errors of ours are told to nobody."""
    for step in order["steps"]:
        try:
            report(workspace, step, order["pid"])
        except AuditError:
            if not order.get("late"):
                raise


def report(workspace: AuditedWorkspace, step: str, pid: int) -> None:
    what, _, id = step.partition(" ")
    if what == "start":
        workspace.start_foreign_session("client", id="s", pid=pid)
    elif what == "begin":
        workspace.foreign_session("s").begin_call(id, "Bash", {"command": id})
    elif what == "make":
        Path(workspace.root, id).write_text("new\n")
    elif what == "end":
        workspace.foreign_session("s").end_call(id, "ok", f"{id} is done")
    else:
        assert what == "close", step
        workspace.foreign_session("s").end()


def make(workspace: AuditedWorkspace) -> str:
    Path(workspace.root, "made").write_text("new\n")
    return "made"


WAYS: Mapping[str, Callable[[AuditedWorkspace, Order], None]] = {
    "tool": tool,
    "shell": shell,
    "run": run,
    "recording": recording,
    "function": function,
    "steps": steps,
    "undo": undo,
    "rollback": rollback,
    "rollback held": rollback_held,
    "reports": reports,
}
