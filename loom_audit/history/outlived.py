"""Whether what was found after a call had ended is of what it left running, and of no person.

It is on record as from outside, with the call among its causes: nobody saw who made it. It is taken
for the call's where the call says so: a path that it declared; one that its command names and that
was not there when it began, or that is gone. Whatever else may be a person's own.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from loom_audit.errors import InvalidPath
from loom_audit.history.attachment import Attachment
from loom_audit.history.attribution import request_event
from loom_audit.model.events import CallRequested
from loom_audit.model.files import FileChange, parents

_WORD = re.compile(r"[^\s\"'`;&|<>()\[\]{}=,:$*?]{1,4096}")
_MOST_WORDS = 10_000


class Outlived:
    """Tells it of the calls of one log, of which each is read once."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self._requests: dict[int, tuple[frozenset[str], frozenset[str]]] = {}
        self._absent: dict[tuple[str, int], bool] = {}

    def owners(self, change: FileChange, causes: Sequence[int]) -> frozenset[int]:
        """Those of the calls, by their requests, that say that the change is theirs."""
        return frozenset(one for one in causes if one and self._says(one, change))

    def _says(self, requested: int, change: FileChange) -> bool:
        declared, named = self._told(requested)
        line = (change.path, *parents(change.path))
        if not declared.isdisjoint(line):
            return True
        above = named.intersection(line)
        if change.after is None:
            return bool(above)
        made = change.before is None and change.after.kind == "directory"
        if made and any(change.path in parents(name) for name in named):
            above |= {change.path}
        return any(self._was_absent(path, requested) for path in above)

    def _told(self, requested: int) -> tuple[frozenset[str], frozenset[str]]:
        """The paths that a call declared, and those that its arguments name."""
        if requested not in self._requests:
            call = self._attachment.projections.call_at(requested)
            _, request = request_event(self._attachment, call)
            self._requests[requested] = (
                frozenset(request.paths or ()),
                frozenset(self._named(request)),
            )
        return self._requests[requested]

    def _named(self, request: CallRequested) -> Iterator[str]:
        """The workspace paths that the words of the arguments may be."""
        workspace = self._attachment.workspace
        for _, word in zip(range(_MOST_WORDS), _words(request.arguments), strict=False):
            absolute = word.startswith("/") or not request.cwd
            try:
                path = workspace.relative(word if absolute else f"{request.cwd}/{word}")
            except InvalidPath:
                continue
            if path:
                yield path

    def _was_absent(self, path: str, requested: int) -> bool:
        """Whether nothing on record was at a path when a call began."""
        key = path, requested
        if key not in self._absent:
            self._absent[key] = self._attachment.projections.state(path, requested) is None
        return self._absent[key]


def _words(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield from (found[0] for found in _WORD.finditer(value))
        case dict():
            for one in value.values():
                yield from _words(one)
        case list():
            for one in value:
                yield from _words(one)
