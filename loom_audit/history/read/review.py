"""What a session and its subagents did, gathered once for the pages that review it.

Calls, changes and decisions are as lists have them; commands and outcomes are read from their
events, which are checked.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.history.read.conversation import Conversation, Said
from loom_audit.history.read.flagged import events_at, gather
from loom_audit.model.events import (
    CallDecided,
    CallFinished,
    Event,
)
from loom_audit.model.records import Call, OutsideChange, RecordedChange, Session
from loom_audit.model.shell.checks import Check, check_in
from loom_audit.ports import CallFilter, EventLog, Projections

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
    asked nothing; `words` are what the agent said last.
    """

    session: Session
    subagents: tuple[Session, ...]
    until: int
    asked: Said | None = None
    last: Said | None = None
    words: Said | None = None
    why_not_whole: str = ""
    calls: tuple[Call, ...] = ()
    changes: tuple[RecordedChange, ...] = ()
    outside: tuple[OutsideChange, ...] = ()
    decided: Mapping[int, CallDecided] = {}
    flagged: Mapping[str, frozenset[int]] = {}
    commands: Mapping[int, str] = {}
    evidence: tuple[Evidence, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether its calls are here."""
        return not self.why_not_whole


def review_session(log: EventLog, projections: Projections, id: str) -> SessionReview:
    """Gather what a session and the sessions within it did. NotFound, Corrupt."""
    session = projections.session(id)
    subagents = tuple(sessions_in(projections, id))
    talk = Conversation(log, projections)
    asked = talk.first_asked(id) or talk.prompt_before(id, session.started)
    heard = SessionReview(
        session=session,
        subagents=subagents,
        until=session.ended or log.head(),
        asked=asked,
        last=talk.asked(id) or asked,
        words=talk.last_words(id),
    )
    sessions = (session, *subagents)
    if len(subagents) > MOST_SESSIONS:
        return replace(heard, why_not_whole=f"over {MOST_SESSIONS:,} sessions within it")
    if sum(one.calls for one in sessions) > MOST_CALLS:
        return replace(heard, why_not_whole=f"over {MOST_CALLS:,} calls")
    calls = sorted(
        (
            call
            for one in sessions
            for call in projections.calls(CallFilter(session=one.id, limit=None))
        ),
        key=lambda call: call.requested,
    )
    found = gather(log, projections, calls)
    return replace(
        heard,
        calls=tuple(calls),
        changes=found.changes,
        outside=tuple(
            projections.outside(
                after=session.started, before=heard.until + 1, limit=MOST_OUTSIDE + 1
            )
        ),
        decided=found.decided,
        flagged=found.flagged,
        commands=found.commands,
        evidence=tuple(evidence_of(log, projections, calls, found.commands)),
    )


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
    log: EventLog, projections: Projections, calls: Sequence[Call], commands: Mapping[int, str]
) -> Iterator[Evidence]:
    """The calls that are tests, lints or builds, the newest first."""
    found: dict[int, Check] = {}
    for call in calls:
        if call.tool == "run_tests":
            found[call.requested] = Check("test", call.tool, exits=True)
        elif check := check_in(commands.get(call.requested, "")):
            found[call.requested] = check
    checks = [call for call in calls if call.requested in found and call.status != "denied"]
    ended = [call.seq for call in checks if call.seq is not None]
    codes = {event.seq: code_in(event) for event in events_at(log, ended, CallFinished.kind)}
    newest = projections.history("", below=True, limit=_NEWEST) if checks else ()
    for call in reversed(checks):
        edited = next(
            (one for one in newest if one.seq > call.requested and one.requested != call.requested),
            None,
        )
        if edited is None and newest and newest[-1].seq > call.requested:
            edited = next(
                (
                    one
                    for one in projections.changes(after=call.requested)
                    if one.requested != call.requested
                ),
                None,
            )
        yield Evidence(call, found[call.requested], codes.get(call.seq or 0), edited)


def code_in(event: Event) -> int | None:
    """The exit code that a finish tells; None where it tells none."""
    result = event.fact.result if isinstance(event.fact, CallFinished) else None
    data = result.get("data") if isinstance(result, Mapping) else None
    code = data.get("exit_code") if isinstance(data, Mapping) else None
    return code if isinstance(code, int) and not isinstance(code, bool) else None
