"""Plans and hard links: all names of one file have one fate."""

from collections.abc import Iterable, Mapping

from loom_audit.model.files import FileChange, Tree
from loom_audit.model.plans.links import groups_in, names_by_group, whole_groups
from loom_audit.model.plans.placement import Hold
from loom_audit.model.plans.planning import Plan
from loom_audit.model.plans.request import Choice

DIVIDED = "a hard link, whose names would get different contents"


def choices_for_groups(
    choices: Mapping[str, Choice], changes: Iterable[FileChange], tree: Tree
) -> Mapping[str, Choice]:
    """The choices, each for all names that the file has now or had in one of the changes."""
    if not choices:
        return choices
    names: dict[int, set[str]] = {}
    for path, state in tree.items():
        if state.group is not None:
            names.setdefault(state.group, set()).add(path)
    for change in changes:
        for group in groups_in([change]):
            names.setdefault(group, set()).add(change.path)
    chosen = dict(choices)
    for paths in names.values():
        said = [choices[path] for path in sorted(paths) if path in choices]
        if said:
            chosen.update({path: said[0] for path in paths if path not in choices})
    return chosen


def group_holds(plan: Plan, tree: Tree, holds: Mapping[str, Hold]) -> Mapping[str, Hold]:
    """The holds that hard links need besides `holds`: all names of a file stay, or none does.

    Blocked are names that the plan would divide; another name of a file that stays has to stay for
    the same reason.
    """
    changes, divided = whole_groups(plan.changes, tree)
    found = {path: Hold("blocked", DIVIDED) for path in divided}
    blocked = {note.path: Hold("blocked", note.reason, note.calls) for note in plan.blocked}
    stays = {**blocked, **holds}
    changed = {change.path: change for change in changes}
    for names in names_by_group(tree, groups_in(changes)).values():
        for path in sorted(names.keys() & stays.keys()):
            hold = stays[path]
            reason = f"a hard link of {path}: {hold.reason}"
            others = (name for name in names if name in changed and name not in stays)
            found.update({name: Hold(hold.status, reason, hold.calls) for name in others})
    return {path: hold for path, hold in found.items() if path not in holds}
