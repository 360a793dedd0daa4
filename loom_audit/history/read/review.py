"""What a session and its subagents did, gathered once for the pages that review it.

Calls, changes and decisions are as lists have them; commands and outcomes are read from their
events, which are checked.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.history.ground.questions import last_decisions
from loom_audit.history.read.call_detail import git_of
from loom_audit.history.read.conversation import Conversation, Said
from loom_audit.model.coverage import NOT_FAILED
from loom_audit.model.events import (
    CallDecided,
    CallFinished,
    CallRequested,
    Event,
    FilesChanged,
)
from loom_audit.model.git import running_code
from loom_audit.model.records import Call, OutsideChange, RecordedChange, Session
from loom_audit.model.shell.checks import Check, check_in, network_program
from loom_audit.ports import CallFilter, EventLog, Projections

MASS = 10
"""A call that deletes so many files has deleted many."""

MOST_CALLS = 10_000
"""A session of more calls is not gathered."""

MOST_OUTSIDE = 500
"""So many changes from outside are counted; one more is given where there are more."""
_MOST_SESSIONS = 200
_NEWEST = 50
_TOGETHER = 200
_COMMANDS = ("command", "cmd")
_PLAIN = "plain"
"""The confinement of a command that had none."""


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
    Without `whole` there were too many calls, and nothing of them is here. `asked` is the first
    prompt and `last` the last, or what the session around it was asked before it where it was asked
    nothing; `words` are what the agent said last.
    """

    session: Session
    subagents: tuple[Session, ...]
    until: int
    asked: Said | None = None
    last: Said | None = None
    words: Said | None = None
    whole: bool = True
    calls: tuple[Call, ...] = ()
    changes: tuple[RecordedChange, ...] = ()
    outside: tuple[OutsideChange, ...] = ()
    decided: Mapping[int, CallDecided] = {}
    flagged: Mapping[str, frozenset[int]] = {}
    commands: Mapping[int, str] = {}
    evidence: tuple[Evidence, ...] = ()


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
    if sum(one.calls for one in sessions) > MOST_CALLS:
        return replace(heard, whole=False)
    calls = sorted(
        (
            call
            for one in sessions
            for call in projections.calls(CallFilter(session=one.id, limit=None))
        ),
        key=lambda call: call.requested,
    )
    changing = [call.requested for call in calls if call.changed]
    changes = tuple(projections.changes(after=session.started, calls=changing)) if changing else ()
    decided = last_decisions(log, calls)
    git = git_of(log, calls)
    commands = commands_of(log, [call for call in calls if call.effect == "execute"])
    return replace(
        heard,
        calls=tuple(calls),
        changes=changes,
        outside=tuple(
            projections.outside(
                after=session.started, before=heard.until + 1, limit=MOST_OUTSIDE + 1
            )
        ),
        decided=decided,
        flagged={
            **flags_of(calls, changes, decided, commands),
            "deletions": deleting(log, changes),
            "git": frozenset(git),
            "code": frozenset(one for one, facts in git.items() if any(map(running_code, facts))),
        },
        commands=commands,
        evidence=tuple(evidence_of(log, projections, calls, commands)),
    )


def sessions_in(projections: Projections, id: str) -> Iterator[Session]:
    """The sessions within a session, and within these, at most a few hundred."""
    waiting, seen = [id], {id}
    while waiting and len(seen) <= _MOST_SESSIONS:
        for part in projections.sessions_within(waiting.pop(0)):
            if part.id not in seen:
                seen.add(part.id)
                waiting.append(part.id)
                yield part


def flags_of(
    calls: Sequence[Call],
    changes: Iterable[RecordedChange],
    decided: Mapping[int, CallDecided],
    commands: Mapping[int, str],
) -> dict[str, frozenset[int]]:
    """The requests of the calls that stand out, by what they stand out for."""
    modes = set[int]()
    for one in changes:
        before, after = one.change.before, one.change.after
        if one.requested is None or before is None or after is None:
            continue
        if before.kind == after.kind == "file" and after.mode != before.mode:
            modes.add(one.requested)
    found: dict[str, set[int]] = {
        "failed": {c.requested for c in calls if _has_failed(c)},
        "denied": {c.requested for c in calls if c.status == "denied"},
        "allowed": {requested for requested, fact in decided.items() if fact.is_allowed_by_person},
        "modes": modes,
        "network": {c.requested for c in calls if _had_network(c)},
        "programs": {requested for requested, text in commands.items() if network_program(text)},
        "coverage": {c.requested for c in calls if c.coverage.level != "full"},
    }
    own = {call.requested for call in calls}
    return {name: frozenset(requests & own) for name, requests in found.items()}


def deleting(log: EventLog, changes: Iterable[RecordedChange]) -> frozenset[int]:
    """The requests of the calls that deleted many files; one that is at another path since is not
    deleted.
    """
    gone: dict[int, set[tuple[int, str]]] = {}
    for one in changes:
        before = one.change.before
        if one.requested and before and before.kind == "file" and one.change.after is None:
            gone.setdefault(one.requested, set()).add((one.seq, one.change.path))
    gone = {requested: paths for requested, paths in gone.items() if len(paths) >= MASS}
    seqs = {seq for paths in gone.values() for seq, _ in paths}
    moved = {
        (event.seq, move.source)
        for event in events_at(log, seqs, FilesChanged.kind)
        for move in (event.fact.moves if isinstance(event.fact, FilesChanged) else ())
    }
    return frozenset(one for one, paths in gone.items() if len(paths - moved) >= MASS)


def _had_network(call: Call) -> bool:
    ran = call.status != "denied"
    return ran and (call.effect == "network" or call.sandbox == _PLAIN)


def _has_failed(call: Call) -> bool:
    return call.seq is not None and call.status not in NOT_FAILED


def commands_of(log: EventLog, calls: Sequence[Call]) -> dict[int, str]:
    """The shell commands that calls were asked to run, by request; of those that name one."""
    found: dict[int, str] = {}
    for event in events_at(log, [call.requested for call in calls], CallRequested.kind):
        if isinstance(event.fact, CallRequested) and (text := command_in(event.fact.arguments)):
            found[event.seq] = text
    return found


def command_in(arguments: Any) -> str:
    """The shell command in a call's arguments; "" for none."""
    if not isinstance(arguments, Mapping):
        return ""
    for name in _COMMANDS:
        value = arguments.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, (list, tuple)):
            words = [str(word) for word in value]
            # `bash -lc TEXT`, as some clients call it
            return words[-1] if len(words) == 3 and words[1] in ("-c", "-lc") else " ".join(words)
    return ""


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


def events_at(log: EventLog, seqs: Iterable[int], kind: str) -> Iterator[Event]:
    """The events of these seqs that are of a kind, in order, and no other is read."""
    wanted = sorted(set(seqs))
    for start in range(0, len(wanted), _TOGETHER):
        some = log.picked(wanted[start : start + _TOGETHER])
        yield from (event for event in some if event.fact.kind == kind)
