"""What a session and its subagents did, gathered once for the pages that review it.

All of it is made of events, each of which was checked, and none of the session is missing. Past its
end some more are read; of what came of its calls later still, that which the tables name.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import NotFound
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.history.read.call_lookup import CallLookup
from loom_audit.history.read.conversation import Conversation, Said
from loom_audit.history.read.flagged import all_flags
from loom_audit.history.read.session_record import RecordedSession, count_calls, read_session
from loom_audit.history.read.timeline import Timeline
from loom_audit.history.read.verified import listed_error
from loom_audit.model.conversation import Role
from loom_audit.model.events import CallDecided, FilesChanged
from loom_audit.model.git.record import GitChanged
from loom_audit.model.records import Call, OutsideChange, RecordedChange, Session, Spoken
from loom_audit.model.shell.checks import Check, check_in
from loom_audit.ports import Projections

MOST_CALLS = 10_000
MOST_SESSIONS = 200
"""A session of more calls, or with more sessions within it, is not gathered."""

MOST_OUTSIDE = 500
"""The number of changes from outside that are counted; one more is given where there are more."""
_NEWEST = 50


class Evidence(Struct, frozen=True):
    """A command that is a test, a lint or a build, and what is on record of how it went.

    `exit_code` is None where it was not told. `edited` is a change after the command's start that
    the command did not make, None where there is none.
    """

    call: Call
    check: Check
    exit_code: int | None = None
    edited: RecordedChange | None = None


class SessionReview(Struct, frozen=True):
    """The calls of a session and of the sessions within it, in order, and what stands out.

    `until` is the last event of the session, or of the log while it is open. `flagged` has the
    requests of the calls by what stands out; `commands` the texts of shell commands by request.
    Where it says `why_not_whole` there were too many, and nothing of them is here. `asked` is the
    first prompt and `last` the last, or what the session around it was asked before it where it was
    asked nothing; `words` are what the agent said last. `said` has the prompts and messages of each
    session. All events up to `read_to` were read, of those behind it up to the `head` some.
    """

    session: Session
    subagents: tuple[Session, ...]
    until: int
    read_to: int = 0
    head: int = 0
    said: Mapping[str, Sequence[Spoken]] = {}
    asked: Said | None = None
    last: Said | None = None
    words: Said | None = None
    why_not_whole: str = ""
    calls: tuple[Call, ...] = ()
    changes: tuple[RecordedChange, ...] = ()
    outside: tuple[OutsideChange, ...] = ()
    decided: Mapping[int, CallDecided] = {}
    flagged: Mapping[str, frozenset[int]] = {}
    git: Mapping[int, Sequence[GitChanged]] = {}
    commands: Mapping[int, str] = {}
    evidence: tuple[Evidence, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether its calls are here."""
        return not self.why_not_whole

    def said_in(
        self, session: str, role: Role | None = None, *, after: int = 0, before: int | None = None
    ) -> Sequence[Spoken]:
        """The prompts and messages of one of its sessions between two events, oldest first."""
        return [
            one
            for one in self.said.get(session, ())
            if role in (None, one.role) and after < one.seq and (before is None or one.seq < before)
        ]


