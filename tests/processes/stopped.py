"""A process that is killed while it writes files, as a server is that takes something back."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from loom_audit import AuditedWorkspace, open_store
from loom_audit.disk.writing import exchange

Act = Callable[[AuditedWorkspace], object]


def killed_after(written: int, root: Path, act: Act) -> None:
    """Do something in a process of its own, which is killed when so many paths are in place."""
    pid = os.fork()
    if pid == 0:
        try:
            die_after(written)
            with open_store() as store:
                act(store.workspace(root))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def die_after(written: int) -> None:
    put = exchange._renamed_at_once
    left = [written]

    def mortal(source: exchange.Location, target: exchange.Location, flags: int) -> bool:
        done = put(source, target, flags)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    exchange._renamed_at_once = mortal  # in this process only, which ends


def roll_back(point: str | int) -> Act:
    return lambda workspace: workspace.carry_out(workspace.plan_rollback(point))
