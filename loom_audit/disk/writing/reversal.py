"""Replacements that can be reversed: what was put at a path, and what it displaced.

Whatever is deleted is first made sure to be our own: a third party's edit of our replacement
makes `put_back` raise Conflict and leaves everything where it is.
"""

import errno
import hashlib
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO, TypeVar, cast

from msgspec import Struct

from loom_audit.disk.access import system
from loom_audit.disk.access.opening import opened
from loom_audit.disk.access.paths import audit_errors, conflict, printable
from loom_audit.disk.access.system import closing_fd
from loom_audit.disk.writing import attributes
from loom_audit.disk.writing.attributes import acl_at, acl_of, own_mode
from loom_audit.disk.writing.exchange import Location, exchange, move
from loom_audit.errors import Conflict, FileNotFound
from loom_audit.model.files import BlobId, FileState

CHUNK = 1 << 20
T = TypeVar("T")


class Identity(Struct, frozen=True):
    """What tells our own replacement from any other file; size and time count for a file only."""

    device: int
    inode: int
    kind: int
    size: int
    mtime_ns: int

    def is_at(self, location: Location) -> bool:
        """Whether our replacement is still at the location, as we made it."""
        seen = location.lstat()
        return seen is not None and identity_of(seen) == self


def identity_of(seen: os.stat_result) -> Identity:
    """The identity that a stat tells."""
    kind = stat.S_IFMT(seen.st_mode)
    size, time = (seen.st_size, seen.st_mtime_ns) if stat.S_ISREG(kind) else (0, 0)
    return Identity(seen.st_dev, seen.st_ino, kind, size, time)


def remove(temporary: Location) -> None:
    """Delete a temporary, whatever it is, if it is there. OSError."""
    seen = temporary.lstat()
    if seen is None:
        return
    if stat.S_ISDIR(seen.st_mode):
        temporary.rmdir()
    else:
        temporary.unlink()


def _try_remove(temporary: Location) -> bool:
    """Delete a temporary; False when it is a folder that is not empty."""
    try:
        remove(temporary)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def sync_inode(target: Location) -> None:
    """Make the mode of a file or folder durable. OSError."""
    seen = target.lstat()
    if seen is not None and stat.S_ISDIR(seen.st_mode):
        target.folders.forget(target.path)
        target.folders.sync(target.path)
    elif seen is not None:
        with closing_fd(open_owned(target, seen)) as descriptor:
            system.fsync(descriptor)


def open_owned(location: Location, seen: os.stat_result) -> int:
    """Open a file for reading, also one of ours whose mode forbids even us to read it."""
    try:
        return location.open(os.O_RDONLY)
    except PermissionError:
        if seen.st_uid != os.geteuid() or seen.st_mode & stat.S_IRUSR:
            raise
    mode = stat.S_IMODE(seen.st_mode)
    location.chmod(mode | stat.S_IRUSR)
    try:
        return location.open(os.O_RDONLY)
    finally:
        location.chmod(mode)


def folder_state(location: Location, seen: os.stat_result) -> FileState:
    """The state of a folder, by its stat and its access control list."""
    acl = acl_at(location)
    mode = own_mode(seen.st_mode, acl)
    return FileState("directory", None, mode, 0, acl=acl is not None)


def read_state(location: Location, seen: os.stat_result) -> FileState:
    """The state of a regular file, its content read in bounded memory."""
    with closing_fd(open_owned(location, seen)) as descriptor:
        blob, size = _hash_of(descriptor, seen.st_size)
        acl = acl_of(descriptor)
        mode = own_mode(seen.st_mode, acl)
        return FileState("file", blob, mode, size, acl=acl is not None)


