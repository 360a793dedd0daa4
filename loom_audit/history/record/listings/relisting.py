"""Lists anew all that is on disk, where the log has changes that contradict each other.

From such a listing on trees begin anew.
"""

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
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import CoverageLowered, Draft, Event, TreeRelisted
from loom_audit.ports import OnProgress

LISTED_ANEW = "the tree was listed anew meanwhile: what it changed is not known"
"""Why the coverage is none of a call that was open while the tree was listed anew."""


@without_gc()
def relist(
    attachment: Attachment, proven: ProvenLog, *, actor: str, progress: OnProgress | None = None
) -> Event:
    """Put all that is on disk on record as a whole listing; returns its last event.

    From that event on trees begin anew. `progress` is told now and then how many paths were read.
    The listing is recorded in parts: until the last one is on record trees are as before, and after
    an interruption the listing is done again from its start. Conflict where every change on record
    applies, so that nothing is to be listed anew, and while a call that changes files is open.
    AuditUnavailable when the store's disk is nearly full.
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
        for part, batch in enumerate(scan_whole(attachment, progress), 1):
            check_free_space(attachment.stored, "the listing stopped", "")
            untracked = tuple(batch.look.untracked) if batch.last else ()
            fact = TreeRelisted(tuple(batch.changes), part, batch.last, untracked)
            events = attachment.stored.log.append([Draft(fact, "", actor)])
            entries = {**batch.entries, **untracked_entries(attachment, untracked)}
            update_index(attachment, entries, events)
        return events[-1]


def lower_coverage(stored: StoredLog, numbers: Sequence[int]) -> None:
    """Put on record that it is not known what these calls changed; nothing for none.

    `numbers` are the seqs of the finishes of calls that ended after a whole listing.
    """
    if numbers:
        lowered = CoverageLowered(tuple(numbers), Coverage("none", (LISTED_ANEW,)))
        stored.log.append([Draft(lowered, "", OUTSIDE)])
