"""Puts on record what a client tells of a call that has its finish already.

It tells how the call ended, and which files it changed. A change of such a file that is on record
as from outside, or as shared, stays as it is recorded, since nobody saw who made it: that the call
may have made it is a fact of its own, `changes.attributed`. The fact needs grounds: either the
client told the very content that is on record, or it told the path and no content, and the change
was made while the call ran. Of a call that nobody was told of when it began the time alone is
grounds, for what a watcher recorded meanwhile.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from loom_audit.clients.reports import CallEnded, FileTold
from loom_audit.errors import NotFound
from loom_audit.history.ground.attachment import CLIENT_UNSEEN, OBSERVED, Attachment, StoredLog
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import in_ns, innermost, request_event
from loom_audit.history.look.doers import A_TICK, Candidate, Look, Told
from loom_audit.history.look.timing import look_made
from loom_audit.history.record.call import exclusive
from loom_audit.history.told import foreign
from loom_audit.history.told.file_comparison import is_recorded_as_told, reported_path
from loom_audit.history.told.reported import merged_result, safe_id
from loom_audit.model.coverage import NOT_FAILED, Status
from loom_audit.model.events import ChangesAttributed, FilesChanged
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.results import told_result
from loom_audit.ports import EventFilter

SAME_CONTENT = "the client told that it left this content"
SAME_TIME = "the client told that it changed this path, which changed while it ran"
SAME_MOMENT = "it ran when this changed, and nobody was told then that it did"
_MOST_CHANGES = 100
"""Changes of a path that are looked at, the newest, so that a late report costs the same however
often the path changed."""
_TOGETHER = 5_000_000_000
"""The longest time, in ns, that a watcher lets changes wait which it records together."""


class _EndedCall(Struct, frozen=True):
    """A finished call, for finding changes on record that it may have made.

    `candidate` is the call with what its client told, `look` how changes are dated, and `unseen`
    whether no look was taken before the call.
    """

    attachment: Attachment
    call: Call
    candidate: Candidate
    look: Look
    unseen: bool

    def first_attributable(self, path: str, file: FileTold) -> tuple[RecordedChange, str] | None:
        """The oldest change of a path that the call may have made, and why it may.

        The newest `_MOST_CHANGES` are asked. None where none of them may be the call's, or one is
        on record as this call's already.
        """
        found = self.attachment.stored.tables.history(path, limit=_MOST_CHANGES)
        since = [one for one in reversed(found) if self._recorded_since_begin(one)]
        request = self.call.requested
        if any(one.requested == request for one in since):
            return None
        for change in since:
            shared = change.origin == "command" and change.requested in change.causes
            if request in change.causes or not (shared or change.origin == "outside"):
                continue
            if file.after is not UNSET:
                if is_recorded_as_told(self.attachment.stored.blobs, change.change.after, file):
                    return change, SAME_CONTENT
            elif change == found[0] and self._ran_at(change):
                return change, SAME_TIME
        return None

    def _recorded_since_begin(self, change: RecordedChange) -> bool:
        """Whether a change was put on record after the call had begun."""
        if not self.unseen:
            return change.seq > self.call.requested
        at = in_ns(change.at)
        return (
            self.candidate.begun is not None
            and at is not None
            and at >= self.candidate.begun - A_TICK
        )

    def _ran_at(self, change: RecordedChange) -> bool:
        """Whether the call is known to have run when the path was changed last.

        False where that was after the change was put on record: the path changed again since.
        """
        at, looked = self.look.dates(change.change), in_ns(change.at)
        return (
            at is not None
            and looked is not None
            and at <= looked
            and self.look.ran(self.candidate, at)
        )


def report_late(writer: Writer, call: Call, ended: CallEnded) -> None:
    """Put a report of a finished call on record where it says something that its finish does not.

    That is another status, or the client's own id of a call that was told without one.
    """
    paired = ended.call_id and safe_id(ended.call_id) != call.call_id
    if ended.status in (None, call.status) and not paired:
        return
    status: Status = ended.status or "unknown"
    result = merged_result(ended.result, {"data": {"call_id": ended.call_id}} if paired else {})
    writer = replace(writer, occurred_at=ended.at)
    foreign.end(writer, call.call_id, status, told_result(status, result), look=False)


def attribute(writer: Writer, call_id: str, ended: CallEnded) -> None:
    """Put on record, once, that a call may have made changes that are on record as nobody's alone.

    Those are changes from outside, or shared ones, of paths that the call declared or its client
    told. Nothing is put on record of a call that failed or did not run.
    """
    attachment = writer.attachment
    if not ended.ran or ended.status not in (None, *NOT_FAILED):
        return
    try:
        call = attachment.stored.reading.call(writer.session, call_id)
    except NotFound:
        return
    if call.effect not in ("write", "execute") or call.status not in NOT_FAILED:
        return
    event, request = request_event(attachment.stored, call)
    unseen = event.source == CLIENT_UNSEEN
    declared = (request.paths or ()) if call.effect == "write" else ()
    files = {path: FileTold(path) for path in declared}
    files |= {
        path: file
        for file in ended.files
        if (path := reported_path(attachment.on_disk.workspace, file))
    }
    files = {path: file for path, file in files.items() if path not in call.paths}
    if not files and not unseen:
        return
    with exclusive(attachment):
        over = Told(over=in_ns(ended.at), paths=frozenset(files))
        [one] = innermost(attachment.stored, [call], told={call.requested: over})
        look = look_made(attachment, [one], late=True, alive_session=writer.session)
        ended_call = _EndedCall(attachment, call, one, look, unseen)
        facts = [*_facts(ended_call, files)]
        if unseen and one.paths is None:
            facts += _observed_meanwhile(attachment, one, facts)
        new = [*_unless_recorded(attachment.stored, call, facts)] if facts else []
        if new:
            writer.record(*new)


def _facts(ended_call: _EndedCall, files: Mapping[str, FileTold]) -> Iterator[ChangesAttributed]:
    """A fact for each event and each grounds, with its paths in order."""
    found: dict[tuple[int, str], list[str]] = {}
    for path, file in sorted(files.items()):
        if grounds := ended_call.first_attributable(path, file):
            change, why = grounds
            found.setdefault((change.seq, why), []).append(path)
    for (event, why), paths in sorted(found.items()):
        yield ChangesAttributed(event, tuple(paths), ended_call.call.requested, why)


def _observed_meanwhile(
    attachment: Attachment, one: Candidate, known: Sequence[ChangesAttributed]
) -> Iterator[ChangesAttributed]:
    """A fact for each event of a watcher with changes that may have been made while a call ran.

    The time of such an event is that of the last of its changes; the others may be earlier.
    """
    over, listed = one.told.over, {fact.event for fact in known}
    if one.begun is None or over is None:
        return
    newest_first = EventFilter(kinds=(FilesChanged.kind,), newest_first=True)
    for event in attachment.stored.log.read(newest_first):
        at, recorded = in_ns(event.occurred_at), in_ns(event.at)
        if recorded is None or recorded < one.begun:
            return
        fact = event.fact
        if event.source != OBSERVED or at is None or not isinstance(fact, FilesChanged):
            continue
        if one.requested in fact.causes:
            continue
        if one.begun - A_TICK <= at and at - _TOGETHER <= over and event.seq not in listed:
            paths = tuple(change.path for change in fact.changes)
            yield ChangesAttributed(event.seq, paths, one.requested, SAME_MOMENT)


def _unless_recorded(
    stored: StoredLog, call: Call, facts: Iterable[ChangesAttributed]
) -> Iterator[ChangesAttributed]:
    """These facts without the paths that are on record with the same event and call."""
    kinds = (ChangesAttributed.kind,)
    told = EventFilter(after=call.requested, kinds=kinds, session=call.session)
    on_record = [event.fact for event in stored.log.read(told)]
    known = {
        (fact.event, path)
        for fact in on_record
        if isinstance(fact, ChangesAttributed) and fact.call == call.requested
        for path in fact.paths
    }
    for fact in facts:
        paths = tuple(path for path in fact.paths if (fact.event, path) not in known)
        if paths:
            yield replace(fact, paths=paths)
