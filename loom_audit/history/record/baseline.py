"""The baseline, which is the first listing of a workspace, and accepting a new scope."""

from collections.abc import Sequence

from msgspec.structs import replace

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.room import check_room
from loom_audit.history.ground.without_gc import without_gc
from loom_audit.history.look.attribution import outside_draft
from loom_audit.history.look.capture import ScanResult, scan
from loom_audit.history.look.change_index import untracked_entries, update_index
from loom_audit.history.look.opaque import left_out_rows
from loom_audit.history.record.drift import record_drift
from loom_audit.model.events import (
    OUTSIDE,
    BaselineFinished,
    Draft,
    Fact,
    FilesChanged,
    PathsUntracked,
    ScopeAccepted,
    WorkspaceAttached,
)
from loom_audit.model.files import FileChange, is_opaque, parents
from loom_audit.model.scope import Scope
from loom_audit.ports import EventFilter, Report

_LESS = " Or exclude folders in .loomignore and run `loom-audit scope accept`. Then do it again."


def baseline_end(attachment: Attachment) -> int:
    """The seq at which the baseline was complete, 0 while it is not."""
    for event in attachment.log.read(EventFilter(kinds=(BaselineFinished.kind,), limit=1)):
        return event.seq
    return 0


@without_gc()
def take_baseline(attachment: Attachment, report: Report | None = None) -> None:
    """Record everything in scope. After an interruption it goes on where it stopped.

    AuditUnavailable when the store's disk is nearly full; what was recorded by then stays.
    """

    def flush(found: ScanResult) -> None:
        check_room(attachment, "the listing stopped", _LESS)
        facts: list[Fact] = []
        if found.changes:
            facts.append(FilesChanged(tuple(found.changes), "baseline"))
        if found.untracked:
            facts.append(PathsUntracked(tuple(found.untracked)))
        events = attachment.log.append([Draft(fact, "", OUTSIDE) for fact in facts])
        update_index(
            attachment, {**found.entries, **untracked_entries(attachment, found.untracked)}, events
        )
        found.untracked.clear()
        attachment.lock.answer_signals(whole=True)

    with attachment.exclusive():
        if baseline_end(attachment):
            return
        flush(ScanResult())
        found = scan(attachment, flush, report=report, stage="baseline")
        flush(found)
        tree = attachment.projections.tree()
        files = [state for state in tree.values() if state.kind == "file"]
        size = sum(state.size for state in files)
        fact = BaselineFinished(len(files), size, left_out_rows(found.left_out))
        update_index(attachment, {}, attachment.log.append([Draft(fact, "", OUTSIDE)]))


def accept_scope(
    attachment: Attachment, fact: ScopeAccepted | WorkspaceAttached, *, actor: str
) -> None:
    """Put a new scope on record, together with the files that come into scope by it.

    They are recorded now so that the next scan does not attribute them to a call. StorageFailed
    when the store's disk is nearly full; the old scope then stays.
    """

    def let_in(found: ScanResult, *first: Draft) -> None:
        check_room(attachment, "the listing stopped", _LESS)
        drafts = [*first, *_let_in_drafts(found.changes)]
        if found.untracked:
            drafts.append(Draft(PathsUntracked(tuple(found.untracked)), "", OUTSIDE))
        entries = {**found.entries, **untracked_entries(attachment, found.untracked)}
        update_index(attachment, entries, attachment.log.append(drafts))
        found.untracked.clear()

    with attachment.exclusive():
        if not baseline_end(attachment):
            attachment.log.append([Draft(fact, "", actor)])
            return
        record_drift(attachment)
        attachment.index.clear()
        limit = getattr(fact, "max_file_bytes", attachment.scope.max_file_bytes)
        attachment.last_seen.scope, attachment.last_seen.head = Scope(fact.ignore, limit), -1
        found = scan(attachment, let_in)
        if isinstance(fact, ScopeAccepted):
            left_out, untracked = left_out_rows(found.left_out), _out_of_scope(attachment, found)
            fact = replace(fact, left_out=left_out, untracked=untracked)
        let_in(found, Draft(fact, "", actor))


def _out_of_scope(attachment: Attachment, found: ScanResult) -> tuple[str, ...]:
    """The outermost paths of the tree that the scope leaves out; the inside of what is opaque
    leaves with the event that says so.
    """
    opaque = {change.path for change in found.changes if is_opaque(change.after)}
    left: dict[str, None] = {}
    for path, state in sorted(attachment.projections.tree().items()):
        above = parents(path)
        if path in opaque or not opaque.isdisjoint(above) or any(one in left for one in above):
            continue
        if not attachment.scope.holds(path, state.kind):
            left[path] = None
    return (*left,)


def _let_in_drafts(changes: Sequence[FileChange]) -> list[Draft]:
    """What a new scope shows that was there before, nobody knows since when."""
    listed: list[FileChange] = []
    others: list[FileChange] = []
    for change in changes:
        (listed if is_opaque(change.after) else others).append(change)
    facts: list[Fact] = [FilesChanged(tuple(listed), "baseline")] if listed else []
    arrived = [change.path for change in others if change.before is None]
    drafts = [Draft(fact, "", OUTSIDE) for fact in facts]
    return [*drafts, *([outside_draft(others, (), arrived)] if others else [])]
