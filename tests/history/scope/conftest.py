"""The fixtures of the history's tests, on the disk: what is proven here depends on its inodes."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from tests.places.on_disk import tmp_path_factory as tmp_path_factory

Run = Callable[[str], int]


@pytest.fixture
def run(session: Session, workspace: AuditedWorkspace, root: Path) -> Run:
    """Record a shell command in the session; its call's number."""

    def run(command: str) -> int:
        with session.recording("command"):
            subprocess.run(["sh", "-c", command], cwd=root, check=True)
        return workspace.timeline.calls()[0].seq or 0

    return run
