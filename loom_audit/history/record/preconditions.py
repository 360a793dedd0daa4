"""Reads what is on disk before a step of changes, at every path on which the changes depend."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256

from loom_audit.errors import PermissionDenied
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.prefetch import Prefetch
from loom_audit.history.look.capture import recorded_state_lookup
from loom_audit.history.look.links import Names, divided_error, with_groups
from loom_audit.history.look.observation import observe
from loom_audit.history.look.special_files import special_kind
from loom_audit.model.files import (
    BlobId,
    FileChange,
    FileState,
    Move,
    is_directory,
    is_opaque,
    parents,
)
from loom_audit.model.plans.left_out import is_remade
from loom_audit.model.plans.links import groups_in, names_by_group, sources, whole_groups
from loom_audit.ports import IndexEntry, OnProgress, Replacement, Stamp

ROOT = FileState("directory", None, 0o755, 0)
"""The state of the workspace's own folder, which is not recorded and always taken as there."""


class Preconditions:
    """The states of paths before a step, each read once, under the workspace lock.

    A state that is not the log's is listed as `drift`, which goes on record before the step; with
    `keep` its content is stored. A pipe, socket or device at a path is an error, or, with
    `overlooks_special`, counts as absent. `entries` are for the index, `contents` the new contents
    by their hash. `progress` is told now and then how far the step is, when it has many changes.
    """

    def __init__(self, attachment: Attachment, *, keep: bool = True) -> None:
        self.attachment = attachment
        self._keep = keep
        self.overlooks_special = False
        self.progress: OnProgress | None = None
        self.entries: dict[str, IndexEntry | None] = {}
        self.drift: list[FileChange] = []
        self._states: dict[str, FileState | None] = {"": ROOT}
        self.contents: dict[BlobId, bytes] = {}
        self._mounted: dict[str, bool] = {"": False}
        self._names: Names = {}
        self._recorded_state: Callable[[str], FileState | None] = attachment.stored.reading.state
        self._stamps: Mapping[str, Stamp | None] = {}

    def expect_paths(self, paths: Sequence[str]) -> None:
        """Read the stamps of these paths together, since all of them are looked at next.

        For many paths the recorded tree is read once as well.
        """
        self._recorded_state = recorded_state_lookup(self.attachment.stored, len(paths))
        # one path that may not be looked at fails all; each is then asked about by itself
        with suppress(PermissionDenied):
            self._stamps = dict(
                zip(paths, self.attachment.on_disk.workspace.stamps(paths), strict=True)
            )

    def look(self, path: str) -> FileState | None:
        """The state of a path on disk, None when absent; what differs from the log is drift.

        InvalidPath, PermissionDenied, TooLarge where the path cannot be looked at.
        """
        if path not in self._states:
            recorded = self._recorded_state(path)
            state = self._observe(path, recorded)
            if state != recorded and self.is_recorded(path, state or recorded):
                self._add_drift(path, recorded, state)
            self._states[path] = state
        return self._states[path]

    def state_now(self, path: str) -> FileState | None:
        """The state of this path on disk now, read anew; nothing is listed as drift."""
        return self._observe(path, self._recorded_state(path))

    def _observe(self, path: str, recorded: FileState | None) -> FileState | None:
        stamp = self._stamps.get(path) or self.attachment.on_disk.workspace.stamp(path)
        if self.overlooks_special and special_kind(stamp):
            stamp = None
        if stamp is None and recorded is None:
            return None
        if stamp is None and special_kind(self.attachment.on_disk.workspace.stamp(path)):
            return None
        entry = self.attachment.on_disk.index.get(path)
        # the stamp with which the recorded content was read: the file need not be read again
        if (
            recorded is not None
            and entry is not None
            and entry.stamp == stamp
            and entry.blob == recorded.blob
        ):
            return recorded
        state, seen = observe(self.attachment, path, recorded, keep=self._keep)
        state = with_groups(self.attachment, {path: state}, names=self._names)[path]
        if self.is_recorded(path, state or recorded):
            self.entries[path] = seen
        return state

    def _add_drift(self, path: str, recorded: FileState | None, state: FileState | None) -> None:
        """List a state that is not the log's as drift, with what follows from it above and below.

        A new path may lie in folders that are new as well. With a folder that is gone, all that was
        recorded in it is gone. Without these the drift would not apply to the log's tree.
        """
        self.drift.append(FileChange(path, recorded, state))
        if state is not None and recorded is None:
            for above in parents(path):
                self.look(above)
        if is_directory(recorded) and not is_directory(state) and not is_opaque(state):
            self.look_below(path)

    def look_below(self, path: str) -> None:
        """Look at every recorded path below this one; those that are gone become drift."""
        below = path + "/"
        for inside in self.attachment.stored.reading.tree():
            if inside.startswith(below):
                self.look(inside)

    def with_all_names(self, changes: Sequence[FileChange]) -> Sequence[FileChange]:
        """The changes, with the same change of every other name of each file that they change.

        Conflict when the names of one file would get different contents.
        """
        groups = groups_in(changes)
        if not groups:
            return changes
        tree = self.attachment.stored.reading.tree()
        paths = {path for names in names_by_group(tree, groups).values() for path in names}
        paths.update(path for group in groups for path in self._names.get(group, ()))
        paths.update(change.path for change in changes)
        seen = {path: self.look(path) for path in sorted(paths)}
        tree = {path: state for path, state in {**tree, **seen}.items() if state is not None}
        found, divided = whole_groups(changes, tree)
        if divided:
            raise divided_error(divided)
        return found

    def count_names(self, groups: Collection[int]) -> dict[int, int]:
        """How many names in the workspace each of these groups of hard links has on record."""
        tree = self.attachment.stored.reading.tree() if groups else {}
        return {group: len(names) for group, names in names_by_group(tree, groups).items()}

    def put(self, content: bytes, *, similar_to: BlobId | None) -> BlobId:
        """Store a content that is about to be written; without `keep` only hash it.

        It may be stored as the difference to `similar_to`.
        """
        if self._keep:
            blob = self.attachment.stored.blobs.put(content, similar_to=similar_to)
        else:
            blob = BlobId(sha256(content).hexdigest())
        self.contents[blob] = content
        return blob

    def replacements(
        self, changes: Sequence[FileChange], moves: Sequence[Move] = ()
    ) -> list[Replacement]:
        """The changes as steps with their contents, links behind the files they are names of.

        Contents that `put` was given are not read back from the store. What is moved keeps the
        attributes of its old path.
        """
        wanted = [change.after for change in changes]
        prefetch = Prefetch(self.attachment.stored.blobs, wanted, self.contents)
        origins = {move.target: move.source for move in moves}
        tree = self.attachment.stored.reading.tree() if groups_in(changes) else {}
        links = sources(changes, tree)
        steps = [
            Replacement(
                change,
                prefetch.opener(change.after),
                origins.get(change.path),
                links.get(change.path),
            )
            for change in changes
        ]
        return sorted(steps, key=lambda step: step.link is not None)

    def is_recorded(self, path: str, state: FileState | None) -> bool:
        """Whether a path with this state is recorded: in scope, and not on another mount."""
        kind = state.kind if state is not None else "file"
        if not self.attachment.scope.holds(path, kind) or (kind == "opaque" and is_remade(path)):
            return False
        above = path.rpartition("/")[0]
        if above not in self._mounted:
            self._mounted[above] = self.attachment.on_disk.workspace.is_mounted(above)
        return not self._mounted[above]

    def recorded_among(self, changes: Iterable[FileChange]) -> list[FileChange]:
        """The changes whose paths are recorded."""
        return [one for one in changes if self.is_recorded(one.path, one.after or one.before)]
