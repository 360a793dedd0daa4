"""The fixtures of the history's tests, on the disk: what is proven here depends on its inodes."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from tests.history.conftest import call as call
from tests.history.conftest import home as home
from tests.history.conftest import root as root
from tests.history.conftest import session as session
from tests.history.conftest import store as store
from tests.history.conftest import workspace as workspace
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
