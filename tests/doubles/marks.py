"""Marks in memory, and what is unread worked out from the whole log at every question."""

from collections.abc import Collection, Mapping, Sequence

from loom_audit.model.events import FilesChanged, SessionStarted
from loom_audit.ports import EventLog, UnreadSession


class MemoryMarks:
    """What people noted, as sets and maps."""

    def __init__(self, log: EventLog, key: bytes = b"k" * 32, since: int = 0) -> None:
        self._log = log
        self._key = key
        self._since = since
        self._viewed: set[tuple[str, str]] = set()
        self._read: dict[tuple[str, str], int] = {}

    def key(self) -> bytes:
        return self._key

    def viewed(self, person: str, names: Collection[str]) -> frozenset[str]:
        return frozenset(name for name in names if (person, name) in self._viewed)

    def view(self, person: str, names: Collection[str], *, viewed: bool = True) -> None:
        marks = {(person, name) for name in names}
        self._viewed = self._viewed | marks if viewed else self._viewed - marks

    def read_to(self, person: str, sessions: Collection[str]) -> Mapping[str, int]:
        found = {session: self._read.get((person, session)) for session in sessions}
        return {session: seq for session, seq in found.items() if seq is not None}

    def read(self, person: str, sessions: Mapping[str, int | None]) -> None:
        for session, seq in sessions.items():
            if seq is None:
                self._read.pop((person, session), None)
            else:
                self._read[person, session] = seq

    def unread(self, person: str, limit: int) -> Sequence[UnreadSession]:
        started: dict[str, int] = {}
        actors: dict[str, str] = {}
        parents: dict[str, str | None] = {}
        changed: dict[str, int] = {}
        for event in self._log.read():
            started.setdefault(event.session, event.seq)
            actors.setdefault(event.session, event.actor)
            match event.fact:
                case SessionStarted(parent=parent):
                    parents[event.session] = parent
                case FilesChanged(call_id=str()):
                    changed[event.session] = event.seq
        found = [
            UnreadSession(session, parents.get(session), after)
            for session, last in changed.items()
            if last > (after := max(self._since, self._read.get((person, session), 0)))
            and actors[session] != person
        ]
        return sorted(found, key=lambda one: started[one.session], reverse=True)[:limit]
