"""Signals that ask for an end while a step is under way, in processes of their own."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_audit.disk.machine import signals
from loom_audit.disk.machine.locks import DiskLock
from loom_audit.errors import Conflict

STEP = """
import os, signal, sys
from loom_audit.disk.machine.signals import deferred
{before}
def send(name):
    os.kill(os.getpid(), getattr(signal, name))
try:
    with deferred():
        with deferred():
            for name in sys.argv[1:]:
                send(name)
        print("whole", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def step(*sent: str, before: str = "") -> tuple[int, list[str]]:
    """How a process ends that is sent signals within a step, and what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", STEP.format(before=before), *sent],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.split()


def test_a_signal_within_a_step_is_answered_when_the_outermost_one_has_ended() -> None:
    assert step("SIGINT") == (0, ["whole", "interrupted"])
    assert step() == (0, ["whole"])


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_nobody_answers_ends_the_process_after_the_step(name: str) -> None:
    assert step(name) == (-getattr(signal, name), ["whole"])


@pytest.mark.parametrize("sent", [("SIGINT", "SIGINT"), ("SIGINT", "SIGTERM")])
def test_a_second_signal_ends_the_process_at_once(sent: tuple[str, str]) -> None:
    assert step(*sent) == (-getattr(signal, sent[1]), [])


def test_what_is_ignored_stays_ignored_however_often_it_comes() -> None:
    ignored = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    assert step("SIGHUP", "SIGHUP", "SIGHUP", before=ignored) == (0, ["whole"])


def test_of_what_no_notice_is_taken_none_is_taken_however_often_it_comes() -> None:
    deaf = "from loom_audit.ports import take_no_notice as deaf; signal.signal(signal.SIGINT, deaf)"
    assert step("SIGINT", "SIGINT", "SIGINT", before=deaf) == (0, ["whole"])


def test_who_answered_before_answers_after_it() -> None:
    answer = "signal.signal(signal.SIGTERM, lambda *_: print('answered', flush=True))"
    assert step("SIGTERM", before=answer) == (0, ["whole", "answered"])


@pytest.fixture
def answered() -> Iterator[list[int]]:
    """The interrupts that this process answers, without being interrupted."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    yield came
    signal.signal(signal.SIGINT, before)


def test_a_signal_ends_the_wait_for_a_lock_and_none_for_the_record_of_what_was_done(
    tmp_path: Path, answered: list[int]
) -> None:
    lock = DiskLock(tmp_path)
    release = lock.acquire("taken")
    interrupt = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(Conflict, match="taken"), lock.hold("taken", timeout=60):
        pass
    assert answered == [signal.SIGINT]

    def let_go() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        release()

    threading.Timer(0.05, let_go).start()
    with lock.uninterrupted(), lock.hold("taken", timeout=60):
        assert signals.is_told_to_end() and answered == [signal.SIGINT]
    assert answered == [signal.SIGINT] * 2


def test_a_signal_is_answered_within_a_lock_where_nothing_was_done_yet_or_all_is_whole(
    tmp_path: Path, answered: list[int]
) -> None:
    lock = DiskLock(tmp_path)
    came = [signal.SIGINT]

    def tell() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        lock.answer_signals()

    with lock.hold("one"):
        tell()
        assert answered == came, "it goes on, as who answered let it"
        with lock.uninterrupted():
            tell()
        lock.answer_signals()
        assert answered == came, "what was begun comes to its end"
        lock.answer_signals(whole=True)
        assert answered == came * 2
        tell()
        assert answered == came * 3
    with lock.uninterrupted(), lock.hold("one"):
        tell()
        assert answered == came * 3
    assert answered == came * 4


def test_a_step_in_another_thread_leaves_signals_to_the_main_one(answered: list[int]) -> None:
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        with signals.deferred():
            begun.set()
            end.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(60)
    os.kill(os.getpid(), signal.SIGINT)
    assert answered == [signal.SIGINT]
    end.set()
    thread.join()


def test_a_step_that_another_thread_ends_leaves_nothing_kept_back(answered: list[int]) -> None:
    step = signals.deferred()
    step.__enter__()
    ending = threading.Thread(target=step.__exit__, args=(None, None, None))
    ending.start()
    ending.join()
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGINT)
    assert answered == [signal.SIGINT] * 3
