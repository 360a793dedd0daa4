"""What is read of a log, each event checked, and what takes back by it."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.kept_contents import KeptContents
from loom_audit.history.ground.log_end import LogEnd
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.history.read.call_numbers import CallNumbers
from loom_audit.history.read.kept_counts import KeptCounts
from loom_audit.history.read.timeline import Timeline
from loom_audit.history.read.verified import VerifiedReading
from loom_audit.model.imported import is_imported
from loom_audit.wiring.adapters import Adapters

if TYPE_CHECKING:
    from loom_audit.history.undo.undo import Undo


def timeline_of(adapters: Adapters, id: str, root: str) -> Timeline:
    """The timeline of a log that is of the folder `root`, or imported. NotFound."""
    log, projections, imported = adapters.log(id), adapters.projections(id), is_imported(root)
    proven = ProvenLog(log, adapters.heads(id), LogEnd(log, projections), not imported)
    verified = VerifiedReading(
        proven, projections, KeptContents(log, adapters.blobs), listings=adapters.listings
    )
    counts = KeptCounts(adapters.line_maps(id), adapters.marks(id).key)
    numbers = CallNumbers(proven, counts)
    return Timeline(log, projections, adapters.blobs, proven, verified, numbers, imported)


def checked(attachment: Attachment, timeline: Timeline) -> Attachment:
    """An attachment of which trees and changes are read from the log itself."""
    return replace(attachment, stored=replace(attachment.stored, reading=timeline.verified))


def undo_of(attachment: Attachment, timeline: Timeline) -> "Undo":
    """What plans, and carries out, taking back in a workspace."""
    from loom_audit.history.undo.planner import Planner
    from loom_audit.history.undo.undo import Undo

    return Undo(attachment, Planner(checked(attachment, timeline), timeline))
