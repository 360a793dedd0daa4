"""What a plan cannot make exactly as it was at a path that it changes, each with its reason."""

from dataclasses import replace

from loom_audit.model.files import FileChange
from loom_audit.model.planning import Note, Plan


def without_lost_lists(plan: Plan) -> Plan:
    """The plan without access control lists that nothing on disk has any more, with notes.

    That a list was there is on record, its entries are not: only what has one, or is moved with
    one, can keep it.
    """
    sources = {move.target: move.source for move in plan.moves}
    before = {change.path: change.before for change in plan.changes}
    changes: list[FileChange] = []
    notes: list[Note] = []
    for change in plan.changes:
        source = before.get(sources.get(change.path, "")) or change.before
        if change.after is not None and change.after.acl and not (source and source.acl):
            change = replace(change, after=replace(change.after, acl=False))
            notes.append(Note(change.path, "its access control list is not brought back"))
        if change.after != change.before:
            changes.append(change)
    if not notes:
        return plan
    return replace(plan, changes=tuple(changes), inexact=(*plan.inexact, *notes))
