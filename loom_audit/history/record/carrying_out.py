"""Carries out one step of changes on disk, and finds out what is on disk afterwards.

For all of this module the intention of the step is on record, and the workspace lock is held.
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
from loom_audit.history.record.out_of_scope import outside_scope
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import OPENED, ContentFound, Draft
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
"""Most changes that are flushed one by one; more of them share two flushes of the filesystem."""

WRITTEN_LATE = "written into the file after it had been replaced or deleted"
"""Why content is on record as found: a program wrote it through a descriptor from before."""

Seen = Mapping[str, tuple[FileState | None, IndexEntry | None]]
"""What was seen by path: the state, and the entry for the index; None for what is absent."""


class Outcome(Struct):
    """What a step changed, and the reasons and the error where that is not what was intended.

    `changes` are those that the step made, each read back from disk. `others_before` are changes
    that somebody else made before the step came to the path, `others_after` those that somebody
    made there after it. `reasons` lower the coverage of the call. `arrived` are created paths whose
    content existed before at a place that is not recorded. `displaced` are the files that were at
    the paths before, each still on disk under a temporary name. `entries` are for the index.
    """

    changes: list[FileChange] = field(default_factory=list)
    others_before: list[FileChange] = field(default_factory=list)
    others_after: list[FileChange] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    error: AuditError | None = None
    arrived: list[str] = field(default_factory=list)
    displaced: list[tuple[str, Displaced]] = field(default_factory=list)
    entries: dict[str, IndexEntry | None] = field(default_factory=dict)


class Step:
    """Makes the changes of one intention.

    One by one, the step stops at the first path that fails or that somebody else wrote in between:
    their version is stored and put back. `in_two_phases` all changes are tried in two phases, and
    folders of this account whose mode forbids a change are opened for it and closed again.
    """

    def __init__(
        self, preconditions: Preconditions, reserved: Reservation, *, in_two_phases: bool
    ) -> None:
        self._preconditions = preconditions
        self._attachment = preconditions.attachment
        self._workspace = preconditions.attachment.on_disk.workspace
        self._reserved = reserved
        self._in_two_phases = in_two_phases
        self._tried: list[FileChange] = []
        """The changes that were tried; `look_for_results` sees what is at their paths then."""
        self._names: Mapping[int, int] = {}
        """How many names in the workspace each group of hard links among the changes has."""
        self.outcome = Outcome()

    def carry_out(
        self,
        changes: Sequence[Replacement],
        folders: Mapping[Move, Sequence[FileChange]],
        intention: int,
    ) -> Outcome:
        """Change the disk, durably, and return what came of it.

        `intention` is the seq of the step's intention. `folders` are renamed as a whole, each with
        the changes that its rename makes. The error of a change is in the outcome, and not raised:
        what was changed before it has to go on record first.
        """
        outcome = self.outcome
        self._names = self._preconditions.count_names(groups_in([one.change for one in changes]))
        link_sources = [one.change for one in changes if is_link_source(one)]
        replaced = [one for one in changes if not is_link_source(one)]
        # first what is in the way, then the folders: a deletion at the old place of a folder would
        # otherwise meet what is still in it
        self._rename_special_files(replaced)
        if folders:
            replaced = self._rename_folders(replaced, folders)
        self._replace([] if outcome.error else replaced)
        # these files stay on disk as they are, but which names are links of them has changed
        self._tried += link_sources
        self.look_for_results()
        recorded = self._preconditions.recorded_among
        made, outcome.changes = outcome.changes, recorded(outcome.changes)
        outcome.others_before, outcome.others_after = (
            recorded(outcome.others_before),
            recorded(outcome.others_after),
        )
        seen = {one.path for one in outcome.changes}
        unseen = {one.path: one for one in made if one.path not in seen}
        for path, one in sorted(unseen.items()):
            outcome.reasons.append(outside_scope(one, intention))
            outcome.entries.pop(path, None)
        return outcome

    def _keep_error(self, error: AuditError) -> None:
        """Keep the first error, which the caller of the call gets once the outcome is on record."""
        self.outcome.error = self.outcome.error or error

    # --- replacing ------------------------------------------------------------------------

    def _rename_special_files(self, changes: Sequence[Replacement]) -> None:
        """Rename pipes, sockets and devices that are where a change makes something.

        They cannot be recorded, so they are not deleted.
        """
        for path, name in displaced_special_files(
            self._attachment.on_disk, [one.change for one in changes]
        ):
            try:
                self._workspace.rename(path, name, self._workspace.identity(path))
            except AuditError as error:
                self._keep_error(error)
                return

    def _replace(self, changes: Sequence[Replacement]) -> None:
        displaced: dict[int, Displaced] = {}
        if self._in_two_phases:
            try:
                progress = self._preconditions.progress
                self._workspace.replace_all(changes, displaced, self._reserved, progress)
            except AuditError as error:
                self._keep_error(error)
        for number, one in enumerate(changes):
            if not self._in_two_phases:
                try:
                    content = one.content() if one.content else None
                    displaced[number] = self._workspace.replace(
                        one.change, content, self._reserved, one.link
                    )
                except AuditError as error:
                    # the path counts as tried: an error may come after it was changed, and what
                    # is there now is looked at
                    self._keep_error(error)
            if number in displaced:
                self._check_displaced(one.change, displaced[number])
            else:
                self._tried.append(one.change)
            if self.outcome.error and not self._in_two_phases:
                return

    def _check_displaced(self, change: FileChange, displaced: Displaced) -> None:
        """Accept a replacement, or put back what somebody else had written in between.

        The path was last read before the intention was committed. What the exchange displaced is
        therefore compared with the recorded state once more.
        """
        try:
            found = displaced.state
            if found != without_group(change.before):
                change = self._put_back(change, found, displaced)
            else:
                self._note_broken_links(change, displaced.links)
                self.outcome.displaced.append((change.path, displaced))
        except AuditError as error:
            self._keep_error(error)
        self._tried.append(change)

    def _note_broken_links(self, change: FileChange, links: int) -> None:
        """Add a reason where a displaced file with so many names has some outside the workspace.

        Those names keep the old content, while the ones in the workspace get the new.
        """
        group = change.before.group if change.before else None
        inside = self._names.get(group, 1) if group is not None else 1
        if links > inside:
            more = count_text(links - inside, "name")
            self.outcome.reasons.append(
                f"hard link broken: {change.path} ({more} outside the workspace)"
            )

    def _put_back(
        self, change: FileChange, theirs: FileState | None, displaced: Displaced
    ) -> FileChange:
        """Store `theirs`, the version that somebody else wrote, and put it back at its path.

        Returns the change from their version, in the state in which it was stored: somebody may
        still write into the file.
        """
        self._keep_error(
            Conflict(
                f"{change.path} was changed by somebody else, unseen until now; it is as they "
                "left it",
                hint="Read it again and repeat the change.",
                details={"path": change.path},
            )
        )
        self.outcome.entries[change.path] = IndexEntry(STALE, None)
        try:
            # stored before it is put back: at its path somebody may replace it at once
            if theirs and theirs.blob:
                with displaced.open() as stream:
                    blob = self._attachment.stored.blobs.put(stream)
                theirs = replace(theirs, blob=blob, size=self._attachment.stored.blobs.size(blob))
        except AuditError:
            # it cannot be stored, but it is not lost either
            displaced.put_back()
            raise
        self.outcome.others_before.append(FileChange(change.path, change.before, theirs))
        try:
            displaced.put_back()
        except Conflict:
            # somebody wrote the path once more: their newer version stays, and this one, which is
            # in the store, is deleted with the other displaced files
            self.outcome.displaced.append((change.path, displaced))
        except AuditError as error:
            # its folder may be gone; what is at the path now is looked at all the same
            self._keep_error(error)
        return FileChange(change.path, theirs, change.after)

    # --- renaming folders -----------------------------------------------------------------

    def _rename_folders(
        self, changes: Sequence[Replacement], folders: Mapping[Move, Sequence[FileChange]]
    ) -> list[Replacement]:
        """Make the folders above the new places, and rename; returns the other changes."""
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
                self._keep_error(error)
        return [one for one in changes if one not in first]

    def _rename(self, move: Move, intended: Sequence[FileChange]) -> None:
        """Rename a folder whose identity is known, and look at what is at its new place then.

        Conflict, with nothing changed, when another folder is at the old place, or something is at
        the new one.
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
                state, self.outcome.entries[path] = self._moved_state(path, was, wanted)
            except AuditError:
                self.outcome.reasons.append(f"not seen: {path}")
                continue
            # what differs in a folder that was renamed as one was changed by somebody else
            if in_scope and path in expected and state != wanted:
                self.outcome.others_after.append(FileChange(path, wanted, state))
                state = wanted
            self.outcome.changes.append(FileChange(path, None, state))
            # it came with the folder, in which it was not recorded
            if path not in expected:
                self.outcome.arrived.append(path)

    def _inside(self, folder: str) -> list[str]:
        """The paths in a renamed folder; none where the folder is left out at its new place.

        Paths that cannot be recorded and caches are not among them: the next look finds them.
        """
        scope = self._attachment.scope
        if scope.is_opaque(folder):
            return []
        return [
            path
            for path, seen in self._workspace.walk(scope, {}, folder, opaque=True)
            if not isinstance(seen, str) and not (S_IFMT(seen.mode) == OPAQUE and is_remade(path))
        ]

    def _moved_state(
        self, path: str, was: str, expected: FileState | None
    ) -> tuple[FileState | None, IndexEntry | None]:
        """The state at a path that was `was` before the rename, and the entry for the index.

        A file whose mode forbids reading it is the recorded one where its stamp is the same: the
        rename changed nothing of it.
        """
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
        """Read what is on disk now at the paths that were tried, and add it to the outcome.

        The outcome is what is there, not what was intended: somebody may have written meanwhile.
        """
        wanted = {change.path: change.after for change in self._tried}
        first: dict[str, tuple[FileState | None, IndexEntry | None]] = {}
        for change, stamp in zip(self._tried, self._stamps(), strict=True):
            try:
                first[change.path] = observe(
                    self._attachment, change.path, change.before, keep=False, seen=stamp
                )
            except AuditError as error:
                self._note_unseen(change, error)
        seen = seen_with_groups(self._attachment, first, wanted)
        for change in self._tried:
            if change.path in seen:
                try:
                    self._add_result(change, *seen[change.path])
                except AuditError as error:
                    self._note_unseen(change, error)

    def _stamps(self) -> Sequence[Stamp | None]:
        """The stamps at the paths that were tried; None where a path has to be asked for itself."""
        try:
            return self._workspace.stamps([change.path for change in self._tried])
        except AuditError:
            # one path that cannot be asked about fails all; `observe` then asks for each
            return [None for _ in self._tried]

    def _note_unseen(self, change: FileChange, error: AuditError) -> None:
        """Say that it is not known what is at a path now, so that the next look reads it."""
        self._keep_error(error)
        self.outcome.reasons.append(f"not seen: {change.path}")
        self.outcome.entries[change.path] = IndexEntry(STALE, None)

    def _add_result(
        self, change: FileChange, now: FileState | None, index_entry: IndexEntry | None
    ) -> None:
        """Add what is at one path now: as the step's change, or as somebody else's after it."""
        outcome, path = self.outcome, change.path
        if now == change.before:
            return
        if now != change.after:
            # once more, now with its content stored: somebody else's version goes on record
            fresh = {path: observe(self._attachment, path, change.after)}
            now, index_entry = seen_with_groups(self._attachment, fresh, {path: change.after})[path]
            change = as_left_out(change, now)
        outcome.entries[path] = index_entry
        if now == change.after:
            outcome.changes.append(change)
        elif outcome.error is None:
            # the step made its change, and somebody changed the path again
            outcome.changes.append(change)
            outcome.others_after.append(FileChange(path, change.after, now))
        else:
            # after an error it is not known that the step made the change at all
            outcome.others_after.append(FileChange(path, change.before, now))


