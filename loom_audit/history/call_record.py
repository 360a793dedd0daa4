"""What one open call puts on record: the drafts and index entries that wait for its next commit."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from loom_audit.history.capture import ScanResult, attributed_draft
from loom_audit.history.change_index import untracked_entries, update_index
from loom_audit.model.events import CallRequested, Draft, Event, Fact, FilesChanged, PathsUntracked
from loom_audit.model.files import FileChange
from loom_audit.ports import IndexEntry

if TYPE_CHECKING:
    from loom_audit.history.recorder import Recorder


class CallRecord:
    """Collects what a call did until it is committed; the index follows each commit.

    `request` is the call's request while that is not on record yet.
    """

    def __init__(self, recorder: "Recorder", call_id: str, request: CallRequested | None) -> None:
        self.entries: dict[str, IndexEntry | None] = {}
        self._recorder = recorder
        self._attachment = recorder.attachment
        self._key = (recorder.session, call_id)
        self._facts: list[Fact] = [request] if request else []
        self._drafts: list[Draft] = []

    @property
    def has_facts(self) -> bool:
        """Whether the request, or an answer about it, is not on record yet."""
        return bool(self._facts)

    @property
    def has_changes(self) -> bool:
        """Whether changes, ours or of others, are not on record yet."""
        return bool(self._drafts)

    def add(self, fact: Fact) -> None:
        """Store the fact with the next commit, after the changes that wait."""
        self._facts.append(fact)

    def add_changes(self, fact: FilesChanged) -> None:
        """Store what this call changed with the next commit."""
        self._drafts.append(self._recorder.draft(fact))

    def add_foreign(self, changes: Iterable[FileChange]) -> None:
        """Store what this call did not change with the next commit, if there is anything."""
        if listed := tuple(changes):
            self._drafts.append(self._draft_foreign(listed))

    def add_untracked(self, found: ScanResult) -> None:
        """Store what a scan could not look at with the next commit."""
        if found.untracked:
            self._drafts.append(Draft(PathsUntracked(tuple(found.untracked)), "", "outside"))
            self.entries.update(untracked_entries(self._attachment, found.untracked))

    def commit(self, *last: Fact) -> Sequence[Event]:
        """Store durably what waits, then the last facts; the index does not follow yet."""
        drafts = [*self._drafts, *map(self._recorder.draft, (*self._facts, *last))]
        if not drafts:
            return []
        events = self._attachment.log.append(drafts)
        self._facts.clear()
        self._drafts.clear()
        return events

    def commit_and_index(self, *last: Fact) -> None:
        """Store durably what waits, then the last facts, and let the index follow."""
        self.update_index(self.commit(*last))

    def commit_foreign(self, found: ScanResult) -> None:
        """Store a part of a scan as changes of others, and nothing of what waits."""
        self.entries.update(found.entries)
        if found.changes:
            drafts = [self._draft_foreign(found.changes)]
            self.update_index(self._attachment.log.append(drafts))

    def update_index(self, events: Sequence[Event]) -> None:
        """Let the index follow these events."""
        update_index(self._attachment, self.entries, events)
        self.entries = {}

    def _draft_foreign(self, changes: Iterable[FileChange]) -> Draft:
        return attributed_draft(self._attachment, changes, excluding=self._key)
