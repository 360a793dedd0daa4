"""Temporaries that are made, still empty, before a change is announced, so that it can name them.

After a crash a temporary is known to be ours by its name and its identity. Links and folders are
made when their turn comes: only their names are known beforehand.
"""

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.disk.access.identity import identity_at
from loom_audit.disk.access.opening import closed_among
from loom_audit.disk.access.paths import split
from loom_audit.disk.access.root_directory import OpenFolders, RootDirectory
from loom_audit.disk.writing.exchange import Location, location_of
from loom_audit.model.events import OPENED, OpenedFolder, Temporary
from loom_audit.model.files import FileChange, Move, is_directory
from loom_audit.ports import Replacement

_OPEN_FOLDERS = 256


def is_same_content(change: FileChange) -> bool:
    """Whether a file's content stays, so that perhaps only its mode changes."""
    before, after = change.before, change.after
    return bool(
        before and after and before.kind == after.kind == "file" and before.blob == after.blob
    )


class StagingFolders:
    """For each path of some changes the nearest folder above that they neither make nor delete."""

    def __init__(self, folders: OpenFolders, changes: Iterable[FileChange]) -> None:
        self._folders = folders
        self._staging: dict[str, str] = {}
        self._unstable = {change.path for change in changes if not self._stays(change)}

    def _stays(self, change: FileChange) -> bool:
        after = change.after
        return after is not None and after.kind == "directory" and self.is_folder(change.path)

    def is_folder(self, path: str) -> bool:
        """Whether a folder is at the path now."""
        try:
            found = location_of(self._folders, path).lstat()
        except OSError:
            return False
        return found is not None and stat.S_ISDIR(found.st_mode)

    def above(self, path: str) -> str:
        """The folder in which the temporaries of a path are made."""
        parent = split(path)[0]
        staging = self._staging.get(parent)
        if staging is None:
            staging = parent
            parts = parent.split("/") if parent else []
            for n in range(len(parts)):
                if "/".join(parts[: n + 1]) in self._unstable:
                    staging = "/".join(parts[:n])
                    break
            self._staging[parent] = staging
        return staging


class Slot(Struct):
    """Where a temporary is to be; `inode` is that of an empty file there that nobody uses yet."""

    folder: str
    name: str
    inode: int | None = None

    def location(self, folders: OpenFolders) -> Location:
        """The location of the temporary."""
        return Location(folders, self.folder, self.name)


class DiskReservation:
    """A `ports.Reservation`: a slot for each path that is replaced or deleted."""

    def __init__(
        self, beneath: RootDirectory, steps: Sequence[Replacement], moves: Sequence[Move] = ()
    ) -> None:
        self._beneath = beneath
        self._slots: dict[str, Slot] = {}
        self._named: list[Temporary] = []
        self._made: dict[str, str] = {}
        folders = OpenFolders(beneath, _OPEN_FOLDERS)
        staging = StagingFolders(folders, [step.change for step in steps])
        try:
            for step in steps:
                slot = Slot(staging.above(step.change.path), folders.fresh_name())
                self._reserve(step, slot, folders)
            self.opened = self._opened([step.change for step in steps], moves)
        except BaseException:
            self.release()
            raise
        finally:
            folders.close()

    @property
    def temporaries(self) -> tuple[Temporary, ...]:
        """The temporaries that the announcement of the change names."""
        return tuple(self._named)

    def _opened(
        self, changes: Sequence[FileChange], moves: Sequence[Move]
    ) -> tuple[OpenedFolder, ...]:
        """The folders in which the changes and moves are made and that forbid it."""
        ends = [(move.source, move.target) for move in moves]
        inside = {split(path)[0] for path in (*self._slots, *(end for two in ends for end in two))}
        inside.update(slot.folder for slot in self._slots.values())
        inside.update(old for old, new in ends if split(old)[0] != split(new)[0])
        closed = [*closed_among(self._beneath, inside)]
        became = dict(ends)
        closed += [replace(one, path=became[one.path]) for one in closed if one.path in became]
        made = [(one.path, one.after) for one in changes if not is_directory(one.before)]
        closed += [
            OpenedFolder(path, after.mode)
            for path, after in made
            if after and is_directory(after) and after.mode & OPENED != OPENED and os.geteuid()
        ]
        return tuple(closed)

    def _reserve(self, step: Replacement, slot: Slot, folders: OpenFolders) -> None:
        path, before = step.change.path, step.change.before
        self._slots[path] = slot
        if step.link is None:
            new = self._made[path] = self._make(step.change, slot, folders)
        else:
            new = self._made.get(step.link, "") or _identity_of(location_of(folders, step.link))
        old = ""
        if before is not None and before.kind != "directory":
            old = _identity_of(location_of(folders, path))
        self._named += (Temporary(path, slot.name, which) for which in (new, old) if which)

    def _make(self, change: FileChange, slot: Slot, folders: OpenFolders) -> str:
        """Make the empty file and return its identity; "" where it is made later, or fails then."""
        after = change.after
        if after is None or after.kind != "file" or is_same_content(change):
            return ""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            descriptor = slot.location(folders).open(flags, after.mode & 0o777 | 0o600)
        except OSError:
            return ""
        try:
            slot.inode = os.fstat(descriptor).st_ino
            return identity_at(descriptor)
        finally:
            os.close(descriptor)

    def take(self, path: str) -> Slot | None:
        """The slot of a path; None where the path has none."""
        return self._slots.get(path)

    def release(self) -> None:
        """Delete the empty files that nobody used; recovery finds one that stays."""
        left = [slot for slot in self._slots.values() if slot.inode is not None]
        self._slots.clear()
        if not left:
            return
        folders = OpenFolders(self._beneath, _OPEN_FOLDERS)
        for slot in left:
            with suppress(OSError):  # what stays is found and removed by recovery
                location = slot.location(folders)
                found = location.lstat()
                if found is not None and found.st_ino == slot.inode:
                    location.unlink()
        folders.close()


def _identity_of(location: Location) -> str:
    try:
        return identity_at(location.fd, os.fsencode(location.name))
    except OSError:
        return ""
