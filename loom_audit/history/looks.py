"""The looks at the workspace before and after what changes files by itself, such as a command."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from loom_audit.history.attachment import Attachment
from loom_audit.history.attribution import (
    Candidate,
    acting_calls,
    attributed_drafts,
    by_owners,
    candidates,
    candidates_with,
    ended_unseen,
    found_fact,
    innermost,
)
from loom_audit.history.call_record import CallRecord
from loom_audit.history.capture import ScanResult, scan
from loom_audit.history.interrupted import SOURCE, record_interrupted
from loom_audit.history.survivors import Activity, Window, add_survivors, tasks_left
from loom_audit.history.watching import note_command, note_unchecked
from loom_audit.history.writer import Writer
from loom_audit.model.applicable import in_applicable_order
from loom_audit.model.records import Call
from loom_audit.ports import Stamp


class Before(Struct, frozen=True):
    """What was seen before a block of code that changes files by itself.

    `mode` is the stamp of the workspace's own folder, `others` the calls that were open and
    whether their processes ran.
    """

    mode: Stamp | None
    others: Mapping[Candidate, bool]


def look_before_block(record: CallRecord, *, watched: bool) -> Before:
    """Take the look before a block of ours; the lock is held.

    It is `watched` when a runner ends what it starts.
    """
    attachment = record.attachment
    note_command(attachment)
    others = candidates(attachment, besides=record.key)
    look_before(record, others)
    alive = {one: attachment.is_session_alive(one.session) for one in others}
    mode = attachment.workspace.stamp("")
    if not watched:
        attachment.running[record.key] = attachment.processes.running()
    return Before(mode, alive)


def look_after_block(record: CallRecord, before: Before, left: Iterable[str]) -> None:
    """Take the look after it; the lock is held.

    The tasks that are `left` go on, and when it was not watched whatever else it started: they
    stay candidates.
    """
    attachment = record.attachment
    began = attachment.running.pop(record.key, None)
    if began is None:
        going_on = attachment.processes.activity(left)
    else:
        going_on = tasks_left(attachment, began, left, beside=attachment.running.values())
    look_after(record, before.others)
    if attachment.workspace.stamp("") != before.mode:
        record.lower_coverage("the workspace's own mode changed")
    keep_going_on(record, going_on)


def keep_going_on(record: CallRecord, tasks: Activity) -> None:
    """Let what a call leaves running stay a candidate, and say so; the lock is held."""
    if tasks:
        attachment = record.attachment
        add_survivors(attachment, attachment.projections.call(*record.key).requested, tasks)
        named = ", ".join(attachment.processes.title(task) for task in [*tasks][:5])
        record.lower_coverage(f"left running: {named}")


def look_before(record: CallRecord, among: Sequence[Candidate]) -> None:
    """Store the request, and what was changed before it by these candidates; the lock is held."""
    window = Window.begin(record.attachment)

    def flush(part: ScanResult) -> None:
        record.commit_foreign(part, window.with_survivors(among))

    record_interrupted(record.attachment)
    found = scan(record.attachment, flush)
    record.window = window
    among = window.with_survivors(among)
    record.add_drafts(attributed_drafts(found.changes, among, found.moves, found.arrived))
    record.entries.update(found.entries)
    record.add_untracked(found)
    record.commit_and_index()


def look_after(
    record: CallRecord,
    others: Mapping[Candidate, bool] = MappingProxyType({}),
) -> None:
    """Collect what changed as this call's, shared with the others; the lock is held.

    `others` were open at the look before it: whether their processes were still running.
    """
    attachment = record.attachment
    open_now = {call.requested: call for call in attachment.projections.open_calls()}
    own = next(call for call in open_now.values() if (call.session, call.call_id) == record.key)
    now = candidates_with(attachment, own, open_now.values(), foreign=bool(record.writer.source))
    now = [one for one in now if others.get(one, True)]
    for one in (one for one, alive in others.items() if alive and one not in now):
        still = one if one.requested in open_now else ended_unseen(attachment, one)
        now += [still] if still else []
    found = collect_changes(record, now)
    note_unchecked(attachment, own.requested)
    record.lower_coverage(*found.reasons)
    _add_changes_recorded_by_others(record, own)


def collect_changes(record: CallRecord, among: Sequence[Candidate]) -> ScanResult:
    """Scan, and collect what changed as that of these candidates; the lock is held."""
    own = record.key
    window = Window.begin(record.attachment)

    def add(found: ScanResult) -> None:
        record.entries.update(found.entries)
        ordered = sorted(
            window.with_survivors(among),
            key=lambda one: (one.key != own, one.outlived, one.requested),
        )
        for owners, part in in_applicable_order(by_owners(found.changes, ordered)):
            if owners and owners[0].key == own:
                record.add_changes(found_fact(owners, part, found.moves, found.arrived))
            else:
                record.add_drafts(attributed_drafts(part, ordered, found.moves, found.arrived))

    def flush(found: ScanResult) -> None:
        add(found)
        record.commit_and_index()

    record_interrupted(record.attachment)
    found = scan(record.attachment, flush, after_the_fact=True)
    add(found)
    record.window = window
    record.add_untracked(found)
    return found


def _add_changes_recorded_by_others(record: CallRecord, own: Call) -> None:
    """Count what the looks of other calls recorded as this call's changes."""
    changes = record.attachment.projections.changes
    for recorded in changes(after=own.requested, calls=(own.requested,)):
        record.add_changed_paths([recorded.change.path])
        record.shared = record.shared or bool(recorded.causes)
    if record.shared:
        record.lower_coverage("shared with other commands")


def record_found_changes(attachment: Attachment, calls: Sequence[Call]) -> None:
    """Record what changed on disk as the interrupted calls', shared with those that go on.

    The lock is held.
    """
    ended = {call.requested for call in calls}
    running = [one for one in acting_calls(attachment) if one.requested not in ended]
    among = innermost(attachment, [*calls, *running])
    owner = among[0]
    writer = Writer(attachment, owner.session, owner.actor, SOURCE)
    record = CallRecord(writer, owner.call_id)
    collect_changes(record, among)
    record.commit_and_index()
