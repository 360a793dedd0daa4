"""What a plan does with entries whose inside, or whose past, is not on record: it leaves them."""

from loom_audit.model.files import is_opaque
from loom_audit.model.plans.lineage import LineageStep
from loom_audit.model.plans.placement import Entry


def recorded_part(entry: Entry) -> Entry:
    """The entry left in place where its result would need, or destroy, what is not on record."""
    lineage, wanted, there = entry.lineage, entry.result.state, entry.lineage.current.state
    if entry.status in ("wanted", "blocked") and _left_the_scope(lineage.steps[-1]):
        return entry.left_in_place("kept", "out of scope now", lineage.calls(taken=True))
    if entry.status != "wanted" or not lineage.is_taken:
        return entry
    if lineage.steps[0].came_in and wanted is None and there is not None:
        why = "it was there before, where it is not recorded"
        return entry.left_in_place("kept", why, lineage.calls(taken=True))
    taken = [step for step in lineage.steps if step.taken]
    if not any(is_opaque(s.before.state) or is_opaque(s.after.state) for s in taken):
        return entry
    calls = lineage.calls(taken=True)
    if is_opaque(there) and is_opaque(wanted):
        if not any(is_opaque(step.before.state) for step in taken):
            return entry
        why = "it was replaced, and what was in it is not on record"
        return entry.left_in_place("irreversible", why, calls)
    if is_opaque(there) and wanted is None:
        return entry.left_in_place("kept", "what is in it is not on record, so it stays", calls)
    if is_opaque(there):
        why = "what is in the folder there now is not on record"
        return entry.left_in_place("blocked", why, calls)
    if is_opaque(wanted):
        why = "it is gone, and what was in it is not on record"
        return entry.left_in_place("irreversible", why, calls)
    return entry


def _left_the_scope(step: LineageStep) -> bool:
    """Whether a recorded folder became an opaque one, by a new scope as it did not move."""
    before, after = step.before.state, step.after.state
    was_folder = before is not None and before.kind == "directory"
    return was_folder and is_opaque(after) and step.call is None
