"""Replacing many paths in two phases: all new files are written and flushed, then exchanged.

ext4 flushes at each rename over an existing file, so files written and renamed one by one are
no safer and much slower than two flushes of the filesystem.
"""

import contextlib
import os
from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace as with_fields

from loom_audit.disk.access.opening import close_folder, on_the_way, open_folder
from loom_audit.disk.access.paths import printable, split, to_audit_error
from loom_audit.disk.access.root_directory import OpenFolders, RootDirectory, sync_filesystem
from loom_audit.disk.writing.attributes import change_mode
from loom_audit.disk.writing.exchange import Location, location_of
from loom_audit.disk.writing.replace import put_staged, replace, stage
from loom_audit.disk.writing.reservation import (
    DiskReservation,
    Slot,
    StagingFolders,
    is_same_content,
)
from loom_audit.disk.writing.reversal import Identity, ModeReversal, PathReversal, remove
from loom_audit.errors import AuditError, InvalidPath
from loom_audit.model.events import OPENED
from loom_audit.model.files import FileChange, is_directory
from loom_audit.ports import Displaced, OnProgress, Progress, Replacement

_OPEN_FOLDERS = 256
_TOLD_AFTER = 64


def replace_all(
    beneath: RootDirectory,
    steps: Sequence[Replacement],
    done: dict[int, Displaced],
    reserved: DiskReservation | None = None,
    progress: OnProgress | None = None,
) -> Sequence[Displaced]:
    """Carry out the steps; `done` is filled as they are, by their number.

    OSError comes as one of our errors; the details of each name the path and how many were done.
    """
    folders = OpenFolders(beneath, _OPEN_FOLDERS)
    staging = StagingFolders(folders, (step.change for step in steps))
    batch = _Batch(folders, steps, done, staging, reserved, progress or (lambda _: None))
    try:
        try:
            batch.check()
            batch.write()
            sync_filesystem(beneath)
            batch.carry_out()
        finally:
            batch.tidy()
            sync_filesystem(beneath)
    except OSError as error:
        raise batch.add_details(to_audit_error(error, batch.path)) from error
    except AuditError as error:
        raise batch.add_details(error) from error.__cause__
    return [done[number] for number in range(len(steps))]


def _rank(step: Replacement) -> tuple[int, int]:
    """Deletions of files, folders deepest first, folders outermost first, the rest, then links."""
    change = step.change
    if step.link is not None:
        return (4, 0)
    depth = change.path.count("/")
    if change.after is None:
        folder = change.before is not None and change.before.kind == "directory"
        return (1, -depth) if folder else (0, 0)
    return (2, depth) if change.after.kind == "directory" else (3, 0)


