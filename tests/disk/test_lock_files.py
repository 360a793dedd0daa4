"""Locks between processes: they end with their holder, and a fork keeps nothing."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loom_audit.disk.machine.locks import DiskLock
from loom_audit.errors import AuditError, Conflict

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys
from loom_audit.disk.machine.locks import DiskLock
release = DiskLock(sys.argv[1]).acquire("a")
sys.stdout.write("held\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def holder(folder: Path) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_lock_of_a_killed_process_is_free_and_its_holder_was_named(tmp_path: Path) -> None:
    lock = DiskLock(tmp_path)
    with holder(tmp_path) as process:
        assert lock.is_held("a")
        with pytest.raises(Conflict, match=f"process {process.pid}") as caught:
            lock.acquire("a")
        assert caught.value.details == {"lock": "a", "holder": process.pid}
        process.kill()
        process.wait()
    assert not lock.is_held("a")
    lock.acquire("a")()


def test_looking_at_a_lock_never_makes_taking_it_fail(tmp_path: Path) -> None:
    lock = DiskLock(tmp_path)
    lock.acquire("a")()
    code = (
        "import sys; from loom_audit.disk.machine.locks import DiskLock\n"
        "lock = DiskLock(sys.argv[1])\n"
        "sys.stdout.write('ready\\n'); sys.stdout.flush()\n"
        "while True: lock.is_held('a')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as looking:
        try:
            assert looking.stdout is not None
            looking.stdout.readline()
            for _ in range(300):
                lock.acquire("a")()
        finally:
            looking.kill()


def test_a_forked_child_neither_keeps_nor_releases_the_lock(tmp_path: Path) -> None:
    lock = DiskLock(tmp_path)
    release = lock.acquire("a")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        release()  # what a `with` block would do that the child leaves
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        assert lock.is_held("a")
        other = holder_of_its_own(tmp_path)
        assert other == "held"
        release()
        assert not lock.is_held("a"), "the child lives and holds no copy"
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


def holder_of_its_own(folder: Path) -> str:
    code = (
        "import sys; from loom_audit.disk.machine.locks import DiskLock\n"
        "sys.stdout.write('held' if DiskLock(sys.argv[1]).is_held('a') else 'free')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return done.stdout


def test_a_command_started_under_a_lock_does_not_inherit_it(tmp_path: Path) -> None:
    lock = DiskLock(tmp_path)
    with lock.hold("a"):
        process = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        assert not lock.is_held("a")
    finally:
        process.kill()
        process.wait()


def test_files_and_folder_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "locks"
    lock = DiskLock(folder)
    with lock.hold("a"):
        [file] = folder.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        assert int(file.read_text()) == os.getpid()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert file.exists(), "a lock file is never deleted"


def test_a_link_in_the_lock_folder_is_not_followed(tmp_path: Path) -> None:
    lock = DiskLock(tmp_path / "locks")
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "locks" / "a.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(AuditError):
        lock.acquire("a")
    assert (tmp_path / "victim").read_text() == "precious"


def test_waiting_does_not_keep_a_processor_busy(tmp_path: Path) -> None:
    lock = DiskLock(tmp_path)
    with lock.hold("a"):
        before = time.process_time()
        with pytest.raises(Conflict), lock.hold("a", timeout=1.0):
            pass
        assert time.process_time() - before < 0.3