def _hash_of(descriptor: int, expected: int) -> tuple[BlobId, int]:
    """The hash of what is open, of about the `expected` size, and how many bytes it has."""
    digest, size, whole = hashlib.sha256(), 0, False
    while not whole:
        most = min(CHUNK, max(expected - size, 0) + 4096)
        chunk = os.read(descriptor, most)
        whole = len(chunk) < most  # so it is at the end of a regular file
        digest.update(chunk)
        size += len(chunk)
    return BlobId(digest.hexdigest()), size


@contextmanager
def owner_access(*locations: Location | None) -> Iterator[None]:
    """Let us work in folders of ours whose mode forbids it, for the block.

    What was displaced from a read-only folder has to be read and deleted there.
    """
    there = [location for location in locations if location is not None]
    if not there or os.geteuid() == 0:
        yield
        return
    with opened(there[0].folders.beneath, [location.parent for location in there]):
        yield


class PathReversal(Struct):
    """A replaced path: the file or link that was there lies at `displaced`.

    A folder that was there is deleted; its state is known.
    """

    target: Location
    identity: Identity | None
    prior: os.stat_result | None
    displaced: Location | None
    _state: FileState | None = None

    @property
    def links(self) -> int:
        """The st_nlink of what was displaced; 0 when the path was free, 1 of a folder."""
        if self.prior is None or stat.S_ISDIR(self.prior.st_mode):
            return 1 if self.prior is not None else 0
        return self.prior.st_nlink

    @property
    def state(self) -> FileState | None:
        """The state of what was displaced, hashed when first asked for."""
        if self._state is None and self.prior is not None:
            self._state = self._reached(partial(self._read_state, self.prior))
        return self._state

    def set_state(self, state: FileState) -> None:
        """Set the state that was there before we made the path accessible for ourselves."""
        self._state = state

    def _reached(self, work: Callable[[], T]) -> T:
        """The result of a work; the folder of the displaced file is opened where it forbids it."""
        with audit_errors(self.target.path):
            try:
                return work()
            except PermissionError:
                with owner_access(self.displaced):
                    return work()

    def _read_state(self, prior: os.stat_result) -> FileState:
        if stat.S_ISLNK(prior.st_mode):
            target = self._displaced_location().read_link()
            blob = BlobId(hashlib.sha256(target).hexdigest())
            return FileState("symlink", blob, 0o777, len(target))
        return read_state(self._displaced_location(), prior)

    def _displaced_location(self) -> Location:
        if self.displaced is None:
            raise FileNotFound(
                f"nothing with content was displaced from {printable(self.target.path)}"
            )
        return self.displaced

    def open(self) -> BinaryIO:
        """A stream of the displaced content; FileNotFound when it had none."""
        displaced = self._displaced_location()
        with audit_errors(self.target.path), owner_access(displaced):
            if self.prior is None or stat.S_ISLNK(self.prior.st_mode):
                return io.BytesIO(displaced.read_link())
            return cast(BinaryIO, os.fdopen(open_owned(displaced, self.prior), "rb"))

    def discard(self) -> None:
        """Delete what was displaced; the replacement stands."""
        if self.displaced is not None:
            self._reached(self.displaced.unlink)
            self.displaced = None

    def discard_unchanged(self) -> bool:
        """Delete what was displaced if its hash is still the same; whether it was so."""
        if (
            self.displaced is not None
            and self.prior is not None
            and stat.S_ISREG(self.prior.st_mode)
        ):
            blob = self._reached(partial(self._settled_hash, self.displaced, self.prior))
            if self.state is None or self.state.blob != blob:
                return False
        self.discard()
        return True

    def _settled_hash(self, displaced: Location, prior: os.stat_result) -> BlobId:
        with closing_fd(open_owned(displaced, prior)) as descriptor:
            self.target.folders.beneath.patience.wait(descriptor)
            return _hash_of(descriptor, prior.st_size)[0]

    def put_back(self) -> None:
        """Exchange what was displaced with the replacement again, durably.

        Conflict, with nothing changed, when the replacement is not as we made it.
        """
        with audit_errors(self.target.path), owner_access(self.target, self.displaced):
            if self.prior is None:
                self._remove_replacement()
            else:
                self._restore_prior(self.state)
            self.target.folders.sync(self.target.parent)

    def _remove_replacement(self) -> None:
        if self.identity is None:
            return
        temporary = self.target.temporary_sibling()
        self.target.folders.forget(self.target.path)
        try:
            move(self.target, temporary)
        except FileNotFoundError as error:
            raise self._conflict() from error
        if not self._remove_own(temporary, self.identity):
            move(temporary, self.target)
            raise self._conflict()

    def _restore_prior(self, prior: FileState | None) -> None:
        made = self.displaced is None
        back = self.target.temporary_sibling() if self.displaced is None else self.displaced
        try:
            if made and prior is not None:
                back.mkdir()
                back.chmod(prior.mode)
            self._exchange_back(back)
        except BaseException:
            if made:
                with suppress(OSError):
                    back.rmdir()
            raise
        self.displaced = None

    def _exchange_back(self, back: Location) -> None:
        try:
            if self.identity is None:
                move(back, self.target)
                return
            if not self.identity.is_at(self.target):
                raise self._conflict()
            self.target.folders.forget(self.target.path)
            exchange(back, self.target)
        except (FileExistsError, FileNotFoundError) as error:
            raise self._conflict() from error
        if not self._remove_own(back, self.identity):
            exchange(back, self.target)
            raise self._conflict()

    def _remove_own(self, temporary: Location, identity: Identity) -> bool:
        """Delete our replacement, unless somebody has written into it or does so just now."""
        if identity.kind == stat.S_IFREG:
            # it may be another file, or its mode forbid it
            with suppress(OSError), closing_fd(temporary.open(os.O_RDONLY)) as descriptor:
                self.target.folders.beneath.patience.wait(descriptor)
        return identity.is_at(temporary) and _try_remove(temporary)

    def _conflict(self) -> Conflict:
        return conflict(
            self.target.path,
            "{} was changed again after we replaced it",
            hint="What was displaced is kept; look at the file and decide.",
        )


