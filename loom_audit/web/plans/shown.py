"""The lists of a plan as its page shows them, each as far as the page's budget goes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from loom_audit.errors import InvalidArguments
from loom_audit.model.files import FileChange, is_directory, parents
from loom_audit.model.plans.folder_choices import ROOT
from loom_audit.model.plans.lists import BLOCKED, DECIDED, KEPT, MERGED, TOLD
from loom_audit.model.plans.planning import Note, Plan
from loom_audit.model.plans.request import Choice
from loom_audit.web.shared.budget import Budget, Part, row_weight, weight
from loom_audit.web.shared.changes import PAGE_SOURCE
from loom_audit.web.shared.diffs import AUTO_SOURCE, Content, FileView, view_change

ASKED = (BLOCKED, MERGED, KEPT, DECIDED)
"""The lists of which each path is chosen for."""
PLAN_LISTS = (*(one.name for one in (*ASKED, *TOLD)), "already", "reverts")
CONFLICTS, MERGES = 12_000, 7_000
"""What the conflicts and what is merged may weigh beside the others, with their differences."""
DECIDING, NOTING = 5_000, 2_000
"""What another list of questions and one of notes may weigh beside the others."""
SIDE = 1_500
"""What the lines of one difference of a conflict or a merged file may weigh."""
SIDE_NODES = 14
"""Elements of such a difference without its lines: of binary content they are the most."""
SHOWN_CALLS = 8
"""Calls that a note of a plan shows."""
MOST_FOLDERS = 12
"""Folders for which all conflicts are decided together, on the page."""

TAKEN, LATER = "taken", "later"
SIDES = {TAKEN: "What is to be taken back", LATER: "What came later"}
"""The two differences of a conflict, by the name that `side` of the address has."""


class Shown(Struct, frozen=True):
    """A difference under its heading; `side` is the name of one of a conflict, else ""."""

    heading: str
    view: FileView
    side: str = ""


class Question(Struct, frozen=True):
    """What is to be done with one path, or with the conflicts in a folder.

    `chosen` is what counts now, "" for nothing yet, and `merge` names that answer, if there is one.
    `conflicts` is how many of them a folder has.
    """

    note: Note
    chosen: Choice | str
    merge: str = ""
    differences: tuple[Shown, ...] = ()
    conflicts: int = 0


def side_changes(plan: Plan, side: str) -> Sequence[FileChange]:
    """One of the two differences of each conflict. InvalidArguments for another name."""
    if side not in SIDES:
        raise InvalidArguments(f"{side!r} is not one of {', '.join(SIDES)}")
    return [
        FileChange(path, one.before.state, one.after.state)
        if side == TAKEN
        else FileChange(path, one.after.state, one.now.state)
        for path, one in plan.sides.items()
    ]


def merged_paths(plan: Plan) -> frozenset[str]:
    """The changed paths that are merged, and those that a merged file leaves."""
    merged = {note.path for note in plan.merged}
    gone = {change.path for change in plan.changes if change.after is None}
    return frozenset(merged | {m.source for m in plan.moves if m.target in merged} & gone)


def folder_questions(plan: Plan) -> Sequence[Question]:
    """The folders with several of the conflicts, but not with all of them, and none for another.

    Of folders with the same conflicts the innermost is asked for.
    """
    conflicts = [note.path for note in plan.blocked if note.path]
    counts = Counter(above for path in conflicts for above in parents(path))
    wanted = {path: n for path, n in counts.items() if 1 < n < len(conflicts)}
    outer = {above for path, n in wanted.items() for above in parents(path) if counts[above] == n}
    asked = plan.request.choices
    return [
        Question(Note(path, ""), asked.get(path, ""), conflicts=wanted[path])
        for path in sorted(wanted.keys() - outer)
    ][:MOST_FOLDERS]


class Lists:
    """The lists of one page of a plan; files are read through `content`."""

    def __init__(self, budget: Budget, plan: Plan, content: Content) -> None:
        self._budget = budget
        self._plan = plan
        self._content = content
        self._to_compare = PAGE_SOURCE
        self._changes = {change.path: change for change in plan.changes}
        self._sides = {
            side: {change.path: change for change in side_changes(plan, side)} for side in SIDES
        }

    def shown(self) -> Mapping[str, Part[Any]]:
        """The part of each list that the page shows, by the list's name."""
        plan, budget = self._plan, self._budget
        told = {one.name: one.notes(plan) for one in TOLD}
        return {
            "blocked": budget.part("blocked", plan.blocked, self._conflict, most=CONFLICTS),
            "merged": budget.part("merged", plan.merged, self._merge, most=MERGES),
            "kept": budget.part(
                "kept", [note for note in plan.kept if note.path], self._kept, most=DECIDING
            ),
            "decided": budget.part("decided", self._decided(), _with_weight, most=DECIDING),
            **{name: budget.part(name, found, _noted, most=NOTING) for name, found in told.items()},
            "already": budget.part(
                "already", plan.already, lambda p: (p, row_weight(2, p)), most=0
            ),
            "reverts": budget.part("reverts", plan.reverts, lambda n: (n, weight(3)), most=NOTING),
        }

    def _conflict(self, note: Note) -> tuple[Question, int]:
        shown = [
            Shown(heading, self._view(self._sides[side][note.path]), side)
            for side, heading in SIDES.items()
            if note.path in self._sides[side]
        ]
        chosen = self._plan.request.choices.get(note.path, "")
        binary = any(one.view.body == "binary" for one in shown)
        merge = "" if binary else "Merge with conflict markers"
        return _with_weight(Question(note, chosen, merge, tuple(shown)))

    def _merge(self, note: Note) -> tuple[Question, int]:
        change = self._changes.get(note.path)
        source = next((m.source for m in self._plan.moves if m.target == note.path), None)
        if change and source in self._changes:
            change = FileChange(change.path, self._changes[source].before, change.after)
        shown = (
            (Shown("What stands now, and merged", self._view(change, source)),) if change else ()
        )
        chosen = self._plan.request.choices.get(note.path, "merge")
        return _with_weight(Question(note, chosen, "Merge", shown))

    def _kept(self, note: Note) -> tuple[Question, int]:
        choices = self._plan.request.choices
        merge = "Merge" if note.path in choices or "moved here" in note.reason else ""
        by_folder = note.path in self._plan.decided
        return _with_weight(
            Question(note, "" if by_folder else choices.get(note.path, "current"), merge)
        )

    def _decided(self) -> Sequence[Question]:
        """What was chosen, and is in no other list: paths, folders, and the conflicts in them."""
        plan = self._plan
        listed = {note.path for notes in (plan.blocked, plan.merged, plan.kept) for note in notes}
        folders = {
            above
            for path in plan.decided
            for above in (*parents(path), ROOT)
            if above in plan.request.choices
        }
        return [
            Question(
                Note(path, ""),
                chosen,
                "Merge with conflict markers",
                conflicts=_decided_below(plan, path) if path in folders else 0,
            )
            for path, chosen in plan.request.choices.items()
            if path in folders or path not in listed
        ] + [
            Question(Note(path, f"by the choice for its folder: {_WORDS[chosen]}"), "", "Merge")
            for path, chosen in plan.decided.items()
            if path not in listed
        ]

    def _view(self, change: FileChange, source: str | None = None) -> FileView:
        size = sum(state.size for state in (change.before, change.after) if state)
        compare = size <= AUTO_SOURCE and self._to_compare > 0
        view = view_change(
            change, self._content, source=source, space=SIDE, whole=False, compare=compare
        )
        if view.added is not None:
            self._to_compare -= size
        return view


_WORDS = {"current": "kept", "old": "taken back", "merge": "both written, with markers"}


def _decided_below(plan: Plan, folder: str) -> int:
    """How many conflicts a choice for a folder decides, of those for which no nearer one counts."""
    choices = plan.request.choices
    return sum(
        next(one for one in (*parents(path)[::-1], ROOT) if one in choices) == folder
        for path in plan.decided
    )


def _with_weight(question: Question) -> tuple[Question, int]:
    note = question.note
    nodes = 8 + 3 * bool(question.merge) + len(note.calls[:SHOWN_CALLS])
    shown = sum(weight(SIDE_NODES) + one.view.rows_weight for one in question.differences)
    return question, weight(nodes, note.reason) + row_weight(0, note.path) + shown


def _noted(note: Note) -> tuple[Note, int]:
    return note, weight(2 + len(note.calls[:SHOWN_CALLS]), note.reason) + row_weight(0, note.path)


def folder_count(changes: Iterable[FileChange]) -> int:
    """How many of the changes are of folders."""
    return sum(is_directory(one.before) or is_directory(one.after) for one in changes)
