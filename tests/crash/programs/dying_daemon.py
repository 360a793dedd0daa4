"""The warm process, killed between two of its steps: the file of plans says before which.

Each line of it is for one start: a number of steps, 0 for none. A step is what others may see: a
commit, a file kept beside the store, a hook that is taken up or answered.
"""

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loom_audit import open_store
from loom_audit.api.agents.clients import Hooks
from loom_audit.daemon import run_daemon
from loom_audit.disk.machine.looks import DiskLooks
from loom_audit.history.record.call_record import CallRecord
from loom_audit.history.told.ingest import Ingest
from loom_audit.sql.store.event_log import SqlEventLog

HOME = Path(os.environ["LOOM_AUDIT_HOME"])
PLANS = HOME / "plans"


def next_plan() -> int:
    first, *rest = [*PLANS.read_text().split(), "0"]
    PLANS.write_text(" ".join(rest))
    return int(first)


def main() -> None:
    planned = next_plan()
    steps = itertools.count(1)

    def step() -> None:
        if next(steps) == planned:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(owner: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def stepped(*args: Any, **named: Any) -> Any:
            step()
            done = real(*args, **named)
            step()
            return done

        setattr(owner, name, stepped)

    for owner, name in (
        (SqlEventLog, "append"),
        (CallRecord, "update_index"),
        (DiskLooks, "keep"),
        (DiskLooks, "discard"),
        (Hooks, "answer"),
        (Ingest, "record_ended"),
        (Ingest, "apply"),
    ):
        around(owner, name)
    with open_store() as store:
        run_daemon(store, HOME / "hooks", sys.argv[sys.argv.index("--socket") + 1])


if __name__ == "__main__":
    main()
