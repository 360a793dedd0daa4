"""The other program, tests/crash/programs/other.py, at work beside a test."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio

from loom_audit import AuditedWorkspace
from loom_audit.model.files import BlobId
from tests.crash.programs.faults import ROOT


@contextmanager
def other(way: str, workspace: AuditedWorkspace) -> Iterator[list[dict[str, Any]]]:
    """The other program while the block runs; then the list holds what it said."""
    stop, said = Path(workspace.root).parent / "stop", Path(workspace.root).parent / "said"
    words: list[dict[str, Any]] = []
    with said.open("wb") as output:
        command = [
            sys.executable,
            "-m",
            "tests.crash.programs.other",
            way,
            workspace.root,
            str(stop),
        ]
        process = subprocess.Popen(command, cwd=ROOT, stdout=output)
        try:
            while not said.stat().st_size and process.poll() is None:
                anyio.run(anyio.sleep, 0.01)
            yield words
        finally:
            stop.touch()
            assert process.wait(60) == 0
    words += [json.loads(line) for line in said.read_text().splitlines()]


def holds(workspace: AuditedWorkspace, text: str) -> bool:
    return BlobId(sha256(text.encode()).hexdigest()) in workspace.blobs
