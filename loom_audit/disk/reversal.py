"""What a replace put at a path and what it took away, until `discard` or `put_back`.

Whatever is deleted is first made sure to be our own: a third party's edit of our replacement
makes `put_back` raise Conflict and leaves everything where it is.
"""

import contextlib
import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from loom_audit.disk import system
from loom_audit.disk.exchange import Location, exchange, location_of, move
from loom_audit.disk.paths import audit_errors, printable
from loom_audit.errors import Conflict, FileNotFound
from loom_audit.model.files import BlobId, FileState

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    """How to know our own replacement again; size and time only where it is a file."""

    device: int
    inode: int
    kind: int
    size: int
    mtime_ns: int

    def is_at(self, place: Location) -> bool:
        found = place.lstat()
        return found is not None and identity_of(found) == self


def identity_of(seen: os.stat_result) -> Identity:
    kind = stat.S_IFMT(seen.st_mode)
    size, time = (seen.st_size, seen.st_mtime_ns) if stat.S_ISREG(kind) else (0, 0)
    return Identity(seen.st_dev, seen.st_ino, kind, size, time)


def remove(temporary: Location) -> None:
    """Delete a temporary, whatever it is, if it is there."""
    found = temporary.lstat()
    if found is None:
        return
    if stat.S_ISDIR(found.st_mode):
        temporary.rmdir()
    else:
        temporary.unlink()


def _try_remove(temporary: Location) -> bool:
    """Delete it; False when it is a folder that is not empty."""
    try:
        remove(temporary)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def sync_inode(at: Location) -> None:
    """Make the mode of a file or folder durable."""
    found = at.lstat()
    if found is not None and stat.S_ISDIR(found.st_mode):
        at.folders.forget(at.path)
        at.folders.sync(at.path)
    elif found is not None:
        descriptor = open_owned(at, found)
        try:
            system.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_owned(place: Location, found: os.stat_result) -> int:
    """Open a file for reading, also one of ours whose mode forbids even us to read it."""
    try:
        return place.open(os.O_RDONLY)
    except PermissionError:
        if found.st_uid != os.geteuid() or found.st_mode & stat.S_IRUSR:
            raise
    mode = stat.S_IMODE(found.st_mode)
    place.chmod(mode | stat.S_IRUSR)
    try:
        return place.open(os.O_RDONLY)
    finally:
        place.chmod(mode)


def hash_file(place: Location, found: os.stat_result) -> tuple[BlobId, int]:
    """SHA-256 and length of a regular file's content, read in bounded memory."""
    descriptor = open_owned(place, found)
    try:
        digest = hashlib.sha256()
        size = 0
        while chunk := os.read(descriptor, min(CHUNK, max(found.st_size - size, 0) + 4096)):
            digest.update(chunk)
            size += len(chunk)
        return BlobId(digest.hexdigest()), size
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def owner_access(*places: Location | None) -> Iterator[None]:
    """Let us work in folders of ours whose mode forbids it, for the block.

    What was displaced from a read-only folder has to be read and deleted there.
    """
    closed: list[tuple[Location, int]] = []
    try:
        for place in places:
            if place is None or not place.parent or os.geteuid() == 0:
                continue
            found = os.fstat(place.fd)
            mode = stat.S_IMODE(found.st_mode)
            if mode & stat.S_IRWXU != stat.S_IRWXU and found.st_uid == os.geteuid():
                folder = location_of(place.folders, place.parent)
                folder.chmod(mode | stat.S_IRWXU)
                closed.append((folder, mode))
        yield
    finally:
        for folder, mode in reversed(closed):
            folder.chmod(mode)