class _Batch(Struct):
    folders: OpenFolders
    steps: Sequence[Replacement]
    done: dict[int, Displaced]
    staging: StagingFolders
    reserved: DiskReservation | None
    progress: OnProgress
    path: str = ""
    staged: dict[int, tuple[Location, Identity]] = field(default_factory=dict)
    opened: dict[str, os.stat_result] = field(default_factory=dict)
    """Folders that we opened for ourselves, as they were."""
    final_modes: dict[str, int] = field(default_factory=dict)
    """Modes of folders as they shall be, once all is done."""
    visited: set[tuple[str, int]] = field(default_factory=set)

    def add_details(self, error: AuditError) -> AuditError:
        """Add to an error which path it is about and how many steps were done."""
        error.details["path"] = printable(self.path)
        error.details["done"] = len(self.done)
        return error

    def check(self) -> None:
        """InvalidPath when a path is there twice."""
        seen = set()
        for step in self.steps:
            self.path = step.change.path
            if self.path in seen:
                raise InvalidPath(f"the path is there twice: {printable(self.path)}")
            seen.add(self.path)

    def write(self) -> None:
        """Write every new file and link under a temporary name, not flushed yet."""
        for number, step in enumerate(self.steps):
            self._tell("write", number)
            after = step.change.after
            if after is None or after.kind == "directory" or is_same_content(step.change):
                continue
            if step.link is not None:
                continue
            self.path = step.change.path
            slot = self._slot(self.path)
            self._make_usable(slot.folder)
            parent = split(self.path)[0]
            with contextlib.ExitStack() as stack:
                content = stack.enter_context(step.content()) if step.content else None
                source = self._attributes_of(step)
                put = stage(self.folders, slot, parent, after, content, source=source)
            self.staged[number] = (slot.location(self.folders), put)

    def _tell(self, stage: str, done: int) -> None:
        if done % _TOLD_AFTER == 0:
            self.progress(Progress(stage, done, len(self.steps)))

    def _attributes_of(self, step: Replacement) -> Location | None:
        source = step.attributes_of
        if source is None and step.change.before is not None:
            source = step.change.path
        return None if source is None else location_of(self.folders, source)

    def _slot(self, path: str) -> Slot:
        slot = None if self.reserved is None else self.reserved.take(path)
        return slot or Slot(self.staging.above(path), self.folders.fresh_name())

    def _make_usable(self, folder: str) -> None:
        """Let us reach and write in a folder of ours whose mode forbids it, until `tidy`."""
        if os.geteuid() == 0:
            return
        for path, need in on_the_way(folder):
            if (path, need) not in self.visited:
                self.visited.add((path, need))
                was = open_folder(self.folders.beneath, path, need)
                if was is not None:
                    self.opened[path] = was

    def carry_out(self) -> None:
        """Put every step at its path, deletions first and links last."""
        for number in sorted(range(len(self.steps)), key=lambda n: _rank(self.steps[n])):
            self._tell("replace", len(self.done))
            step = self.steps[number]
            self.path = step.change.path
            self._make_usable(self.staging.above(self.path))
            self._make_usable(split(self.path)[0])
            self.done[number] = self._replace_one(number, step)
            self._set_mode_before(self.done[number])

    def _replace_one(self, number: int, step: Replacement) -> Displaced:
        change = step.change
        staged = self.staged.pop(number, None)
        if staged is not None:
            temporary, put = staged
            target = location_of(self.folders, change.path)
            return put_staged(temporary, target, put, occupied=change.before is not None)
        slot = self._slot(change.path)
        if change.after is None or change.after.kind == "directory":
            return self._replace_folder(change, slot)
        if step.content is None or step.link is not None:
            return replace(self.folders, change, None, durable=False, slot=slot, link=step.link)
        with step.content() as content:
            return replace(self.folders, change, content, durable=False, slot=slot)

    def _replace_folder(self, change: FileChange, slot: Slot) -> Displaced:
        """A folder keeps a mode that lets us work in it to the end of the batch."""
        after, mode = change.after, 0
        if after is not None:
            mode = after.mode
            if mode & OPENED != OPENED and os.geteuid() != 0:
                stays = change.before if is_directory(change.before) else None
                meanwhile = (stays or after).mode | OPENED
                after = with_fields(after, mode=meanwhile)
        change = FileChange(change.path, change.before, after)
        displaced = replace(self.folders, change, None, durable=False, slot=slot)
        if after is not None and after.mode != mode:
            self.final_modes[change.path] = mode
            if isinstance(displaced, ModeReversal):
                displaced.mode = mode
        return displaced

    def _set_mode_before(self, displaced: Displaced) -> None:
        """Report the original mode of a folder that we had made writable for ourselves."""
        was = self.opened.pop(self.path, None)
        if was is not None and isinstance(displaced, PathReversal | ModeReversal):
            state = displaced.state
            if state is not None:
                mode = state.mode & ~OPENED | was.st_mode & OPENED
                displaced.set_state(with_fields(state, mode=mode))

    def tidy(self) -> None:
        """Remove what was written and not used, and give folders the mode they should have."""
        for temporary, _ in self.staged.values():
            remove(temporary)
        self.staged.clear()
        with contextlib.ExitStack() as closing:  # each of them, deepest first
            for folder in sorted(self.opened.keys() | self.final_modes):
                closing.callback(self._close, folder)

    def _close(self, folder: str) -> None:
        if not self.staging.is_folder(folder):
            return
        if folder in self.final_modes:
            location = location_of(self.folders, folder)
            change_mode(location, self.final_modes[folder], acl=True)
        else:
            close_folder(self.folders.beneath, folder, self.opened[folder])
