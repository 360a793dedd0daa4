"""The directory an agent works in, on a real filesystem."""

import errno
import os
import stat
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import BinaryIO, TypeVar, cast

from loom_audit.disk.access import system
from loom_audit.disk.access.identity import born_at, identity_at
from loom_audit.disk.access.letter_case import folds_case
from loom_audit.disk.access.opening import close_opened
from loom_audit.disk.access.paths import (
    audit_errors,
    kind_of,
    normalize,
    not_a_file_error,
    outside_error,
    printable,
    split,
    to_audit_error,
)
from loom_audit.disk.access.root_directory import OpenFolders, RootDirectory
from loom_audit.disk.access.system import System, mapped_below, mounts_below
from loom_audit.disk.looking import walk as walking
from loom_audit.disk.looking.lstat import lstat, lstat_each
from loom_audit.disk.looking.told_folders import ToldFolders
from loom_audit.disk.looking.touched import find_watched_differences
from loom_audit.disk.looking.walk import stamp_of
from loom_audit.disk.looking.watch import DiskWatch
from loom_audit.disk.writing import attributes, bulk, rename, replace
from loom_audit.disk.writing.attributes import inherited_acl, own_mode
from loom_audit.disk.writing.exchange import location_of
from loom_audit.disk.writing.reservation import DiskReservation
from loom_audit.disk.writing.reversal import owner_access, remove
from loom_audit.errors import Conflict, InvalidPath, StorageFailed
from loom_audit.model.events import OpenedFolder
from loom_audit.model.files import FileChange, Move
from loom_audit.model.scope import NEVER, TEMPORARY, Scope
from loom_audit.model.text.display import moment
from loom_audit.ports import (
    Attributes,
    Displaced,
    LeftOutFiles,
    OnProgress,
    Replacement,
    Reservation,
    Stamp,
    Stamps,
    Watch,
)

T = TypeVar("T")

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_CHUNK = 1 << 20


