"""What an interrupted undo leaves alone when it is finished: what somebody changed since.

And what cannot be done without that: a folder goes when it is empty, what comes needs its folder,
the names of a file go together, and so do both ends of a move.
"""

import stat
from collections.abc import Iterator, Mapping, Sequence

from loom_audit.errors import PermissionDenied
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.closed_folders import seen_stamp
from loom_audit.history.look.observation import names_in
from loom_audit.history.record.interrupted import Comparison, compare_with_disk, intended
from loom_audit.model.files import (
    FileChange,
    Move,
    is_directory,
    is_opaque,
    is_within,
    opaque_moves,
)
from loom_audit.model.plans.links import groups_in
from loom_audit.model.plans.opening import UNREADABLE
from loom_audit.model.plans.planning import Note
from loom_audit.model.records import Call
from loom_audit.model.text.display import visible_path


def left_alone(attachment: Attachment, call: Call, found: Comparison) -> tuple[Note, ...]:
    """What stays as it is when what is left of a call is done, each path with its reason."""
    if not found.unknown and not _needs_a_look(found):
        return ()
    changes, moves = intended(attachment.stored, call)
    rest = _Rest(attachment, {change.path: change for change in changes}, moves, found)
    since = f"since the {call.tool} stopped"
    for path in found.unknown:
        rest.leave(path, found.unseen.get(path) or f"it was {rest.what_became_of(path)} {since}")
    while more := {path: why for path, change in rest.left.items() if (why := rest.why(change))}:
        for path, reason in more.items():
            rest.leave(path, reason)
    return tuple(Note(path, reason) for path, reason in sorted(rest.stays.items()))


def would_stay(attachment: Attachment, call: Call) -> tuple[Note, ...]:
    """What stays as it is when an interrupted undo is finished now; nothing is stored."""
    return left_alone(attachment, call, compare_with_disk(attachment, call, keep=False))


def _needs_a_look(found: Comparison) -> bool:
    """Whether what is left depends on paths that the call says nothing of."""
    return any(one.before is None or _goes(one) for one in found.remaining)


def _goes(change: FileChange) -> bool:
    """Whether a folder is to be gone."""
    return is_directory(change.before) and not is_directory(change.after)


class _Rest:
    """What is `left` of the intended changes, by path, and what `stays`, with the reasons."""

    def __init__(
        self,
        attachment: Attachment,
        changes: Mapping[str, FileChange],
        moves: Sequence[Move],
        found: Comparison,
    ) -> None:
        self.attachment = attachment
        self.changes = changes
        self.left = {change.path: change for change in found.remaining}
        self.stays: dict[str, str] = {}
        self._now = {path: change.before for path, change in self.left.items()}
        self._folders = opaque_moves(changes.values(), moves)
        self._others: dict[str, set[str]] = {}
        for move in moves:
            if not self._is_plain_folder(move):
                self._others.setdefault(move.source, set()).add(move.target)
                self._others.setdefault(move.target, set()).add(move.source)
        self._groups: dict[int, str] = {}
        self._leftovers: frozenset[str] | None = None

    def _is_plain_folder(self, move: Move) -> bool:
        """Whether a move is of a folder, whose parts are moved each for itself."""
        change = self.changes.get(move.source)
        return change is None or is_directory(change.before)

    def leave(self, path: str, reason: str) -> None:
        self.stays[path] = reason
        self.left.pop(path, None)
        for group in groups_in([self.changes[path]]):
            self._groups.setdefault(group, path)

    def what_became_of(self, path: str) -> str:
        if self._now.get(path) is None:
            return "deleted"
        return "made" if self.changes[path].before is None else "changed"

    def why(self, change: FileChange) -> str:
        """Why what is left of a change cannot be made, "" when it can."""
        return next(self._reasons(change), "")

    def _reasons(self, change: FileChange) -> Iterator[str]:
        path = change.path
        for group in sorted(groups_in([self.changes[path]]) & self._groups.keys()):
            yield f"a hard link of {visible_path(self._groups[group])}, which stays"
        for other in sorted(self._others.get(path, set()) & self.stays.keys()):
            yield f"it is moved with {visible_path(other)}, which stays"
        if (folder := self._renamed_with(path)) is not None:
            yield from self._what_keeps(path, folder)
        elif _goes(change):
            yield from self._what_holds(path)
        elif change.before is None:
            yield from self._what_lacks(path)

    def _renamed_with(self, path: str) -> Move | None:
        """The folder with which a path is renamed as a whole, as far as an end is still left."""
        for move in self._folders:
            ends = [move.source, move.target]
            if is_within(path, ends) and not self.left.keys().isdisjoint(ends):
                return move
        return None

    def _what_keeps(self, path: str, folder: Move) -> Iterator[str]:
        ends = [folder.source, folder.target]
        for inside in sorted(self.stays):
            if is_within(inside, ends):
                yield f"it is moved with its folder, and {visible_path(inside)} stays"
        if folder.source not in self.left:
            yield f"{visible_path(folder.source)}, with which it is moved, is not there any more"
        if folder.target not in self.left:
            yield f"something is at {visible_path(folder.target)}"
        if not self._is_proven(folder):
            source = visible_path(folder.source)
            yield f"it is not known whether {source} is still the same folder"
        if path == folder.target:
            yield from self._what_lacks(path)

    def _is_proven(self, folder: Move) -> bool:
        """Whether the folder to be renamed is the one that was meant."""
        sides = self.changes[folder.source].before, self.changes[folder.target].after
        meant = next((side.identity for side in sides if side and is_opaque(side)), "")
        return bool(meant) and self.attachment.on_disk.workspace.identity(folder.source) == meant

    def _what_holds(self, folder: str) -> Iterator[str]:
        try:
            names = names_in(self.attachment.on_disk, folder)
        except PermissionDenied:
            yield UNREADABLE
            return
        for name in names:
            inside = f"{folder}/{name}"
            going = inside in self.left and self.left[inside].after is None
            if not going and not self._is_leftover(inside):
                yield f"it holds {visible_path(inside)}, which stays"

    def _is_leftover(self, path: str) -> bool:
        """Whether it is a temporary of ours, which goes before anything is done."""
        if self._leftovers is None:
            self._leftovers = frozenset(self.attachment.on_disk.workspace.leftovers())
        return path in self._leftovers

    def _what_lacks(self, path: str) -> Iterator[str]:
        folder = path.rpartition("/")[0]
        if folder in self.left:
            there = is_directory(self.left[folder].after)
        else:
            stamp = seen_stamp(self.attachment.on_disk, folder) if folder else None
            there = not folder or (stamp is not None and stat.S_ISDIR(stamp.mode))
        if not there:
            yield f"{visible_path(folder)} is no folder any more"
