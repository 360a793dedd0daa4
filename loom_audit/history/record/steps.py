"""The steps of changes on disk: read the states, replace, check what was displaced, read again."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from types import MappingProxyType

from loom_audit.errors import AuditError, PermissionDenied, TooLarge
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.prefetch import Prefetch
from loom_audit.history.look.capture import recorded_state_lookup
from loom_audit.history.look.links import Names, divided_error, settled
from loom_audit.history.look.observation import observe
from loom_audit.history.look.outcome import Outcome, check_displaced, look_for_results
from loom_audit.history.look.special_files import moved_aside, special_kind
from loom_audit.history.record.renamed_folder import rename_folder
from loom_audit.model.events import OPENED
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
from loom_audit.ports import Displaced, IndexEntry, Replacement, Report, Reservation, Stamp

MAX_ONE_BY_ONE = 8
"""Most changes that are synced one by one; more of them share two syncs of the filesystem."""

ROOT = FileState("directory", None, 0o755, 0)


class Preconditions:
    """The states of paths before a change, read under the workspace lock.

    A state that is not the log's is listed as drift, and with `keep` its content is stored. A path
    at which something is that is not a file is an error, or with `overlooks_special` absent.
    `report` is told how far the changes are when there are many.
    """

    def __init__(self, attachment: Attachment, *, keep: bool = True) -> None:
        self.attachment = attachment
        self._keep = keep
        self.overlooks_special = False
        self.report: Report | None = None
        self.entries: dict[str, IndexEntry | None] = {}
        self.drift: list[FileChange] = []
        self._states: dict[str, FileState | None] = {"": ROOT}
        self.contents: dict[BlobId, bytes] = {}
        self._mounted: dict[str, bool] = {"": False}
        self._names: Names = {}
        self._recorded_state: Callable[[str], FileState | None] = attachment.projections.state
        self._stamps: Mapping[str, Stamp | None] = {}

    def expect_paths(self, paths: Sequence[str]) -> None:
        """Prepare for these paths to be looked at now."""
        self._recorded_state = recorded_state_lookup(self.attachment, len(paths))
        with suppress(PermissionDenied):  # they are asked for one by one
            self._stamps = dict(zip(paths, self.attachment.workspace.stamps(paths), strict=True))

    def look(self, path: str) -> FileState | None:
        """The state of a path on disk, None when absent."""
        if path not in self._states:
            recorded = self._recorded_state(path)
            state = self._observe(path, recorded)
            if state != recorded and self.is_recorded(path, state or recorded):
                self._add_drift(path, recorded, state)
            self._states[path] = state
        return self._states[path]

    def at(self, path: str) -> FileState | None:
        """The state of just this path on disk now; nothing is listed as drift."""
        return self._observe(path, self._recorded_state(path))

    def _observe(self, path: str, recorded: FileState | None) -> FileState | None:
        stamp = self._stamps.get(path) or self.attachment.workspace.stamp(path)
        if self.overlooks_special and special_kind(stamp):
            stamp = None
        if stamp is None and recorded is None:
            return None
        if stamp is None and special_kind(self.attachment.workspace.stamp(path)):
            return None
        entry = self.attachment.index.get(path)
        if (
            recorded is not None
            and entry is not None
            and entry.stamp == stamp
            and entry.blob == recorded.blob
        ):
            return recorded
        state, seen = observe(self.attachment, path, recorded, keep=self._keep)
        state = settled(self.attachment, {path: state}, names=self._names)[path]
        if self.is_recorded(path, state or recorded):
            self.entries[path] = seen
        return state

    def _add_drift(self, path: str, recorded: FileState | None, state: FileState | None) -> None:
        """List what is not as the log has it, with what follows from it above and below.

        What is new lies in folders that may be new too, and with a folder all in it is gone.
        """
        self.drift.append(FileChange(path, recorded, state))
        if state is not None and recorded is None:
            for above in parents(path):
                self.look(above)
        if is_directory(recorded) and not is_directory(state) and not is_opaque(state):
            self.look_below(path)

    def look_below(self, path: str) -> None:
        """Look at all that is on record below a path, so that what is gone is on record first."""
        below = path + "/"
        for inside in self.attachment.projections.tree():
            if inside.startswith(below):
                self.look(inside)

    def whole(self, changes: Sequence[FileChange]) -> Sequence[FileChange]:
        """The changes with all names of every file that they change. Conflict when they differ."""
        groups = groups_in(changes)
        if not groups:
            return changes
        tree = self.attachment.projections.tree()
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
        """How many names each of these groups has in the workspace now."""
        tree = self.attachment.projections.tree() if groups else {}
        return {group: len(names) for group, names in names_by_group(tree, groups).items()}

    def put(self, content: bytes, *, similar_to: BlobId | None) -> BlobId:
        """Store a content that is about to be written; without `keep` only hash it."""
        if self._keep:
            blob = self.attachment.blobs.put(content, similar_to=similar_to)
        else:
            blob = BlobId(sha256(content).hexdigest())
        self.contents[blob] = content
        return blob

    def replacements(
        self, changes: Sequence[FileChange], moves: Sequence[Move] = ()
    ) -> list[Replacement]:
        """The changes with their contents; what `put` was given is not read back from the store.

        What is moved takes its attributes along.
        """
        prefetch = Prefetch(
            self.attachment.blobs, (change.after for change in changes), self.contents
        )
        origins = {move.target: move.source for move in moves}
        tree = self.attachment.projections.tree() if groups_in(changes) else {}
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
        """Whether the path is in scope and not on another mount, so that it is recorded."""
        kind = state.kind if state is not None else "file"
        if not self.attachment.scope.holds(path, kind) or (kind == "opaque" and is_remade(path)):
            return False
        above = path.rpartition("/")[0]
        if above not in self._mounted:
            self._mounted[above] = self.attachment.workspace.is_mounted(above)
        return not self._mounted[above]

    def recorded_among(self, changes: Iterable[FileChange]) -> list[FileChange]:
        """Those of the changes whose paths are recorded."""
        return [one for one in changes if self.is_recorded(one.path, one.after or one.before)]


def in_safe_order(changes: Sequence[FileChange]) -> list[FileChange]:
    """Deletions of files, of directories deepest first, new directories outermost first, files."""

    def rank(change: FileChange) -> tuple[int, int, str]:
        was_folder = change.before is not None and change.before.kind == "directory"
        if change.after is None:
            return (1, -change.path.count("/"), change.path) if was_folder else (0, 0, change.path)
        if change.after.kind == "directory":
            return (2, change.path.count("/"), change.path)
        return (3, 0, change.path)

    return sorted(changes, key=rank)


def carry_out(
    preconditions: Preconditions,
    steps: Sequence[Replacement],
    reserved: Reservation,
    folders: Mapping[Move, Sequence[FileChange]] = MappingProxyType({}),
    *,
    together: bool = False,
) -> Outcome:
    """Change the disk, durably. The intention is on record; the lock is held.

    Stops at the first path that somebody else wrote in between: their version is stored and put
    back. Every change in the outcome has been read back and has the intended hash. `folders` are
    renamed as a whole, before what is in their old places is deleted; each has the changes of that.
    What is done `together` opens folders of this account that forbid it, and closes them.
    """
    outcome = Outcome(names=preconditions.count_names(groups_in(step.change for step in steps)))
    staying = [step.change for step in steps if step.link == step.change.path]
    steps = [step for step in steps if step.link != step.change.path]
    replace = _replace_together if together else _replace_one_by_one
    _move_aside(preconditions, steps, outcome)
    if folders and outcome.error is None:
        steps = _rename_folders(preconditions, steps, reserved, folders, outcome, replace)
    if outcome.error is not None:
        steps = []
    replace(preconditions, steps, reserved, outcome)
    outcome.looked_for += staying
    look_for_results(preconditions.attachment, outcome)
    recorded = preconditions.recorded_among
    unseen = {change.path for change in outcome.changes} - {
        change.path for change in recorded(outcome.changes)
    }
    outcome.changes = recorded(outcome.changes)
    outcome.foreign, outcome.later = recorded(outcome.foreign), recorded(outcome.later)
    outcome.reasons += [f"outside the scope: {path}" for path in sorted(unseen)]
    preconditions.entries.update(
        (path, entry) for path, entry in outcome.entries.items() if path not in unseen
    )
    return outcome


def _move_aside(
    preconditions: Preconditions, steps: Sequence[Replacement], outcome: Outcome
) -> None:
    """Rename what is not a file and is where something is to be made."""
    workspace = preconditions.attachment.workspace
    changes = [step.change for step in steps]
    for path, name in moved_aside(preconditions.attachment, changes):
        try:
            workspace.rename(path, name, workspace.identity(path))
        except AuditError as error:
            outcome.add_error(error)
            return


def _rename_folders(
    preconditions: Preconditions,
    steps: Sequence[Replacement],
    reserved: Reservation,
    folders: Mapping[Move, Sequence[FileChange]],
    outcome: Outcome,
    replace: Callable[[Preconditions, Sequence[Replacement], Reservation, Outcome], None],
) -> list[Replacement]:
    """Make the folders that others are renamed into, and rename; the steps that are left."""
    above = {path for move in folders for path in parents(move.target)}
    first = [s for s in steps if s.change.before is None and s.change.path in above]
    replace(preconditions, first, reserved, outcome)
    for move, inside in folders.items():
        if outcome.error is not None:
            return []
        try:
            renamed = rename_folder(preconditions.attachment, move, inside)
        except AuditError as error:
            outcome.add_error(error)
            return []
        outcome.changes += renamed.changes
        outcome.arrived += renamed.arrived
        outcome.later += renamed.later
        outcome.reasons += [f"not seen: {path}" for path in renamed.unseen]
        preconditions.entries.update(renamed.entries)
    return [step for step in steps if step not in first] if outcome.error is None else []


def is_done_together(steps: Sequence[Replacement]) -> bool:
    """Whether steps are made in two phases, and not one after the other."""
    steps = [step for step in steps if step.link != step.change.path]
    return len(steps) > MAX_ONE_BY_ONE or _moves_something(steps) or _closes_a_folder(steps)


def _moves_something(steps: Sequence[Replacement]) -> bool:
    """Whether content is both deleted and written, so that all is written before any is deleted."""
    goes = any(step.change.after is None and step.change.before is not None for step in steps)
    return goes and any(step.content for step in steps)


def _closes_a_folder(steps: Sequence[Replacement]) -> bool:
    """Whether a folder among them forbids access to its owner, which must be set last."""
    sides = [state for step in steps for state in (step.change.before, step.change.after)]
    return any(s and s.kind == "directory" and s.mode & OPENED != OPENED for s in sides)


def check_recoverable(attachment: Attachment, changes: Sequence[FileChange]) -> None:
    """TooLarge when a content that a change replaces or writes is not in the store."""
    sides = [(c.path, state) for c in changes for state in (c.before, c.after) if state]
    missing = attachment.blobs.missing({state.blob for _, state in sides if state.blob})
    for path, state in sides:
        if state.blob in missing:
            raise TooLarge(
                f"{path} is over the limit for recorded content and could not be brought back",
                hint="Use a shell command; the limit is set by `init` and stays.",
                details={"path": path, "size": state.size},
            )


def _replace_one_by_one(
    preconditions: Preconditions,
    steps: Sequence[Replacement],
    reserved: Reservation,
    outcome: Outcome,
) -> None:
    for step in steps:
        try:
            content = step.content() if step.content else None
            workspace = preconditions.attachment.workspace
            displaced = workspace.replace(step.change, content, reserved, step.link)
        except AuditError as error:
            # it may have failed after the path was changed
            outcome.add_error(error)
            outcome.looked_for.append(step.change)
            return
        check_displaced(preconditions.attachment, step.change, displaced, outcome)
        if outcome.error:
            return


def _replace_together(
    preconditions: Preconditions,
    steps: Sequence[Replacement],
    reserved: Reservation,
    outcome: Outcome,
) -> None:
    displaced: dict[int, Displaced] = {}
    try:
        workspace = preconditions.attachment.workspace
        workspace.replace_all(steps, displaced, reserved, preconditions.report)
    except AuditError as error:
        outcome.add_error(error)
    for number, step in enumerate(steps):
        if number in displaced:
            check_displaced(preconditions.attachment, step.change, displaced[number], outcome)
        else:
            outcome.looked_for.append(step.change)
