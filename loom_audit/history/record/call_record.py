"""What one call did, and which of its facts wait for the next commit."""

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
from loom_audit.history.look.git.led_files import is_about_led_files, with_led_files
from loom_audit.history.look.survivors import Window
from loom_audit.history.record.carrying_out import discard_displaced
from loom_audit.history.record.fitted import append_batch, fitted
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.coverage import FULL, Coverage, Level
from loom_audit.model.events import (
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
from loom_audit.model.git.record import GitChanged
from loom_audit.model.git.words import words_of
from loom_audit.ports import Displaced, IndexEntry

LOOKED_AT_LATE = "looked at late"
"""Why the coverage of a call is partial when the look after it did not follow directly."""

NOT_SEEN_BEFORE = "not looked at before it"
"""Why the coverage of a call is lower when no hook of its client ran before the call."""


class CallRecord:
    """Collects what a call did until that is committed; the index follows each commit.

    `facts` are those with which the call begins and that are not on record yet: its request, as a
    rule. `shared` is true when other calls may have made changes that are listed as this call's.
    `git` is what it changed of git, or of what settings of git lead to, or may have.
    `request` is the event of the request, where this object stored it. `entries` are for the index.
    `window` is the time whose changes wait for the next commit. `displaced` are the files that the
    waiting changes displaced, with their paths; they are deleted after that commit. `approved` are
    the states by path that an approval was given for, None where there was none: no other path is
    changed, and none that is in another state. `beside` is the id of the call of the background
    command in whose sandbox this one runs, "" where it does not: then it writes what that may.
    """

    def __init__(self, writer: Writer, call_id: str, *facts: Fact) -> None:
        self.writer = writer
        self.attachment = writer.attachment
        self.call_id = call_id
        self.shared = False
        self.coverage: Coverage = FULL
        self.files_changed: list[str] = []
        self.git: list[GitChanged] = []
        self.beside = ""
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
        """The session and the id of the call, which name it."""
        return (self.writer.session, self.call_id)

    @property
    def git_changed(self) -> Sequence[str]:
        """What the call changed of git until now, or may have, in git's words."""
        return words_of(self.git)

    @property
    def has_facts(self) -> bool:
        """Whether the request, or an answer to it, waits for the next commit."""
        return bool(self._facts)

    @property
    def has_changes(self) -> bool:
        """Whether changes of anybody, or displaced files, wait for the next commit."""
        return bool(self._drafts or self.displaced)

    def lower_coverage(self, *reasons: str, level: Level = "partial") -> None:
        """Add reasons why the call's effects are not captured completely; nothing for no reason."""
        self.coverage = self.coverage.lowered(*reasons, level=level)

    def add(self, fact: Fact) -> None:
        """Let a fact of the call wait for the next commit, which stores it behind the changes."""
        self._facts.append(fact)

    def add_changes(self, fact: FilesChanged) -> None:
        """Let changes that this call made wait for the next commit."""
        drafts = with_led_files(self.attachment, [self.writer.draft(fact)])
        self._drafts += drafts
        self.git += (one.fact for one in drafts if isinstance(one.fact, GitChanged))
        self.note_causes(fact.causes)
        self.add_changed_paths(change.path for change in fact.changes)

    def note_causes(self, causes: Sequence[int | str]) -> None:
        """Take the causes of a change that is listed as this call's: who else may have made it."""
        self.shared = self.shared or is_shared(causes)
        if UNKNOWN in causes:
            self.lower_coverage(LOOKED_AT_LATE)

    def add_changed_paths(self, paths: Iterable[str]) -> None:
        """Count paths whose changes are on record, or wait, as changed by this call."""
        listed = set(self.files_changed)
        self.files_changed += [path for path in paths if path not in listed]

    def add_changes_of_others(self, changes: Iterable[FileChange]) -> None:
        """Let changes that this call did not make wait for the next commit.

        They are attributed to other open calls, or are from outside.
        """
        if listed := [*changes]:
            among = candidates(self.attachment, besides=self.key)
            among = Window.begin(self.attachment).with_survivors(among)
            self.add_drafts(attributed_drafts(self.attachment, Batch(changes=listed), among))

    def add_drafts(self, drafts: Iterable[Draft]) -> None:
        """Let facts about changes of others wait for the next commit."""
        self._drafts += with_led_files(self.attachment, drafts)

    def add_untracked(self, untracked: Iterable[Untracked], causes: Sequence[int] = ()) -> None:
        """Let the paths that a scan could not look at wait for the next commit.

        `causes` are the seqs of the requests of the calls in which they may have become so.
        """
        if paths := tuple(inside_closed(self.attachment, untracked)):
            fact = PathsUntracked(paths, causes=tuple(causes))
            self.add_drafts([Draft(fact, "", OUTSIDE)])
            self.entries.update(untracked_entries(self.attachment, paths))

    def commit(self, *last: Fact) -> Sequence[Event]:
        """Store durably what waits, then the `last` facts; the index does not follow yet.

        Conflict where somebody changes a path again and again, so that nothing fits; nothing is
        stored then. AuditUnavailable where the log cannot be written.
        """
        # uninterrupted until nothing waits any more: a signal between the append and that would
        # let the end of the call store the same facts a second time
        with self.attachment.stored.lock.uninterrupted():
            events = self._append(last)
            asked = (event for event in events if isinstance(event.fact, CallRequested))
            self.request = next(asked, self.request)
            self._facts.clear()
            self._drafts.clear()
            # a new window begins, and displaced files go, only now that the changes are durable:
            # a crash before leaves both as they were, and recovery finds what is on disk
            if self.window is not None:
                self.window.end()
                self.window = None
            if self.displaced:
                discard_displaced(self.writer, self.call_id, self.displaced)
                self.displaced = []
            return events

    def _append(self, last: Sequence[Fact]) -> Sequence[Event]:
        """Append what waits; where it does not apply to the tree, fit it to the disk once."""
        facts = [*map(self.writer.draft, (*self._facts, *last))]
        if not self._drafts and not facts:
            return []
        try:
            return self.attachment.stored.log.append([*self._drafts, *facts])
        except DoesNotApply:
            self._fit()
        # fitting may have lowered the coverage, and the finish was made before
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
        """Replace the waiting drafts by ones that apply and lead to what is on disk now."""
        among = candidates(self.attachment, besides=self.key)
        drafts = [one for one in self._drafts if not is_about_led_files(one)]
        result = fitted(self.attachment, drafts, among)
        self._drafts = with_led_files(self.attachment, result.drafts)
        self.entries.update(result.entries)
        lost = {*result.lost}
        self.files_changed = [path for path in self.files_changed if path not in lost]
        self.lower_coverage(*(f"not seen: {path}" for path in result.lost[:10]))

    def commit_and_index(self, *last: Fact) -> Sequence[Event]:
        """Store durably what waits, then the `last` facts; then the index follows.

        In this order: an index that knew of a change before the log did would hide it from the
        next look, if the process died in between. Errors as of `commit`.
        """
        events = self.commit(*last)
        self.update_index(events)
        return events

    def commit_intention(self, fact: ChangeIntended) -> int:
        """Store durably what waits, then the intention; returns the seq of the intention.

        The index follows later, together with the outcome of the step, unless entries for it
        wait. One write of the index for each step is enough. Errors as of `commit`.
        """
        events = self.commit(fact)
        if self.entries:
            self.update_index(events)
        else:
            self._not_indexed = [*self._not_indexed, *events]
        return events[-1].seq

    def commit_changes_of_others(self, batch: Batch, among: Sequence[Candidate]) -> None:
        """Store a batch of a look, attributed to these candidates; what waits goes on waiting.

        The look is not over, so the window does not end.
        """
        events = append_batch(self.attachment, batch, among)
        self.entries.update(batch.entries)
        if events:
            self.update_index(events)

    def update_index(self, events: Sequence[Event]) -> None:
        """Let the index follow these events, and earlier ones that it has not followed yet."""
        update_index(self.attachment, self.entries, [*self._not_indexed, *events])
        self.entries, self._not_indexed = {}, []