def in_safe_order(changes: Sequence[FileChange]) -> list[FileChange]:
    """The changes in an order in which each can be made.

    First deletions: of files, then of directories, the deepest first. Then new directories, the
    outermost first, then files.
    """

    def rank(change: FileChange) -> tuple[int, int, str]:
        was_folder = change.before is not None and change.before.kind == "directory"
        if change.after is None:
            return (1, -change.path.count("/"), change.path) if was_folder else (0, 0, change.path)
        if change.after.kind == "directory":
            return (2, change.path.count("/"), change.path)
        return (3, 0, change.path)

    return sorted(changes, key=rank)


def is_link_source(one: Replacement) -> bool:
    """Whether this is the name, of a file with several, that the others are linked to.

    The file at that name stays as it is.
    """
    return one.link == one.change.path


def need_two_phases(steps: Sequence[Replacement]) -> bool:
    """Whether steps are made in two phases, all written before any is exchanged, or one by one.

    Two phases are quicker for many steps. A move needs them, and so does a folder whose mode
    forbids its owner to change what is in it.
    """
    steps = [step for step in steps if not is_link_source(step)]
    return len(steps) > MAX_ONE_BY_ONE or _moves_something(steps) or _closes_a_folder(steps)


def _moves_something(steps: Sequence[Replacement]) -> bool:
    """Whether content is both deleted and written, as a move does, or a file that is replaced gives
    another its attributes.

    All is written before any is deleted then: what cannot be written, as on a full disk, is known
    while everything is still in place.
    """
    goes = any(step.change.after is None and step.change.before is not None for step in steps)
    given = {step.attributes_of for step in steps}
    gives = any(step.change.path in given for step in steps)
    return gives or (goes and any(step.content for step in steps))


