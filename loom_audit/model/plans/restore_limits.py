"""What a plan cannot make exactly as it was at a path that it changes, each with its reason."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from loom_audit.model.files import FileChange, Move, Tree, is_within
from loom_audit.model.plans.links import names_by_group, sources
from loom_audit.model.plans.planning import Note, Plan
from loom_audit.model.text.display import count_text


def with_broken_links(plan: Plan, tree: Tree, links: Callable[[str], int]) -> Plan:
    """The plan with a note on each file that has names outside, which keep what is there now.

    `tree` is that of the disk; `links` says how many names the file at a path has.
    """
    stays = sources(plan.changes, tree)
    old = {change.path: change.before for change in plan.changes}
    groups = {state.group for state in old.values() if state and state.group is not None}
    inside = names_by_group(tree, groups)
    notes = []
    for path, before in old.items():
        if before is None or before.kind != "file" or stays.get(path) == path:
            continue
        known = 1 if before.group is None else len(inside[before.group])
        if (more := links(path) - known) > 0:
            text = f"{count_text(more, 'name')} outside the workspace"
            notes.append(Note(path, f"a hard link: {text} will keep what is there now"))
    return replace(plan, inexact=(*plan.inexact, *notes)) if notes else plan


def without_lost_lists(plan: Plan, tree: Tree, renamed: Iterable[Move] = ()) -> Plan:
    """The plan without access control lists that nothing on disk has any more, with notes.

    That a list was there is on record, its entries are not: only what has one, or is moved with
    one, can keep it, by itself or in a folder that is `renamed`. The names of one file have the
    list of the name that it is made of. `tree` is that of the disk.
    """
    origins = {move.target: move.source for move in plan.moves}
    for move in renamed:
        below = (c.path for c in plan.changes if is_within(c.path, [move.target]))
        origins |= {path: move.source + path.removeprefix(move.target) for path in below}
    homes = sources(plan.changes, tree)
    before = {change.path: change.before for change in plan.changes}

    def has_acl(path: str) -> bool:
        home = homes.get(path, path)
        file = before.get(origins.get(home, "")) or before.get(home, tree.get(home))
        return file is not None and file.acl

    changes: list[FileChange] = []
    notes: list[Note] = []
    for change in plan.changes:
        if change.after is not None and change.after.acl and not has_acl(change.path):
            change = replace(change, after=replace(change.after, acl=False))
            notes.append(Note(change.path, "its access control list is not brought back"))
        if change.after != change.before:
            changes.append(change)
    if not notes:
        return plan
    return replace(plan, changes=tuple(changes), inexact=(*plan.inexact, *notes))