def review_session(timeline: Timeline, id: str) -> SessionReview:
    """Gather what a session and the sessions within it did. NotFound, Corrupt."""
    log, projections, proven = timeline.log, timeline.projections, timeline.proven
    try:
        session = projections.session(id)
    except NotFound:
        session = timeline.verified.session(id)  # the log may have it all the same
    listed = (session, *sessions_in(projections, id))
    talk = Conversation(log, projections)
    if why := _why_not_whole(proven, listed):
        asked = talk.first_asked(id) or talk.prompt_before(id, session.started)
        return SessionReview(
            session=timeline.verified.session(id),
            subagents=listed[1:],
            until=session.ended or log.head(),
            asked=asked,
            last=talk.asked(id) or asked,
            words=talk.last_words(id),
            why_not_whole=why,
        )
    record = read_session(proven, projections, timeline.verified, listed)
    session, until = record.sessions[0], record.sessions[0].ended or record.head
    heard = SessionReview(session=session, subagents=record.sessions[1:], until=until)
    heard = replace(heard, said=record.said, read_to=record.read_to, decided=record.decided)
    asked = talk.one(id, heard.said_in(id, "prompt")[:1]) or talk.prompt_before(id, session.started)
    outside = [one for one in record.outside if one.seq <= until]
    return replace(
        heard,
        head=record.head,
        asked=asked,
        last=talk.one(id, heard.said_in(id, "prompt")[-1:]) or asked,
        words=talk.one(id, heard.said_in(id, "assistant")[-1:]),
        calls=record.calls,
        changes=record.changes,
        outside=(*reversed(outside),),
        flagged=all_flags(
            log, record.calls, record.changes, record.decided, record.commands, record.git
        ),
        git=record.git,
        commands=record.commands,
        evidence=(*evidence_of(proven, projections, record),),
    )


def _why_not_whole(proven: ProvenLog, listed: Sequence[Session]) -> str:
    """Why a session is not gathered with those within it, "" where it is. Corrupt."""
    if len(listed) > MOST_SESSIONS + 1:
        return f"over {MOST_SESSIONS:,} sessions within it"
    if sum(one.calls for one in listed) <= MOST_CALLS:
        return ""
    if count_calls(proven, listed) <= MOST_CALLS:
        raise listed_error(listed[0].started)
    return f"over {MOST_CALLS:,} calls"


def sessions_in(projections: Projections, id: str) -> Iterator[Session]:
    """The sessions within a session, and within these, at most one more than are gathered."""
    waiting, seen = [id], {id}
    while waiting:
        for part in projections.sessions_within(waiting.pop(0)):
            if part.id not in seen:
                seen.add(part.id)
                waiting.append(part.id)
                yield part
                if len(seen) > MOST_SESSIONS + 1:
                    return


def evidence_of(
    proven: ProvenLog, projections: Projections, record: RecordedSession
) -> Iterator[Evidence]:
    """The calls that are tests, lints or builds, the newest first. Corrupt."""
    found: dict[int, Check] = {}
    for call in record.calls:
        if call.tool == "run_tests":
            found[call.requested] = Check("test", call.tool, exits=True)
        elif check := check_in(record.commands.get(call.requested, "")):
            found[call.requested] = check
    checks = [call for call in record.calls if call.requested in found and call.status != "denied"]
    edits = _Edits(proven, projections, record) if checks else None
    for call in reversed(checks):
        edited = edits.after(call) if edits else None
        yield Evidence(call, found[call.requested], record.codes.get(call.seq or 0), edited)


class _Edits:
    """The newest changes of files that other calls than one made after its request."""

    def __init__(
        self, proven: ProvenLog, projections: Projections, record: RecordedSession
    ) -> None:
        self._proven = proven
        self._record = record
        self._listed = projections.history("", below=True, before=None, limit=_NEWEST)
        self._lookup = CallLookup(proven, projections)

    def after(self, call: Call) -> RecordedChange | None:
        """The newest such change; None where there is none. Corrupt."""
        row = next((one for one in self._listed if one.requested != call.requested), None)
        seq = row.seq if row else 0
        for changed, session, call_id in reversed(self._record.changed):
            if changed <= max(seq, call.requested):
                break
            if (session, call_id) != (call.session, call.call_id):
                seq = changed  # of this the tables say nothing
                break
        if seq <= call.requested:
            return None
        event = self._proven.event(seq)
        if not isinstance(event.fact, FilesChanged) or not event.fact.changes:
            raise listed_error(seq)
        found = self._lookup.of(event, event.fact)
        if found.requested == call.requested:
            raise listed_error(seq)
        return found.recorded(event.fact.changes[-1])
