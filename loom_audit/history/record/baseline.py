"""The baseline, which is the first listing of a workspace, and accepting a new scope."""

from collections.abc import Sequence

from msgspec.structs import replace

from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.ground.free_space import check_free_space
from loom_audit.history.ground.without_gc import without_gc
from loom_audit.history.look.attribution import outside_draft
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.capture import scan
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
from loom_audit.ports import EventFilter, OnProgress

_LESS = " Or exclude folders in .loomignore and run `loom-audit scope accept`. Then do it again."


def baseline_end(stored: StoredLog) -> int:
    """The seq at which the baseline was complete, 0 while it is not."""
    for event in stored.log.read(EventFilter(kinds=(BaselineFinished.kind,), limit=1)):
        return event.seq
    return 0


@without_gc()
def take_baseline(attachment: Attachment, report: OnProgress | None = None) -> None:
    """Record everything in scope. After an interruption it goes on where it stopped.

    AuditUnavailable when the store's disk is nearly full; what was recorded by then stays.
    """

    with attachment.exclusive():
        if baseline_end(attachment.stored):
            return
        _let_in(attachment, [], Batch())
        for found in scan(attachment, progress=report, stage="baseline"):
            facts = [FilesChanged(tuple(found.changes), "baseline")] if found.changes else []
            _let_in(attachment, [Draft(fact, "", OUTSIDE) for fact in facts], found)
            attachment.stored.lock.answer_signals(whole=True)
        tree = attachment.stored.reading.tree()
        files = [state for state in tree.values() if state.kind == "file"]
        size = sum(state.size for state in files)
        fact = BaselineFinished(len(files), size, left_out_rows(found.look.left_out))
        update_index(attachment, {}, attachment.stored.log.append([Draft(fact, "", OUTSIDE)]))


def accept_scope(
    attachment: Attachment, fact: ScopeAccepted | WorkspaceAttached, *, actor: str
) -> None:
    """Put a new scope on record, together with the files that come into scope by it.

    They are recorded now so that the next scan does not attribute them to a call. StorageFailed
    when the store's disk is nearly full; the old scope then stays.
    """

    with attachment.exclusive():
        if not baseline_end(attachment.stored):
            attachment.stored.log.append([Draft(fact, "", actor)])
            return
        record_drift(attachment)
        attachment.on_disk.index.clear()
        limit = getattr(fact, "max_file_bytes", attachment.scope.max_file_bytes)
        attachment.process.last_seen.scope, attachment.process.last_seen.head = (
            Scope(fact.ignore, limit),
            -1,
        )
        for found in scan(attachment):
            first = []
            if found.last:
                if isinstance(fact, ScopeAccepted):
                    left_out = left_out_rows(found.look.left_out)
                    untracked = _out_of_scope(attachment, found)
                    fact = replace(fact, left_out=left_out, untracked=untracked)
                first = [Draft(fact, "", actor)]
            _let_in(attachment, [*first, *_let_in_drafts(found.changes)], found)


def _let_in(attachment: Attachment, drafts: Sequence[Draft], found: Batch) -> None:
    """Put on record what a listing found, and what it could not look at; AuditUnavailable."""
    check_free_space(attachment.stored, "the listing stopped", _LESS)
    if found.untracked:
        drafts = [*drafts, Draft(PathsUntracked(tuple(found.untracked)), "", OUTSIDE)]
    entries = {**found.entries, **untracked_entries(attachment, found.untracked)}
    update_index(attachment, entries, attachment.stored.log.append(drafts))


def _out_of_scope(attachment: Attachment, found: Batch) -> tuple[str, ...]:
    """The outermost paths of the tree that the scope leaves out; the inside of what is opaque
    leaves with the event that says so.
    """
    opaque = {change.path for change in found.changes if is_opaque(change.after)}
    left: dict[str, None] = {}
    for path, state in sorted(attachment.stored.reading.tree().items()):
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
