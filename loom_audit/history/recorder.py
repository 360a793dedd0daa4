"""The recorder of a session, through which the log is appended to and the workspace changed.

Each change goes through these steps: read the present state, store its content and the
intention durably, change the disk, read the state again, record it. The workspace lock is held
from the first step to the last, so the log has the changes in the order they were made on disk.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from loom_audit.history.attachment import Attachment
from loom_audit.history.call import OpenCall
from loom_audit.history.recovery import close_unfinished
from loom_audit.model.events import (
    Call,
    Draft,
    Effect,
    Event,
    Fact,
)
from loom_audit.ports import BlobStore, Workspace

__all__ = ["OpenCall", "Recorder"]


class Recorder:
    """Records what one session does in one workspace. Safe to use from several threads.

    `scratch` is the session's scratch directory, whose files are not on record.
    """

    def __init__(
        self,
        attachment: Attachment,
        *,
        session: str,
        actor: str,
        source: str = "",
    ) -> None:
        self.attachment = attachment
        self.session = session
        self.actor = actor
        self.source = source
        self.scratch: Workspace | None = None
        self.unfinished: set[str] = set()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the workspace lock, once calls whose end could not be recorded are closed.

        Otherwise the next scan would find what they changed and attribute it to another call.
        """
        with self.attachment.exclusive():
            self._close_unfinished()
            yield

    def close_unfinished(self) -> None:
        """Close calls whose end could not be recorded, if there are any."""
        if self.unfinished:
            with self.attachment.exclusive():
                self._close_unfinished()

    def _close_unfinished(self) -> None:
        if self.unfinished:
            close_unfinished(self.attachment, self.session, self.unfinished)
            self.unfinished.clear()

    @property
    def workspace(self) -> Workspace:
        return self.attachment.workspace

    @property
    def blobs(self) -> BlobStore:
        return self.attachment.blobs

    def draft(self, fact: Fact) -> Draft:
        """The fact as a draft of this session, actor and source."""
        return Draft(fact, self.session, self.actor, source=self.source)

    def record(self, *facts: Fact) -> Sequence[Event]:
        """Put facts on record, durably."""
        return self.attachment.log.append([self.draft(fact) for fact in facts])

    def begin(self, tool: str, arguments: Any, effect: Effect, *, call_id: str) -> "OpenCall":
        """Open a call. Nothing is stored until it has an effect or finishes."""
        return OpenCall(self, tool, arguments, effect, call_id)

    def resume(self, call: Call) -> "OpenCall":
        """Continue a call that is on record as requested and not finished."""
        return OpenCall(self, call.tool, None, call.effect, call.call_id, requested=True)
