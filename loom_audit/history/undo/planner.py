"""Makes the plan for a request, from the recorded changes that it selects and what is on disk now.

Which changes a plan needs is known only once it is made: a rename may bring in another path, and
what cannot be changed may keep other paths as they are. So it is made again until nothing is added.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial

from msgspec.structs import replace

from loom_audit.errors import Conflict, PermissionDenied
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.without_gc import without_gc
from loom_audit.history.look.arrivals import Arrivals
from loom_audit.history.look.capture import look_once
from loom_audit.history.look.doers import UNKNOWN, Candidate
from loom_audit.history.look.observation import names_in
from loom_audit.history.look.special_files import special_kind
from loom_audit.history.look.survivor_changes import SurvivorChanges
from loom_audit.history.read.timeline import Timeline
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.history.undo.arrived_folders import with_arrived_folders
from loom_audit.history.undo.concerned import concerned_calls
from loom_audit.history.undo.contents_on_disk import ContentsOnDisk
from loom_audit.history.undo.counting import (
    reverts,
    taken_in_part,
    takings,
    with_miscounts_blocked,
    with_rest,
    without_kept,
)
from loom_audit.history.undo.dealt_with import ChangedPaths, changes_before
from loom_audit.history.undo.git.taken_back import leaves_git, with_git
from loom_audit.history.undo.limits import names_by
from loom_audit.history.undo.notes import (
    displaced_notes,
    git_notes,
    long_run_notes,
    lost_notes,
    shared_note,
    taken_back_notes,
    uncaptured_notes,
)
from loom_audit.history.undo.scope_moves import FolderPlan, events_with_arrivals, plan_folders
from loom_audit.history.undo.selection import (
    UNDO_AND_REDO,
    Selection,
    as_recorded,
    may_be_changing,
    select,
)
from loom_audit.model.events import FilesChanged, SessionStarted
from loom_audit.model.files import (
    FileChange,
    Move,
    apply,
    folder_renames,
    is_directory,
    is_within,
    moves_among,
    parents,
)
from loom_audit.model.plans.arrivals import followed_arrivals
from loom_audit.model.plans.folder_choices import with_folder_choices
from loom_audit.model.plans.left_out import creation_events, left_out_blocks
from loom_audit.model.plans.lineage import events_with_moves, events_with_opaque
from loom_audit.model.plans.link_plans import choices_for_groups, group_holds
from loom_audit.model.plans.opening import UNREADABLE, seen_when_opened
from loom_audit.model.plans.placement import ProposalStatus
from loom_audit.model.plans.planning import (
    Hold,
    Note,
    PathStep,
    Plan,
    plan_taking_back,
)
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.plans.restore_limits import with_broken_links, without_lost_lists
from loom_audit.model.plans.taking_back.taken_back import hidden_paths, takes_anything_back
from loom_audit.model.plans.unnamed import unnamed_changes
from loom_audit.model.plans.whole_folders import whole_renames
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.text.display import first_few
from loom_audit.ports import EventFilter

UNNAMED = "it would change with the plan, which says nothing of it"
MOST_NAMED = 1_000
"""Paths that the details of an error list."""

ALL_STEPS = 20_000
"""Events; in a longer stretch of the log only the changes of the paths concerned are read."""


class Planner:
    """Makes plans for one workspace; changes neither the log nor the workspace."""

    def __init__(self, attachment: Attachment, timeline: Timeline) -> None:
        self.attachment = attachment
        self.timeline = timeline
        self._unreadable: set[str] = set()
        self._concerned: Sequence[Call] = ()

    @without_gc()
    def plan(self, request: PlanRequest) -> Plan:
        """The plan for a request as of the log's head and the disk; raises what `select` does."""
        with self.attachment.exclusive_if_possible():
            selection = select(request, self.attachment, self.timeline)
            self._unreadable = set()
            self._concerned = concerned_calls(self.attachment.stored, selection)
            return with_folder_choices(request, lambda one: self._make_plan(one, selection))

    def renew(self, plan: Plan) -> Plan:
        """The plan for the same request as of now, once drift was recorded.

        The given plan where it still holds: no later event can change it, nothing unrecorded is at
        a path that it creates, and no folder that it removes has something unrecorded in it.
        """
        with self.attachment.exclusive_if_possible():
            since = self.attachment.stored.log.read(EventFilter(after=plan.head))
            if (
                not plan.drifted
                and all(isinstance(event.fact, SessionStarted) for event in since)
                and not self._holds(plan)
            ):
                return plan
        return self.plan(plan.request)

    def check_named(self, plan: Plan) -> None:
        """Conflict when carrying out the plan now would change a path that it does not list."""
        unnamed = unnamed_changes(plan, self.attachment.stored.reading.tree())
        if unnamed:
            raise Conflict(
                f"{first_few(unnamed, 1)} would change with this plan, which does not list it",
                hint="Nothing was changed. Make the plan again; if that does not help, report it.",
                details={"path": unnamed[0], "paths": unnamed[:MOST_NAMED]},
            )

    # --- the plan -------------------------------------------------------------------------

    def _make_plan(
        self,
        asked: PlanRequest,
        selection: Selection,
        more_paths: frozenset[str] = frozenset(),
        widened: PlanRequest | None = None,
    ) -> Plan:
        """The plan, with the drift at the paths that are taken back and at `more_paths`.

        `widened` is the request in which a choice for one hard link stands for all links of the
        file; None where that is not known yet.
        """
        candidates = selection.changes
        request = widened or self._with_whole_choices(asked, (one.change for one in candidates))
        is_taken = selection.predicate(request, SurvivorChanges(self.attachment))
        selected = [one for one in candidates if is_taken(one)]
        touched = {one.change.path for one in selected} | more_paths
        among = may_be_changing(self.attachment)
        drift = self._find_drift(is_taken, touched, among, whole=selection.rollback or bool(among))
        widened = self._with_whole_choices(request, drift.changes)
        paths = names_by(selection.paths, drift.moves) if selection.rollback else selection.paths
        if widened != request or paths != selection.paths:
            return self._make_plan(asked, replace(selection, paths=paths), more_paths, widened)
        recorded = candidates if selection.rollback else self._changes_from(candidates, touched)
        unrecorded = as_recorded(self.attachment, drift.changes, among)
        steps, moves, shared = self._steps(selection, recorded, unrecorded, is_taken)
        opaque = self.timeline.verified.files_changed(events_with_opaque(steps))
        if selection.rollback:
            unrecorded = [one for one in unrecorded if selection.is_asked_for(one.change.path)]
        steps += _unrecorded_steps(unrecorded, is_taken, drift)
        contents = ContentsOnDisk(self.attachment, drift.changes)
        folders = plan_folders(self.attachment, contents, request, steps, opaque, moves, drift)
        make = partial(
            plan_taking_back,
            request=request,
            head=(head := self.attachment.stored.log.head()),
            target=selection.target,
            reverts=reverts(self.attachment, self.timeline, request, selection, selected, steps),
            steps=folders.steps,
            back=selection.back,
            tree=folders.tree,
            blobs=contents,
            moves={**moves, head + 1: drift.moves},
            notes=shared,
            folds_case=self.attachment.on_disk.workspace.folds_case(),
        )
        own = make()
        if not selection.rollback:
            unseen = self._unseen_paths(folders.added_to(own), touched)
            if not unseen <= touched:  # drift that bears on the plan, and is not in it
                return self._make_plan(asked, selection, more_paths | unseen)
        plan = self._with_holds(own, make, selection, folders)
        plan = replace(
            plan,
            # the point as a number, since `head` is another event once one was appended
            request=replace(asked, targets=(selection.since,)) if selection.rollback else asked,
            calls=tuple(sorted(call.seq for call in selection.calls if call.seq)),
            irreversible=(*plan.irreversible, *self._notes_on_calls(asked, selection, selected)),
            drifted=bool(drift.changes),
            passed_over=selection.passed_over,
            ran_long=long_run_notes(self.attachment.stored, selected),
            blocked=(*plan.blocked, *self._unnamed_notes(plan, drift)),
            kept=(*plan.kept, *displaced_notes(self.attachment.on_disk, plan)),
        )
        counted = self._with_what_counts(plan, selection, candidates, selected, steps)
        plan = with_git(self.attachment, counted, selection, self._concerned)
        return without_kept(plan, selected)

    def _with_what_counts(
        self,
        plan: Plan,
        selection: Selection,
        candidates: Sequence[RecordedChange],
        selected: Sequence[RecordedChange],
        steps: Iterable[PathStep],
    ) -> Plan:
        """The plan with the paths of calls it takes back, blocked where they would not be so."""
        stored, timeline = self.attachment.stored, self.timeline
        partly = taken_in_part(stored, timeline, plan, selection, candidates, selected)
        plan = with_rest(stored, replace(plan, partly=partly), selection, candidates)
        if not self._takes_anything_back(plan, selection, steps):
            return replace(plan, reverts=(), partly={}, rest={})
        return with_miscounts_blocked(stored, timeline, selection, plan, selected)

    def _notes_on_calls(
        self, asked: PlanRequest, selection: Selection, selected: Sequence[RecordedChange]
    ) -> Iterator[Note]:
        yield from uncaptured_notes(self._concerned)
        if leaves_git(asked):
            yield from git_notes(self.attachment.stored.log, self._concerned)
        yield from taken_back_notes(selection.before.calls, selected)
        if selection.rollback:
            there = self.attachment.on_disk
            yield from lost_notes(self.timeline, there, selection.since, selection.is_asked_for)

    def _unnamed_notes(self, plan: Plan, drift: FilesChanged) -> Iterator[Note]:
        """Notes on paths that a plan would change and does not list, unless something blocks it."""
        if not plan.blocked:
            on_disk = apply(self.attachment.stored.reading.tree(), drift.changes)
            yield from (Note(path, UNNAMED) for path in unnamed_changes(plan, on_disk))

    def _takes_anything_back(
        self, plan: Plan, selection: Selection, steps: Iterable[PathStep]
    ) -> bool:
        """Whether something else counts as taken back once the plan is carried out.

        Not by a revert where later calls hide all changes: it can be made again later.
        """
        if plan.verb in UNDO_AND_REDO:  # the call is dealt with: the next one is another
            return bool(plan.reverts or plan.partly)
        if plan.verb == "revert" and not (plan.changes or set(plan.already) - hidden_paths(steps)):
            return False
        changed = ChangedPaths(self.attachment.stored)
        return takes_anything_back(selection.back, takings(plan), changed.of_each)

    def _with_whole_choices(
        self, request: PlanRequest, changes: Iterable[FileChange]
    ) -> PlanRequest:
        """The request in which a choice for one hard link stands for all links of the file."""
        if not request.choices:
            return request
        tree = self.attachment.stored.reading.tree()
        return replace(request, choices=choices_for_groups(request.choices, changes, tree))

    def _with_holds(
        self, own: Plan, make: Callable[..., Plan], selection: Selection, folders: FolderPlan
    ) -> Plan:
        """The plan in which what cannot be changed is kept or blocked, and listed.

        `own` is the plan without holds, and `make` makes one with holds. Made again until no hold
        is added: what is held may be in the way of something else.
        """
        arrivals = Arrivals(self.attachment, self.timeline.verified.files_changed)
        joined = partial(with_arrived_folders, self.attachment, arrivals, folders)
        holds: dict[str, Hold] = {}
        while True:
            plan = joined(own)
            found = {
                **self._holds(plan),
                **self._left_out_holds(selection, plan, folders.steps),
                **group_holds(own, folders.tree, holds),
            }
            if found.keys() <= holds.keys():
                break
            holds |= found
            own = make(holds=holds)
        stuck = tuple(Note(path, hold.reason, hold.calls) for path, hold in found.items())
        own = replace(own, blocked=(*own.blocked, *stuck))
        own = with_broken_links(
            without_lost_lists(own, folders.tree, whole_renames(plan)),
            folders.tree,
            self.attachment.on_disk.workspace.links,
        )
        return joined(own)

    def _changes_from(
        self, candidates: Sequence[RecordedChange], touched: set[str]
    ) -> Iterator[RecordedChange]:
        """All changes from the first candidate on; in a long log only at the touched paths."""
        head = self.attachment.stored.log.head()
        first = min((one.seq for one in candidates), default=head + 1)
        narrow = head - first > ALL_STEPS
        return self.attachment.stored.reading.changes(
            after=first - 1, paths=sorted(touched) if narrow else None
        )

    def _steps(
        self,
        selection: Selection,
        recorded: Iterable[RecordedChange],
        unrecorded: Sequence[RecordedChange],
        is_taken: Callable[[RecordedChange], bool],
    ) -> tuple[list[PathStep], Mapping[int, tuple[Move, ...]], tuple[Note, ...]]:
        """The changes as steps, their moves by seq, and notes on shared changes that stay."""
        recorded = list(recorded)
        steps = [] if selection.rollback else self._earlier_steps(selection, recorded, is_taken)
        shared: dict[str, Note] = {}
        calls = {call.requested for call in selection.calls}
        facts = self.timeline.verified.files_changed
        captured = facts(events_with_arrivals(recorded))
        arrived = {seq: frozenset(fact.arrived) for seq, fact in captured.items()}

        @cache
        def number(requested: int) -> int:
            call = self.attachment.stored.reading.call_at(requested)
            return call.seq or call.requested

        def note_shared(one: RecordedChange) -> None:
            nobody_saw = one.origin == "outside" or UNKNOWN in one.causes
            maybe = (*one.causes, *one.told_later)
            doubtful = bool(selection.rollback and nobody_saw and maybe)
            asked = not selection.rollback or selection.is_asked_for(one.change.path)
            if asked and (doubtful or not calls.isdisjoint(maybe)):
                shared[one.change.path] = shared_note(one, calls, number)

        undone = {one.target for one in selection.back.doings} if not selection.rollback else ()
        for one in recorded:
            taken = is_taken(one)
            came = one.change.path in arrived.get(one.seq, ())
            was_undone = not taken and one.number in undone
            steps.append(PathStep(one.seq, one.change, taken, one.number, came, was_undone))
            if not taken:
                note_shared(one)
        for one in unrecorded:
            if not is_taken(one):
                note_shared(one)
        moves = {seq: fact.moves for seq, fact in facts(events_with_moves(steps)).items()}
        steps = [
            step
            for step in followed_arrivals(steps, moves)
            if not selection.rollback or selection.is_asked_for(step.change.path)
        ]
        return steps, moves, tuple(shared.values())

    def _earlier_steps(
        self,
        selection: Selection,
        recorded: Sequence[RecordedChange],
        is_taken: Callable[[RecordedChange], bool],
    ) -> list[PathStep]:
        paths = {one.change.path for one in recorded if is_taken(one)}
        stored = self.attachment.stored
        found = changes_before(stored, self.timeline, selection.back, recorded, paths)
        return [PathStep(one.seq, one.change, False, one.number, earlier=True) for one in found]

    # --- what disk says -------------------------------------------------------------------

    def _find_drift(
        self,
        is_taken: Callable[[RecordedChange], bool],
        touched: set[str],
        among: Sequence[Candidate],
        *,
        whole: bool,
    ) -> FilesChanged:
        """The drift of the whole workspace; none where only the touched paths matter and have none.

        A touched file may have been renamed from outside, so that all is scanned. The files are
        hashed and not stored, since the plan may only be looked at.
        """
        if not whole and not self._differing_paths(touched):
            return FilesChanged((), "outside")
        found = look_once(self.attachment)
        unrecorded = as_recorded(self.attachment, found.changes, among)
        taken = {one.change.path for one in unrecorded if is_taken(one)}
        touched = {one.path for one in found.changes if one.path in touched} | taken
        self._unreadable |= {u.path for u in found.untracked if "not a file" not in u.reason}
        drift = (*self._look(touched), *(c for c in found.changes if c.path not in touched))
        moves = moves_among(drift, found.moves)
        return FilesChanged(drift, "outside", moves=moves, arrived=found.arrived)

    def _look(self, paths: Iterable[str]) -> Sequence[FileChange]:
        """How the paths on disk differ from the log; notes those that cannot be read."""
        preconditions = Preconditions(self.attachment, keep=False)
        preconditions.overlooks_special = True
        for path in sorted(paths):
            try:
                preconditions.look(path)
            except PermissionDenied:
                self._unreadable.add(path)
        return preconditions.drift

    def _differing_paths(self, paths: Iterable[str]) -> frozenset[str]:
        """The paths whose state on disk is not that of the log."""
        return frozenset(change.path for change in self._look(paths))

    def _unseen_paths(self, plan: Plan, touched: Collection[str]) -> frozenset[str]:
        """The paths of a plan, and above them, that differ on disk and were not looked at yet."""
        concerned = {path for c in plan.changes for path in (c.path, *parents(c.path))}
        concerned |= self._paths_in_kept_folders(plan)
        return self._occupied_paths(plan) | self._differing_paths(concerned.difference(touched))

    def _paths_in_kept_folders(self, plan: Plan) -> set[str]:
        """The recorded paths in the folders that are kept."""
        kept = {note.path for note in plan.kept}
        tree = self.attachment.stored.reading.tree() if kept else {}
        return {path for path in tree if not kept.isdisjoint(parents(path))}

    def _holds(self, plan: Plan) -> dict[str, Hold]:
        """The paths that a plan would change and must not, because of the disk or the scope."""
        occupied = "something that is not recorded is in the way"
        holds = {path: Hold("blocked", occupied) for path in self._occupied_paths(plan)}
        going = {change.path for change in plan.changes if change.after is None}
        seen_then = seen_when_opened(plan.changes)
        stages = plan.stages or (plan.changes,)
        moved = (move for stage in stages for move in folder_renames(stage, plan.moves))
        ends = [end for move in moved for end in (move.source, move.target)]
        holds = {path: hold for path, hold in holds.items() if not is_within(path, ends)}
        for change in plan.changes:
            state = change.after or change.before
            if is_within(change.path, ends):
                continue
            if state and not self.attachment.scope.holds(change.path, state.kind):
                holds[change.path] = Hold("kept", "out of scope now")
            elif self._is_unreadable(change) and change.path not in seen_then:
                holds[change.path] = Hold("blocked", UNREADABLE)
            elif hold := self._hold_of_rest(change, going):
                holds[change.path] = hold
        return holds

    def _hold_of_rest(self, change: FileChange, going: Collection[str]) -> Hold | None:
        """Why a folder cannot be removed: something in it is not `going`; None where it can."""
        if not is_directory(change.before) or is_directory(change.after):
            return None
        try:
            names = names_in(self.attachment.on_disk, change.path)
        except PermissionDenied:
            return Hold("blocked", UNREADABLE)
        left = [name for name in names if f"{change.path}/{name}" not in going]
        if not left:
            return None
        status: ProposalStatus = "blocked" if change.after else "kept"
        return Hold(status, f"holds {left[0]}, which stays")

    def _is_unreadable(self, change: FileChange) -> bool:
        """Whether what a change needs to know cannot be read: of a folder that stays, its mode."""
        stays = is_directory(change.before) and is_directory(change.after)
        path = change.path.rpartition("/")[0] if stays else change.path
        return is_within(path, self._unreadable)

    def _occupied_paths(self, plan: Plan) -> frozenset[str]:
        """The paths that a plan would create, and at which something is that is not recorded."""
        occupied: set[str] = set()
        for path in (change.path for change in plan.changes if change.before is None):
            try:
                seen = self.attachment.on_disk.workspace.stamp(path)
            except PermissionDenied:
                self._unreadable.add(path)
            else:
                if seen and not special_kind(seen):
                    occupied.add(path)
        return frozenset(occupied)

    def _left_out_holds(
        self, selection: Selection, plan: Plan, steps: Sequence[PathStep]
    ) -> dict[str, Hold]:
        """The changes that are blocked since a left-out folder appeared or vanished, by path.

        A redo is never blocked so: it takes back an undo, which moves no left-out folder.
        """
        paths = {step.change.path for step in steps}
        changes = [change for change in plan.changes if change.path in paths]
        notes = left_out_blocks(self._concerned, changes, creation_events(steps))
        return {path: Hold("blocked", note.reason, note.calls) for path, note in notes.items()}


def _unrecorded_steps(
    changes: Iterable[RecordedChange],
    is_taken: Callable[[RecordedChange], bool],
    drift: FilesChanged,
) -> Iterator[PathStep]:
    arrived = frozenset(drift.arrived)
    for one in changes:
        came = one.change.path in arrived
        yield PathStep(one.seq, one.change, is_taken(one), came_in=came)