def _closes_a_folder(steps: Sequence[Replacement]) -> bool:
    """Whether a folder among them forbids its owner to change it: that mode has to be set last."""
    sides = [state for step in steps for state in (step.change.before, step.change.after)]
    return any(s and s.kind == "directory" and s.mode & OPENED != OPENED for s in sides)


def as_left_out(change: FileChange, now: FileState | None) -> FileChange:
    """The change, or that of an opaque entry where the folder that was made is left out.

    What is left out by the scope is on record as an opaque entry whoever made it.
    """
    made = change.before is None and change.after is not None and change.after.kind == "directory"
    return replace(change, after=now) if made and now and now.kind == "opaque" else change


def seen_with_groups(
    attachment: Attachment, seen: Seen, wanted: Mapping[str, FileState | None]
) -> Seen:
    """The states that were `seen`, each with the group that its hard links have on record.

    `wanted` are the states that the paths are to have; their groups come first.
    """
    states = with_groups(
        attachment,
        {path: state for path, (state, _) in seen.items()},
        wanted=lambda path: wanted.get(path) or attachment.stored.reading.state(path),
    )
    return {path: (states[path], entry) for path, (_, entry) in seen.items()}


def discard_displaced(
    writer: Writer, call_id: str, displaced: Sequence[tuple[str, Displaced]]
) -> None:
    """Delete the files that the call displaced from these paths, whose changes are on record.

    Each kept its temporary name, which the intention has on record, so that a program that still
    writes into it, through a descriptor from before, loses nothing. What was written into it since
    it was looked at is put on record first. A file that cannot be read, recorded or deleted keeps
    its name and is listed as a leftover. Nothing is raised: the call did what it says.
    """
    for path, one in displaced:
        with suppress(AuditError):
            if not one.discard_unchanged():
                _record_late_content(writer, call_id, path, one)
                one.discard()


def _record_late_content(writer: Writer, call_id: str, path: str, displaced: Displaced) -> None:
    """Put on record what a displaced file holds now, as content that was found."""
    was, blobs = displaced.state, writer.attachment.stored.blobs
    if was is None:
        return
    with displaced.open() as stream:
        blob = blobs.put(stream, similar_to=was.blob)
    found = replace(was, blob=blob, size=blobs.size(blob))
    fact = ContentFound(path, found, WRITTEN_LATE, call_id)
    writer.attachment.stored.log.append([Draft(fact, writer.session, OUTSIDE)])
