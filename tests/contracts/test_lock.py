"""What every lock promises."""

import threading
import time
from pathlib import Path

import pytest

from loom_audit.disk.machine.locks import DiskLock
from loom_audit.errors import Conflict
from loom_audit.ports import Lock
from tests.doubles import MemoryLock


@pytest.fixture(params=["disk", "memory"])
def lock(request: pytest.FixtureRequest, tmp_path: Path) -> Lock:
    return MemoryLock() if request.param == "memory" else DiskLock(tmp_path / "locks")


def test_a_lock_is_held_for_the_block(lock: Lock) -> None:
    assert not lock.is_held("a")
    with lock.hold("a"):
        assert lock.is_held("a")
        assert not lock.is_held("b")
    assert not lock.is_held("a")


def test_a_lock_is_let_go_when_the_block_fails(lock: Lock) -> None:
    with pytest.raises(KeyError), lock.hold("a"):
        raise KeyError
    assert not lock.is_held("a")


def test_it_is_not_reentrant_and_says_which_lock_it_is(lock: Lock) -> None:
    with lock.hold("workspace-1"):
        with (
            pytest.raises(Conflict, match="workspace-1") as caught,
            lock.hold("workspace-1", timeout=0.01),
        ):
            pass
        assert caught.value.details["lock"] == "workspace-1"
        assert caught.value.hint
        with pytest.raises(Conflict), lock.hold("workspace-1", timeout=0):
            pass
        with pytest.raises(Conflict):
            lock.acquire("workspace-1")
        with lock.hold("workspace-2", timeout=0):
            pass
    assert not lock.is_held("workspace-1")


def test_a_kept_lock_is_held_until_it_is_released_once(lock: Lock) -> None:
    release = lock.acquire("a")
    assert lock.is_held("a")
    with pytest.raises(Conflict):
        lock.acquire("a")
    release()
    assert not lock.is_held("a")
    again = lock.acquire("a")
    release()
    assert lock.is_held("a"), "releasing twice lets go of nobody else's"
    again()


@pytest.mark.parametrize("name", ["..", ".", "a/b", "", "A" * 300, "caf\udce9", "a_b", "nul\0"])
def test_any_name_is_a_lock_of_its_own(lock: Lock, name: str) -> None:
    with lock.hold(name):
        assert lock.is_held(name)
        for other in ("a:b", "x", "...", "A" * 299):
            assert not lock.is_held(other)
            with lock.hold(other, timeout=0):
                pass
    assert not lock.is_held(name)


def test_threads_exclude_each_other_and_all_get_their_turn(lock: Lock) -> None:
    inside, most, turns = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, turns
        for _ in range(20):
            with lock.hold("a"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.0001)
                turns += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, turns) == (1, 80)


def test_one_who_waits_gets_it_when_it_is_let_go(lock: Lock) -> None:
    release = lock.acquire("a")
    got = threading.Event()

    def wait() -> None:
        with lock.hold("a", timeout=20):
            got.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not got.wait(0.05)
    release()
    assert got.wait(20)
    waiting.join()


def test_a_lock_among_threads_is_taken_again_by_its_holder_and_waited_for_by_others(
    lock: Lock,
) -> None:
    shared, order = lock.among_threads(), list[str]()
    waiting = threading.Event()

    def other() -> None:
        waiting.set()
        with shared:
            order.append("other")

    with shared, shared, lock.among_threads(), lock.hold("a"):
        thread = threading.Thread(target=other)
        thread.start()
        assert waiting.wait(30)
        thread.join(0.05)
        assert thread.is_alive(), "it waits for the thread that has the lock"
        order.append("first")
    thread.join(30)
    assert order == ["first", "other"]
