"""Which changes found after a call had ended were made by what the call left running.

Such a change is on record as from outside, with the call among its causes: nobody saw who made it.
It is taken for the call's where the call says so: at a path that the call declared; at one that its
command names, where nothing was at the path when the call began, or where nothing is left of it.
It is a background command's where nothing was at the path when that began, in a folder that it can
write. Any other change may be a person's own.
"""

from collections.abc import Sequence

from msgspec import Struct

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.attribution import background_of, request_event
from loom_audit.history.look.named import named_paths, names
from loom_audit.model.files import FileChange, parents


class _Told(Struct, frozen=True):
    """The paths that a call declared, those that its command names, the folders it can write."""

    declared: frozenset[str]
    named: tuple[str, ...]
    writable: frozenset[str]


class SurvivorChanges:
    """Tells which ended calls own a change that was found later. Each request is read once."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self._requests: dict[int, _Told] = {}
        self._absent: dict[tuple[str, int], bool] = {}

    def owners(self, change: FileChange, causes: Sequence[int]) -> frozenset[int]:
        """The calls, of those in `causes`, by their requests, that say that the change is theirs.

        NotFound, Corrupt.
        """
        return frozenset(one for one in causes if one and self._says(one, change))

    def _says(self, requested: int, change: FileChange) -> bool:
        told = self._told(requested)
        line = (change.path, *parents(change.path))
        if not told.declared.isdisjoint(line):
            return True
        if not told.writable.isdisjoint(line):
            return any(self._was_absent(path, requested) for path in line)
        made = change.before is None and change.after and change.after.kind == "directory"
        for_one = made and any(change.path in parents(name) for name in told.named)
        if not (names(told.named, change.path) or for_one):
            return False
        return change.after is None or any(self._was_absent(path, requested) for path in line)

    def _told(self, requested: int) -> "_Told":
        if requested not in self._requests:
            call = self._attachment.stored.reading.call_at(requested)
            _, request = request_event(self._attachment.stored, call)
            named = request.names
            if named is None:  # formats before 2.1 have only the command
                named = named_paths(self._attachment, request.arguments, request.cwd) or ()
            started = background_of(self._attachment.stored, call)
            folders = frozenset(one.path for one in started.writes) if started else frozenset()
            declared = frozenset(request.paths or ())
            self._requests[requested] = _Told(declared, () if started else named, folders)
        return self._requests[requested]

    def _was_absent(self, path: str, requested: int) -> bool:
        """Whether the tree had nothing at a path when a call began."""
        key = path, requested
        if key not in self._absent:
            self._absent[key] = self._attachment.stored.reading.state(path, requested) is None
        return self._absent[key]
