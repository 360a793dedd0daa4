"""A sandbox that stays: what is mounted in it is checked, its owner's helper is out of reach."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loom_audit.errors import ExecutionFailed
from loom_audit.ports import Background, BackgroundRunner, Command
from loom_audit.sandbox import background, inside
from loom_audit.sandbox.background import BubblewrapBackground, LastBytes
from loom_audit.sandbox.joined import Sandbox
from tests.sandbox.backends import working


@pytest.fixture
def root(tmp_path: Path) -> Path:
    working("bubblewrap")
    (tmp_path / "work/out").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    return (tmp_path / "work").resolve()


@contextmanager
def started(root: Path, text: str, *writes: str) -> Iterator[Background]:
    runner = working("bubblewrap")
    assert isinstance(runner, BackgroundRunner)
    folders = {f"{root}/{name}": (root / name).stat().st_ino for name in writes}
    command = Command(("sh", "-c", text), timeout=None, read_only=True, writable=tuple(folders))
    one = runner.start(str(root), command, folders)
    try:
        yield one
    finally:
        one.stop()


def said(one: Background, root: Path, text: str) -> str:
    done = one.run(str(root), Command(("sh", "-c", text)))
    return (done.stdout + done.stderr).decode()


def test_the_last_bytes_of_a_stream_are_kept_by_their_number() -> None:
    stream, whole = LastBytes(10), b""
    for n in range(40):
        chunk = b"%02d" % n * (n % 4)
        stream.add(chunk)
        whole += chunk
        assert stream.total == len(whole)
        for after in range(len(whole) + 2):
            assert stream.behind(after) == whole[max(after, len(whole) - 10) :]


def test_a_mount_point_is_read_with_its_blanks() -> None:
    assert inside.unescaped(rb"/a\040b\134c\012") == b"/a b\\c\n"


@pytest.mark.parametrize(
    ("mounted", "flaw"),
    [
        (["{root}/out", "/tmp"], b""),
        (["{root}/out", "/tmp", "/", "/dev", "/dev/pts", "/dev/null", "/proc"], b""),
        (["{root}/out", "/tmp", "/dev/mapper"], b"something else is mounted at /dev/mapper"),
        (["{root}/out", "/tmp", "/tmp"], b"something else is mounted at /tmp"),
        (["{root}/out", "/tmp", "/proc", "/proc"], b"something else is mounted at /proc"),
        (["{root}/out", "/tmp", "{root}"], b"something else is mounted at "),
        (["{root}/out", "/tmp", "{root}/out/deeper"], b"something else is mounted at "),
        (["{root}/out"], b"another folder is mounted at /tmp"),
        (["/tmp"], b"another folder is mounted at "),
    ],
)
def test_what_can_be_written_is_held_to_what_was_ordered(
    root: Path, monkeypatch: pytest.MonkeyPatch, mounted: list[str], flaw: bytes
) -> None:
    points = [os.fsencode(one.format(root=root)) for one in mounted]
    monkeypatch.setattr(inside, "writable_mounts", lambda: points)
    inode = (root / "out").stat().st_ino
    found = inside.wrong_mount(os.fsencode(f"{root}\0{inode} {root}/out\x000 /tmp"))
    assert found.startswith(flaw) and bool(found) == bool(flaw)
    assert inside.wrong_mount(os.fsencode(f"{root}\0{inode + 1} {root}/out\x000 /tmp"))


def test_a_folder_whose_name_has_blanks_and_lines_can_be_written(root: Path) -> None:
    name = "a b\\c\n\té"
    (root / name).mkdir()
    with started(root, "echo x > 'a b\\c\n\té/x'; echo on; sleep 600", name) as one:
        one.wait(2, 30)
        assert (root / name / "x").read_text() == "x\n"


def test_a_link_in_the_place_of_a_folder_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap: bubblewrap resolves the path itself, after it was checked."""
    resolve = os.path.realpath

    def swapped(path: str) -> str:
        found = resolve(path)
        if path == f"{root}/out" and not (root / "out").is_symlink():
            (root / "out").rename(root / "away")
            (root / "out").symlink_to(root.parent / "secret")
            return resolve(path)
        return found

    monkeypatch.setattr(os.path, "realpath", swapped)
    with (
        pytest.raises(ExecutionFailed, match=r"not as it must be|did not start"),
        started(root, "echo x > out/x; sleep 600", "out"),
    ):
        pass
    assert not [*(root.parent / "secret").iterdir()]


def test_another_folder_in_the_place_of_the_one_that_was_checked_is_refused(root: Path) -> None:
    runner = working("bubblewrap")
    assert isinstance(runner, BackgroundRunner)
    (root / "other").mkdir()
    command = Command(
        ("sh", "-c", "echo x > out/x"), read_only=True, writable=(f"{root}/out",), timeout=None
    )
    with pytest.raises(ExecutionFailed, match="another folder is mounted"):
        runner.start(str(root), command, {f"{root}/out": (root / "other").stat().st_ino})
    assert not (root / "out/x").exists()


