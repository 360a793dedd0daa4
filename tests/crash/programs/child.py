"""The process that is killed, and the one it is forked from.

`python -m tests.crash.programs.child` imports everything once, then forks a child for each order it
reads (one JSON line) and prints how the child ended. A child writes JSON lines to its report
file, each before anything else happens: `ack` after every acknowledged call, with the tree
head of that moment. At the stage it is told to hold at, it names the thread that will do the
work and waits for the file `go`.
"""

import ctypes
import functools
import gc
import json
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from loom_audit import AuditedWorkspace, AuditStore, Session, open_store
from loom_audit.cli.shared.exits import told_to_end
from loom_audit.history.record.call import OpenCall
from loom_audit.sql.ground import driver
from loom_audit.tools.calls.thread import in_thread
from tests.crash.programs.ways import WAYS, die_at_commit
from tests.tapes.plans import take_back_something
from tests.tapes.tape import look, recording

PR_SET_PTRACER = 0x59616D61
PTRACER_ANY = -1


class Reporter:
    """Says what was acknowledged, and waits where it is told to."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.order = order
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._descriptor = os.open(order["report"], flags, 0o600)

    def say(self, **words: Any) -> None:
        os.write(self._descriptor, json.dumps(words).encode() + b"\n")

    def ack(self, workspace: AuditedWorkspace, **words: Any) -> None:
        """What was returned to the caller until now must never be lost."""
        head = workspace.head()
        self.say(ack=head.size, root=head.root.hex(), **words)

    def hold(self, stage: str) -> None:
        if self.order.get("hold") != stage:
            return
        self.say(hold=stage, thread=threading.get_native_id(), descriptor=self._descriptor)
        go = self.order["go"]
        while not os.path.exists(go):
            time.sleep(0.002)

    async def hold_worker(self) -> None:
        await in_thread(lambda: self.hold("call"))


async def call(report: Reporter, session: Session, tool: str, **arguments: Any) -> None:
    result = await session.call(tool, arguments)
    report.ack(
        session.workspace,
        tool=tool,
        success=result.success,
        code=result.error.code if result.error else "",
        message=str(result.error or ""),
        files=result.files_changed,
    )


def in_session(work: Callable[[Reporter, Session], Any]) -> Callable[[Reporter], None]:
    """The work inside a session of the workspace, opened and closed around it."""

    def whole(report: Reporter) -> None:
        report.hold("open")
        with open_store() as store:
            workspace = store.workspace(report.order["root"])
            session = workspace.session("crasher")
            with session:
                report.ack(workspace, tool="(session)", success=True)

                async def calls() -> None:
                    await report.hold_worker()
                    await work(report, session)

                anyio.run(calls)
            report.ack(workspace, tool="(end)", success=True)
        report.say(end=True)

    return whole


@in_session
async def write(report: Reporter, session: Session) -> None:
    await call(report, session, "write_file", path="old.txt", content="new\n" * 3000)


@in_session
async def writes(report: Reporter, session: Session) -> None:
    for n in range(5):
        await call(report, session, "write_file", path=f"many/{n}.txt", content=f"new {n}\n" * 50)


@in_session
async def shell(report: Reporter, session: Session) -> None:
    await call(report, session, "shell_execute", command=SHELL)


SHELL = """
i=0; while [ $i -lt 20 ]; do echo "changed $i" > many/$i.txt.new; mv many/$i.txt.new many/$i.txt
i=$((i + 1)); done
rm many/30.txt many/31.txt; mv many/32.txt many/moved.txt; mkdir made; echo x > made/x
ln -s ../old.txt made/link; chmod 700 many/33.txt; rm -r emptied
"""


def rollback(report: Reporter) -> None:
    """Back to the checkpoint `start`, in the thread that reports."""
    report.hold("open")
    with open_store() as store:
        workspace = store.workspace(report.order["root"])
        plan = workspace.plan_rollback("@start")
        try:
            done = workspace.carry_out(plan, actor="person:crasher")
        except Exception as error:  # noqa: BLE001 - told to the test
            code = getattr(error, "code", type(error).__name__)
            report.ack(workspace, tool="rollback", success=False, code=code, message=str(error))
        else:
            report.ack(workspace, tool="rollback", success=True, files=list(done.changed))
    report.say(end=True)


def attach(report: Reporter) -> None:
    """Put a new directory under audit."""
    report.hold("open")
    with open_store() as store:
        workspace = store.attach(report.order["root"])
        report.ack(workspace, tool="(attach)", success=True)
    report.say(end=True)


def appends(report: Reporter) -> None:
    """Many acknowledged appends by one thread, some with large contents."""
    report.hold("open")
    with open_store() as store:
        workspace = store.workspace(report.order["root"])
        with workspace.session("crasher") as session:
            for n in range(report.order["count"]):
                one = OpenCall(session.writer, "write_file", {"n": n}, "write", call_id=f"call-{n}")
                size = 400_000 if n % 40 == 20 else 200 * (n % 7)
                large = random.Random(n).randbytes
                content = large(size) if n % 40 == 20 else f"{n}\n".encode() * size
                one.edit(f"file-{n % 5}", content, final=True)
                one.finish("ok", {"success": True, "output": f"wrote {n}"})
                report.ack(workspace, call=f"call-{n}")
    report.say(end=True)


def writer(report: Reporter) -> None:
    """Write until killed: a file of one's own, and one shared with the other writers."""
    name = report.order["name"]
    report.say(pid=os.getpid())
    with open_store() as store:
        workspace = store.workspace(report.order["root"])
        with workspace.session(name) as session:
            report.say(session=session.id)

            async def forever() -> None:
                n = 0
                while not os.path.exists(report.order["stop"]):
                    n += 1
                    text = f"{name} {n}\n" * (1 + n % 40)
                    for path in (f"{name}.txt", "shared.txt"):
                        made = {"path": path, "content": text}
                        result = await session.call("write_file", made, call_id=f"{path}-{n}")
                        report.say(
                            call=f"{path}-{n}",
                            success=result.success,
                            code=result.error.code if result.error else "",
                            message=str(result.error or ""),
                            session=session.id,
                            head=workspace.log.head(),
                        )

            anyio.run(forever)
    report.say(end=True)


