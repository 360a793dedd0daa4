"""The one writer: appends to the log and changes the workspace, in that order and back again.

A change goes: look at what is there, make its content durable together with the intention,
change the disk, look at what is there now, record that. Between the look and the record the
workspace lock is held, so events stand in the log in the order in which disk changed.
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
        """Hold the workspace lock. Calls whose end could not be recorded are closed first:

        what they did to disk would else be found by the next look and held to be another's.
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
        """The fact as this session's, said by this actor."""
        return Draft(fact, self.session, self.actor, source=self.source)

    def record(self, *facts: Fact) -> Sequence[Event]:
        """Put facts on record, durably."""
        return self.attachment.log.append([self.draft(fact) for fact in facts])

    def begin(self, tool: str, arguments: Any, effect: Effect, *, call_id: str) -> "OpenCall":
        """Open a call. Nothing is stored until it has an effect or finishes."""
        return OpenCall(self, tool, arguments, effect, call_id)

    def resume(self, call: Call) -> "OpenCall":
        """Go on with a call that is on record as requested and not finished."""
        return OpenCall(self, call.tool, None, call.effect, call.call_id, requested=True)
