"""The lists of a plan's page, each as far as there is room for it."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from loom_audit.model.planning import Choice, Note, Plan
from loom_audit.web.budget import Budget, Part, row_weight, weight

PLAN_LISTS = (
    "blocked",
    "merged",
    "kept",
    "decided",
    "irreversible",
    "inexact",
    "passed_over",
    "already",
    "reverts",
)
DECIDING, NOTING = 5_000, 2_000
"""What a list of questions and one of notes may weigh beside the others."""
CALLS = 8


class Question(Struct, frozen=True):
    """What is to be done with one path, as it is chosen now; `merge` names that answer, if any."""

    note: Note
    chosen: Choice
    merge: str = ""


def plan_parts(
    budget: Budget, plan: Plan, choices: Mapping[str, Choice]
) -> Mapping[str, Part[Any]]:
    """The parts of all lists of a plan by their names."""

    def questions(notes: Iterable[Note], chosen: Choice, merge: str) -> list[Question]:
        return [Question(note, choices.get(note.path, chosen), merge) for note in notes]

    asked: dict[str, list[Question]] = {
        "blocked": questions(plan.blocked, "current", "Merge with conflict markers"),
        "merged": questions(plan.merged, "merge", "Merge"),
        "kept": [_kept(note, choices) for note in plan.kept if note.path],
    }
    listed = {one.note.path for questions in asked.values() for one in questions}
    asked["decided"] = [
        Question(Note(path, ""), chosen, "Merge with conflict markers")
        for path, chosen in choices.items()
        if path not in listed
    ]
    noted = {"irreversible": plan.irreversible, "inexact": plan.inexact}
    noted["passed_over"] = plan.passed_over
    return {
        **{
            name: budget.part(name, found, _with_weight, most=DECIDING)
            for name, found in asked.items()
        },
        **{name: budget.part(name, found, _noted, most=NOTING) for name, found in noted.items()},
        "already": budget.part("already", plan.already, lambda p: (p, row_weight(2, p)), most=0),
        "reverts": budget.part("reverts", plan.reverts, lambda n: (n, weight(3)), most=NOTING),
    }


def _kept(note: Note, choices: Mapping[str, Choice]) -> Question:
    merge = "Merge" if note.path in choices or "moved here" in note.reason else ""
    return Question(note, choices.get(note.path, "current"), merge)


def _with_weight(question: Question) -> tuple[Question, int]:
    note = question.note
    nodes = 8 + 3 * bool(question.merge) + len(note.calls[:CALLS])
    return question, weight(nodes, note.reason) + row_weight(0, note.path)


def _noted(note: Note) -> tuple[Note, int]:
    return note, weight(2 + len(note.calls[:CALLS]), note.reason) + row_weight(0, note.path)
