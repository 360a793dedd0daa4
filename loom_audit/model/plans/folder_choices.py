"""Choices for folders: one stands for each conflict below, and for nothing else of a plan."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from loom_audit.model.files import is_within, parents
from loom_audit.model.git_points import git_path
from loom_audit.model.plans.planning import Plan
from loom_audit.model.plans.request import Choice, PlanRequest

ROOT = ""
"""A choice for the root of the workspace counts for every conflict."""


def with_folder_choices(request: PlanRequest, make: Callable[[PlanRequest], Plan]) -> Plan:
    """The plan in which a choice for a folder decides the conflicts below it.

    `make` makes a plan in which a choice counts for its own path alone. It is made again until no
    conflict is left that a folder decides: deciding one may make another. What the plan changes,
    merges or keeps without a conflict is as it would be without the choice.
    """
    asked = request.choices
    own = {path: choice for path, choice in asked.items() if path != ROOT}
    decided: dict[str, Choice] = {}
    while True:
        plan = make(replace(request, choices={**own, **decided}))
        found = {
            note.path: choice
            for note in plan.blocked
            if note.path and note.path not in own and note.path not in decided
            if (choice := folder_choice(note.path, asked))
        }
        if not found:
            return replace(plan, request=replace(plan.request, choices=asked), decided=decided)
        decided |= found


def folder_choice(path: str, choices: Mapping[str, Choice]) -> Choice | None:
    """The choice for the nearest folder above a path; None without one."""
    return next((choices[one] for one in (*parents(path)[::-1], ROOT) if one in choices), None)


def idle_choices(plan: Plan) -> list[str]:
    """The paths that a plan was asked to choose for and says nothing of, nor of a conflict below.

    The root of the workspace is none of them: whoever names it asks for all that there are.
    """
    notes = (*plan.kept, *plan.blocked, *plan.irreversible)
    known = {change.path for change in plan.changes} | {note.path for note in notes}
    known |= {*plan.already, ROOT}
    back = {git_path(one.folder) for one in plan.git}
    known |= {path for path in back if plan.request.choices.get(path) == "old"}
    own = {path for path in plan.request.choices if path in known}
    conflicts = {note.path for note in plan.blocked} | plan.decided.keys() | own - {ROOT}
    return [
        path
        for path in sorted(plan.request.choices)
        if path not in known and not any(is_within(one, [path]) for one in conflicts)
    ]
