"""A whole listing of what is on disk, from which trees begin anew after what cannot have been."""

from collections.abc import Sequence

from loom_audit.errors import Conflict
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.ground.free_space import check_free_space
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.history.ground.verified_tree import VerifiedTree
from loom_audit.history.ground.without_gc import without_gc
from loom_audit.history.look.capture import scan_whole
from loom_audit.history.look.change_index import untracked_entries, update_index
from loom_audit.history.record.open_calls import calls_in_the_way, open_call_error
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import OUTSIDE, CoverageLowered, Draft, Event, TreeRelisted
from loom_audit.ports import OnProgress

LISTED_ANEW = "the tree was listed anew meanwhile: what it changed is not known"


@without_gc()
def relist(
    attachment: Attachment, proven: ProvenLog, *, actor: str, report: OnProgress | None = None
) -> Event:
    """Put all that is on disk on record as from outside; the event from which trees begin anew.

    Conflict where every change on record applies, so that nothing is to be listed anew, and while
    a call that changes files is open. Listed in parts: until the last is on record nothing has
    changed, and after an interruption it is done again.
    """
    with attachment.exclusive():
        if not VerifiedTree(proven, attachment.stored.tables).fold(may_be_broken=True).broken:
            raise Conflict(
                "every change on record applies to the tree before it: nothing is to be listed "
                "anew",
                hint="Where tables were altered, `loom-audit db rebuild` makes them anew.",
            )
        if busy := calls_in_the_way(attachment):
            raise open_call_error(attachment, busy)
        for part, found in enumerate(scan_whole(attachment, report), 1):
            check_free_space(attachment.stored, "the listing stopped", "")
            untracked = tuple(found.look.untracked) if found.last else ()
            fact = TreeRelisted(tuple(found.changes), part, found.last, untracked)
            events = attachment.stored.log.append([Draft(fact, "", actor)])
            entries = {**found.entries, **untracked_entries(attachment, untracked)}
            update_index(attachment, entries, events)
        return events[-1]


def lower_coverage(stored: StoredLog, numbers: Sequence[int]) -> None:
    """Say of calls that ended after a whole listing that what they changed is not known."""
    if numbers:
        lowered = CoverageLowered(tuple(numbers), Coverage("none", (LISTED_ANEW,)))
        stored.log.append([Draft(lowered, "", OUTSIDE)])
