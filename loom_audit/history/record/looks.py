"""Takes the looks at the workspace before and after a call that changes files by itself."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

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
    writable_by,
)
from loom_audit.history.look.batches import Batch, WholeLook
from loom_audit.history.look.capture import scan
from loom_audit.history.look.doers import Candidate, Told
from loom_audit.history.look.git.changes import look_at_git
from loom_audit.history.look.git.git_look import git_drafts, later_reason
from loom_audit.history.look.survivors import LeftRunning, Running, Window
from loom_audit.history.look.timing import look_between, look_made, note_begin
from loom_audit.history.record.call_record import LOOKED_AT_LATE, CallRecord
from loom_audit.history.record.git.not_back import why_not_back
from loom_audit.history.record.interrupted import SOURCE, record_interrupted
from loom_audit.history.record.watching import note_command, note_unchecked
from loom_audit.model.events import FilesChanged
from loom_audit.model.git.record import GitChanged
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter, Stamp

NOT_SETTLED = "what it left running was not settled"
"""Why coverage is partial where processes came and went, so that some may not have been seen."""


class Before(Struct, frozen=True):
    """What was seen before a block of code that changes files by itself.

    `mode` is the stamp of the workspace's own folder. `others` are the calls that were open then,
    each with whether the process of its session was running.
    """

    mode: Stamp | None
    others: Mapping[Candidate, bool]


def look_before_block(record: CallRecord, *, watched: bool) -> Before:
    """Take the look before a block of code that this process runs; the lock is held.

    The block is `watched` when a runner runs it, which knows what the block leaves running.
    """
    attachment = record.attachment
    note_command(attachment)
    others = look_before(record)
    alive = {one: attachment.is_session_alive(one.session) for one in others}
    mode = attachment.on_disk.workspace.stamp("")
    # nobody else knows afterwards which processes the block has started
    if not watched:
        Running(attachment).begin_block(record.key)
    return Before(mode, alive)


def look_after_block(record: CallRecord, before: Before, tasks: Iterable[str]) -> None:
    """Take the look after a block of code that this process ran; the lock is held.

    These tasks go on running, and, where no runner watched the block, all else that it started and
    that still runs. For what they change the call stays a candidate.
    """
    attachment = record.attachment
    # asked before the look: a process that changed files after a look, and ended before somebody
    # asked for it, would not be known
    going_on = Running(attachment).left_running_by_block(record.key, tasks)
    look_after(record, before.others)
    if attachment.on_disk.workspace.stamp("") not in (before.mode, None):
        record.lower_coverage("the workspace's own mode changed")
    note_left_running(record, going_on)


def note_left_running(record: CallRecord, left_running: LeftRunning) -> None:
    """Let a call stay a candidate for what its processes and threads change after its end.

    Coverage says what they are, at most five of them, and where not all of them may be known. The
    request of the call is on record, and the lock is held.
    """
    if not left_running.settled:
        record.lower_coverage(NOT_SETTLED)
    if left_running.tasks:
        attachment = record.attachment
        requested = attachment.stored.reading.call(*record.key).requested
        Running(attachment).add(requested, left_running.tasks)
        named = ", ".join(
            attachment.on_disk.processes.title(task) for task in [*left_running.tasks][:5]
        )
        record.lower_coverage(f"left running: {named}")


def look_before(record: CallRecord, *, within: int | None = None) -> list[Candidate]:
    """Store the request of a call, and before it what others have changed; the lock is held.

    `within` is the seq of the request of the call that contains this one, if there is one. Returns
    the other open calls, which are candidates for what the call's look at its end finds.
    """
    open_calls = record.attachment.stored.tables.open_calls()
    others = candidates(record.attachment, open_calls, besides=record.key)
    window = Window.begin(record.attachment)
    record_interrupted(record.attachment, open_calls)
    for batch in scan(record.attachment):
        # asked for each batch anew: what changed during the look was changed by what ran then
        among = window.with_survivors(others)
        if not batch.last:
            record.commit_changes_of_others(batch, among)
    # the last batch and the request are stored in one commit: most looks have one batch
    attachment, here = record.attachment, record.writer.session
    look = look_between(attachment, among, alive_session=here, within=within)
    record.add_drafts(attributed_drafts(attachment, batch, among, look))
    for git in look_at_git(attachment):
        record.add_drafts(git_drafts(git, among, between=True))
        record.lower_coverage(*git.why_unseen)
    record.entries.update(batch.entries)
    record.window = window
    record.add_untracked(batch.look.untracked)
    record.commit_and_index()
    note_begin(attachment)
    return others


def look_after(
    record: CallRecord,
    others: Mapping[Candidate, bool] = MappingProxyType({}),
    *,
    late: Callable[[], bool] = lambda: False,
    heard: Callable[[], bool] = lambda: False,
    told: Mapping[int, Told] = MappingProxyType({}),
) -> None:
    """Collect what changed as changes of this call, shared with others; the lock is held.

    `others` are the calls that were open at the look before, each with whether its process was
    running. `late`, asked once the look was made, says whether that did not follow directly after
    the call. Then `told` counts: what clients reported of the ends of calls, by the seqs of their
    requests. `heard` says whether the client of the call is reporting at this moment.
    """
    attachment = record.attachment
    open_now = {call.requested: call for call in attachment.stored.tables.open_calls()}
    own = next(call for call in open_now.values() if (call.session, call.call_id) == record.key)
    foreign = bool(record.writer.source)
    now = candidates_with(
        attachment, own, open_now.values(), request=record.request, foreign=foreign, told=told
    )
    # one whose process had ended before the look before this call has changed nothing since
    now = [one for one in now if others.get(one, True)]
    # one that ran then may have, where it is still open or nobody looked at its end
    for one in (one for one, alive in others.items() if alive and one not in now):
        still = one if one.requested in open_now else ended_unseen(attachment.stored, one)
        now += [still] if still else []
    if record.beside:
        started = attachment.stored.reading.call(record.writer.session, record.beside)
        writes = writable_by(attachment, started)
        now = [replace(one, writes=writes) if one.key == record.key else one for one in now]
    found = collect_changes(record, open_now.values(), now, late=late, heard=heard)
    if attachment.on_disk.workspace.is_deleted():
        record.lower_coverage("the workspace's own folder was deleted")
    note_unchecked(attachment.process, own.requested)
    record.lower_coverage(*found.reasons)
    # last, since the look itself may have put changes of this call on record
    _add_changes_recorded_by_others(record, own)


def collect_changes(
    record: CallRecord,
    open_calls: Iterable[Call],
    among: Sequence[Candidate],
    *,
    late: Callable[[], bool],
    heard: Callable[[], bool] = lambda: False,
) -> WholeLook:
    """Scan, and collect what changed as changes of these candidates; the lock is held.

    Every batch but the last is committed; the last one waits for the record's next commit. Returns
    what holds of the look as a whole.
    """
    window = Window.begin(record.attachment)
    # interrupted calls have an intention on record: the scan must not give their changes to others
    record_interrupted(record.attachment, open_calls)
    for batch in scan(record.attachment, after_the_fact=True):
        _collect(record, batch, window.with_survivors(among), late=late(), heard=heard())
        if not batch.last:
            record.commit_and_index()
    _collect_git(record, window.with_survivors(among), late=late())
    record.window = window
    record.add_untracked(batch.look.untracked, [one.requested for one in among])
    return batch.look


def _collect_git(record: CallRecord, among: Sequence[Candidate], *, late: bool) -> None:
    """Collect what changed of git; coverage says what is not taken back, or was unseen."""
    repositories = record.attachment.process.last_seen.git.repositories
    acting = [one.requested for one in among if not (one.ended or one.is_survivor)]
    for found in look_at_git(record.attachment):
        if found.unasked and found.folder in repositories:
            repositories[found.folder].unasked.update(acting)
        record.lower_coverage(*found.why_unseen)
        if found.is_missed_before and found.change:
            record.lower_coverage(later_reason(found.change))
        for draft in git_drafts(found, _own_first(record, among), late=late):
            record.add_drafts([draft])
            if isinstance(draft.fact, GitChanged):
                own = (draft.session, draft.fact.call_id) == record.key
                _note_git(record, draft.fact, own=own)


def _note_git(record: CallRecord, fact: GitChanged, *, own: bool) -> None:
    """Note what a call changed of git, or may have, and why not all of it can be taken back."""
    requested = record.attachment.stored.reading.call(*record.key).requested
    if own or (fact.origin == "command" and requested in fact.causes):
        record.git.append(fact)
        if fact.is_of_git:
            record.lower_coverage(*why_not_back(record.attachment, fact))
        record.note_causes(fact.causes)


def _own_first(record: CallRecord, among: Iterable[Candidate]) -> list[Candidate]:
    """The candidates in the order in which a change is listed under one of them."""
    return sorted(among, key=lambda one: (one.key != record.key, one.is_survivor, one.requested))


def _collect(
    record: CallRecord, batch: Batch, among: Sequence[Candidate], *, late: bool, heard: bool
) -> None:
    """Collect a batch of the look after a call, by the calls that may have made each change."""
    own = record.key
    # what several calls may have made is listed under the first: under this one, where it may have
    ordered = _own_first(record, among)
    if late:
        record.lower_coverage(LOOKED_AT_LATE)
    here = record.writer.session if heard else ""
    look = look_made(record.attachment, ordered, late=late, alive_session=here, goes_on=not late)
    for doers, drafts in attributed(record.attachment, batch, ordered, look):
        fact = drafts[0].fact
        if not doers.outside and doers.among[0].key == own and isinstance(fact, FilesChanged):
            record.add_changes(fact)
        else:
            record.add_drafts(drafts)
    record.entries.update(batch.entries)


def _add_changes_recorded_by_others(record: CallRecord, own: Call) -> None:
    """Count the changes that looks of other calls recorded as this call's, or as shared with it.

    They are read from the log: somebody who altered the tables could raise the coverage otherwise.
    """
    log = record.attachment.stored.log
    after, head = own.requested, log.head()
    while after < head:
        # one event at a time, since each may hold a whole batch of changes
        kinds = (FilesChanged.kind, GitChanged.kind)
        found = [*log.read(EventFilter(after=after, kinds=kinds, limit=1))]
        if not found:
            break
        [event] = found
        fact, after = event.fact, event.seq
        if not isinstance(fact, FilesChanged | GitChanged) or fact.origin == "outside":
            continue
        is_own = (event.session, fact.call_id) == (own.session, own.call_id)
        if isinstance(fact, GitChanged):
            _note_git(record, fact, own=is_own)
            continue
        if is_own or own.requested in fact.causes:
            record.add_changed_paths([change.path for change in fact.changes])
            record.note_causes(fact.causes)
    if record.shared:
        record.lower_coverage("shared with other commands")


def look_after_interrupted(
    attachment: Attachment,
    calls: Sequence[Call],
    told: Mapping[int, Told] = MappingProxyType({}),
) -> None:
    """Record what changed on disk since these interrupted calls began; the lock is held.

    The look comes late. A change is therefore a call's only where the call, or what its client
    reported, names the path, and the time of the change fits; anything else is from outside or
    shared. `told` is what is known of the ends of the calls, by the seqs of their requests.
    """
    ended = {call.requested for call in calls}
    open_calls = attachment.stored.tables.open_calls()
    acting = acting_calls(attachment, open_calls)
    running = [one for one in acting if one.requested not in ended]
    among = innermost(attachment.stored, [*calls, *running], told=told)
    # only changes of the first are added to its record; those of the others name their own calls
    owner = among[0]
    writer = Writer(attachment, owner.session, owner.actor, SOURCE)
    record = CallRecord(writer, owner.call_id)
    collect_changes(record, open_calls, among, late=lambda: True)
    record.commit_and_index()