class ModeReversal(Struct):
    """A path whose content stayed and whose mode may have been changed in place."""

    target: Location
    state: FileState
    mode: int
    identity: Identity
    acl: bytes | None = None
    """The access control list that was there."""

    @property
    def links(self) -> int:
        """Always 1: a file with other names is replaced as a whole."""
        return 1

    def set_state(self, state: FileState) -> None:
        """Set the state that was there before we made the path accessible for ourselves."""
        self.state = state

    def open(self) -> BinaryIO:
        """A stream of the content at the path. FileNotFound for a folder, or when it is gone."""
        if self.state.kind != "file":
            raise FileNotFound(
                f"nothing with content was displaced from {printable(self.target.path)}"
            )
        with audit_errors(self.target.path):
            seen = self.target.lstat()
            if seen is None:
                raise FileNotFound(f"File not found: {printable(self.target.path)}")
            return cast(BinaryIO, os.fdopen(open_owned(self.target, seen), "rb"))

    def discard(self) -> None:
        """Do nothing: nothing was displaced."""

    def discard_unchanged(self) -> bool:
        """Do nothing, and say True: nothing was displaced."""
        return True

    def put_back(self) -> None:
        """Set the mode and the access control list that were there, durably.

        Conflict when the file or its mode was changed since.
        """
        with audit_errors(self.target.path):
            seen = self.target.lstat()
            if seen is None or (identity_of(seen), stat.S_IMODE(seen.st_mode)) != (
                self.identity,
                self.mode,
            ):
                raise conflict(
                    self.target.path,
                    "{} was changed again after its mode was",
                    hint="Look at it and decide.",
                )
            if self.acl is None and self.mode == self.state.mode:
                return
            attributes.change_mode(self.target, self.state.mode, acl=False)
            if self.acl is not None:
                attributes.set_acl(self.target, self.acl)
            sync_inode(self.target)
