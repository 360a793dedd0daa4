"""Files whose times are of another age."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, open_store
from loom_audit.model.events import FilesChanged
from tests.given.ticks import wait_a_tick

YEARS = [-62_000_000_000, -1, 9_300_000_000, 13_000_000_000, 99_999_999_999, 1 << 40]
"""Seconds since 1970: the years 5, 1969, 2264, 2381, 5138 and 36812."""


@pytest.fixture
def old_and_new(root: Path) -> Iterator[Path]:
    """A workspace where the filesystem keeps any time, or where there is none, the disk's."""
    if not os.access("/dev/shm", os.W_OK):
        yield root
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.parametrize("seconds", YEARS)
def test_a_file_of_any_age_is_recorded_and_stops_nothing(
    store: AuditStore, old_and_new: Path, seconds: int
) -> None:
    root = old_and_new
    for name in ("file", "before"):
        (root / name).write_bytes(b"one")
    os.utime(root / "before", (seconds, seconds))
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        with session.recording("age"):
            os.utime(root / "file", (seconds, seconds))
        with session.recording("forge"):
            (root / "file").write_bytes(b"two")
            os.utime(root / "file", (seconds, seconds))
        with session.recording("write"):
            (root / "other").write_bytes(b"one")
        for tool in ("list_directory", "list_files", "read_file"):
            path = "before" if tool == "read_file" else "."
            result = anyio.run(session.call, tool, {"path": path})
            assert result.success, result.error
    with open_store() as again, again.workspace(root).session("next") as session:
        (root / "before").write_bytes(b"two")
        os.utime(root / "before", (seconds, seconds))
        with session.recording("nothing"):
            pass
    made = [(call.tool, call.paths) for call in workspace.timeline.calls()][::-1]
    assert made[:3] == [("age", ()), ("forge", ("file",)), ("write", ("other",))]
    assert made[-1] == ("nothing", ())
    tree = workspace.timeline.tree()
    assert workspace.timeline.content(tree["before"]) == b"two"
    assert workspace.status().drift == ()


def test_what_was_made_just_before_a_call_and_moved_in_has_arrived(
    workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> None:
    """What was made within the tick before a look is told from what a call makes within that."""
    probe, elsewhere = tmp_path / "probe", tmp_path / "thesis"
    with workspace.session("agent") as session:
        with session.recording("before"):
            pass
        wait_a_tick()
        for _ in range(2):  # newer kernels date what somebody asked for finely, and all after it
            probe.write_text("")
            probe.stat()
        elsewhere.write_text("a year's work\n")
        with session.recording("act"):
            elsewhere.rename(root / "thesis")
            (root / "made").write_text("made\n")
    facts = [event.fact for event in workspace.log.read()]
    arrived = [fact.arrived for fact in facts if isinstance(fact, FilesChanged)]
    assert ("thesis",) in arrived and workspace.verify().ok
    workspace.carry_out(workspace.plan_undo())
    assert (root / "thesis").exists() and not (root / "made").exists()
