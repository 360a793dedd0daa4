"""Whether the contents that events name are in the store, or were recorded by hash only."""

from collections.abc import Iterable

from msgspec import Struct

from loom_audit.errors import Corrupt, TooLarge
from loom_audit.model.events import WorkspaceAttached
from loom_audit.model.files import FileState
from loom_audit.model.scope import MAX_FILE_BYTES
from loom_audit.ports import BlobStore, EventFilter, EventLog


class KeptContents(Struct, frozen=True):
    """Tells whether the store still has the contents of one log's files."""

    log: EventLog
    blobs: BlobStore

    def check(self, states: Iterable[tuple[str, FileState]]) -> None:
        """Refuse states without their content: TooLarge where it was recorded by hash only, Corrupt
        where it was stored and is gone. The states are pairs of a path, "" for none, and a state.
        """
        if error := self._error(states):
            raise error

    def check_gone(self, states: Iterable[tuple[str, FileState]]) -> None:
        """Corrupt where a content was stored and is gone; one recorded by hash only is accepted."""
        error = self._error(states)
        if isinstance(error, Corrupt):
            raise error

    def _error(self, states: Iterable[tuple[str, FileState]]) -> TooLarge | Corrupt | None:
        """The error for the smallest missing content: TooLarge over the smallest limit."""
        named = [(path, state) for path, state in states if state.blob]
        missing = self.blobs.missing({state.blob for _, state in named if state.blob})
        gone = [(path, state) for path, state in named if state.blob in missing]
        if not gone:
            return None
        path, state = min(gone, key=lambda one: one[1].size)
        of_path = f"of {path} " if path else ""
        details = {"sha256": state.blob, "size": state.size}
        if state.size <= self._limit():
            return Corrupt(
                f"The content {state.blob} {of_path}is missing from the store",
                hint="Run `loom-audit verify`: it names the event that recorded it.",
                details=details,
            )
        return TooLarge(
            f"the content {of_path}was over the limit and recorded by hash only",
            hint="`loom-audit init --max-file-bytes N` raises the limit for what comes later.",
            details=details,
        )

    def _limit(self) -> int:
        """The smallest limit over which contents were recorded by hash only."""
        attached = self.log.read(EventFilter(kinds=(WorkspaceAttached.kind,)))
        facts = [event.fact for event in attached]
        limits = [fact.max_file_bytes for fact in facts if isinstance(fact, WorkspaceAttached)]
        return min(limits, default=MAX_FILE_BYTES)
