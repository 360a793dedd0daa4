"""What `loom-audit watch` costs: memory and time while nothing happens, and the hooks beside it."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.figures import Figure, Sizes, interleaved
from benchmarks.hooks import _call, _process
from benchmarks.projects import content, fill, new_store
from loom_audit.api.agents.launcher import SOCKET, write_launcher
from loom_audit.config import read_settings

MOST_MEMORY, MOST_DEARER = 60, 1.03
_IDLE = 20.0
"""Seconds for which nothing happens."""


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    yield from _idle(folder / "idle", 1_000 if sizes.quick else 10_000)
    yield from _hooks(folder / "hooks", 50 if sizes.quick else 300)


@contextmanager
def _watching(store: Path, work: Path) -> Iterator[int]:
    """A watcher of the workspace that has looked at everything; its process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loom_audit", "watch", "--quiet", str(work)],
        env={**os.environ, "LOOM_AUDIT_STORE": str(store / "audit.db")},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for _ in range(2):
        process.stderr.readline()
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


# --- while nothing happens ----------------------------------------------------------------


def _idle(folder: Path, folders: int) -> Iterator[Figure]:
    """Ten files in each of so many folders, beside the watcher of one file."""
    seen = {}
    for name, count in (("small", 1), ("large", folders)):
        work, store = folder / name, folder / f"{name}-store"
        for n in range(count):
            (work / f"p{n // 100}" / f"d{n}").mkdir(parents=True)
            for m in range(10 if count > 1 else 1):
                (work / f"p{n // 100}" / f"d{n}" / f"f{m}").write_bytes(content(n * 10 + m)[:2000])
        with new_store(store) as opened:
            opened.attach(work)
        with _watching(store, work) as process:
            (work / "p0" / "d0" / "f0").write_bytes(b"one edit")
            time.sleep(80)  # what it knows is forgotten a minute later
            before = _seconds(process)
            time.sleep(_IDLE)
            seen[name] = _resident(process), _seconds(process) - before
    (idle, _), (ours, spent) = seen["small"], seen["large"]
    shown = f"watching {folders * 10:,} files in {folders:,} folders"
    alone = _interpreter()
    note = f"above {idle:.0f} MiB of a watcher of one file; {ours - alone:.0f} above an idle Python"
    yield Figure("watching", shown, ours - idle, "MiB", most=MOST_MEMORY, note=note)
    note = f"of {_IDLE:.0f} s in which nothing happens"
    yield Figure("watching", "… processor", spent * 1000, "ms", most=10, note=note)
    shutil.rmtree(folder)


def _interpreter() -> float:
    """The memory of a Python that does nothing, in MiB."""
    waits = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", waits], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        resident = _resident(process.pid)
        process.stdin.close()
    return resident


def _resident(process: int) -> float:
    """The memory of a process, in MiB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1024 * 1024)


def _seconds(process: int) -> float:
    """How long a process has run on a processor."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- an agent's calls beside it -----------------------------------------------------------


def _hooks(folder: Path, rounds: int) -> Iterator[Figure]:
    """Calls in a workspace that is watched, in turns with calls in one that is not."""
    works: dict[str, Callable[[], object]] = {}
    sockets = []
    with ExitStack() as stack:
        for name in ("watched", "alone"):
            work, store = folder / name, folder / f"{name}-store"
            fill(work, 1_000)
            opened = stack.enter_context(new_store(store))
            opened.attach(work)
            settings = read_settings(opened.url)
            write_launcher(settings)
            sockets.append(settings.hooks / SOCKET)
            client = settings.hooks / "hook_client.py"
            run = f"exec {os.path.realpath(sys.executable)} -I -S {client} claude-code"
            works[name] = _call(work, run)
            if name == "watched":
                stack.enter_context(_watching(store, work))
        try:
            times = interleaved(rounds, works, warm=5)
        finally:
            for socket in sockets:
                os.kill(_process(socket), signal.SIGTERM)
    shown = "a call of an agent, watched"
    yield Figure(
        "watching", shown, times["watched"], "ms", "not watched", times["alone"], MOST_DEARER
    )