@pytest.mark.deep
def test_a_folder_that_is_swapped_all_the_time_gives_nothing_else_to_write(root: Path) -> None:
    outside, stop = root.parent / "secret", threading.Event()
    (root / "link").symlink_to(outside)

    def swap() -> None:
        while not stop.is_set():
            for source, target in (
                ("out", "kept"),
                ("link", "out"),
                ("out", "link"),
                ("kept", "out"),
            ):
                (root / source).rename(root / target)

    swapping = threading.Thread(target=swap)
    inode = (root / "out").stat().st_ino
    runner = working("bubblewrap")
    assert isinstance(runner, BackgroundRunner)
    command = Command(
        ("sh", "-c", "echo x > out/x; exec sleep 600"),
        read_only=True,
        writable=(f"{root}/out",),
        timeout=None,
    )
    swapping.start()
    try:
        for _ in range(40):
            try:
                one = runner.start(str(root), command, {f"{root}/out": inode})
            except ExecutionFailed:
                continue
            said(one, root, "for f in out link kept /tmp /tmp/home; do echo x > $f/y; done")
            one.stop()
    finally:
        stop.set()
        swapping.join()
    assert not [*outside.iterdir()]


def test_nothing_of_the_helper_can_be_read_or_taken(root: Path) -> None:
    with started(root, "exec sleep 600") as one:
        text = said(
            one,
            root,
            "for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || case $(tr '\\0' ' ' < $p/cmdline) in"
            " *' inside '*)"
            " readlink $p/fd/0 && echo LINKED $p; cat $p/environ && echo READ $p;"
            " (exec 9<>$p/mem) && echo OPENED $p; readlink $p/cwd && echo ENTERED $p;; esac; done",
        )
    first = "/proc/1"  # bubblewrap itself, which holds nothing of ours
    taken = [line for line in text.splitlines() if line.split()[:1] and line.split()[0].isupper()]
    assert [line for line in taken if not line.endswith(f" {first}")] == []


def test_neither_command_has_a_descriptor_but_its_streams(root: Path) -> None:
    with started(root, "ls /proc/self/fd; exec sleep 600") as one:
        one.wait(7, 30)
        assert one.output(0)[0].split() == [b"0", b"1", b"2", b"3"], "3 is the folder itself"
        assert said(one, root, "ls /proc/self/fd").split() == ["0", "1", "2", "3"]


def test_it_dies_with_its_owner_however_that_ends(root: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        mark = f"6{os.getpid()}{int(number)}"
        pid = os.fork()
        if not pid:
            try:
                runner = working("bubblewrap")
                assert isinstance(runner, BackgroundRunner)
                text = f"setsid sleep {mark} & trap '' TERM; sleep {mark}"
                command = Command(("sh", "-c", text), read_only=True, timeout=None)
                runner.start(str(root), command, {})
                signal.pause()
            finally:
                os._exit(1)
        try:
            until(lambda mark=mark: running(mark))
        finally:
            os.kill(pid, number)
            os.waitpid(pid, 0)
        until(lambda mark=mark: not running(mark))


def test_it_outlives_the_thread_that_asked_for_it(root: Path) -> None:
    """Trap: the kernel tells a child of the death of the thread that forked it."""
    kept: list[Background] = []

    def ask() -> None:
        runner = working("bubblewrap")
        assert isinstance(runner, BackgroundRunner)
        command = Command(("sh", "-c", "exec sleep 600"), read_only=True, timeout=None)
        kept.append(runner.start(str(root), command, {}))

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    [one] = kept
    assert said(one, root, "echo alive") == "alive\n"
    one.stop()
    assert (one.is_over, one.exit_code) == (True, 128 + signal.SIGTERM)


def test_a_program_that_is_not_there_is_said_at_the_start(root: Path) -> None:
    runner = working("bubblewrap")
    assert isinstance(runner, BackgroundRunner)
    with pytest.raises(ExecutionFailed, match="Command not found: nothing-such"):
        runner.start(str(root), Command(("nothing-such",), timeout=None), {})
    with pytest.raises(ExecutionFailed, match="cannot be entered"):
        runner.start(str(root), Command(("true",), cwd="missing", timeout=None), {})


def test_a_killed_sandbox_ends_what_runs_beside_with_a_word(root: Path) -> None:
    with started(root, "exec sleep 600") as one:
        killer = threading.Timer(0, os.kill, (int(one.task), signal.SIGKILL))
        with pytest.raises(ExecutionFailed, match="has ended"):
            one.run(str(root), Command(("sh", "-c", "sleep 600")), _starting(killer))
        killer.join()
        over = threading.Event()
        one.tell_end(over.set)
        assert over.wait(30)


def _starting(timer: threading.Timer):  # type: ignore[no-untyped-def]
    from loom_audit.ports import Moments

    return Moments(timer.start)


def running(mark: str) -> bool:
    listing = subprocess.run(["pgrep", "-f", f"^sleep {mark}$"], capture_output=True, check=False)
    return listing.returncode == 0


def until(condition) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_one_that_is_not_started_in_time_does_not_start_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that swaps: its owner was told that nothing runs."""
    stopping, stop, open_now = threading.Event(), BubblewrapBackground.stop, Sandbox.open

    def stop_and_say(self: BubblewrapBackground) -> None:
        threading.Timer(0.2, stopping.set).start()  # while that waits
        stop(self)

    def open_late(launch: Any, order: bytes) -> Sandbox:
        stopping.wait(30)
        return open_now(launch, order)

    monkeypatch.setattr(background, "READY_SECONDS", 0.01)
    monkeypatch.setattr(BubblewrapBackground, "stop", stop_and_say)
    monkeypatch.setattr(Sandbox, "open", open_late)
    with pytest.raises(ExecutionFailed, match="in time"), started(root, "echo x > out/x", "out"):
        pass
    assert stopping.is_set() and not (root / "out/x").exists()
