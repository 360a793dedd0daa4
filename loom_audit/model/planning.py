"""Plans: what an undo would change, what it keeps and what blocks it, each with its reason."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from loom_audit.model.files import BlobId, FileChange, Move, Tree, find_moves
from loom_audit.model.lineage import Lineage, PathStep, trace_lineages
from loom_audit.model.placement import Entry, EntryStatus, Placement, place_entries
from loom_audit.model.rebase import BlobReader, KeptChange, StateMerger, rebase

__all__ = [
    "BlobReader",
    "Choice",
    "Note",
    "PathStep",
    "Plan",
    "Verb",
    "is_equivalent",
    "plan_taking_back",
]

Verb = Literal["undo", "redo", "revert", "rollback"]
Choice = Literal["current", "old", "merge"]
"""Per path: keep what is there, take the old state, or write a merge with conflict markers."""


KEPT_BY_CHOICE = "kept by choice"


@dataclass(frozen=True, slots=True)
class Note:
    """A path with the reason it is listed, and the numbers of the calls that cause it."""

    path: str
    reason: str
    calls: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked for, kept with the plan so that it can be made again.

    `targets` are call numbers, seqs, a point or `session:ID`; `paths` limit a rollback;
    `outside` also takes back what came from outside.
    """

    verb: Verb
    targets: tuple[int | str, ...] = ()
    session: str | None = None
    paths: tuple[str, ...] = ()
    choices: Mapping[str, Choice] = field(default_factory=dict)
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What taking something back would do, made at `head`.

    `changes` lead from what is on disk to what will be; `reverts` are the numbers of the calls
    (and seqs of the events) taken back, without those of which a path is kept by choice;
    `already` are paths that need nothing; `kept` are left as they are (an edit from outside, a
    folder that is not empty); `blocked` need a choice; `irreversible` cannot be taken back at
    all; `inexact` are changed paths at which something of what was there does not come back, or
    that have names elsewhere which keep what is there now. Nothing is written while `blocked` is
    not empty. `calls` are those that the request named. `drifted` is true when disk differed from
    the log: once that is recorded, the plan has to be made again.
    """

    verb: Verb
    head: int
    target: str
    changes: tuple[FileChange, ...] = ()
    reverts: tuple[int, ...] = ()
    moves: tuple[Move, ...] = ()
    already: tuple[str, ...] = ()
    kept: tuple[Note, ...] = ()
    blocked: tuple[Note, ...] = ()
    irreversible: tuple[Note, ...] = ()
    inexact: tuple[Note, ...] = ()
    contents: Mapping[BlobId, bytes] = field(default_factory=dict, repr=False)
    """Merged texts that the changes need and the blob store does not have yet."""
    request: Request | None = None
    calls: tuple[int, ...] = ()
    drifted: bool = False


def plan_taking_back(
    *,
    verb: Verb,
    head: int,
    target: str,
    reverts: tuple[int, ...],
    steps: Iterable[PathStep],
    tree: Tree,
    blobs: BlobReader,
    moves: Mapping[int, Iterable[Move]] | None = None,
    choices: Mapping[str, Choice] | None = None,
    folds_case: bool = False,
) -> Plan:
    """The plan that takes back the taken steps and keeps all others.

    `steps` are recorded changes in log order, from the first taken one on (for a rollback all
    after the point), at least those of every path a taken one touches. Giving all lets the
    plan follow renames, name the calls behind a folder that is not empty, and, in a rollback,
    list what came from outside. `tree` is the tree at `head`; `moves` are the rename hints by
    seq of their event; `blobs` is asked for texts to merge. Folders that hold files outside
    the scope are not known here. The changes of the plan are ordered by path.

    A choice counts for the file that is or was at its path: "current" leaves it alone, "old"
    brings back what was before the first taken change (in a rollback: at the point) whatever
    came later, "merge" writes conflict markers where texts conflict.
    """
    trace = trace_lineages(steps, moves or {}, tree, outside=verb == "rollback")
    merger = StateMerger(blobs)
    notes: dict[Lineage, tuple[KeptChange, ...]] = {}
    entries = []
    for lineage in trace.lineages:
        entry, notes[lineage] = _entry(lineage, _choice(lineage, choices or {}), merger)
        entries.append(entry)
    placement = place_entries(entries, trace, tree, merger, folds_case=folds_case)
    changes = tuple(
        FileChange(path, tree.get(path), state)
        for path, state in sorted(placement.wanted.items())
        if tree.get(path) != state
    )
    kept = [Note(folder.path, folder.reason, folder.calls) for folder in placement.folders]
    for entry in placement.entries:
        if entry.status == "wanted":
            kept += [Note(entry.result.path, s.reason, s.calls) for s in notes[entry.lineage]]
    spared = _calls_kept_by_choice(placement.entries)
    needed = {change.after.blob for change in changes if change.after}
    return Plan(
        verb=verb,
        head=head,
        target=target,
        changes=changes,
        reverts=tuple(number for number in reverts if number not in spared),
        moves=_moves(placement.entries, changes),
        already=_paths_already_right(placement, changes),
        kept=tuple(sorted([*kept, *_notes(placement.entries, "kept")], key=_by_path)),
        blocked=_notes(placement.entries, "blocked"),
        irreversible=_notes(placement.entries, "irreversible"),
        contents={blob: text for blob, text in merger.merged.items() if blob in needed},
    )


def _calls_kept_by_choice(entries: Iterable[Entry]) -> set[int]:
    """The taken calls of which a path is kept by choice, so that they are not reverted."""
    kept = (entry.lineage for entry in entries if entry.reason == KEPT_BY_CHOICE)
    return {call for lineage in kept for call in lineage.calls(taken=True)}


def _choice(lineage: Lineage, choices: Mapping[str, Choice]) -> Choice | None:
    return next((choices[path] for path in lineage.paths() if path in choices), None)


def _entry(
    lineage: Lineage, choice: Choice | None, merger: StateMerger
) -> tuple[Entry, tuple[KeptChange, ...]]:
    """The entry of a lineage, and the kept changes that show in it."""
    if choice == "current":
        return Entry(lineage, lineage.current, "kept", KEPT_BY_CHOICE), ()
    if choice == "old":
        return Entry(lineage, lineage.start, forced=True), ()
    rebased = rebase(lineage, merger, markers=choice == "merge")
    entry = Entry(lineage, rebased.result)
    if rebased.conflict is None:
        return entry, rebased.kept_changes
    if rebased.conflict.missing:
        return entry.left_in_place(
            "irreversible", "a content to merge was not kept", rebased.calls
        ), ()
    return entry.left_in_place("blocked", rebased.conflict.reason, rebased.calls), ()


def _moves(entries: Iterable[Entry], changes: Iterable[FileChange]) -> tuple[Move, ...]:
    """Renames among the changes: those of lineages, then pairs of equal content."""
    changed = {change.path for change in changes}
    moves = [
        Move(entry.lineage.current.path, entry.result.path)
        for entry in entries
        if entry.lineage.current.state
        and entry.result.state
        and entry.result.path != entry.lineage.current.path
        and changed.issuperset((entry.lineage.current.path, entry.result.path))
    ]
    known = {path for move in moves for path in (move.source, move.target)}
    rest = [change for change in changes if change.path not in known]
    return tuple(sorted([*moves, *find_moves(rest)], key=lambda move: move.source))


def _paths_already_right(placement: Placement, changes: Iterable[FileChange]) -> tuple[str, ...]:
    """Paths that taken steps touched and that need no change."""
    changed = {change.path for change in changes} | {folder.path for folder in placement.folders}
    return tuple(
        sorted(
            {
                entry.path
                for entry in placement.entries
                if entry.status == "wanted" and entry.lineage.is_taken and entry.path not in changed
            }
        )
    )


def _notes(entries: Iterable[Entry], status: EntryStatus) -> tuple[Note, ...]:
    notes = (Note(e.path, e.reason, e.calls) for e in entries if e.status == status)
    return tuple(sorted(notes, key=_by_path))


def _by_path(note: Note) -> str:
    return note.path


def is_equivalent(one: Plan, other: Plan) -> bool:
    """Whether two plans for the same request do the same."""
    return _effects(one) == _effects(other)


def _effects(plan: Plan) -> tuple[object, ...]:
    return plan.changes, plan.reverts, plan.calls, plan.blocked
