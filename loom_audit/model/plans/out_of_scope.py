"""What a plan does where the inside of a file, or its past, is not on record: the file stays."""

from loom_audit.model.files import is_opaque
from loom_audit.model.plans.lineage import LineageStep
from loom_audit.model.plans.placement import Proposal

STAYS = "what is in it is not on record, so it stays"


def recorded_part(proposal: Proposal) -> Proposal:
    """The proposal, or the file as it is where the result needs or destroys what is not known."""
    lineage, wanted, there = proposal.lineage, proposal.result.state, proposal.lineage.current.state
    if proposal.status in ("wanted", "blocked") and _went_out_of_scope(lineage.steps[-1]):
        return proposal.as_it_is("kept", "out of scope now", lineage.calls(taken=True))
    if proposal.status != "wanted" or not lineage.is_taken:
        return proposal
    if lineage.steps[0].came_in and wanted is None and there is not None:
        why = "it was there before, where it is not recorded"
        return proposal.as_it_is("kept", why, lineage.calls(taken=True))
    taken = [step for step in lineage.steps if step.taken]
    if not any(is_opaque(s.before.state) or is_opaque(s.after.state) for s in taken):
        return proposal
    calls = lineage.calls(taken=True)
    if is_opaque(there) and is_opaque(wanted):
        if not any(is_opaque(step.before.state) for step in taken):
            return proposal
        why = "it was replaced, and what was in it is not on record"
        return proposal.as_it_is("irreversible", why, calls)
    if is_opaque(there) and wanted is None:
        return proposal.as_it_is("irreversible", STAYS, calls)
    if is_opaque(there):
        why = "what is in the folder there now is not on record"
        return proposal.as_it_is("blocked", why, calls)
    if is_opaque(wanted):
        why = "it is gone, and what was in it is not on record"
        return proposal.as_it_is("irreversible", why, calls)
    return proposal


def _went_out_of_scope(step: LineageStep) -> bool:
    """Whether a recorded folder became an opaque one, by a new scope as it did not move."""
    before, after = step.before.state, step.after.state
    was_folder = before is not None and before.kind == "directory"
    return was_folder and is_opaque(after) and step.call is None
