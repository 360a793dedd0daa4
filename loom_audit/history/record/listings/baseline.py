"""Takes the baseline, which is the first listing of a workspace, and accepts new scopes."""

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
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import (
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
"""What can be done besides where a listing stops because the store's disk is nearly full."""


def baseline_end(stored: StoredLog) -> int:
    """The seq of the event that completed the baseline; 0 while there is none."""
    for event in stored.log.read(EventFilter(kinds=(BaselineFinished.kind,), limit=1)):
        return event.seq
    return 0


@without_gc()
def take_baseline(attachment: Attachment, progress: OnProgress | None = None) -> None:
    """Record everything in scope, so that later looks have something to compare with.

    `progress` is told now and then how many paths were read. After an interruption the baseline
    goes on where it stopped: every batch is committed by itself, and what is on record is not
    listed again. AuditUnavailable when the store's disk is nearly full; what was recorded by then
    stays.
    """

    with attachment.exclusive():
        if baseline_end(attachment.stored):
            return
        # an empty batch checks the free space, before the workspace is walked
        _let_in(attachment, [], Batch())
        for batch in scan(attachment, progress=progress, stage="baseline"):
            facts = [FilesChanged(tuple(batch.changes), "baseline")] if batch.changes else []
            _let_in(attachment, [Draft(fact, "", OUTSIDE) for fact in facts], batch)
            # between two batches nothing is lost by an end, so Ctrl-C need not wait for the last
            attachment.stored.lock.answer_signals(whole=True)
        tree = attachment.stored.reading.tree()
        files = [state for state in tree.values() if state.kind == "file"]
        size = sum(state.size for state in files)
        fact = BaselineFinished(len(files), size, left_out_rows(batch.look.left_out))
        update_index(attachment, {}, attachment.stored.log.append([Draft(fact, "", OUTSIDE)]))


def accept_scope(
    attachment: Attachment, fact: ScopeAccepted | WorkspaceAttached, *, actor: str
) -> None:
    """Put a new scope on record, together with the files that come into scope by it.

    They are recorded now so that the next scan does not attribute them to a call. AuditUnavailable
    when the store's disk is nearly full; the old scope then stays.
    """

    with attachment.exclusive():
        if not baseline_end(attachment.stored):
            attachment.stored.log.append([Draft(fact, "", actor)])
            return
        # by the old scope: what others changed until now did not come in by the new one
        record_drift(attachment)
        # the index knows the paths of the old scope: emptied, it lets the scan read every path
        attachment.on_disk.index.clear()
        limit = getattr(fact, "max_file_bytes", attachment.scope.max_file_bytes)
        attachment.process.last_seen.scope, attachment.process.last_seen.head = (
            Scope(fact.ignore, limit),
            -1,
        )
        # the scan goes by the new scope, which is not on record yet; where it fails, the next
        # `exclusive` finds that and goes back to the old one
        for batch in scan(attachment):
            first = []
            # with the last batch: only then it is known what is left out
            if batch.last:
                if isinstance(fact, ScopeAccepted):
                    left_out = left_out_rows(batch.look.left_out)
                    untracked = _out_of_scope(attachment, batch)
                    fact = replace(fact, left_out=left_out, untracked=untracked)
                first = [Draft(fact, "", actor)]
            _let_in(attachment, [*first, *_let_in_drafts(batch.changes)], batch)


def _let_in(attachment: Attachment, drafts: Sequence[Draft], batch: Batch) -> None:
    """Append the drafts of a batch and the paths that it could not look at; the index follows.

    AuditUnavailable when the store's disk is nearly full.
    """
    check_free_space(attachment.stored, "the listing stopped", _LESS)
    if batch.untracked:
        drafts = [*drafts, Draft(PathsUntracked(tuple(batch.untracked)), "", OUTSIDE)]
    entries = {**batch.entries, **untracked_entries(attachment, batch.untracked)}
    update_index(attachment, entries, attachment.stored.log.append(drafts))


def _out_of_scope(attachment: Attachment, batch: Batch) -> tuple[str, ...]:
    """The outermost paths of the tree that the new scope leaves out.

    Paths inside an opaque entry are not among them: they leave the tree with the event by which
    the entry is recorded.
    """
    opaque = {change.path for change in batch.changes if is_opaque(change.after)}
    outermost: dict[str, None] = {}
    for path, state in sorted(attachment.stored.reading.tree().items()):
        above = parents(path)
        if path in opaque or not opaque.isdisjoint(above) or any(one in outermost for one in above):
            continue
        if not attachment.scope.holds(path, state.kind):
            outermost[path] = None
    return (*outermost,)


def _let_in_drafts(changes: Sequence[FileChange]) -> list[Draft]:
    """The drafts for what a new scope lets in.

    Opaque entries go on record as part of the baseline. Files are from outside, since nobody knows
    who made them or when; the new ones have arrived, so that no plan deletes them.
    """
    listed: list[FileChange] = []
    others: list[FileChange] = []
    for change in changes:
        (listed if is_opaque(change.after) else others).append(change)
    facts: list[Fact] = [FilesChanged(tuple(listed), "baseline")] if listed else []
    arrived = [change.path for change in others if change.before is None]
    drafts = [Draft(fact, "", OUTSIDE) for fact in facts]
    return [*drafts, *([outside_draft(others, (), arrived)] if others else [])]