@dataclass(slots=True)
class PathReversal:
    """What a replace took away: a file or link under `aside`, a folder's mode, or nothing."""

    at: Location
    put: Identity | None
    prior: os.stat_result | None
    aside: Location | None
    _state: FileState | None = None

    @property
    def links(self) -> int:
        if self.prior is None or stat.S_ISDIR(self.prior.st_mode):
            return 1 if self.prior is not None else 0
        return self.prior.st_nlink

    @property
    def state(self) -> FileState | None:
        if self._state is None and self.prior is not None:
            with audit_errors(self.at.path):
                try:
                    self._state = self._look(self.prior)
                except PermissionError:
                    with owner_access(self.aside):
                        self._state = self._look(self.prior)
        return self._state

    def state_is(self, state: FileState) -> None:
        """What was there before we made it usable for ourselves."""
        self._state = state

    def _look(self, prior: os.stat_result) -> FileState:
        mode = stat.S_IMODE(prior.st_mode)
        if stat.S_ISDIR(prior.st_mode):
            return FileState("directory", None, mode, 0)
        if stat.S_ISLNK(prior.st_mode):
            target = self._aside().read_link()
            blob = BlobId(hashlib.sha256(target).hexdigest())
            return FileState("symlink", blob, 0o777, len(target))
        blob, size = hash_file(self._aside(), prior)
        return FileState("file", blob, mode, size)

    def _aside(self) -> Location:
        if self.aside is None:
            raise FileNotFound(f"nothing with content was displaced from {printable(self.at.path)}")
        return self.aside

    def open(self) -> BinaryIO:
        aside = self._aside()
        with audit_errors(self.at.path), owner_access(aside):
            if self.prior is None or stat.S_ISLNK(self.prior.st_mode):
                return io.BytesIO(aside.read_link())
            return cast(BinaryIO, os.fdopen(open_owned(aside, self.prior), "rb"))

    def discard(self) -> None:
        if self.aside is not None:
            with audit_errors(self.at.path):
                try:
                    self.aside.unlink()
                except PermissionError:
                    with owner_access(self.aside):
                        self.aside.unlink()
            self.aside = None

    def put_back(self) -> None:
        with audit_errors(self.at.path), owner_access(self.at, self.aside):
            if self.prior is None:
                self._remove_replacement()
            else:
                self._bring_back(self.state)
            self.at.folders.sync(self.at.parent)

    def _remove_replacement(self) -> None:
        if self.put is None:
            return
        temporary = self.at.beside()
        self.at.folders.forget(self.at.path)
        try:
            move(self.at, temporary)
        except FileNotFoundError as error:
            raise self._changed_again() from error
        if not (self.put.is_at(temporary) and _try_remove(temporary)):
            move(temporary, self.at)
            raise self._changed_again()

    def _bring_back(self, prior: FileState | None) -> None:
        made = self.aside is None
        back = self.at.beside() if self.aside is None else self.aside
        try:
            if made and prior is not None:
                back.mkdir()
                back.chmod(prior.mode)
            self._trade(back)
        except BaseException:
            if made:
                with contextlib.suppress(OSError):
                    back.rmdir()
            raise
        self.aside = None

    def _trade(self, back: Location) -> None:
        try:
            if self.put is None:
                move(back, self.at)
                return
            if not self.put.is_at(self.at):
                raise self._changed_again()
            self.at.folders.forget(self.at.path)
            exchange(back, self.at)
        except (FileExistsError, FileNotFoundError) as error:
            raise self._changed_again() from error
        if not (self.put.is_at(back) and _try_remove(back)):
            exchange(back, self.at)
            raise self._changed_again()

    def _changed_again(self) -> Conflict:
        return Conflict(
            f"{printable(self.at.path)} was changed again after we replaced it",
            hint="What was displaced is kept; look at the file and decide.",
            details={"path": printable(self.at.path)},
        )


@dataclass(slots=True)
class ModeReversal:
    """A path whose content stayed and whose mode may have been changed in place."""

    at: Location
    state: FileState
    mode: int
    put: Identity

    @property
    def links(self) -> int:
        return 1

    def state_is(self, state: FileState) -> None:
        """What was there before we made it usable for ourselves."""
        self.state = state

    def open(self) -> BinaryIO:
        if self.state.kind != "file":
            raise FileNotFound(f"nothing with content was displaced from {printable(self.at.path)}")
        with audit_errors(self.at.path):
            found = self.at.lstat()
            if found is None:
                raise FileNotFound(f"File not found: {printable(self.at.path)}")
            return cast(BinaryIO, os.fdopen(open_owned(self.at, found), "rb"))

    def discard(self) -> None:
        """Nothing was put aside."""

    def put_back(self) -> None:
        with audit_errors(self.at.path):
            found = self.at.lstat()
            if found is None or (identity_of(found), stat.S_IMODE(found.st_mode)) != (
                self.put,
                self.mode,
            ):
                raise Conflict(
                    f"{printable(self.at.path)} was changed again after its mode was",
                    hint="Look at it and decide.",
                    details={"path": printable(self.at.path)},
                )
            if self.mode != self.state.mode:
                self.at.chmod(self.state.mode)
                sync_inode(self.at)
