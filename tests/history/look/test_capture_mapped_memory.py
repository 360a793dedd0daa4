"""Files that are written through memory which one recorded call hands on to the next."""

import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore


@pytest.fixture(params=["here", "tmpfs"])
def place(request: pytest.FixtureRequest, root: Path) -> Iterator[Path]:
    """A workspace on the disk of the tests, and one on a filesystem that is never written back."""
    if request.param == "here":
        yield root
        return
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm to write to")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def mapped(place: Path) -> Iterator[mmap.mmap]:
    (place / "array").write_bytes(bytes(8192))
    with (place / "array").open("r+b") as file, mmap.mmap(file.fileno(), 8192) as memory:
        yield memory


def content(workspace: AuditedWorkspace, path: str) -> bytes:
    return workspace.timeline.content(workspace.timeline.tree()[path])[:1]


def age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what was written up to now be so old that its times are believed."""
    import time

    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 10_000_000_000)


def test_each_call_that_writes_to_mapped_memory_has_its_change_on_record(
    store: AuditStore, place: Path, mapped: mmap.mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.link(place / "array", place / "alias")
    workspace = store.attach(place)
    with workspace.session("tester") as session:
        for letter in b"abcd":
            with session.recording("write"):
                mapped[0] = letter
            age(monkeypatch)
            assert content(workspace, "array") == content(workspace, "alias") == bytes([letter])
        with session.recording("nothing"):
            pass
    nothing, *wrote = workspace.timeline.calls()
    assert [set(call.paths) for call in wrote] == [{"array", "alias"}] * 4
    assert nothing.paths == ()


def test_the_last_write_before_the_memory_is_let_go_is_on_record(
    store: AuditStore, place: Path, mapped: mmap.mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = store.attach(place)
    with workspace.session("tester") as session:
        with session.recording("write"):
            mapped[0] = ord("a")
        age(monkeypatch)
        with session.recording("write and close"):
            mapped[0] = ord("b")
            mapped.close()
        assert content(workspace, "array") == b"b"


WRITER = """
import mmap, sys
with open("array", "r+b") as file, mmap.mmap(file.fileno(), 8192) as memory:
    memory[1] = ord("-")  # its times are set by the first write
    print("mapped", flush=True)
    for line in sys.stdin:
        memory[0] = ord(line[0])
        print("written", flush=True)
"""


def test_what_another_program_wrote_through_memory_long_ago_is_a_conflict_and_stays(
    store: AuditStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm, where such a write never sets the times")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder, "array")
        file.write_bytes(bytes(8192))
        argv = [sys.executable, "-c", WRITER]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, cwd=folder, stdin=pipe, stdout=pipe, text=True) as writer:
            assert writer.stdin and writer.stdout and writer.stdout.readline()
            workspace = store.attach(Path(folder))
            with workspace.session("tester") as session:
                age(monkeypatch)
                for _ in range(2):  # before the second the index is tried on some files
                    with session.recording("nothing"):
                        pass
                writer.stdin.write("x\n")
                writer.stdin.flush()
                writer.stdout.readline()
                arguments = {"path": "array", "content": "mine"}
                result = anyio.run(session.call, "write_file", arguments)
            writer.stdin.close()
        assert result.error is not None and result.error.code == "CONFLICT"
        assert "same moment" not in result.error.message
        assert result.error.message.startswith("array was changed by somebody else, unseen")
        assert file.read_bytes()[:2] == b"x-"
        assert content(workspace, "array") == b"x"
