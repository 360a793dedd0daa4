"""Putting on record what is changed from outside as it happens, for as long as somebody watches."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from msgspec.structs import replace

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.errors import Conflict, NoWorkspace
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.survivors import Window
from loom_audit.history.record.observed.noticed import (
    end_window,
    is_of_editor,
    is_recorded,
    record_noticed,
    why_wait,
)
from loom_audit.history.record.observed.resting import Resting
from loom_audit.model.events import Event
from loom_audit.model.scope import Scope
from loom_audit.ports import Noticed, Observer
from loom_audit.wiring.observing import DiskObserver, give_back_memory

BEGUN = "what changed before is on record; from here on it goes there as it happens"

_AGAIN = 0.5
"""Seconds until it is asked again whether a call that is open has ended."""

_IDLE = 60.0
"""Seconds without anything to record, after which what is known of the workspace is forgotten.

It takes as much memory as there are files, and is read again with the next look.
"""

_YIELDING = 0.05
"""Seconds until a lock that somebody holds is asked for again, so that hooks go first."""


class Watcher:
    """Watches one workspace; the only one that does, to the end of the block.

    `recorded` is told the events that go on record, and `noted` what is worth saying of the
    watching itself. A watcher is used by one thread.
    """

    def __init__(
        self,
        workspace: AuditedWorkspace,
        *,
        recorded: Callable[[Sequence[Event]], object],
        noted: Callable[[str], object],
    ) -> None:
        self._workspace = workspace
        self.attachment = self._attached()
        self._recorded = recorded
        self._noted = noted
        self.observer: Observer = DiskObserver(workspace.root)
        self._resting = Resting()
        self._release: Callable[[], None] = _nothing
        self._not_before = 0.0
        self._waits = False
        self._scope = Scope()
        self._has_looked = False
        self._forget_at: float | None = None
        self._window: Window | None = None

    def _attached(self) -> Attachment:
        """The workspace with a log, an index and looks that nobody else of this process has."""
        return replace(self._workspace.adapters, logs={}).attachment(self._workspace.id)

    def __enter__(self) -> "Watcher":
        """Begin to watch. Conflict where another process watches, and where nothing can be told."""
        try:
            self._release = self.attachment.stored.lock.acquire(self.attachment.watch_lock)
        except Conflict as error:
            holder = error.details.get("holder")
            who = f"process {holder}" if holder else "another process"
            raise Conflict(
                f"{who} watches {self._workspace.root} already",
                hint="One is enough; end that one first to watch from here.",
                details=error.details,
            ) from None
        try:
            self._begin()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, with a last look at what was noticed where nothing went wrong."""
        try:
            if kind is None:
                self._take(0.0)
                self._record([*self._resting])
        finally:
            self.observer.close()
            self._release()

    def step(self, at_most: float | None = None) -> None:
        """Wait until something is due, for `at_most` seconds, and look at it.

        NoWorkspace once the workspace's own folder was deleted, which is on record then.
        """
        seconds = [one for one in (at_most, self._seconds()) if one is not None]
        self._take(min(seconds, default=None))
        now = time.monotonic()
        if self._forget_at is not None and now >= self._forget_at and not len(self._resting):
            self._forget()
        if now < self._not_before or (self._waits and self._has_to_wait()):
            return
        due = self._unrecorded(self._resting.due(now))
        if due or self.observer.doubt:
            self._record(due)

    # --- what is noticed --------------------------------------------------------------------

    def _begin(self) -> None:
        self._scope = self.attachment.scope
        self.observer.start(self._scope)

    def _seconds(self) -> float | None:
        """Seconds in which nothing is to be done unless something is noticed; None: for ever."""
        due = self._resting.next_due()
        if self.observer.doubt:
            due = 0.0
        if due is None:
            due = self._forget_at
        if due is None:
            return None
        return max(0.0, max(due, self._not_before) - time.monotonic())

    def _take(self, seconds: float | None) -> None:
        for one in self.observer.take(seconds):
            self._resting.note(one.path, time.monotonic(), renewed=one.renewed)

    def _unrecorded(self, paths: Sequence[str]) -> list[str]:
        """The paths of which something is not on record; the others wait no more."""
        left = []
        for path in paths:
            if is_recorded(self.attachment, Noticed(path, self._resting.is_renewed(path))):
                self._resting.drop([path])
            else:
                left.append(path)
        return left

    # --- looking ----------------------------------------------------------------------------

    def _has_to_wait(self) -> bool:
        """Whether somebody records just now, or has to before anything is looked at."""
        lock, now = self.attachment.stored.lock, time.monotonic()
        if lock.is_held(f"workspace-{self._workspace.id}"):
            self._not_before = now + _YIELDING
            return True
        self._waits = bool(why_wait(self.attachment))
        if self._waits:
            self._not_before = now + _AGAIN
        return self._waits

    def _record(self, due: Sequence[str]) -> None:
        """Look at these paths, or at everything where there is doubt, unless it has to wait."""
        attachment, began = self.attachment, time.monotonic()
        if not (due or self.observer.doubt) or self._has_to_wait():
            return
        doubt = self.observer.doubt
        wanted = {*due}

        def spares(path: str) -> bool:
            return path in self._resting and path not in wanted

        with attachment.exclusive():
            if attachment.scope != self._scope:
                self._begin()  # other folders are to be watched; then everything is looked at
                return
            done = record_noticed(attachment, self.observer.watch, due, None if doubt else spares)
        if done is None:
            self._waits, self._not_before = True, time.monotonic() + _AGAIN
            return
        now = time.monotonic()
        renewed = any(map(self._resting.is_renewed, self._resting if doubt else due))
        if doubt:
            self._noted(f"looked at everything: {doubt}" if self._has_looked else BEGUN)
            self._has_looked = True
            self._resting.drop([path for path in self._resting if path not in wanted])
        self._resting.looked_at([path for path in due if not is_of_editor(path)], now)
        self._resting.drop(due)
        self._window = done.window
        if done.events:
            self._recorded(done.events)
        if attachment.on_disk.workspace.is_deleted():
            raise NoWorkspace(
                f"the workspace's own folder was deleted: {self._workspace.root}",
                hint="What was in it is on record: `loom-audit rollback POINT` makes it again.",
            )
        if renewed:
            self.observer.check()
        self._not_before = max(now + (now - began), now)
        self._forget_at = now + _IDLE

    def _forget(self) -> None:
        """Forget what is known of the workspace, but for what was seen last of all of it."""
        window, self._window = self._window, None
        if window is not None:
            end_window(self.attachment, window)
        last = self.attachment.process.last_seen
        last_look, last_tick, left_out = last.last_look, last.last_tick, last.left_out
        del window, last  # which hold all that is to be forgotten
        self.attachment = self._attached()
        self.attachment.process.last_seen.last_look = last_look
        self.attachment.process.last_seen.last_tick = last_tick
        self.attachment.process.last_seen.left_out = left_out
        self.observer.forget()
        give_back_memory()
        self._forget_at = None


def _nothing() -> None:
    return None
