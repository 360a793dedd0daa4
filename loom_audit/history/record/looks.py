"""The looks at the workspace before and after what changes files by itself, such as a command."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import (
    acting_calls,
    attributed,
    attributed_drafts,
    candidates,
    candidates_with,
    ended_unseen,
    innermost,
)
from loom_audit.history.look.batches import Batch, WholeLook
from loom_audit.history.look.capture import scan
from loom_audit.history.look.doers import Candidate, Told
from loom_audit.history.look.survivors import LeftRunning, Running, Window
from loom_audit.history.look.timing import look_between, look_made
from loom_audit.history.record.call_record import LATE, CallRecord
from loom_audit.history.record.interrupted import SOURCE, record_interrupted
from loom_audit.history.record.watching import note_command, note_unchecked
from loom_audit.model.events import FilesChanged
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter, Stamp

NOT_SETTLED = "what it left running was not settled"
"""Processes came and went; what was left may be none of those that were seen."""


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
    others = look_before(record)
    alive = {one: attachment.is_session_alive(one.session) for one in others}
    mode = attachment.on_disk.workspace.stamp("")
    if not watched:
        Running(attachment).begin_block(record.key)
    return Before(mode, alive)


def look_after_block(record: CallRecord, before: Before, left: Iterable[str]) -> None:
    """Take the look after it; the lock is held.

    The tasks that are `left` go on, and when it was not watched whatever else it started: they
    stay candidates.
    """
    attachment = record.attachment
    going_on = Running(attachment).left_running_by_block(record.key, left)
    look_after(record, before.others)
    if attachment.on_disk.workspace.stamp("") not in (before.mode, None):
        record.lower_coverage("the workspace's own mode changed")
    keep_going_on(record, going_on)


def keep_going_on(record: CallRecord, left: LeftRunning) -> None:
    """Let what a call leaves running stay a candidate, and say so, and where it is not settled.

    The lock is held.
    """
    if not left.settled:
        record.lower_coverage(NOT_SETTLED)
    if left.tasks:
        attachment = record.attachment
        requested = attachment.stored.reading.call(*record.key).requested
        Running(attachment).add(requested, left.tasks)
        named = ", ".join(attachment.on_disk.processes.title(task) for task in [*left.tasks][:5])
        record.lower_coverage(f"left running: {named}")


def look_before(record: CallRecord, *, within: int | None = None) -> list[Candidate]:
    """Store the request, and what was changed before it by other calls; the lock is held.

    The call is `within` the one of this request, if there is one. The calls that were open.
    """
    open_calls = record.attachment.stored.tables.open_calls()
    others = candidates(record.attachment, open_calls, besides=record.key)
    window = Window.begin(record.attachment)
    record_interrupted(record.attachment, open_calls)
    for batch in scan(record.attachment):
        among = window.with_survivors(others)
        if not batch.last:
            record.commit_foreign(batch, among)
    attachment, here = record.attachment, record.writer.session
    look = look_between(attachment, among, alive_session=here, within=within)
    record.add_drafts(attributed_drafts(attachment, batch, among, look))
    record.entries.update(batch.entries)
    record.window = window
    record.add_untracked(batch.look.untracked)
    record.commit_and_index()
    return others


def look_after(
    record: CallRecord,
    others: Mapping[Candidate, bool] = MappingProxyType({}),
    *,
    late: Callable[[], bool] = lambda: False,
    heard: Callable[[], bool] = lambda: False,
    told: Mapping[int, Told] = MappingProxyType({}),
) -> None:
    """Collect what changed as this call's, shared with the others; the lock is held.

    `others` were open at the look before it: whether their processes were still running. `late`
    says, once it was made, that the look did not come directly after the call; then `told` counts:
    what clients told of the ends of calls, by their requests. The call's client is `heard` where it
    is there at this moment.
    """
    attachment = record.attachment
    open_now = {call.requested: call for call in attachment.stored.tables.open_calls()}
    own = next(call for call in open_now.values() if (call.session, call.call_id) == record.key)
    foreign = bool(record.writer.source)
    now = candidates_with(
        attachment, own, open_now.values(), request=record.request, foreign=foreign, told=told
    )
    now = [one for one in now if others.get(one, True)]
    for one in (one for one, alive in others.items() if alive and one not in now):
        still = one if one.requested in open_now else ended_unseen(attachment.stored, one)
        now += [still] if still else []
    found = collect_changes(record, open_now.values(), now, late=late, heard=heard)
    if attachment.on_disk.workspace.is_deleted():
        record.lower_coverage("the workspace's own folder was deleted")
    note_unchecked(attachment.process, own.requested)
    record.lower_coverage(*found.reasons)
    _add_changes_recorded_by_others(record, own)


def collect_changes(
    record: CallRecord,
    open_calls: Iterable[Call],
    among: Sequence[Candidate],
    *,
    late: Callable[[], bool],
    heard: Callable[[], bool] = lambda: False,
) -> WholeLook:
    """Scan, and collect what changed as that of these candidates; the lock is held."""
    window = Window.begin(record.attachment)
    record_interrupted(record.attachment, open_calls)
    for batch in scan(record.attachment, after_the_fact=True):
        _collect(record, batch, window.with_survivors(among), late=late(), heard=heard())
        if not batch.last:
            record.commit_and_index()
    record.window = window
    record.add_untracked(batch.look.untracked, [one.requested for one in among])
    return batch.look


def _collect(
    record: CallRecord, found: Batch, among: Sequence[Candidate], *, late: bool, heard: bool
) -> None:
    """Collect what the look after a call found, as the call's and as that of others."""
    own = record.key
    ordered = sorted(among, key=lambda one: (one.key != own, one.is_survivor, one.requested))
    if late:
        record.lower_coverage(LATE)
    here = record.writer.session if heard else ""
    look = look_made(record.attachment, ordered, late=late, alive_session=here, goes_on=not late)
    for doers, drafts in attributed(record.attachment, found, ordered, look):
        fact = drafts[0].fact
        if not doers.outside and doers.among[0].key == own and isinstance(fact, FilesChanged):
            record.add_changes(fact)
        else:
            record.add_drafts(drafts)
    record.entries.update(found.entries)


