"""From a request to a plan: which recorded changes are meant, and what disk says today."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from loom_audit.errors import Conflict, InvalidArguments, NotFound
from loom_audit.history.attachment import Attachment
from loom_audit.history.baseline import baseline_end
from loom_audit.history.capture import scan
from loom_audit.history.newest import newest_undo, newest_undoable
from loom_audit.history.nogc import nogc
from loom_audit.history.steps import Footing
from loom_audit.history.timeline import Timeline
from loom_audit.model.events import Call, Event, FilesChanged, RecordedChange, SessionStarted
from loom_audit.model.files import FileChange, Move, apply, find_moves
from loom_audit.model.planning import Note, PathStep, Plan, Request, plan_taking_back
from loom_audit.ports import CallFilter, EventFilter, IndexEntry

ALL_STEPS = 20_000
"""Up to so many events after the first one taken back, the planner sees every change."""


@dataclass(frozen=True, slots=True)
class Meant:
    """What a request takes back: whole calls, single events, and for a rollback a point."""

    target: str
    calls: tuple[Call, ...] = ()
    events: tuple[int, ...] = ()
    since: int = 0
    rollback: bool = False


class Planner:
    """Makes plans for one workspace. Changes nothing: neither the log nor the workspace."""

    def __init__(self, at: Attachment, timeline: Timeline) -> None:
        self.at = at
        self.timeline = timeline

    @nogc()
    def plan(self, request: Request) -> Plan:
        """The plan for a request against the head and what is on disk now."""
        meant = self._meant(request)
        with self.at.looking():
            return self._plan(request, meant)

    def again(self, plan: Plan) -> Plan:
        """The plan for the same request now, once what disk has that the log has not is on record.

        It is the same one when no event since could change it, and what no log knows of is
        neither where it makes something nor in a folder that is to go.
        """
        with self.at.looking():
            since = self.at.log.read(EventFilter(after=plan.head))
            if (
                not plan.drifted
                and all(isinstance(event.fact, SessionStarted) for event in since)
                and not self._hidden(plan)
                and self._spare_folders(plan) is plan
            ):
                return plan
        return self.plan(plan.request or Request(plan.verb))

    # --- what is meant --------------------------------------------------------------------

    def _meant(self, request: Request) -> Meant:
        if request.verb == "undo":
            call = newest_undoable(self.at, request.session)
            return Meant(_named(call), (call,))
        if request.verb == "redo":
            call = newest_undo(self.at, request.session)
            return Meant(_named(call), (call,))
        if request.verb == "rollback":
            return self._meant_point(request)
        if not request.targets:
            raise InvalidArguments("revert needs at least one call, event or session")
        calls: dict[tuple[str, str], Call] = {}
        events: list[int] = []
        for target in request.targets:
            for one in self._named(target):
                if isinstance(one, int):
                    events.append(one)
                else:
                    calls[one.session, one.call_id] = one
        for call in calls.values():
            if call.seq is None:
                raise Conflict(f"call {call.requested} is still open", hint="Wait until it ends.")
        listed = ", ".join(str(target) for target in request.targets)
        return Meant(listed, tuple(calls.values()), tuple(events))

    def _named(self, target: int | str) -> Iterable[Call | int]:
        text = str(target)
        if text.startswith("session:"):
            id = text.removeprefix("session:")
            self.at.projections.session(id)
            filter = CallFilter(session=id, changed_only=True, limit=None, newest_first=False)
            return self.at.projections.calls(filter)
        if not text.isdigit():
            raise InvalidArguments(
                f"{text!r} names no call", hint="Name a call by its number, or session:ID."
            )
        seq = int(text)
        for event in self.at.log.read(EventFilter(after=seq - 1, before=seq + 1)):
            if isinstance(event.fact, FilesChanged) and event.fact.call_id is None:
                if event.fact.origin == "baseline":
                    raise InvalidArguments(f"event {seq} is the baseline; it cannot be reverted")
                return [seq]
        return [self.at.projections.call_at(seq)]

    def _meant_point(self, request: Request) -> Meant:
        if len(request.targets) != 1:
            raise InvalidArguments("rollback needs one point")
        point = self.timeline.point(request.targets[0])
        first = baseline_end(self.at)
        if not first or point < first:
            raise NotFound(
                f"point {point} is before the baseline was complete",
                hint=f"The earliest is {first}." if first else "`loom-audit init` completes it.",
            )
        for path in request.paths:
            seen = not path or self.at.projections.history(path, below=True, limit=1)
            if not seen and self.at.workspace.stamp(path) is None:
                hint = "Name a file or folder that `loom-audit ls --at POINT` lists."
                raise NotFound(f"{path} is not here and never was on record", hint=hint)
        return Meant(f"point {point}", since=point, rollback=True)

    # --- the plan -------------------------------------------------------------------------

    def _plan(self, request: Request, meant: Meant, also: frozenset[str] = frozenset()) -> Plan:
        """The plan, with what disk says at the paths taken back and `also` at these."""
        head = self.at.log.head()
        taken = self._taken(request, meant)
        listed = self._changes_meant(meant)
        own = [one for one in listed if taken(one)]
        touched = {one.change.path for one in own} | also
        drift = self._drift(request, touched, whole=meant.rollback)
        recorded = listed if meant.rollback else self._from(listed, touched)
        steps, moves, shared = self._steps(request, meant, recorded, taken)
        steps += [
            PathStep(head + 1, change, taken=meant.rollback and takes_outside(request, change.path))
            for change in drift
            if not meant.rollback or in_paths(request, change.path)
        ]
        plan = plan_taking_back(
            verb=request.verb,
            head=head,
            target=meant.target,
            reverts=self._reverts(request, meant, own, steps),
            steps=steps,
            tree=apply(self.at.projections.tree(), drift),
            blobs=self.at.blobs,
            moves={**moves, head + 1: find_moves(drift)},
            choices=request.choices,
            folds_case=self.at.workspace.folds_case(),
        )
        hidden = self._hidden(plan)
        if not meant.rollback and not hidden <= touched:
            return self._plan(request, meant, also | hidden)
        plan = replace(
            plan,
            # the point itself: `head` is elsewhere once something more is on record
            request=replace(request, targets=(meant.since,)) if meant.rollback else request,
            calls=tuple(sorted(call.seq for call in meant.calls if call.seq)),
            irreversible=(*plan.irreversible, *_uncovered(meant.calls)),
            kept=(*plan.kept, *shared),
            drifted=bool(drift),
        )
        return self._spare_folders(self._in_scope(_blocking(plan, hidden)))

    def _taken(self, request: Request, meant: Meant) -> Callable[[RecordedChange], bool]:
        ids = {(call.session, call.call_id) for call in meant.calls}
        names = {call.call_id for call in meant.calls}

        def taken(one: RecordedChange) -> bool:
            if meant.rollback:
                if one.seq <= meant.since or not in_paths(request, one.change.path):
                    return False
                if one.origin == "outside":
                    return takes_outside(request, one.change.path)
                return one.origin != "baseline"
            if one.seq in meant.events:
                return True
            if one.causes and names & {*one.causes}:
                if request.choices.get(one.change.path) == "old":
                    return True
                # two sessions may have calls of one id: each candidate must be meant
                return set(one.causes) <= names and len(one.causes) <= sum(
                    call.call_id in one.causes for call in meant.calls
                )
            return one.call_id is not None and (one.session, one.call_id) in ids

        return taken

    def _changes_meant(self, meant: Meant) -> list[RecordedChange]:
        if meant.rollback:
            return list(self.at.projections.changes(after=meant.since))
        found = list(self.at.projections.changes(call_ids=[c.call_id for c in meant.calls]))
        for seq in meant.events:
            found += self.at.projections.changes(after=seq - 1, until=seq)
        ids = {call.call_id for call in meant.calls}
        if len(ids) > 1:
            first = min((call.requested for call in meant.calls), default=0)
            known = {(one.seq, one.change.path) for one in found}
            found += [
                one
                for one in self.at.projections.changes(after=first)
                if one.causes and (one.seq, one.change.path) not in known
            ]
        return found

    def _from(
        self, listed: Sequence[RecordedChange], touched: set[str]
    ) -> Iterator[RecordedChange]:
        """Everything from the first of these on; of a long log only what touched these paths."""
        head = self.at.log.head()
        first = min((one.seq for one in listed), default=head + 1)
        narrow = head - first > ALL_STEPS
        return self.at.projections.changes(
            after=first - 1, paths=sorted(touched) if narrow else None
        )

    def _steps(
        self,
        request: Request,
        meant: Meant,
        recorded: Iterable[RecordedChange],
        taken: Callable[[RecordedChange], bool],
    ) -> tuple[list[PathStep], Mapping[int, tuple[Move, ...]], tuple[Note, ...]]:
        """The recorded changes from the first taken one on, as the planner wants them."""
        steps: list[PathStep] = []
        shared: dict[str, Note] = {}
        names = {call.call_id for call in meant.calls}
        for one in recorded:
            if meant.rollback and not in_paths(request, one.change.path):
                continue
            is_taken = taken(one)
            if not is_taken and one.causes and names & set(one.causes):
                reason = "other commands were running and may have done it"
                shared[one.change.path] = Note(one.change.path, reason, (one.number or 0,))
            steps.append(PathStep(one.seq, one.change, is_taken, one.number))
        return steps, self._moves(_may_hold_moves(steps)), tuple(shared.values())

    def _moves(self, seqs: set[int]) -> Mapping[int, tuple[Move, ...]]:
        moves: dict[int, tuple[Move, ...]] = {}
        if not seqs:
            return moves
        span = EventFilter(after=min(seqs) - 1, before=max(seqs) + 1, kinds=(FilesChanged.kind,))
        if len(seqs) > 50:
            events: Iterable[Event] = self.at.log.read(span)
        else:
            events = (
                event
                for seq in sorted(seqs)
                for event in self.at.log.read(EventFilter(after=seq - 1, before=seq + 1))
            )
        for event in events:
            if event.seq in seqs and isinstance(event.fact, FilesChanged) and event.fact.moves:
                moves[event.seq] = event.fact.moves
        return moves

    def _reverts(
        self,
        request: Request,
        meant: Meant,
        own: Sequence[RecordedChange],
        steps: Sequence[PathStep],
    ) -> tuple[int, ...]:
        if not meant.rollback:
            events = {one.seq for one in own if request.choices.get(one.change.path) == "current"}
            # what others may have done stays, so a call that did nothing else is not taken back
            mine = {one.number for one in own}
            calls = sorted(c.seq for c in meant.calls if c.seq and (c.seq in mine or not c.changed))
            return (*calls, *(seq for seq in meant.events if seq not in events))
        partly = {step.call for step in steps if step.call and not step.taken}
        whole = {one.number for one in own if one.number} - partly
        # of a call that was requested before the point, going there takes back a part
        begun = CallFilter(after=meant.since, changed_only=True, limit=None)
        return tuple(sorted(whole & {call.seq for call in self.at.projections.calls(begun)}))

    # --- what disk says -------------------------------------------------------------------

    def _drift(self, request: Request, touched: set[str], *, whole: bool) -> list[FileChange]:
        """What differs on disk from the log's tree, at the touched paths or everywhere.

        The content of what may be replaced is in the blob store afterwards; the rest is hashed.
        """
        entries: dict[str, IndexEntry | None] = {}
        footing = Footing(self.at, entries)
        elsewhere: list[FileChange] = []
        if whole:
            found = scan(self.at, lambda _: None, keep=False)
            drifted = {change.path for change in found.changes}
            touched = {p for p in drifted if p in touched or takes_outside(request, p)}
            elsewhere = [c for c in found.changes if c.path not in touched]
        for path in sorted(touched):
            footing.look(path)
        return [*footing.drift, *elsewhere]

    def _spare_folders(self, plan: Plan) -> Plan:
        """Leave folders in place that hold what is not on record, and say so."""
        going = {change.path for change in plan.changes if change.after is None}
        spared: dict[str, str] = {}
        for change in sorted(plan.changes, key=lambda c: c.path.count("/"), reverse=True):
            if change.before is None or change.before.kind != "directory":
                continue
            if change.after and change.after.kind == "directory":
                continue
            names = [name for name, _ in self._listed(change.path)]
            left = [n for n in names if f"{change.path}/{n}" not in going - spared.keys()]
            if left:
                spared[change.path] = left[0]
        if not spared:
            return plan
        notes = {path: Note(path, f"holds {name}, which stays") for path, name in spared.items()}
        stuck = tuple(notes[c.path] for c in plan.changes if c.path in notes and c.after)
        return replace(
            plan,
            changes=tuple(c for c in plan.changes if c.path not in spared),
            kept=(*plan.kept, *(note for note in notes.values() if note not in stuck)),
            blocked=(*plan.blocked, *stuck),
        )

    def _hidden(self, plan: Plan) -> frozenset[str]:
        """Paths the plan would create at which there is something no tree knows of."""
        new = (change.path for change in plan.changes if change.before is None)
        return frozenset(path for path in new if self.at.workspace.stamp(path) is not None)

    def _in_scope(self, plan: Plan) -> Plan:
        """Leave alone what a person has taken out of scope since it was recorded."""
        left = {
            change.path
            for change in plan.changes
            if (state := change.after or change.before)
            and not self.at.scope.includes(change.path, directory=state.kind == "directory")
        }
        if not left:
            return plan
        return replace(
            plan,
            changes=tuple(c for c in plan.changes if c.path not in left),
            kept=(*plan.kept, *(Note(path, "out of scope now") for path in sorted(left))),
        )

    def _listed(self, path: str) -> Sequence[tuple[str, object]]:
        return self.at.workspace.list(path) if self.at.workspace.stamp(path) else ()


def _blocking(plan: Plan, paths: Collection[str]) -> Plan:
    notes = (Note(path, "something that is not recorded is in the way") for path in sorted(paths))
    changes = tuple(change for change in plan.changes if change.path not in paths)
    return replace(plan, changes=changes, blocked=(*plan.blocked, *notes))


def takes_outside(request: Request, path: str) -> bool:
    """Whether a rollback takes back what came from outside at a path."""
    return in_paths(request, path) and (request.outside or request.choices.get(path) == "old")


def _may_hold_moves(steps: Sequence[PathStep]) -> set[int]:
    """The events that both removed and created something."""
    created = {step.seq for step in steps if step.change.before is None}
    return created & {step.seq for step in steps if step.change.after is None}


def in_paths(request: Request, path: str) -> bool:
    """Whether a path is one the request is limited to, or below one."""
    return not request.paths or any(
        not p or path == p or path.startswith(p + "/") for p in request.paths
    )


def _named(call: Call) -> str:
    return f"call {call.seq} ({call.tool})"


def _uncovered(calls: Iterable[Call]) -> tuple[Note, ...]:
    """What of these calls was not captured, so that nothing can take it back."""
    notes = []
    for call in calls:
        number = call.seq or call.requested
        if call.coverage.level != "full":
            reasons = "; ".join(call.coverage.reasons) or "not captured"
            notes.append(Note("", f"call {number} was not captured whole: {reasons}", (number,)))
        if call.effect == "network":
            notes.append(Note("", f"call {number} reached the network", (number,)))
    return tuple(notes)
