"""What a plan would change and does not list: its steps are done on a tree, and compared with it.

However a plan comes about, this one check holds it to what it says.
"""

from collections.abc import Iterable, Iterator

from loom_audit.model.files import (
    FileChange,
    Tree,
    folder_renames,
    is_directory,
    is_within,
    parents,
)
from loom_audit.model.plans.planning import Plan


def unnamed_changes(plan: Plan, tree: Tree) -> tuple[str, ...]:
    """The paths that the plan does not list and whose state it changes when done on this tree."""
    after = dict(tree)
    found: set[str] = set()
    for stage in plan.stages or (plan.changes,):
        for move in folder_renames(stage, plan.moves):
            for path in [path for path in after if is_within(path, [move.source])]:
                del after[path]  # a folder is renamed with all that is in it
        for change in stage:
            if change.after is None:
                after.pop(change.path, None)
            else:
                after[change.path] = change.after
        found.update(_torn_off(stage, after))
    found.update(path for path in tree.keys() | after.keys() if tree.get(path) != after.get(path))
    return tuple(sorted(found - {change.path for change in plan.changes}))


def _torn_off(stage: Iterable[FileChange], after: Tree) -> Iterator[str]:
    """What is in a folder that the changes take away, and the folders that they need and lack."""
    gone = {c.path for c in stage if is_directory(c.before) and not is_directory(c.after)}
    if gone:
        yield from (path for path in after if not gone.isdisjoint(parents(path)))
    for change in stage:
        if change.after is not None:
            yield from (path for path in parents(change.path) if not is_directory(after.get(path)))
