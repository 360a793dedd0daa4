"""Says what an interrupted undo keeps as it is when it is finished: what somebody changed since.

Other changes are kept because they need such a path: a folder is deleted only when it is empty,
what is made needs its folder, the names of a hard-linked file are changed together, and so are both
ends of a move.
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
from loom_audit.model.text.display import visible


def kept_when_finished(
    attachment: Attachment, call: Call, comparison: Comparison
) -> tuple[Note, ...]:
    """The intended changes of an undo that stay undone when it is finished, each with its reason.

    `comparison` is of the changes that it intended with what is on disk.
    """
    if not comparison.unknown and not _needs_a_look(comparison):
        return ()
    changes, moves = intended(attachment.stored, call)
    rest = _Rest(attachment, {change.path: change for change in changes}, moves, comparison)
    since = f"since the {call.tool} stopped"
    for path in comparison.unknown:
        rest.keep(
            path, comparison.unseen.get(path) or f"it was {rest.what_became_of(path)} {since}"
        )
    # each path that is kept may be why another one cannot be changed, until none is added
    while more := {
        path: why for path, change in rest.remaining.items() if (why := rest.why_kept(change))
    }:
        for path, reason in more.items():
            rest.keep(path, reason)
    return tuple(Note(path, reason) for path, reason in sorted(rest.kept.items()))


def would_be_kept(attachment: Attachment, call: Call) -> tuple[Note, ...]:
    """What would be kept if an interrupted undo was finished now; stores and changes nothing."""
    return kept_when_finished(attachment, call, compare_with_disk(attachment, call, keep=False))


def _needs_a_look(comparison: Comparison) -> bool:
    """Whether a change depends on paths beside its own: it makes something, or deletes a folder."""
    return any(one.before is None or _goes(one) for one in comparison.remaining)


def _goes(change: FileChange) -> bool:
    """Whether a change deletes a folder, or puts something else in its place."""
    return is_directory(change.before) and not is_directory(change.after)


class _Rest:
    """The intended changes of an undo that are not made yet, while it is found which are kept.

    `remaining` are those that can still be made, `kept` the reasons of the others, both by path.
    """

    def __init__(
        self,
        attachment: Attachment,
        changes: Mapping[str, FileChange],
        moves: Sequence[Move],
        comparison: Comparison,
    ) -> None:
        self.attachment = attachment
        self.changes = changes
        self.remaining = {change.path: change for change in comparison.remaining}
        self.kept: dict[str, str] = {}
        self._now = {path: change.before for path, change in self.remaining.items()}
        self._folders = opaque_moves(changes.values(), moves)
        self._others: dict[str, set[str]] = {}
        for move in moves:
            if not self._is_plain_folder(move):
                self._others.setdefault(move.source, set()).add(move.target)
                self._others.setdefault(move.target, set()).add(move.source)
        self._groups: dict[int, str] = {}
        self._leftovers: frozenset[str] | None = None

    def _is_plain_folder(self, move: Move) -> bool:
        """Whether a move is of a recorded folder: then what is in it has moves of its own."""
        change = self.changes.get(move.source)
        return change is None or is_directory(change.before)

    def keep(self, path: str, reason: str) -> None:
        """Keep what is at a path as it is, for this reason."""
        self.kept[path] = reason
        self.remaining.pop(path, None)
        for group in groups_in([self.changes[path]]):
            self._groups.setdefault(group, path)

    def what_became_of(self, path: str) -> str:
        """What somebody did at a path since: it was `deleted`, `made` or `changed`."""
        if self._now.get(path) is None:
            return "deleted"
        return "made" if self.changes[path].before is None else "changed"

    def why_kept(self, change: FileChange) -> str:
        """Why a remaining change cannot be made, "" when it can."""
        return next(self._reasons(change), "")

    def _reasons(self, change: FileChange) -> Iterator[str]:
        path = change.path
        for group in sorted(groups_in([self.changes[path]]) & self._groups.keys()):
            yield f"a hard link of {visible(self._groups[group])}, which stays"
        for other in sorted(self._others.get(path, set()) & self.kept.keys()):
            yield f"it is moved with {visible(other)}, which stays"
        if (folder := self._renamed_with(path)) is not None:
            yield from self._why_not_renamed(path, folder)
        elif _goes(change):
            yield from self._why_not_deleted(path)
        elif change.before is None:
            yield from self._why_not_made(path)

    def _renamed_with(self, path: str) -> Move | None:
        """The move of an opaque folder that has a path, where an end of it is still to be done."""
        for move in self._folders:
            ends = [move.source, move.target]
            if is_within(path, ends) and not self.remaining.keys().isdisjoint(ends):
                return move
        return None

    def _why_not_renamed(self, path: str, folder: Move) -> Iterator[str]:
        """Why an opaque folder cannot be renamed as a whole, for one of the paths in it."""
        ends = [folder.source, folder.target]
        for inside in sorted(self.kept):
            if is_within(inside, ends):
                yield f"it is moved with its folder, and {visible(inside)} stays"
        if folder.source not in self.remaining:
            yield f"{visible(folder.source)}, with which it is moved, is not there any more"
        if folder.target not in self.remaining:
            yield f"something is at {visible(folder.target)}"
        if not self._is_proven(folder):
            source = visible(folder.source)
            yield f"it is not known whether {source} is still the same folder"
        if path == folder.target:
            yield from self._why_not_made(path)

    def _is_proven(self, folder: Move) -> bool:
        """Whether the folder at the source is proven to be the one that the undo was to rename."""
        sides = self.changes[folder.source].before, self.changes[folder.target].after
        meant = next((side.identity for side in sides if side and is_opaque(side)), "")
        return bool(meant) and self.attachment.on_disk.workspace.identity(folder.source) == meant

    def _why_not_deleted(self, folder: str) -> Iterator[str]:
        """Why a folder cannot be deleted: it cannot be read, or holds something that stays."""
        try:
            names = names_in(self.attachment.on_disk, folder)
        except PermissionDenied:
            yield UNREADABLE
            return
        for name in names:
            inside = f"{folder}/{name}"
            going = inside in self.remaining and self.remaining[inside].after is None
            if not going and not self._is_leftover(inside):
                yield f"it holds {visible(inside)}, which stays"

    def _is_leftover(self, path: str) -> bool:
        """Whether a path is a temporary of ours, which is removed before the undo goes on."""
        if self._leftovers is None:
            self._leftovers = frozenset(self.attachment.on_disk.workspace.leftovers())
        return path in self._leftovers

    def _why_not_made(self, path: str) -> Iterator[str]:
        """Why nothing can be made at a path: its folder is none any more."""
        folder = path.rpartition("/")[0]
        if folder in self.remaining:
            there = is_directory(self.remaining[folder].after)
        else:
            stamp = seen_stamp(self.attachment.on_disk, folder) if folder else None
            there = not folder or (stamp is not None and stat.S_ISDIR(stamp.mode))
        if not there:
            yield f"{visible(folder)} is not a folder any more"
