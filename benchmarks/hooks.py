"""An agent's whole call with our hooks around it, beside the same with hooks that do nothing.

A call is what a client does for one: it starts a hook through a shell, runs the command, starts a
hook again. Ours put the call on record, each with a durable commit, in the warm process.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from benchmarks.figures import Figure, Sizes, interleaved
from benchmarks.projects import fill, new_store
from loom_audit.api.agents.launcher import SOCKET, write_launcher
from loom_audit.config import read_settings

NOTHING = "import posix\nwhile posix.read(0, 1 << 20):\n    pass\n"
MOST = 1.5


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    for files in (300, 10_000) if sizes.quick else (300, 100_000):
        yield from _at(folder / str(files), files, 50 if sizes.quick else 200)
        shutil.rmtree(folder / str(files))


def _at(folder: Path, files: int, rounds: int) -> Iterator[Figure]:
    work, store = folder / "work", folder / "store"
    fill(work, files)
    with new_store(store) as opened:
        workspace = opened.attach(work)
        settings = read_settings(opened.url)
        write_launcher(settings)
        ours = settings.hooks / "hook_client.py"
        nothing = folder / "nothing.py"
        nothing.write_text(NOTHING)
        run = f"exec {os.path.realpath(sys.executable)} -I -S"
        works: dict[str, Callable[[], object]] = {
            "ours": _call(work, f"{run} {ours} claude-code"),
            "nothing": _call(work, f"{run} {nothing}"),
            "none": _call(work, ""),
        }
        try:
            times = interleaved(rounds, works, warm=5)
        finally:
            os.kill(_process(settings.hooks / SOCKET), signal.SIGTERM)
        calls = workspace.timeline.session("benchmark").calls
        if calls != rounds + 5:
            raise SystemExit(f"{calls} calls are on record")
    name = f"a call of an agent, {files:,} files"
    note = f"without hooks {times['none']:.1f} ms"
    yield Figure("hooks", name, times["ours"], "ms", "no-op hooks", times["nothing"], MOST, note)


def _call(work: Path, hook: str) -> Callable[[], object]:
    numbers = count()

    def tell(name: str, number: int, **more: object) -> None:
        if hook:
            given = {
                "session_id": "benchmark",
                "cwd": str(work),
                "hook_event_name": name,
                "tool_name": "Bash",
                "tool_input": {"command": "echo $$ > written"},
                "tool_use_id": f"call-{number}",
                **more,
            }
            data = json.dumps(given).encode()
            done = subprocess.run(["sh", "-c", hook], input=data, cwd=work, stdout=subprocess.PIPE)
            if done.returncode or done.stdout:
                raise SystemExit(f"the hook said {done.stdout!r}")

    def call() -> None:
        number = next(numbers)
        tell("PreToolUse", number)
        subprocess.run(["bash", "-c", "echo $$ > written"], cwd=work, check=True)
        tell("PostToolUse", number, tool_response={"stdout": "", "stderr": ""}, duration_ms=3)

    return call


def _process(path: Path) -> int:
    """The process that answers on a socket."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(path))
        told = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(told[:4], sys.byteorder)
