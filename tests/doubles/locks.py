"""A change index and locks in memory, by the same contracts as those on disk."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from loom_audit.errors import Conflict
from loom_audit.ports import IndexEntry


class MemoryChangeIndex:
    """A `ports.ChangeIndex` in memory."""

    def __init__(self) -> None:
        self._entries: dict[str, IndexEntry] = {}
        self._head = self._displaced = 0

    def load(self) -> dict[str, IndexEntry]:
        return dict(self._entries)

    def get(self, path: str) -> IndexEntry | None:
        return self._entries.get(path)

    def update(self, entries: Mapping[str, IndexEntry | None], *, head: int) -> None:
        for path, entry in entries.items():
            if entry is None:
                self._entries.pop(path, None)
            else:
                self._entries[path] = entry
        self._head = head

    def head(self) -> int:
        return self._head

    def clear(self) -> None:
        self._entries, self._head = {}, 0

    def displace(self) -> None:
        self._displaced = self._head
        self.clear()

    def most_seen(self) -> int:
        return max(self._head, self._displaced)


class MemoryLock:
    """A `ports.Lock` between the threads of one process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: set[str] = set()

    def hold(self, name: str, *, timeout: float = 30.0) -> AbstractContextManager[None]:
        return self._hold(name, timeout)

    @contextmanager
    def _hold(self, name: str, timeout: float) -> Iterator[None]:
        release = self._take(name, timeout)
        try:
            yield
        finally:
            release()

    def acquire(self, name: str) -> Callable[[], None]:
        return self._take(name, 0)

    def among_threads(self) -> AbstractContextManager[object]:
        return threading.RLock()

    def uninterrupted(self) -> AbstractContextManager[object]:
        return nullcontext()

    def answer_signals(self, *, whole: bool = False) -> None:
        pass

    def is_held(self, name: str) -> bool:
        with self._changed:
            return name in self._held

    def _take(self, name: str, timeout: float) -> Callable[[], None]:
        with self._changed:
            if not self._changed.wait_for(lambda: name not in self._held, timeout):
                raise Conflict(
                    f"the lock {name} is still held",
                    hint="Wait for it to finish.",
                    details={"lock": name},
                )
            self._held.add(name)
        mine = [name]

        def release() -> None:
            with self._changed:
                while mine:
                    self._held.discard(mine.pop())
                self._changed.notify_all()

        return release
