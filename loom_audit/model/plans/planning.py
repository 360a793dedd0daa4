"""Plans: what an undo would change, what it keeps and what blocks it, each with its reason."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from loom_audit.model.files import BlobId, FileChange, FileState, Move, Tree
from loom_audit.model.plans.git_things import GitThing
from loom_audit.model.plans.lineage import (
    Lineage,
    LineageTrace,
    PathStep,
    ThreeWay,
    call_numbers,
    trace_lineages,
)
from loom_audit.model.plans.links import names_written_along, whole_groups
from loom_audit.model.plans.out_of_scope import recorded_part
from loom_audit.model.plans.placement import (
    KEPT_BY_CHOICE,
    Hold,
    Placement,
    Proposal,
    place_proposals,
)
from loom_audit.model.plans.rebase import BlobReader, KeptChange, StateMerger, rebase
from loom_audit.model.plans.request import Choice, PlanRequest, Verb
from loom_audit.model.plans.taking_back.in_effect import mark_in_effect
from loom_audit.model.plans.taking_back.taken_back import TakenBack
from loom_audit.model.plans.verdicts import Category, Note, one_verdict_each

__all__ = [
    "BlobReader",
    "Choice",
    "Hold",
    "Note",
    "PathStep",
    "Plan",
    "Verb",
    "is_equivalent",
    "plan_taking_back",
]

CHANGES_ALONG = "changes with it"
MOVED_THERE = "it is moved there"
MOVES_ALONG = "moves with it"
TAKEN_BACK = "is taken back already"
"""What the reason says of a call that nothing is left to do about."""
_CHANGED_ALONG = (CHANGES_ALONG, MOVED_THERE, MOVES_ALONG)
"""How the reasons end of what is listed with what is kept, and is not left as it is."""


class Plan(Struct, frozen=True):
    """What taking something back would do, made at `head`.

    `changes` lead from what is on disk to what will be; `reverts` are the numbers of the calls
    (and seqs of the events) taken back, without those of which a path is kept by choice. In an
    undo or a redo that leaves nothing else of the call they are in it, too: it is dealt with.

    A path has one verdict: it is among the changes, or in one of four lists. `already` are paths
    that need nothing; `kept` are left as they are (an edit from outside, a folder that is not
    empty); `blocked` need a choice; `irreversible` cannot be taken back at all. `merged` says of
    changed paths what later changes of them are kept, `inexact` what of their old state does not
    come back, or that they have names elsewhere which keep what is there now. A note without a
    path is about a whole call. Nothing is written while `blocked` is not empty.

    `stages` are the changes in steps, where some have to be made before others: a folder is renamed
    as a whole after what changed in it since is taken back, and before what changed earlier is.

    `calls` are those that the request named. `drifted` is true when disk differed from the log:
    once that is recorded, the plan has to be made again.
    """

    request: PlanRequest
    head: int
    target: str
    changes: tuple[FileChange, ...] = ()
    reverts: tuple[int, ...] = ()
    moves: tuple[Move, ...] = ()
    already: tuple[str, ...] = ()
    merged: tuple[Note, ...] = ()
    kept: tuple[Note, ...] = ()
    blocked: tuple[Note, ...] = ()
    irreversible: tuple[Note, ...] = ()
    inexact: tuple[Note, ...] = ()
    contents: Mapping[BlobId, bytes] = field(default_factory=dict)
    """Merged texts that the changes need and the blob store does not have yet."""
    calls: tuple[int, ...] = ()
    partly: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The paths that are taken back of calls which are not taken back as a whole."""
    rest: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The paths that were left of calls which are taken back, where others were before."""
    drifted: bool = False
    passed_over: tuple[Note, ...] = ()
    """What later calls may have done, which an undo passes over: only a choice takes it back; and,
    without a path, what they did to git."""
    ran_long: tuple[Note, ...] = ()
    """Calls that ran so long that edits beside them, which count as their own, are likely."""
    stages: tuple[tuple[FileChange, ...], ...] = ()
    decided: Mapping[str, Choice] = field(default_factory=dict)
    """The conflicts that a choice for a folder above them decides, and how."""
    followed: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Where else than at its path is decided what becomes of what was taken back there."""
    kept_within: frozenset[str] = frozenset()
    """The paths at which all is taken back that is to be, and something else is kept."""
    git: tuple[GitThing, ...] = ()
    """What of git goes back, before the files."""
    git_words: tuple[str, ...] = ()
    """The same in words, a line each, with the commits that it brings back or takes back."""
    lost_commits: tuple[str, ...] = ()
    """The commits that no ref would hold any more: id, author and subject of each."""
    git_settings: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Hooks and settings of git that go back, or would if that was asked for: of each its path, and
    the lines of a difference from what is there to what was."""
    sides: Mapping[str, ThreeWay] = field(default_factory=dict)
    """What a blocked path is a conflict between, where a change of it is to be taken back."""

    @property
    def verb(self) -> Verb:
        """What was asked for."""
        return self.request.verb

    @property
    def provisional(self) -> bool:
        """Whether the plan rests on what is not on record, and so on a guess whose that is."""
        return self.drifted

    def settled(self, paths: Iterable[str]) -> list[str]:
        """Those of some paths at which all that is to be taken back is, wherever the files are."""
        done = {change.path for change in self.changes} | {*self.already} | self.kept_within
        return [one for one in paths if not done.isdisjoint(self.followed.get(one, (one,)))]

    @property
    def is_empty(self) -> bool:
        """Whether the plan writes nothing and takes nothing back, so that it is not carried out."""
        return not (self.changes or self.reverts or self.partly or self.git)

    @property
    def in_part(self) -> bool:
        """Whether a path is kept that nobody chose to keep, or something cannot be undone."""
        return bool(self.kept_unasked) or any(
            TAKEN_BACK not in note.reason for note in self.irreversible
        )

    @property
    def keeps_all(self) -> bool:
        """Whether nobody chose to keep what the plan keeps, and it takes back nothing else."""
        return self.verb != "rollback" and self.is_empty and bool(self.kept_unasked)

    @property
    def kept_unasked(self) -> Collection[str]:
        """The paths that are kept as they are, and that nobody chose to keep."""
        choices = self.request.choices.items()
        asked = {path for path, choice in choices if choice == "current"}
        return {
            note.path
            for note in self.kept
            if note.path and note.path not in asked
            if KEPT_BY_CHOICE not in note.reason and not note.reason.endswith(_CHANGED_ALONG)
        }


def how_to_choose(passed_over: Iterable[Note]) -> str:
    """The command that takes back what an undo passes over; at least one note names a call."""
    number = max(number for note in passed_over for number in note.calls)
    return f"`loom-audit revert {number} --choose PATH=old` takes back what it only may have done"


def plan_taking_back(
    *,
    request: PlanRequest,
    head: int,
    target: str,
    reverts: tuple[int, ...],
    steps: Sequence[PathStep],
    tree: Tree,
    blobs: BlobReader,
    back: TakenBack = TakenBack(()),
    moves: Mapping[int, Iterable[Move]] | None = None,
    holds: Mapping[str, Hold] | None = None,
    notes: Iterable[Note] = (),
    folds_case: bool = False,
) -> Plan:
    """The plan that takes back the taken steps and keeps all others.

    `steps` are recorded changes in log order, from the first taken one on (for a rollback all
    after the point), at least those of every path a taken one touches. Giving all lets the
    plan follow renames, name the calls behind a folder that is not empty, and, in a rollback,
    list what came from outside. `tree` is the tree at `head`; `moves` are the rename hints by
    seq of their event; `blobs` is asked for texts to merge; `back` is what calls took back before,
    of which what cancels out is not told. Folders that hold files outside the scope are not known
    here: what must stay as it is for such a reason is in `holds`, by path.
    `notes` are on more that is kept. The changes are ordered by path, with all names of a file.

    A choice counts for the file that is or was at its path: "current" leaves it alone, "old"
    brings back what was before the first taken change (in a rollback: at the point) whatever
    came later, "merge" writes conflict markers where texts conflict. A move that was made from
    outside is followed only for a file that is chosen so, or where outside is taken back too;
    otherwise the file at its new name is kept and listed.
    """
    chosen = request.choices
    trace = _traced(steps, moves or {}, tree, request, back, reverts, head)
    merger = StateMerger(blobs)
    kept: dict[Lineage, tuple[KeptChange, ...]] = {}
    proposals = []
    for lineage in trace.lineages:
        holder = trace.by_path.get(lineage.current.path) is lineage
        proposal, kept[lineage] = _proposal(lineage, _choice(lineage, chosen), merger, holder)
        proposals.append(recorded_part(proposal))
    by_choice = {path: Hold("kept", KEPT_BY_CHOICE) for path in chosen if chosen[path] == "current"}
    placement = place_proposals(
        proposals, trace, tree, merger, holds={**(holds or {}), **by_choice}, folds_case=folds_case
    )
    own = [
        FileChange(path, tree.get(path), state)
        for path, state in sorted(placement.wanted.items())
        if tree.get(path) != state
    ]
    changes = tuple(sorted(whole_groups(own, tree)[0], key=lambda change: change.path))
    along = names_written_along(own, changes)
    found = [*_verdicts(placement, kept, along), *_by_choice(trace.lineages, chosen)]
    found += [("kept", note) for note in notes]
    verdicts = one_verdict_each(found, {change.path for change in changes})
    needed = {change.after.blob for change in changes if change.after}
    dealt_with = request.verb in ("undo", "redo") and not changes and "blocked" not in verdicts
    spared = set() if dealt_with else _calls_kept_by_choice(placement.proposals)
    return Plan(
        request=request,
        head=head,
        target=target,
        changes=changes,
        reverts=tuple(number for number in reverts if number not in spared),
        moves=_moves(placement.proposals, changes),
        already=tuple(note.path for note in verdicts.get("already", ())),
        merged=verdicts.get("merged", ()),
        kept=verdicts.get("kept", ()),
        blocked=verdicts.get("blocked", ()),
        irreversible=verdicts.get("irreversible", ()),
        contents={blob: text for blob, text in merger.merged.items() if blob in needed},
        followed=_followed(placement.proposals),
        kept_within=_kept_within(placement.proposals, kept),
        sides=_sides(placement.proposals),
    )


def _followed(proposals: Iterable[Proposal]) -> dict[str, set[str]]:
    """By the path of what is taken back the paths at which its file is now, and will be."""
    found: dict[str, set[str]] = {}
    for proposal in proposals:
        places = {proposal.lineage.current.path, proposal.result.path}
        for step in proposal.lineage.steps if proposal.lineage.is_taken else ():
            for path in {step.before.path, step.after.path} if step.taken else ():
                found.setdefault(path, set()).update(places)
    return {path: places for path, places in found.items() if places != {path}}


def _kept_within(
    proposals: Iterable[Proposal], kept: Mapping[Lineage, tuple[KeptChange, ...]]
) -> frozenset[str]:
    """The paths at which all is taken back that is to be, and something else is kept."""
    wanted = (one for one in proposals if one.status == "wanted" and one.lineage.is_taken)
    return frozenset(one.result.path for one in wanted if kept[one.lineage])


def _traced(
    steps: Sequence[PathStep],
    moves: Mapping[int, Iterable[Move]],
    tree: Tree,
    request: PlanRequest,
    back: TakenBack,
    reverts: Collection[int],
    head: int,
) -> LineageTrace:
    """The lineages, in which the steps are marked that are in effect."""
    chosen = {path for path, choice in request.choices.items() if choice != "current"}
    outside = request.verb == "rollback"
    trace = trace_lineages(steps, moves, tree, outside=outside, chosen=chosen)
    if not outside:  # a rollback keeps nothing that calls did
        for lineage in trace.lineages:
            mark_in_effect(lineage, back, reverts, head)
    return trace


def _sides(proposals: Iterable[Proposal]) -> dict[str, ThreeWay]:
    """What each blocked path is a conflict between, where a change of it is to be taken back."""
    blocked = (proposal for proposal in proposals if proposal.status == "blocked")
    return {one.path: sides for one in blocked if (sides := one.lineage.sides())}


def _calls_kept_by_choice(proposals: Iterable[Proposal]) -> set[int]:
    """The taken calls of which a path is kept by choice, so that they are not reverted."""
    kept = (proposal.lineage for proposal in proposals if proposal.reason == KEPT_BY_CHOICE)
    return {call for lineage in kept for call in lineage.calls(taken=True)}


def _choice(lineage: Lineage, choices: Mapping[str, Choice]) -> Choice | None:
    return next((choices[path] for path in lineage.paths() if path in choices), None)


def _proposal(
    lineage: Lineage, choice: Choice | None, merger: StateMerger, holder: bool
) -> tuple[Proposal, tuple[KeptChange, ...]]:
    """The proposal of a lineage, and the kept changes that show in it.

    One that is not the `holder` of its path has been replaced there by another file. When it was
    deleted by a kept change before that, or moved away from outside, it stays so, and nobody has
    to decide.
    """
    if choice == "current":
        return Proposal(lineage, lineage.current, "kept", KEPT_BY_CHOICE), ()
    if choice == "old":
        return Proposal(lineage, lineage.start, forced=True), ()
    rebased = rebase(lineage, merger, markers=choice == "merge")
    proposal = Proposal(lineage, rebased.result)
    if rebased.conflict is None:
        return proposal, rebased.kept_changes
    last = lineage.steps[-1]
    if last.after.state is None and not last.taken:
        moved = _moved_text(last.moved)
        if holder and last.moved:
            return proposal.as_it_is("kept", moved), ()
        if not holder:
            gone = moved if last.moved else "what was there before was deleted later, kept"
            change = KeptChange(gone, call_numbers([last]))
            return Proposal(lineage, lineage.current), (change,)
    if rebased.conflict.missing:
        return proposal.as_it_is(
            "irreversible", "a content to merge was not kept", rebased.calls
        ), ()
    return proposal.as_it_is("blocked", rebased.conflict.reason, rebased.calls), ()


def _moved_text(target: str) -> str:
    return f"moved outside to {target}, kept"


def _moves(proposals: Iterable[Proposal], changes: Iterable[FileChange]) -> tuple[Move, ...]:
    """The renames among the changes: those of lineages."""
    changed = {change.path for change in changes}
    moves = [
        Move(proposal.lineage.current.path, proposal.result.path)
        for proposal in proposals
        if proposal.lineage.current.state
        and proposal.result.state
        and proposal.result.path != proposal.lineage.current.path
        and changed.issuperset((proposal.lineage.current.path, proposal.result.path))
    ]
    return tuple(sorted(moves, key=lambda move: move.source))


def _verdicts(
    placement: Placement,
    kept: Mapping[Lineage, tuple[KeptChange, ...]],
    along: Mapping[str, str],
) -> Iterator[tuple[Category, Note]]:
    """What there is to say about the paths of the proposals and folders.

    `along` are names that only change with another one of the file, which is the value.
    """
    for folder in placement.folders:
        yield "kept", Note(folder.path, folder.reason, folder.calls)
    for proposal in placement.proposals:
        if proposal.status != "wanted":
            moved = proposal.lineage.steps[-1].moved
            reason = proposal.reason
            if moved in along and reason == _moved_text(moved):
                reason = f"moved outside to {moved}, which changes with {along[moved]}"
            yield proposal.status, Note(proposal.path, reason, proposal.calls)
            continue
        for change in kept[proposal.lineage]:
            yield "kept", Note(proposal.result.path, change.reason, change.calls)
        if proposal.lineage.is_taken:
            yield "already", Note(proposal.path, "")
    for path, other in along.items():
        yield "kept", Note(path, f"a hard link of {other}, {CHANGES_ALONG}")


def _by_choice(
    lineages: Iterable[Lineage], choices: Mapping[str, Choice]
) -> Iterator[tuple[Category, Note]]:
    for path in {path for lineage in lineages for path in lineage.paths()}:
        if choices.get(path) == "current":
            yield "kept", Note(path, KEPT_BY_CHOICE)


def one_change_each(stages: Iterable[Iterable[FileChange]]) -> tuple[FileChange, ...]:
    """What changes that follow each other do, by path; one opaque folder may replace another."""
    first: dict[str, FileChange] = {}
    last: dict[str, FileChange] = {}
    for change in (change for stage in stages for change in stage):
        first.setdefault(change.path, change)
        last[change.path] = change
    changes = (FileChange(path, first[path].before, last[path].after) for path in sorted(first))
    return tuple(change for change in changes if not _is_same(change.before, change.after))


def _is_same(one: FileState | None, other: FileState | None) -> bool:
    if one is None or other is None or one.kind != "opaque":
        return one == other
    return one == other and one.identity == other.identity


def is_equivalent(one: Plan, other: Plan) -> bool:
    """Whether two plans for the same request do the same."""
    return _effects(one) == _effects(other)


def _effects(plan: Plan) -> tuple[object, ...]:
    return plan.changes, plan.git, plan.reverts, plan.calls, plan.blocked
