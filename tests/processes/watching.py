"""`loom-audit watch` in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def watching(
    root: Path, environment: Mapping[str, str], *options: str
) -> Iterator["subprocess.Popen[str]"]:
    """A watcher of the workspace, once what was there before is on record; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loom_audit", "watch", *options],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        if "--json" in options:
            assert json.loads(line(process))["note"].startswith("what changed before")
        else:
            assert process.stderr.readline().startswith(f"watching {root}")
            assert process.stderr.readline().startswith("what changed before is on record")
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: "subprocess.Popen[str]") -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    return process.stdout.readline()
