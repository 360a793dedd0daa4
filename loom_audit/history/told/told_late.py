"""What a client tells of a call that is over: how it ended, and what it may have changed.

A change that is on record as from outside, or as shared, stays as it is recorded: that the call may
have made it is a fact of its own. It needs grounds: the client told just the content that is on
record, or told the path and nothing of its content, and the time fits.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import UNSET, Struct
from msgspec.structs import replace

from loom_audit.clients.reports import CallEnded, FileTold
from loom_audit.errors import NotFound
from loom_audit.history.ground.attachment import CLIENT_UNSEEN, Attachment, StoredLog
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import in_ns, innermost, request_event
from loom_audit.history.look.doers import A_TICK, Candidate, Look, Told
from loom_audit.history.look.timing import look_made
from loom_audit.history.record.call import exclusive
from loom_audit.history.told import foreign
from loom_audit.history.told.reported import joined, safe_id
from loom_audit.history.told.told_calls import is_content, told_path
from loom_audit.model.coverage import NOT_FAILED, Status
from loom_audit.model.events import ChangesAttributed
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.results import told_result
from loom_audit.ports import EventFilter

SAME_CONTENT = "the client told that it left this content"
SAME_TIME = "the client told that it changed this path, which changed while it ran"
_LOOKED_AT = 100
"""Of a path so many changes are looked at, the newest."""


class _OnRecord(Struct, frozen=True):
    """A call that is over, beside what is on record of the paths that it told."""

    attachment: Attachment
    call: Call
    one: Candidate
    look: Look
    unseen: bool

    def grounds(self, path: str, told: FileTold) -> tuple[RecordedChange, str] | None:
        """The first change of a path that it may have made, and why; None where there is none."""
        found = self.attachment.stored.tables.history(path, limit=_LOOKED_AT)
        since = [one for one in reversed(found) if self._is_since(one)]
        own = self.call.requested
        if any(one.requested == own for one in since):
            return None
        for change in since:
            shared = change.origin == "command" and change.requested in change.causes
            if own in change.causes or not (shared or change.origin == "outside"):
                continue
            if told.after is not UNSET:
                if is_content(self.attachment.stored.blobs, change.change.after, told):
                    return change, SAME_CONTENT
            elif change == found[0] and self._ran_at(change):
                return change, SAME_TIME
        return None

    def _is_since(self, change: RecordedChange) -> bool:
        """Whether a change was put on record after the call had begun."""
        if not self.unseen:
            return change.seq > self.call.requested
        at = in_ns(change.at)
        return self.one.begun is not None and at is not None and at >= self.one.begun - A_TICK

    def _ran_at(self, change: RecordedChange) -> bool:
        """Whether the call is known to have run when what is there was changed last.

        What changed again after the look is not what the look found.
        """
        at, looked = self.look.dates(change.change), in_ns(change.at)
        return (
            at is not None and looked is not None and at <= looked and self.look.ran(self.one, at)
        )


def report_late(writer: Writer, call: Call, told: CallEnded) -> None:
    """Put on record what is told of a finished call where that says something else."""
    paired = told.call_id and safe_id(told.call_id) != call.call_id
    if told.status in (None, call.status) and not paired:
        return
    status: Status = told.status or "unknown"
    result = joined(told.result, {"data": {"call_id": told.call_id}} if paired else {})
    writer = replace(writer, occurred_at=told.at)
    foreign.end(writer, call.call_id, status, told_result(status, result), look=False)


def attribute(writer: Writer, call_id: str, told: CallEnded) -> None:
    """Put on record, once, that a finished call may have made changes that are nobody's alone."""
    attachment = writer.attachment
    if not told.ran or told.status not in (None, *NOT_FAILED):
        return
    try:
        call = attachment.stored.reading.call(writer.session, call_id)
    except NotFound:
        return
    if call.effect not in ("write", "execute") or call.status not in NOT_FAILED:
        return
    event, request = request_event(attachment.stored, call)
    declared = (request.paths or ()) if call.effect == "write" else ()
    files = {path: FileTold(path) for path in declared}
    files |= {
        path: file for file in told.files if (path := told_path(attachment.on_disk.workspace, file))
    }
    files = {path: file for path, file in files.items() if path not in call.paths}
    if not files:
        return
    with exclusive(attachment):
        over = Told(over=in_ns(told.at), paths=frozenset(files))
        [one] = innermost(attachment.stored, [call], told={call.requested: over})
        look = look_made(attachment, [one], late=True, alive_session=writer.session)
        beside = _OnRecord(attachment, call, one, look, event.source == CLIENT_UNSEEN)
        facts = [*_facts(beside, files)]
        new = [*_unless_recorded(attachment.stored, call, facts)] if facts else []
        if new:
            writer.record(*new)


def _facts(beside: _OnRecord, files: Mapping[str, FileTold]) -> Iterator[ChangesAttributed]:
    """A fact for each event and grounds, with the paths in order."""
    found: dict[tuple[int, str], list[str]] = {}
    for path, file in sorted(files.items()):
        if grounds := beside.grounds(path, file):
            change, why = grounds
            found.setdefault((change.seq, why), []).append(path)
    for (event, why), paths in sorted(found.items()):
        yield ChangesAttributed(event, tuple(paths), beside.call.requested, why)


def _unless_recorded(
    stored: StoredLog, call: Call, facts: Iterable[ChangesAttributed]
) -> Iterator[ChangesAttributed]:
    """These facts without what is on record."""
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
