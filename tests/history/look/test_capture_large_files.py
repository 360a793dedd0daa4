"""Files that grow while they are read, files too large to be read, and large ones overwritten."""

import os
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import anyio
import pytest

from loom_audit import AuditStore, Session
from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.model.coverage import FULL

LARGE = 3_000_000
LIMIT = 4_000_000


@pytest.fixture
def growing(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file to which somebody else appends as fast as it is read, up to what a test waits for."""
    path = root / "growing"
    opened: Callable[[DiskWorkspace, str], BinaryIO] = DiskWorkspace.open

    class Growing:
        def __init__(self, stream: BinaryIO) -> None:
            self._stream = stream

        def read(self, size: int = -1) -> bytes:
            if path.stat().st_size < 20 * LIMIT:
                with path.open("ab") as file:
                    file.write(bytes(1_000_000))
            return self._stream.read(size)

        def __enter__(self) -> "Growing":
            return self

        def __exit__(self, *_: object) -> None:
            self._stream.close()

    def open_growing(workspace: DiskWorkspace, name: str) -> BinaryIO | Growing:
        stream = opened(workspace, name)
        return Growing(stream) if name == "growing" else stream

    monkeypatch.setattr(DiskWorkspace, "open", open_growing)
    return path


@pytest.mark.parametrize("size", [LARGE, LIMIT + 1])
def test_a_file_that_grows_while_it_is_read_is_read_to_where_it_ended_at_first(
    store: AuditStore, root: Path, growing: Path, size: int
) -> None:
    workspace = store.attach(root, max_file_bytes=LIMIT)
    with workspace.session("tester") as session, session.recording("log"):
        growing.write_bytes(random.Random(1).randbytes(size))
    assert growing.stat().st_size < 20 * LIMIT
    state = workspace.timeline.tree()["growing"]
    assert size <= state.size < size + 20_000_000
    assert state.blob is not None
    assert (state.blob in workspace.blobs) == (state.size <= LIMIT)
    assert [change.path for change in workspace.status().drift] == ["growing"]


def test_a_sparse_file_of_terabytes_is_named_and_does_not_stop_the_recording(
    store: AuditStore, root: Path
) -> None:
    (root / "old").write_bytes(b"old")
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        with session.recording("make"):
            for name in ("new", "old"):
                with (root / name).open("wb") as file:
                    file.truncate(4 << 40)
            (root / "small").write_bytes(b"x")
        with session.recording("again"):
            (root / "other").write_bytes(b"x")
        with session.recording("shrink"):
            os.truncate(root / "new", 1)
            (root / "old").unlink()
    shrunk, again, made = workspace.timeline.calls()
    assert made.coverage.reasons == (
        "too large to be read (4 TiB): new",
        "too large to be read (4 TiB): old",
    )
    assert (made.coverage.level, made.paths) == ("partial", ("small",))
    assert (again.coverage, again.paths) == (FULL, ("other",))
    # what could not be read was not in the tree any more, so that it is not deleted from it
    assert (shrunk.coverage.level, shrunk.paths) == ("partial", ())
    assert {"not on record: old", "untracked until now: new"} == set(shrunk.coverage.reasons)
    # either call may have written what is there now: it was never read before
    [found] = workspace.timeline.history("new")
    assert (found.origin, found.causes) == ("outside", (made.requested, shrunk.requested))
    assert not workspace.plan_revert([shrunk.seq or 0]).changes


def test_a_tool_does_not_replace_a_file_that_is_too_large_to_be_read(
    root: Path, session: Session
) -> None:
    with (root / "a.txt").open("wb") as file:
        file.truncate(4 << 40)
    result = anyio.run(session.call, "write_file", {"path": "a.txt", "content": "x"})
    assert result.error is not None and result.error.code == "TOO_LARGE"
    assert (root / "a.txt").stat().st_size == 4 << 40


def test_overwriting_a_large_file_does_not_read_it_into_memory(
    store: AuditStore, root: Path
) -> None:
    with (root / "large").open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    with store.attach(root).session("tester") as session:
        tracemalloc.start()
        anyio.run(session.call, "write_file", {"path": "large", "content": "small"})
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (root / "large").read_text() == "small"
    assert peak < 64 * 1024 * 1024
