"""The looks at the workspace before and after what changes files by itself, such as a command."""

from collections.abc import Collection

from loom_audit.history.call_record import CallRecord
from loom_audit.history.capture import ScanResult, scan
from loom_audit.model.events import FilesChanged
from loom_audit.model.files import find_moves
from loom_audit.model.left_out import LeftOutFolders, left_out_changes


def look_before(record: CallRecord) -> LeftOutFolders:
    """Store the request, and what others changed before it; the lock is held.

    The folders that are left out are returned, to be compared when the call has ended.
    """
    found = scan(record.attachment, record.commit_foreign)
    record.add_foreign(found.changes)
    record.add_untracked(found)
    record.entries.update(found.entries)
    record.commit_and_index()
    return found.left_out


def look_after(record: CallRecord, others: Collection[str], before: LeftOutFolders) -> None:
    """Collect what changed as this call's, shared with `others` (call ids); the lock is held."""
    found = collect_changes(record, others)
    record.lower_coverage(*found.reasons, *left_out_changes(before, found.left_out))
    _add_changes_recorded_by_others(record, shared=bool(others))


def collect_changes(record: CallRecord, others: Collection[str]) -> ScanResult:
    """Scan, and collect what changed as this call's, shared with `others`; the lock is held."""
    causes = (record.call_id, *sorted(others)) if others else ()

    def add(found: ScanResult) -> None:
        record.entries.update(found.entries)
        if changes := tuple(found.changes):
            moves = find_moves(changes)
            fact = FilesChanged(changes, "command", record.call_id, moves, causes=causes)
            record.add_changes(fact)

    def flush(found: ScanResult) -> None:
        add(found)
        record.commit_and_index()

    found = scan(record.attachment, flush, after_the_fact=True)
    add(found)
    record.add_untracked(found)
    return found


def _add_changes_recorded_by_others(record: CallRecord, *, shared: bool) -> None:
    """Count what the scans of other calls recorded as this call's changes."""
    shared = shared and record.has_changes
    for recorded in record.attachment.projections.changes(call_ids=(record.call_id,)):
        if recorded.session != record.writer.session and not recorded.causes:
            continue  # another session has a call of this id
        record.add_changed_paths([recorded.change.path])
        shared = shared or bool(recorded.causes)
    if shared:
        record.lower_coverage("shared with other commands")
