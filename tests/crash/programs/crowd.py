"""Many clients at once, each a process with a foreign session of its own.

`python -m tests.crash.programs.crowd ROOT COUNT` forks them from one that has loaded everything,
and ends when all of them have. Client n makes three calls on files of its own and one on a shared
file; every fifth is killed while its last call is open.
"""

import os
import signal
import sys
from pathlib import Path

from loom_audit import open_store

CALLS = 3


def killed(n: int) -> bool:
    """Whether client n is one of those that are killed."""
    return n % 5 == 4


def be_client(root: Path, n: int) -> None:
    with open_store() as store:
        workspace = store.workspace(root)
        session = workspace.start_foreign_session("client", id=f"s{n}", pid=os.getpid())
        for k in range(CALLS):
            own = f"{n}-{k}"
            paths = [own] if k % 2 == 0 else None
            session.begin_call(f"c{n}-{k}", "Write", {"k": k}, "write", paths=paths)
            (root / own).write_text(f"{own}\n")
            session.end_call(f"c{n}-{k}")
        session.begin_call(f"c{n}-last", "Bash", {})
        with (root / "shared").open("a") as shared:
            shared.write(f"{n}\n")
        if killed(n):
            os.kill(os.getpid(), signal.SIGKILL)
        session.end_call(f"c{n}-last")
        session.end()


def main() -> None:
    root, count = Path(sys.argv[1]), int(sys.argv[2])
    pids = {}
    for n in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                be_client(root, n)
            finally:
                sys.stderr.flush()
                os._exit(0 if sys.exc_info() == (None, None, None) else 1)
        pids[pid] = n
    for pid, n in pids.items():
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == (-9 if killed(n) else 0), n


if __name__ == "__main__":
    main()
