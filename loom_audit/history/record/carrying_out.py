"""One step of changes on disk, carried out: what it displaced, and what is there then.

The intention is on record, and the lock is held.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from stat import S_IFMT

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.errors import AuditError, Conflict, PermissionDenied
from loom_audit.history.ground.attachment import STALE, Attachment
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.links import with_groups
from loom_audit.history.look.observation import observe
from loom_audit.history.look.special_files import displaced_special_files
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.model.events import OPENED, OUTSIDE, ContentFound, Draft
from loom_audit.model.files import (
    FileChange,
    FileState,
    Move,
    is_directory,
    is_opaque,
    is_within,
    parents,
)
from loom_audit.model.plans.left_out import is_remade
from loom_audit.model.plans.links import groups_in, without_group
from loom_audit.model.text.display import count_text
from loom_audit.ports import OPAQUE, Displaced, IndexEntry, Replacement, Reservation, Stamp

MAX_ONE_BY_ONE = 8
"""Most changes that are synced one by one; more of them share two syncs of the filesystem."""

LATE = "written into the file after it had been replaced or deleted"

Seen = Mapping[str, tuple[FileState | None, IndexEntry | None]]


class Outcome(Struct):
    """What a step changed, and the reasons and the error if that is not what was intended.

    `displaced` is what was at a path before and is still on disk under a temporary name,
    `arrived` are paths whose content existed before where it is not recorded,
    `foreign` is what somebody else wrote before a change, `later` what they wrote after it.
    Every change in `changes` was read back; what differs from the intention is in `later`.
    """

    changes: list[FileChange] = field(default_factory=list)
    foreign: list[FileChange] = field(default_factory=list)
    later: list[FileChange] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    error: AuditError | None = None
    arrived: list[str] = field(default_factory=list)
    displaced: list[tuple[str, Displaced]] = field(default_factory=list)
    entries: dict[str, IndexEntry | None] = field(default_factory=dict)


class Step:
    """Changes that are made after one intention.

    One by one, the step stops at the first path that somebody else wrote in between: their version
    is stored and put back. `together`, all changes are tried, and folders of this account that
    forbid a change are opened for it and closed again.
    """

    def __init__(
        self, preconditions: Preconditions, reserved: Reservation, *, together: bool
    ) -> None:
        self._preconditions = preconditions
        self._attachment = preconditions.attachment
        self._workspace = preconditions.attachment.on_disk.workspace
        self._reserved = reserved
        self._together = together
        self._tried: list[FileChange] = []
        """The changes that were tried; `look_for_results` looks at what each came to."""
        self._names: Mapping[int, int] = {}
        """How many names each group of hard links has in the workspace that are not replaced."""
        self.outcome = Outcome()

    def carry_out(
        self, changes: Sequence[Replacement], folders: Mapping[Move, Sequence[FileChange]]
    ) -> Outcome:
        """Change the disk, durably.

        `folders` are renamed as a whole, before what is in their old places is deleted; each has
        the changes that its rename makes.
        """
        outcome = self.outcome
        self._names = self._preconditions.count_names(groups_in([one.change for one in changes]))
        staying = [one.change for one in changes if is_staying(one)]
        left = [one for one in changes if not is_staying(one)]
        self._move_aside(left)
        if folders:
            left = self._rename_folders(left, folders)
        self._replace([] if outcome.error else left)
        self._tried += staying
        self.look_for_results()
        recorded = self._preconditions.recorded_among
        made, outcome.changes = outcome.changes, recorded(outcome.changes)
        outcome.foreign, outcome.later = recorded(outcome.foreign), recorded(outcome.later)
        unseen = {one.path for one in made} - {one.path for one in outcome.changes}
        outcome.reasons += [f"outside the scope: {path}" for path in sorted(unseen)]
        for path in unseen:
            outcome.entries.pop(path, None)
        return outcome

    def _fail(self, error: AuditError) -> None:
        """Keep the first error, which is raised to the caller."""
        self.outcome.error = self.outcome.error or error

    # --- replacing ------------------------------------------------------------------------

    def _move_aside(self, changes: Sequence[Replacement]) -> None:
        """Rename what is not a file and is where something is to be made."""
        for path, name in displaced_special_files(
            self._attachment.on_disk, [one.change for one in changes]
        ):
            try:
                self._workspace.rename(path, name, self._workspace.identity(path))
            except AuditError as error:
                self._fail(error)
                return

    def _replace(self, changes: Sequence[Replacement]) -> None:
        displaced: dict[int, Displaced] = {}
        if self._together:
            try:
                report = self._preconditions.report
                self._workspace.replace_all(changes, displaced, self._reserved, report)
            except AuditError as error:
                self._fail(error)
        for number, one in enumerate(changes):
            if not self._together:
                try:
                    content = one.content() if one.content else None
                    displaced[number] = self._workspace.replace(
                        one.change, content, self._reserved, one.link
                    )
                except AuditError as error:
                    self._fail(error)  # it may have failed after the path was changed
            if number in displaced:
                self._check_displaced(one.change, displaced[number])
            else:
                self._tried.append(one.change)
            if self.outcome.error and not self._together:
                return

    def _check_displaced(self, change: FileChange, displaced: Displaced) -> None:
        """Accept a replacement, or put back what somebody else had written in between."""
        try:
            found = displaced.state
            if found != without_group(change.before):
                change = self._put_back(change, found, displaced)
            else:
                self._note_broken_links(change, displaced.links)
                self.outcome.displaced.append((change.path, displaced))
        except AuditError as error:
            self._fail(error)
        self._tried.append(change)

    def _note_broken_links(self, change: FileChange, links: int) -> None:
        """Say that what was displaced, which had so many names, has more outside the workspace."""
        group = change.before.group if change.before else None
        inside = self._names.get(group, 1) if group is not None else 1
        if links > inside:
            more = count_text(links - inside, "name")
            self.outcome.reasons.append(
                f"hard link broken: {change.path} ({more} outside the workspace)"
            )

    def _put_back(
        self, change: FileChange, found: FileState | None, displaced: Displaced
    ) -> FileChange:
        """Keep the version that was found, somebody else's, in the store and at its path.

        Returns the change with that version before it, as it was stored: it may be written still.
        """
        self._fail(
            Conflict(
                f"{change.path} was changed by somebody else, unseen until now; it is as they "
                "left it",
                hint="Read it again and repeat the change.",
                details={"path": change.path},
            )
        )
        self.outcome.entries[change.path] = IndexEntry(STALE, None)
        try:
            if found and found.blob:
                with displaced.open() as stream:
                    blob = self._attachment.stored.blobs.put(stream)
                found = replace(found, blob=blob, size=self._attachment.stored.blobs.size(blob))
        except AuditError:
            displaced.put_back()
            raise
        self.outcome.foreign.append(FileChange(change.path, change.before, found))
        try:
            displaced.put_back()
        except Conflict:
            # written once more since: that version stays, and this one is in the store
            self.outcome.displaced.append((change.path, displaced))
        except AuditError as error:
            self._fail(error)  # such as its folder being gone: what is there now is still seen
        return FileChange(change.path, found, change.after)

    # --- renaming folders -----------------------------------------------------------------

    def _rename_folders(
        self, changes: Sequence[Replacement], folders: Mapping[Move, Sequence[FileChange]]
    ) -> list[Replacement]:
        """Make the folders that others are renamed into, and rename; the changes that are left."""
        if self.outcome.error:
            return []
        above = {path for move in folders for path in parents(move.target)}
        first = [one for one in changes if one.change.before is None and one.change.path in above]
        self._replace(first)
        for move, intended in folders.items():
            if self.outcome.error:
                return []
            try:
                self._rename(move, intended)
            except AuditError as error:
                self._fail(error)
        return [one for one in changes if one not in first]

    def _rename(self, move: Move, intended: Sequence[FileChange]) -> None:
        """Rename a folder of which it is said which one it is, and look at what is there then.

        Conflict, with nothing changed, when it is not proven to be the one, or something is there.
        """
        by_path = {change.path: change for change in intended}
        ends = [by_path[move.source].before, by_path[move.target].after]
        known = [state for state in ends if state is not None]
        identity = next((s for s in known if is_opaque(s)), known[0]).identity
        self._workspace.rename(move.source, move.target, identity)
        gone = [change for change in intended if is_within(change.path, [move.source])]
        expected = {c.path: c.after for c in intended if not is_within(c.path, [move.source])}
        in_scope = all(map(is_directory, ends))
        found = [
            move.target,
            *(path for path, s in expected.items() if in_scope or not (s and s.blob)),
            *self._inside(move.target),
        ]
        self.outcome.changes += gone
        self.outcome.entries.update((change.path, None) for change in gone)
        for path in dict.fromkeys(found):
            was, wanted = move.source + path.removeprefix(move.target), expected.get(path)
            try:
                state, self.outcome.entries[path] = self._moved(path, was, wanted)
            except AuditError:
                self.outcome.reasons.append(f"not seen: {path}")
                continue
            if in_scope and path in expected and state != wanted:
                self.outcome.later.append(FileChange(path, wanted, state))
                state = wanted
            self.outcome.changes.append(FileChange(path, None, state))
            if path not in expected:
                self.outcome.arrived.append(path)

    def _inside(self, folder: str) -> list[str]:
        """What is in a renamed folder that is not left out itself.

        What cannot be recorded, and caches, are for the next look.
        """
        scope = self._attachment.scope
        if scope.is_opaque(folder):
            return []
        return [
            path
            for path, seen in self._workspace.walk(scope, {}, folder, opaque=True)
            if not isinstance(seen, str) and not (S_IFMT(seen.mode) == OPAQUE and is_remade(path))
        ]

    def _moved(
        self, path: str, was: str, expected: FileState | None
    ) -> tuple[FileState | None, IndexEntry | None]:
        """What is at a path to which it came from another one; it may not be read any more."""
        attachment = self._attachment
        try:
            return observe(attachment, path, expected)
        except PermissionDenied:
            entry = attachment.on_disk.index.get(was)
            recorded = attachment.stored.reading.state(was)
            if entry is None or expected is None or expected != recorded:
                raise
            if entry.stamp != self._workspace.stamp(path) or entry.blob != expected.blob:
                raise
            return expected, entry

    # --- what is there now ----------------------------------------------------------------

    def look_for_results(self) -> None:
        """Add what is on disk now to the outcome, which need not be what was intended."""
        wanted = {change.path: change.after for change in self._tried}
        first: dict[str, tuple[FileState | None, IndexEntry | None]] = {}
        for change, stamp in zip(self._tried, self._stamps(), strict=True):
            try:
                first[change.path] = observe(
                    self._attachment, change.path, change.before, keep=False, seen=stamp
                )
            except AuditError as error:
                self._not_seen(change, error)
        seen = settled_seen(self._attachment, first, wanted)
        for change in self._tried:
            if change.path in seen:
                try:
                    self._add_result(change, *seen[change.path])
                except AuditError as error:
                    self._not_seen(change, error)

    def _stamps(self) -> Sequence[Stamp | None]:
        """The stamps at the paths to be looked at; None too where they are asked one by one."""
        try:
            return self._workspace.stamps([change.path for change in self._tried])
        except AuditError:
            return [None for _ in self._tried]

    def _not_seen(self, change: FileChange, error: AuditError) -> None:
        self._fail(error)
        self.outcome.reasons.append(f"not seen: {change.path}")
        self.outcome.entries[change.path] = IndexEntry(STALE, None)

    def _add_result(
        self, change: FileChange, now: FileState | None, entry: IndexEntry | None
    ) -> None:
        outcome, path = self.outcome, change.path
        if now == change.before:
            return
        if now != change.after:
            found = {path: observe(self._attachment, path, change.after)}
            now, entry = settled_seen(self._attachment, found, {path: change.after})[path]
            change = as_left_out(change, now)
        outcome.entries[path] = entry
        if now == change.after:
            outcome.changes.append(change)
        elif outcome.error is None:
            outcome.changes.append(change)
            outcome.later.append(FileChange(path, change.after, now))
        else:
            outcome.later.append(FileChange(path, change.before, now))


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


def is_staying(one: Replacement) -> bool:
    """Whether it is the name of a file with several that the others become names of."""
    return one.link == one.change.path


def is_done_together(steps: Sequence[Replacement]) -> bool:
    """Whether steps are made in two phases, and not one after the other."""
    steps = [step for step in steps if not is_staying(step)]
    return len(steps) > MAX_ONE_BY_ONE or _moves_something(steps) or _closes_a_folder(steps)


def _moves_something(steps: Sequence[Replacement]) -> bool:
    """Whether content is both deleted and written, so that all is written before any is deleted."""
    goes = any(step.change.after is None and step.change.before is not None for step in steps)
    return goes and any(step.content for step in steps)


def _closes_a_folder(steps: Sequence[Replacement]) -> bool:
    """Whether a folder among them forbids access to its owner, which must be set last."""
    sides = [state for step in steps for state in (step.change.before, step.change.after)]
    return any(s and s.kind == "directory" and s.mode & OPENED != OPENED for s in sides)


def as_left_out(change: FileChange, now: FileState | None) -> FileChange:
    """The change; of a folder that was made and is left out that of the opaque entry it is."""
    made = change.before is None and change.after is not None and change.after.kind == "directory"
    return replace(change, after=now) if made and now and now.kind == "opaque" else change


def settled_seen(
    attachment: Attachment, found: Seen, wanted: Mapping[str, FileState | None]
) -> Seen:
    """What was observed at these paths, with the groups that their files have or are to have."""
    states = with_groups(
        attachment,
        {path: state for path, (state, _) in found.items()},
        wanted=lambda path: wanted.get(path) or attachment.stored.reading.state(path),
    )
    return {path: (states[path], entry) for path, (_, entry) in found.items()}


def let_go(writer: Writer, call_id: str, displaced: Sequence[tuple[str, Displaced]]) -> None:
    """Delete what the call displaced from these paths, once that is on record.

    Until then it keeps its temporary name, which the intention has on record, so that a program
    that still writes into it, through a descriptor from before, loses nothing. What somebody wrote
    into it since it was looked at is put on record first. What cannot be read, recorded or deleted
    keeps its temporary name and is listed as a leftover: this never raises, since the changes are
    on record.
    """
    for path, one in displaced:
        with suppress(AuditError):
            if not one.discard_unchanged():
                _record(writer, call_id, path, one)
                one.discard()


def _record(writer: Writer, call_id: str, path: str, displaced: Displaced) -> None:
    was, blobs = displaced.state, writer.attachment.stored.blobs
    if was is None:
        return
    with displaced.open() as stream:
        blob = blobs.put(stream, similar_to=was.blob)
    found = replace(was, blob=blob, size=blobs.size(blob))
    fact = ContentFound(path, found, LATE, call_id)
    writer.attachment.stored.log.append([Draft(fact, writer.session, OUTSIDE)])
