"""What stands out in calls: one definition for a session, for a week and for their lists."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from loom_audit.history.ground.questions import last_decisions
from loom_audit.history.read.call_detail import git_of
from loom_audit.model.coverage import NOT_FAILED
from loom_audit.model.events import CallDecided, CallRequested, Event, FilesChanged
from loom_audit.model.git.record import GitChanged
from loom_audit.model.git.words import running_code
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.shell.checks import network_program
from loom_audit.ports import EventLog, Projections

MASS = 10
"""A call that deletes so many files has deleted many."""

_TOGETHER = 200
_COMMANDS = ("command", "cmd")
_PLAIN = "plain"
"""The confinement of a command that had none."""


class Gathered(Struct, frozen=True):
    """What some calls changed, what was decided about them and which commands they ran, by request.

    `flagged` has the requests of those that stand out, by what they stand out for.
    """

    changes: tuple[RecordedChange, ...]
    decided: Mapping[int, CallDecided]
    commands: Mapping[int, str]
    flagged: Mapping[str, frozenset[int]]


def gather(log: EventLog, projections: Projections, calls: Sequence[Call]) -> Gathered:
    """Gather what calls did, which are given in the order of their requests. Corrupt."""
    changing = [call.requested for call in calls if call.changed]
    changes = tuple(projections.changes(after=changing[0], calls=changing)) if changing else ()
    decided = last_decisions(log, calls)
    commands = commands_of(log, [call for call in calls if call.effect == "execute"])
    flagged = all_flags(log, calls, changes, decided, commands, git_of(log, calls))
    return Gathered(changes, decided, commands, flagged)


def all_flags(
    log: EventLog,
    calls: Sequence[Call],
    changes: Sequence[RecordedChange],
    decided: Mapping[int, CallDecided],
    commands: Mapping[int, str],
    git: Mapping[int, Sequence[GitChanged]],
) -> Mapping[str, frozenset[int]]:
    """The requests of the calls that stand out, by what they stand out for. Corrupt."""
    return {
        **flags_of(calls, changes, decided, commands),
        "deletions": deleting(log, changes),
        "git": frozenset(one for one, facts in git.items() if any(f.is_of_git for f in facts)),
        "code": frozenset(one for one, facts in git.items() if any(map(running_code, facts))),
    }


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


def events_at(log: EventLog, seqs: Iterable[int], kind: str) -> Iterator[Event]:
    """The events of these seqs that are of a kind, in order, and no other is read."""
    wanted = sorted(set(seqs))
    for start in range(0, len(wanted), _TOGETHER):
        some = log.picked(wanted[start : start + _TOGETHER])
        yield from (event for event in some if event.fact.kind == kind)
