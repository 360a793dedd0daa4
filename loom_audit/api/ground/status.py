"""How a workspace on disk differs from its log."""

from msgspec import Struct

from loom_audit.api.ground.timelines import checked
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.read.timeline import Timeline
from loom_audit.model.events import Untracked
from loom_audit.model.files import FileChange, Move
from loom_audit.model.plans.verdicts import Note
from loom_audit.model.records import Call


class Status(Struct, frozen=True):
    """Disk against log: `drift` leads from the log's tree to what is on disk.

    What interrupted calls made of what they intended is not in `drift`, but in `begun`; moves that
    were interrupted between both ends are `halves`. `kept` are the changes that an interrupted undo
    will not make when it is finished, since somebody changed their paths. `watched` is whether
    `loom-audit watch` runs in the workspace, None where that cannot be seen.
    """

    head: int
    drift: tuple[FileChange, ...]
    untracked: tuple[Untracked, ...]
    open_calls: tuple[Call, ...]
    interrupted: tuple[Call, ...]
    begun: tuple[FileChange, ...] = ()
    halves: tuple[Move, ...] = ()
    kept: tuple[Note, ...] = ()
    watched: bool | None = None


def status(attachment: Attachment, timeline: Timeline, anew: bool) -> Status:
    """What a look at disk finds against the log that the timeline reads; nothing is changed.

    With `anew` every file is read, and the change index is not asked. Corrupt where the log has
    lost its end.
    """
    from loom_audit.history.look.capture import look_once
    from loom_audit.history.record.interrupted import half_moves, without_interrupted
    from loom_audit.history.record.recovery import interrupted_calls
    from loom_audit.history.undo.kept_when_finished import would_be_kept

    # where no file looks different, nothing of the log is read that would tell
    timeline.proven.check_end()
    with attachment.exclusive_if_possible():
        found = look_once(checked(attachment, timeline), anew=anew)
        drift, begun = without_interrupted(attachment, found.changes)
        interrupted = tuple(interrupted_calls(attachment))
        halves = [one for call in interrupted for one in half_moves(attachment, call)]
        kept = [
            note
            for call in interrupted
            if attachment.waits_for_decision(call)
            for note in would_be_kept(attachment, call)
        ]
    return Status(
        attachment.stored.log.head(),
        tuple(drift),
        tuple(found.untracked),
        tuple(timeline.open_calls()),
        interrupted,
        tuple(begun),
        tuple(halves),
        tuple(kept),
        attachment.is_watched,
    )
