"""Locks by name: flock(2) on a file each, released by the system when the holder dies."""

import errno
import fcntl
import hashlib
import itertools
import os
import random
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from loom_audit.disk.access.paths import audit_errors
from loom_audit.disk.machine import signals
from loom_audit.errors import AuditError, AuditUnavailable, Conflict

_FIRST_WAIT = 0.001
_LONGEST_WAIT = 0.05
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_LOOKED_AT = 10.0
"""Seconds for which a lock is tried that is taken "at once", and that others only look at."""


class DiskLock:
    """A `ports.Lock` on files in one folder, mode 0700, its files 0600.

    Each hold opens its file anew, so that threads exclude each other as processes do. The
    descriptors are closed on exec; a forked child that does not exec closes its copies, so
    that it neither keeps nor releases what its parent holds. Files are never deleted:
    whoever waits on a deleted one would hold nothing.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = os.fspath(folder)
        self._descriptors: dict[int, int] = {}
        self._tokens = itertools.count()
        # Where it cannot be made, a store can still be read, and taking a lock says why.
        with suppress(OSError):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            if os.stat(self._folder).st_uid == os.geteuid():
                Path(self._folder).chmod(0o700)
        _close_in_children(weakref.ref(self))

    @contextmanager
    def hold(self, name: str, *, timeout: float = 30.0) -> Iterator[None]:
        """Wait for a lock, in uneven steps of at most 50 ms, and hold it to the end of the block.

        Conflict when the time is up or a signal asked for an end; AuditUnavailable without a file.
        """
        with signals.deferred(step=False) as is_first:
            token = self._take(name, timeout, is_first)
            try:
                yield
            finally:
                self._release(token)

    def among_threads(self) -> AbstractContextManager[object]:
        """A lock of the threads that share it, in memory."""
        return threading.RLock()

    def uninterrupted(self) -> AbstractContextManager[object]:
        """Keep signals that ask for an end back to the end of the block, which is a step."""
        return signals.deferred()

    def answer_signals(self, *, whole: bool = False) -> None:
        """Answer a signal that was kept back, where no step is under way."""
        signals.answer(whole=whole)

    def acquire(self, name: str) -> Callable[[], None]:
        """Take a lock at once, until the returned function is called. Conflict if it is held."""
        token = self._take(name, None)
        return lambda: self._release(token)

    def is_held(self, name: str) -> bool:
        """Whether flock(2) refuses the file even shared; False where there is no file."""
        path = self._file(name)
        with audit_errors(path):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except (FileNotFoundError, NotADirectoryError):
                return False
            try:
                # Shared, so that two who look do not take each other for holders.
                return not _lock(descriptor, fcntl.LOCK_SH)
            finally:
                os.close(descriptor)

    def _file(self, name: str) -> str:
        plain = name
        if not _PLAIN.fullmatch(name):
            plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:100]
            plain += "-" + hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return os.path.join(self._folder, f"{plain}.lock")

    def _take(self, name: str, timeout: float | None, gives_up: bool = False) -> int:
        """Take a lock, waiting up to `timeout` seconds; None means at once.

        Who `gives_up` does not wait on when a signal asks for an end.
        """
        path = self._file(name)
        descriptor = self._open(path)
        with audit_errors(path):
            try:
                self._wait(descriptor, name, timeout, gives_up)
                _write_holder(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
        token = next(self._tokens)
        self._descriptors[token] = descriptor
        return token

    def _open(self, path: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            with audit_errors(path):
                return os.open(path, flags, 0o600)
        except AuditError as error:
            raise AuditUnavailable(
                f"the audit store cannot be locked: {error.message}",
                hint=f"Make {self._folder} a folder that you may write.",
                details=error.details,
            ) from error

    def _wait(self, descriptor: int, name: str, timeout: float | None, gives_up: bool) -> None:
        end = time.monotonic() + (_LOOKED_AT if timeout is None else timeout)
        wait = _FIRST_WAIT
        while not _lock(descriptor, fcntl.LOCK_EX):
            left = end - time.monotonic()
            # Who looks has it shared, as `is_held` does: then it can be had shared here too.
            held = timeout is not None or not _lock(descriptor, fcntl.LOCK_SH)
            told = gives_up and signals.is_told_to_end()
            if left <= 0 or told or (timeout is None and held):
                raise self._conflict(descriptor, name, timeout)
            if not held:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            # Uneven waits, so that two who wait do not look in step.
            time.sleep(min(wait * random.uniform(0.5, 1.0), left))
            wait = min(wait * 1.5, _LONGEST_WAIT)

    def _conflict(self, descriptor: int, name: str, timeout: float | None) -> Conflict:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        who = f"process {holder}" if holder.isdigit() else "somebody"
        waited = f" after {timeout:g} s" if timeout else ""
        return Conflict(
            f"the lock {name} is still held by {who}{waited}",
            hint="Wait for it to finish, or end that process.",
            details={"lock": name, "holder": int(holder) if holder.isdigit() else None},
        )

    def _release(self, token: int) -> None:
        descriptor = self._descriptors.pop(token, None)
        if descriptor is not None:
            with suppress(OSError):
                # Unlocked by name, since a child forked without exec may still have a copy.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def close_copies(self) -> None:
        """Close, in a forked child, what its parent holds, which stays locked there."""
        held, self._descriptors = self._descriptors, {}
        for descriptor in held.values():
            with suppress(OSError):
                os.close(descriptor)


def _lock(descriptor: int, how: int) -> bool:
    """Whether the lock was to be had at once."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_holder(descriptor: int) -> None:
    """Write the pid of the holder, for those who wait; where the disk is full nobody is named."""
    try:
        os.pwrite(descriptor, f"{os.getpid():<15}\n".encode(), 0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.ftruncate(descriptor, 0)


def _close_in_children(lock: weakref.ref[DiskLock]) -> None:
    def close() -> None:
        found = lock()
        if found is not None:
            found.close_copies()

    os.register_at_fork(after_in_child=close)
