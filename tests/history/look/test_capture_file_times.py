"""Files whose times are of another age."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditStore, open_store

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
