"""What one call did, and what of it waits for the next commit."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from loom_audit.errors import Conflict
from loom_audit.history.ground.continuous_log import DoesNotApply
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import attributed_drafts, candidates, is_shared
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.change_index import untracked_entries, update_index
from loom_audit.history.look.closed_folders import inside_closed
from loom_audit.history.look.doers import UNKNOWN, Candidate
from loom_audit.history.look.survivors import Window
from loom_audit.history.record.carrying_out import let_go
from loom_audit.history.record.fitted import append_batch, fitted
from loom_audit.model.coverage import FULL, Coverage, Level
from loom_audit.model.events import (
    OUTSIDE,
    CallFinished,
    CallRequested,
    ChangeIntended,
    Draft,
    Event,
    Fact,
    FilesChanged,
    PathsUntracked,
    Untracked,
)
from loom_audit.model.files import FileChange, FileState
from loom_audit.ports import Displaced, IndexEntry

LATE = "looked at late"
NOT_SEEN_BEFORE = "not looked at before it"
"""Why the coverage of a call is partial after which nobody looked at once."""


class CallRecord:
    """Collects what a call did until it is committed; the index follows each commit.

    `facts` are those of its beginning that are not on record yet: its request, as a rule.
    It is `shared` when others may have changed what it may have changed.
    `request` is the event of its request, where that was stored with this.
    `window` is the one whose changes wait for the next commit, `displaced` is what those that
    wait displaced, by path: it is deleted after that commit.
    `approved` are the states an approval is bound to, by path: other paths, or paths in other
    states, are not changed.
    """

    def __init__(self, writer: Writer, call_id: str, *facts: Fact) -> None:
        self.writer = writer
        self.attachment = writer.attachment
        self.call_id = call_id
        self.shared = False
        self.coverage: Coverage = FULL
        self.files_changed: list[str] = []
        self.approved: dict[str, FileState | None] | None = None
        self.entries: dict[str, IndexEntry | None] = {}
        self.window: Window | None = None
        self.request: Event | None = None
        self.displaced: list[tuple[str, Displaced]] = []
        self._facts: list[Fact] = [*facts]
        self._drafts: list[Draft] = []
        self._not_indexed: list[Event] = []

    @property
    def key(self) -> tuple[str, str]:
        """The session and the id that the call is named by."""
        return (self.writer.session, self.call_id)

    @property
    def has_facts(self) -> bool:
        """Whether the request, or an answer about it, is not on record yet."""
        return bool(self._facts)

    @property
    def has_changes(self) -> bool:
        """Whether changes, of anybody, are not on record yet, or what they displaced is there."""
        return bool(self._drafts or self.displaced)

    def lower_coverage(self, *reasons: str, level: Level = "partial") -> None:
        """Say why the call's effects are not captured completely; nothing without a reason."""
        self.coverage = self.coverage.lowered(*reasons, level=level)

    def add(self, fact: Fact) -> None:
        """Store the fact with the next commit, after the changes that wait."""
        self._facts.append(fact)

    def add_changes(self, fact: FilesChanged) -> None:
        """Store what this call changed with the next commit."""
        self._drafts.append(self.writer.draft(fact))
        self.note_causes(fact.causes)
        self.add_changed_paths(change.path for change in fact.changes)

    def note_causes(self, causes: Sequence[int | str]) -> None:
        """Say by whom else what is listed as this call's may have been changed."""
        self.shared = self.shared or is_shared(causes)
        if UNKNOWN in causes:
            self.lower_coverage(LATE)

    def add_changed_paths(self, paths: Iterable[str]) -> None:
        """Count paths, on record already, as changed by this call."""
        listed = set(self.files_changed)
        self.files_changed += [path for path in paths if path not in listed]

    def add_foreign(self, changes: Iterable[FileChange]) -> None:
        """Store what this call did not change with the next commit, if there is anything."""
        if listed := [*changes]:
            among = candidates(self.attachment, besides=self.key)
            among = Window.begin(self.attachment).with_survivors(among)
            self.add_drafts(attributed_drafts(self.attachment, Batch(changes=listed), among))

    def add_drafts(self, drafts: Iterable[Draft]) -> None:
        """Store facts about somebody else's changes with the next commit."""
        self._drafts += drafts

    def add_untracked(self, untracked: Iterable[Untracked], causes: Sequence[int] = ()) -> None:
        """Store what a scan could not look at with the next commit, and in which calls."""
        if paths := tuple(inside_closed(self.attachment, untracked)):
            fact = PathsUntracked(paths, causes=tuple(causes))
            self.add_drafts([Draft(fact, "", OUTSIDE)])
            self.entries.update(untracked_entries(self.attachment, paths))

    def commit(self, *last: Fact) -> Sequence[Event]:
        """Store durably what waits, then the last facts; the index does not follow yet."""
        with self.attachment.stored.lock.uninterrupted():  # what is stored must not wait any more
            events = self._append(last)
            asked = (event for event in events if isinstance(event.fact, CallRequested))
            self.request = next(asked, self.request)
            self._facts.clear()
            self._drafts.clear()
            if self.window is not None:
                self.window.end()
                self.window = None
            if self.displaced:
                let_go(self.writer, self.call_id, self.displaced)
                self.displaced = []
            return events

    def _append(self, last: Sequence[Fact]) -> Sequence[Event]:
        facts = [*map(self.writer.draft, (*self._facts, *last))]
        if not self._drafts and not facts:
            return []
        try:
            return self.attachment.stored.log.append([*self._drafts, *facts])
        except DoesNotApply:
            self._fit()
        # how the call is finished says what could not be seen
        last = [
            replace(fact, coverage=self.coverage) if isinstance(fact, CallFinished) else fact
            for fact in last
        ]
        try:
            facts = [*map(self.writer.draft, (*self._facts, *last))]
            return self.attachment.stored.log.append([*self._drafts, *facts])
        except DoesNotApply as error:
            raise Conflict(
                f"{error.details['path']} is being changed by somebody else right now",
                hint="Look at it and repeat the change.",
                details=error.details,
            ) from error

    def _fit(self) -> None:
        """Let what waits be what applies and leads to what is on disk, whoever did it."""
        among = candidates(self.attachment, besides=self.key)
        found = fitted(self.attachment, self._drafts, among)
        self._drafts = found.drafts
        self.entries.update(found.entries)
        lost = {*found.lost}
        self.files_changed = [path for path in self.files_changed if path not in lost]
        self.lower_coverage(*(f"not seen: {path}" for path in found.lost[:10]))

    def commit_and_index(self, *last: Fact) -> Sequence[Event]:
        """Store durably what waits, then the last facts, and let the index follow."""
        events = self.commit(*last)
        self.update_index(events)
        return events

    def commit_intention(self, fact: ChangeIntended) -> int:
        """Store durably what waits, then the intention; its seq.

        The index follows with the outcome, which comes next, unless it has something to tell.
        """
        events = self.commit(fact)
        if self.entries:
            self.update_index(events)
        else:
            self._not_indexed = [*self._not_indexed, *events]
        return events[-1].seq

    def commit_foreign(self, found: Batch, among: Sequence[Candidate]) -> None:
        """Store what a look found as changes of these candidates, and nothing of what waits.

        The window goes on, since the look does.
        """
        events = append_batch(self.attachment, found, among)
        self.entries.update(found.entries)
        if events:
            self.update_index(events)

    def update_index(self, events: Sequence[Event]) -> None:
        """Let the index follow these events, and those before that it has not followed yet."""
        update_index(self.attachment, self.entries, [*self._not_indexed, *events])
        self.entries, self._not_indexed = {}, []