def _add_changes_recorded_by_others(record: CallRecord, own: Call) -> None:
    """Count what the looks of other calls recorded as this call's changes.

    As the log says it: coverage must not be raised by who alters the tables.
    """
    log = record.attachment.stored.log
    after, head = own.requested, log.head()
    while after < head:
        # one by one, since each may have as many changes as a batch takes
        found = [*log.read(EventFilter(after=after, kinds=(FilesChanged.kind,), limit=1))]
        if not found:
            break
        [event] = found
        fact, after = event.fact, event.seq
        if not isinstance(fact, FilesChanged) or fact.origin == "outside":
            continue
        is_own = (event.session, fact.call_id) == (own.session, own.call_id)
        if is_own or own.requested in fact.causes:
            record.add_changed_paths([change.path for change in fact.changes])
            record.note_causes(fact.causes)
    if record.shared:
        record.lower_coverage("shared with other commands")


def record_found_changes(
    attachment: Attachment,
    calls: Sequence[Call],
    told: Mapping[int, Told] = MappingProxyType({}),
) -> None:
    """Record what changed on disk since the interrupted calls began; the lock is held.

    The look comes late: what is not told or named, and dated, is no call's.
    """
    ended = {call.requested for call in calls}
    open_calls = attachment.stored.tables.open_calls()
    acting = acting_calls(attachment, open_calls)
    running = [one for one in acting if one.requested not in ended]
    among = innermost(attachment.stored, [*calls, *running], told=told)
    owner = among[0]
    writer = Writer(attachment, owner.session, owner.actor, SOURCE)
    record = CallRecord(writer, owner.call_id)
    collect_changes(record, open_calls, among, late=lambda: True)
    record.commit_and_index()
