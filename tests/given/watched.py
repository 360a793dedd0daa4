"""A workspace that is watched in this process, and what its watcher told."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.api.upkeep.watching import Watcher
from loom_audit.model.events import Event, FilesChanged
from loom_audit.model.files import FileChange
from tests.oracles.changes import check_each_change_once

DEADLINE = 60.0
"""Seconds; only so that a hang ends."""


class Watched:
    """A workspace that is watched, and what its watcher told."""

    def __init__(self, workspace: AuditedWorkspace) -> None:
        self.workspace = workspace
        self.root = Path(workspace.root)
        self.told: list[Event] = []
        self.notes: list[str] = []
        self.watcher = Watcher(workspace, recorded=self.told.extend, noted=self.notes.append)

    def until(self, wanted: Callable[[], object]) -> None:
        """Let it watch until something is so."""
        deadline = time.monotonic() + DEADLINE
        while not wanted():
            assert time.monotonic() < deadline, (self.notes, self.facts())
            self.watcher.step(0.1)

    def rest(self) -> None:
        """Let it watch until all that happened until now is dealt with."""
        mark = self.root / f"mark-{time.monotonic_ns()}"
        mark.write_bytes(b"")
        self.until(lambda: mark.name in self.paths())

    def events(self) -> list[Event]:
        """The events of changes from outside, but for the marks, oldest first."""
        found = [event for event in self.workspace.log.read() if self._is_outside(event)]
        return [e for e in found if not all("mark-" in c.path for c in changes(e))]

    def _is_outside(self, event: Event) -> bool:
        return isinstance(event.fact, FilesChanged) and event.fact.origin == "outside"

    def facts(self) -> list[FilesChanged]:
        return [event.fact for event in self.events() if isinstance(event.fact, FilesChanged)]

    def paths(self) -> list[str]:
        """All paths that were told, each as often as it changed."""
        return [change.path for event in self.told for change in changes(event)]

    def last(self, path: str) -> FilesChanged:
        facts = [event.fact for event in self.told if isinstance(event.fact, FilesChanged)]
        return [fact for fact in facts if any(c.path == path for c in fact.changes)][-1]


def changes(event: Event) -> Sequence[FileChange]:
    return event.fact.changes if isinstance(event.fact, FilesChanged) else ()


@pytest.fixture
def watched(workspace: AuditedWorkspace) -> Iterator[Watched]:
    """After the test: each change is on record once, what is on record is what is on disk."""
    found = Watched(workspace)
    with found.watcher:
        found.until(lambda: found.notes)
        yield found
    check_each_change_once([*workspace.log.read()])
    assert workspace.verify().findings == ()
    assert workspace.status().drift == ()
