"""Commands that are running, to be told to stop or killed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.cli.shells import Shell

SECONDS = 60.0


def started(shell: Shell, script: str) -> "subprocess.Popen[bytes]":
    """`loom-audit run` of a script, once the script has made the file `ready`."""
    return _ready(shell, "run", "--", "sh", "-c", script)


def _ready(shell: Shell, *arguments: str, **more: Any) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-m", "loom_audit", *arguments],
        cwd=shell.workspace,
        env=shell.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        **more,
    )
    wait_for(shell.workspace / "ready")
    return process


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} never came"
        time.sleep(0.05)


def scratches(shell: Shell) -> list[str]:
    return [name for name in os.listdir(shell.home) if name.startswith("loom-audit-scratch-")]


def calling(shell: Shell, **more: Any) -> "subprocess.Popen[bytes]":
    """`loom-audit call` of a command that has made the file `ready`, scratch in the home."""
    shell.extra["TMPDIR"] = str(shell.home)
    arguments = json.dumps({"command": "touch ready; exec sleep 1000"})
    process = _ready(shell, "call", "shell_execute", arguments, **more)
    assert len(scratches(shell)) == 1
    return process