class DiskWorkspace:
    """A `ports.Workspace` on disk. Usable from any thread; writers hold the workspace lock.

    `exclude` are absolute paths (the store, other workspaces) that are never recorded nor written;
    `calls` are the system calls to use, by default all this kernel has. A workspace that was
    `deleted` is empty until it is made again.
    """

    def __init__(
        self,
        root: str,
        *,
        exclude: Iterable[str] = (),
        calls: System | None = None,
        deleted: bool = False,
    ) -> None:
        if sys.getfilesystemencoding() != "utf-8":
            raise StorageFailed(
                f"file names are in {sys.getfilesystemencoding()} here",
                hint="Set PYTHONUTF8=1.",
            )
        with audit_errors(root):
            known = system.probe() if calls is None else calls
            self._beneath = RootDirectory(root, known, deleted=deleted)
        inside = (self._beneath.relative_to_root(os.path.realpath(path)) for path in exclude)
        self._excluded = frozenset(path for path in inside if path)
        self._folds: bool | None = None

    @property
    def root(self) -> str:
        """The real path of the directory, as it was when it was opened."""
        return self._beneath.real

    def close(self) -> None:
        """Close the directory's descriptor; otherwise that happens with the object."""
        self._beneath.close()

    # --- paths ----------------------------------------------------------------------------

    def relative(self, path: str) -> str:
        """The workspace path of a path as written, by its text alone. InvalidPath."""
        if path.startswith("/"):
            inside = self._beneath.relative_to_root("/" + os.path.normpath(path).lstrip("/"))
            if inside is None:
                if "\0" in path:
                    return normalize(path)
                raise outside_error(path.encode("utf-8", "replace").decode()[:200])
            return normalize(inside)
        return normalize(path)

    def resolve(self, path: str) -> str:
        """The workspace path behind the links of a path. InvalidPath where one leads outside."""
        with audit_errors(path):
            return normalize(self._beneath.resolve(normalize(path)))

    def _check_writable(self, path: str) -> None:
        """InvalidPath for the root, `.git`, our own temporaries and what is excluded."""
        parts = path.split("/")
        if normalize(path) != path or not path:
            raise InvalidPath(
                f"not a path in a workspace: {printable(path) or 'its root'}",
                details={"path": printable(path)},
            )
        if not self._excluded and TEMPORARY not in path and ".git" not in path.casefold():
            return
        folded = [part.casefold() for part in parts] if self.folds_case() else parts
        reason = ""
        if not NEVER.isdisjoint(folded):
            reason = "inside .git"
        elif any(part.startswith(TEMPORARY) for part in parts):
            reason = "a temporary of ours"
        elif any("/".join(parts[: n + 1]) in self._excluded for n in range(len(parts))):
            reason = "inside the store or another workspace"
        if reason:
            raise InvalidPath(
                f"{reason}: {printable(path)}",
                hint="Choose another path; a shell command may still change it, unrecorded.",
                details={"path": printable(path)},
            )

    # --- reading --------------------------------------------------------------------------

    def stamp(self, path: str) -> Stamp | None:
        """The stamp of an lstat(2), None when absent or when a folder on the way is a link."""
        try:
            found = lstat(self._beneath, path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise to_audit_error(error, path) from error
        return None if found is None else stamp_of(found)

    def stamps(self, paths: Sequence[str]) -> Sequence[Stamp | None]:
        """The stamps of many paths; a folder is opened once for paths that follow each other."""
        seen = lstat_each(self._beneath, paths)
        return [None if found is None else stamp_of(found) for found in seen]

    def is_deleted(self) -> bool:
        """Whether the open directory has no name any more, and nothing is in its place."""
        with audit_errors(""):
            return self._beneath.is_deleted

    def make_again(self) -> None:
        """Make the directory, and those above it, where it was deleted; durably."""
        with audit_errors(""):
            self._beneath.make_again()

    def is_mounted(self, folder: str) -> bool:
        """Whether openat2(2) finds a mount on the way to a folder, or /proc lists one there."""
        with audit_errors(folder):
            return self._beneath.is_mounted(normalize(folder))

    def mtime(self, path: str) -> datetime:
        """The st_mtime of what a path leads to, in UTC. FileNotFound."""
        with audit_errors(path):
            descriptor = self._beneath.open(normalize(path), system.O_PATH)
            try:
                seen = os.fstat(descriptor)
            finally:
                os.close(descriptor)
        return moment(seen.st_mtime_ns)

    def _open(self, path: str) -> tuple[int, os.stat_result]:
        with audit_errors(path):
            try:
                descriptor = self._beneath.open(normalize(path), _READ)
            except OSError as error:
                found = self._special_mode(path)
                if found is not None:
                    raise not_a_file_error(path, found) from error
                raise
            seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            os.close(descriptor)
            raise not_a_file_error(path, seen.st_mode)
        return descriptor, seen

    def _special_mode(self, path: str) -> int | None:
        """The mode of a socket or device that cannot even be opened."""
        try:
            found = lstat(self._beneath, path)
        except OSError:
            return None
        kinds = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
        if found is None or stat.S_IFMT(found.st_mode) in kinds:
            return None
        return found.st_mode

    def open(self, path: str) -> BinaryIO:
        """A stream of a regular file, whose descriptor was checked to be one."""
        return cast(BinaryIO, os.fdopen(self._open(path)[0], "rb"))

    def read(self, path: str, limit: int | None = None) -> bytes:
        """At most `limit` bytes of a regular file, read by as few calls as its size takes."""
        descriptor, seen = self._open(path)
        parts = []
        rest = sys.maxsize if limit is None else limit
        size = seen.st_size + 1
        try:
            with audit_errors(path):
                while rest > 0 and (part := os.read(descriptor, min(rest, max(size, 1), _CHUNK))):
                    parts.append(part)
                    rest -= len(part)
                    size = max(size - len(part), 4096)
        finally:
            os.close(descriptor)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def identity(self, path: str) -> str:
        """The identity by the kernel's file handle, else by inode and time of birth; "" without."""
        return self._ask(path, identity_at) or ""

    def changed_at(self, path: str) -> int | None:
        """The st_ctime of what is at a path, in ns; None when absent or out of reach."""
        with suppress(OSError):
            found = lstat(self._beneath, path)
            return None if found is None else found.st_ctime_ns
        return None

    def born(self, path: str) -> int | None:
        """The time of birth of statx(2), in ns; None where it is not known."""
        return self._ask(path, born_at)

    def _ask(self, path: str, question: Callable[[int, bytes], T]) -> T | None:
        """What a question about a name in an open folder gives; None without the folder."""
        parent, name = split(normalize(path))
        try:
            folder = self._beneath.open_folder(parent, readable=False)
        except OSError as error:
            if error.errno in walking.GONE:
                return None
            raise to_audit_error(error, path) from error
        try:
            return question(folder, os.fsencode(name))
        finally:
            os.close(folder)

    def read_and_stamp(self, path: str, size: int) -> tuple[bytes, Stamp, Attributes]:
        """At most `size` bytes, then stamp and attributes by the same descriptor."""
        descriptor, _ = self._open(path)
        try:
            with audit_errors(path):
                content = os.read(descriptor, size)
                while 0 < len(content) < size and (
                    part := os.read(descriptor, size - len(content))
                ):
                    content += part
                seen = os.fstat(descriptor)
                return content, stamp_of(seen), attributes.attributes_of(descriptor, seen)
        finally:
            os.close(descriptor)

    def links(self, path: str) -> int:
        """The st_nlink of what is at a path; 0 when absent."""
        with audit_errors(path):
            try:
                found = lstat(self._beneath, normalize(path))
            except (FileNotFoundError, NotADirectoryError):
                return 0
        return 0 if found is None else found.st_nlink

    def attributes(self, path: str) -> Attributes:
        """The attributes of a file or folder, a symlink not followed. FileNotFound."""
        with audit_errors(path):
            return attributes.attributes_at(location_of(OpenFolders(self._beneath), path))

    def attributes_of_new(self, path: str, mode: int) -> Attributes:
        """The attributes by the default access control list of the folder above a path."""
        with audit_errors(path):
            acl = inherited_acl(OpenFolders(self._beneath), split(path)[0], mode)
        return Attributes(own_mode(mode, acl), acl is not None, 1, "")

    def read_link(self, path: str) -> bytes:
        """The target of a symlink, as bytes. InvalidPath when something else is there."""
        parent, name = split(path)
        with audit_errors(path):
            folder = self._beneath.open_folder(parent, readable=False)
            try:
                return os.fsencode(os.readlink(name, dir_fd=folder))
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                raise InvalidPath(
                    f"not a symlink but a {kind_of(mode)}: {printable(path)}"
                ) from error
            finally:
                os.close(folder)

    def list(self, path: str = "") -> Sequence[tuple[str, Stamp]]:
        """The names in a directory with their stamps, sorted; what vanishes is left out."""
        found = []
        with audit_errors(path):
            self._beneath.check()
            descriptor = self._beneath.open(normalize(path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                with os.scandir(descriptor) as entries:
                    for entry in entries:
                        try:
                            seen = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue
                        found.append((entry.name, stamp_of(seen)))
            finally:
                os.close(descriptor)
        return sorted(found)

    def walk(
        self, scope: Scope, known: Container[str], path: str = "", *, opaque: bool = False
    ) -> Iterator[tuple[str, Stamp | str]]:
        """Every path in scope below a path, folders before what is in them."""
        self._beneath.check()
        scan = walking.Scan(self._beneath, scope, known, self._unrecordable(), opaque=opaque)
        return walking.walk(scan, path)

    def watch(self) -> DiskWatch:
        """A watch by inotify(7), with which nothing was looked at yet."""
        return DiskWatch(self._beneath)

    def differences(
        self,
        scope: Scope,
        known: Stamps,
        left_out: LeftOutFiles | None = None,
        watch: Watch | None = None,
    ) -> Iterator[tuple[str, Stamp | str | None]]:
        """The paths whose stamp is not the known one, by the folders that a watch tells of."""
        self._beneath.check()
        watched = watch if isinstance(watch, ToldFolders) else None
        if self._beneath.is_deleted:
            watched = None  # nothing is told of what is not there
        scan = walking.Scan(
            self._beneath,
            scope,
            known,
            self._unrecordable(),
            known,
            mapped_below(self._beneath.real),
            opaque=True,
            left_out={} if left_out is None else left_out,
            watch=watched,
        )
        if watched is not None:
            return find_watched_differences(scan, watched)
        return walking.find_differences(scan)

    def _unrecordable(self) -> dict[str, str]:
        mounts = dict.fromkeys(mounts_below(self._beneath.real), "mount")
        return mounts | dict.fromkeys(self._excluded, "store")

    # --- writing --------------------------------------------------------------------------

    def reserve(self, steps: Sequence[Replacement], moves: Sequence[Move] = ()) -> DiskReservation:
        """Make the empty temporaries of the steps that may be written at all."""
        writable = [step for step in steps if self.is_writable(step.change.path)]
        return DiskReservation(self._beneath, writable, moves)

    def close_opened(self, opened: OpenedFolder, mode: int) -> bool:
        """Give a folder that a crash left open this mode; False where it is not there so."""
        try:
            return close_opened(self._beneath, opened, mode)
        except OSError as error:
            if error.errno in walking.GONE:
                return False
            raise to_audit_error(error, opened.path) from error

    def is_writable(self, path: str) -> bool:
        """Whether `replace` may write a path: not the root, `.git`, or what is excluded."""
        try:
            self._check_writable(path)
        except InvalidPath:
            return False
        return True

    def replace(
        self,
        change: FileChange,
        content: BinaryIO | None,
        reserved: Reservation | None = None,
        link: str | None = None,
    ) -> Displaced:
        """Replace one path by an exchange of names, durably.

        InvalidPath for a path that is never written, NoWorkspace where the directory is not there.
        """
        self._check_writable(change.path)
        self._beneath.check_present()
        slot = reserved.take(change.path) if isinstance(reserved, DiskReservation) else None
        with audit_errors(change.path):
            folders = OpenFolders(self._beneath)
            return replace.replace(folders, change, content, slot=slot, link=link)

    def replace_all(
        self,
        steps: Sequence[Replacement],
        done: dict[int, Displaced] | None = None,
        reserved: Reservation | None = None,
        progress: OnProgress | None = None,
    ) -> Sequence[Displaced]:
        """Replace many paths between two flushes of the filesystem; errors as of `replace`."""
        for step in steps:
            self._check_writable(step.change.path)
        self._beneath.check_present()
        slots = reserved if isinstance(reserved, DiskReservation) else None
        done = {} if done is None else done
        return bulk.replace_all(self._beneath, steps, done, slots, progress)

    def rename(self, source: str, target: str, identity: str) -> None:
        """Rename a folder, or `.git`, of this identity to an absent name. Conflict."""
        for path in (source, target):
            self._check_writable(f"{path}_" if split(path)[1] in NEVER else path)
        self._beneath.check_present()
        with audit_errors(source):
            rename.rename(OpenFolders(self._beneath), source, target, identity)

    def renames_folders(self) -> bool:
        """Whether renameat2(2) can be called, which refuses to replace what may have come."""
        return self._beneath.calls.renameat2

    def leftovers(self) -> Sequence[str]:
        """The paths of temporaries in every folder but `.git` and other filesystems, sorted."""
        self._beneath.check()
        with audit_errors(""):
            return sorted(walking.find_leftovers(self._beneath, TEMPORARY))

    def remove_leftover(self, path: str, identity: str) -> None:
        """Delete a temporary that has this identity, also in a folder whose mode forbids it.

        InvalidPath for another name than one of a temporary, Conflict for another file.
        """
        location = location_of(OpenFolders(self._beneath), path)
        if not location.name.startswith(TEMPORARY):
            raise InvalidPath(f"not a temporary of ours: {printable(path)}")
        with audit_errors(path):
            if identity_at(location.fd, os.fsencode(location.name)) != identity:
                raise Conflict(f"another file is there now: {printable(path)}")
            with owner_access(location):
                remove(location)

    def folds_case(self) -> bool:
        """Whether names that differ only in case are one file; asked of the disk once."""
        if self._folds is None:
            with audit_errors(""):
                self._folds = folds_case(self._beneath)
        return self._folds