def way(report: Reporter) -> None:
    """One of `ways`, killed at the commit that the order names, if it names one."""
    order = report.order
    with open_store() as store:
        workspace = store.workspace(order["root"])
        if "commit" in order:
            die_at_commit(order["commit"], order["when"], order.get("signal", signal.SIGKILL))
        with told_to_end():
            WAYS[order["way"]](workspace, order)
    report.say(end=True)


def tape(report: Reporter) -> None:
    """Play on until killed, saying before each step what is on disk that must not be lost."""
    report.say(pid=os.getpid())
    releases = [Path(path) for path in report.order["releases"]]
    chosen = random.Random(report.order["seed"])
    with open_store() as store:
        workspace = store.workspace(report.order["root"])
        with recording(workspace, chosen, releases, report.order["name"]) as playing:
            for n in range(10_000):
                if n % 2:
                    playing.edit()
                contents = {state[2] for state in look(playing.root).tree.values()}
                report.ack(workspace, contents=sorted(contents))
                if chosen.random() < 0.4:
                    take_back_something(playing)
                else:
                    earlier, release = chosen.sample(releases, 2)
                    playing.act(functools.partial(playing.agents.act, release, earlier))
                report.ack(workspace, step=n)
    report.say(end=True)


SCENARIOS: Mapping[str, Callable[[Reporter], None]] = {
    "write": write,
    "writes": writes,
    "shell": shell,
    "rollback": rollback,
    "attach": attach,
    "appends": appends,
    "writer": writer,
    "tape": tape,
    "way": way,
}


def less_durable() -> None:
    """The control: the same recorder with synchronous=NORMAL must lose what it acknowledged."""
    safe = driver._set_up

    @functools.wraps(safe)
    def unsafe(connection: Any, mode: Any) -> None:
        safe(connection, mode)
        connection.execute("PRAGMA synchronous=NORMAL")

    driver._set_up = unsafe


def obey(order: Mapping[str, Any]) -> None:
    """Be the child: never returns."""
    status = 1
    report = Reporter(order)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PTRACER, PTRACER_ANY, 0, 0, 0)
        os.environ["LOOM_AUDIT_HOME"] = order["home"]
        if order.get("unsafe"):
            less_durable()
        SCENARIOS[order["scenario"]](report)
        status = 0
    except BaseException as error:  # noqa: BLE001 - told to the test
        code = getattr(error, "code", type(error).__name__)
        report.say(error=code, message=str(error), trace=traceback.format_exc())
    finally:
        os._exit(status)


def warm_up(folder: str) -> None:
    """Load what is loaded when first used, so that children need not."""
    home, root = Path(folder) / "warm-home", Path(folder) / "warm-root"
    (root / "many").mkdir(parents=True)
    (root / "old.txt").write_text("old\n")
    os.environ["LOOM_AUDIT_HOME"] = str(home)
    store: AuditStore
    with open_store() as store:
        store.attach(root).checkpoint("start")
    order = {"home": str(home), "root": str(root), "report": os.devnull, "count": 1}
    for scenario in ("write", "shell", "rollback", "appends"):
        SCENARIOS[scenario](Reporter(order))
    gc.collect()


def main() -> None:
    """Serve orders until the input ends."""
    warm_up(sys.argv[1])
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            obey(json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
