"""The directory an agent works in, and the index of what was last seen in it."""

import marshal
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from stat import S_ISDIR
from typing import Any, BinaryIO, NamedTuple, Protocol

from loom_audit.model.events import OpenedFolder
from loom_audit.model.files import BlobId, FileChange, Move
from loom_audit.model.scope import Scope
from loom_audit.ports.processes import OnProgress
from loom_audit.ports.replacing import Displaced, Replacement, Reservation
from loom_audit.ports.watch import Watch


class Stamp(NamedTuple):
    """The fields of an lstat(2) that tell that a path may have changed.

    `mode` is the full st_mode; of a directory only it and `ino` are set. A stamp is taken before
    the content it stands for is read. When the last change is so recent that another could
    leave the ctime as it is (git calls that racy: Documentation/technical/racy-git.txt), `ctime_ns`
    is the negated time of the look instead, so that the stamp differs from every other and the path
    is read again.
    """

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int


OPAQUE = 0o170000
"""The type bits, which no file has, in the stamp of a left-out folder and of `.git`."""


def opaque_stamp(identity: str, inode: int) -> Stamp:
    """The stamp of an opaque entry: which one it is, and nothing of its times.

    Two entries of one inode and of different identities have different stamps.
    """
    if not identity:
        return Stamp(OPAQUE, 0, 0, 0, inode)
    return Stamp(OPAQUE, 0, 0, int(identity[:12], 16), int(identity[16:], 16))


LeftOutFiles = dict[tuple[str, str], tuple[int, int]]
"""How many files are left out and how many bytes they have, by folder and reason."""


class Stamps:
    """The stamps last seen, the files' by folder so that a folder is compared in one step.

    `files` maps a folder to its names, `unsettled` are the paths whose stamp has no mode and so
    equals none that is seen. The three are not to be changed from outside.
    """

    __slots__ = ("directories", "files", "unsettled")

    def __init__(self) -> None:
        self.files: dict[str, dict[str, Stamp]] = {}
        self.directories: dict[str, Stamp] = {}
        self.unsettled: set[str] = set()

    @classmethod
    def of(cls, seen: Iterable[tuple[str, Stamp]]) -> "Stamps":
        """The stamps of these paths, of which no path comes twice."""
        stamps = cls()
        files, directories, unsettled = stamps.files, stamps.directories, stamps.unsettled
        for path, stamp in seen:
            mode = stamp[0]
            if not mode:
                unsettled.add(path)
            if S_ISDIR(mode):
                directories[path] = stamp
                continue
            folder, _, name = path.rpartition("/")
            names = files.get(folder)
            if names is None:
                files[folder] = {name: stamp}
            else:
                names[name] = stamp
        return stamps

    def __setitem__(self, path: str, stamp: Stamp) -> None:
        folder, _, name = path.rpartition("/")
        if not stamp.mode:
            self.unsettled.add(path)
        elif self.unsettled:
            self.unsettled.discard(path)
        if S_ISDIR(stamp.mode):
            self.directories[path] = stamp
            self.files.get(folder, {}).pop(name, None)
        else:
            self.files.setdefault(folder, {})[name] = stamp
            self.directories.pop(path, None)

    def get(self, path: str) -> Stamp | None:
        """The stamp of a path; None when none was seen there."""
        folder, _, name = path.rpartition("/")
        return self.files.get(folder, {}).get(name) or self.directories.get(path)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self.get(path) is not None

    def forget(self, path: str) -> None:
        """Take a path out, so that it is as if it had not been seen."""
        folder, _, name = path.rpartition("/")
        self.directories.pop(path, None)
        self.unsettled.discard(path)
        names = self.files.get(folder)
        if names is not None:
            names.pop(name, None)
            if not names:
                del self.files[folder]

    def __iter__(self) -> Iterator[str]:
        yield from self.directories
        for folder, names in self.files.items():
            yield from (f"{folder}/{name}" if folder else name for name in names)


class StampedPaths:
    """Paths with their stamps, packed: there may be as many as there are files."""

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._stamps: list[bytes] = []

    def __len__(self) -> int:
        return len(self._paths)

    def __iter__(self) -> Iterator[tuple[str, Stamp]]:
        """The paths that were not taken, each with its stamp."""
        for path, stamp in zip(self._paths, self._stamps, strict=True):
            if stamp:
                yield path, _unpacked(stamp)

    def add(self, path: str, stamp: Stamp) -> None:
        """Add a path with its stamp behind the others."""
        self._paths.append(path)
        self._stamps.append(marshal.dumps((*stamp,)))

    def copy(self) -> "StampedPaths":
        """A copy, from which taking takes nothing away here."""
        copied = StampedPaths()
        copied.extend(self)
        return copied

    def extend(self, others: "StampedPaths") -> None:
        """Add the paths of others behind these, with those of them that were taken."""
        self._paths += others._paths
        self._stamps += others._stamps

    def take(self) -> Iterator[tuple[str, Stamp]]:
        """Each path with its stamp in turn; it is taken when the next one is asked for."""
        for n, path in enumerate(self._paths):
            yield path, _unpacked(self._stamps[n])
            self._stamps[n] = b""


def _unpacked(stamp: bytes) -> Stamp:
    return Stamp._make(marshal.loads(stamp))


class Attributes(NamedTuple):
    """The mode, list, links and identity of a file or folder, beyond its stamp.

    `mode` are the permission bits; where there is an access control list (`acl`) the group's are
    those of the list's own entry for it, as far as they count. `links` is how many names it has,
    `identity` which file it is, as `Workspace.identity` says it.
    """

    mode: int
    acl: bool
    links: int
    identity: str


class Workspace(Protocol):
    """The directory an agent works in. Paths are relative, beneath the root, and race-free.

    Symlinks inside are followed by read, stat(follow=True) and open; one that leads outside,
    `..` and absolute paths outside raise InvalidPath. Anything but a regular file, a symlink
    or a directory is refused with InvalidPath. The caller holds the workspace lock for every
    method that writes.
    """

    @property
    def root(self) -> str:
        """The absolute path of the directory."""
        ...

    def relative(self, path: str) -> str:
        """A path as callers write it (relative or absolute inside) as a workspace path.

        Lexical: `a/./b//c` becomes `a/b/c`; the root is "". Absolute paths may begin with the
        root as it was given or as it really is. InvalidPath for `..` that leaves the root, NUL,
        names over 255 bytes, paths over 4,095 bytes, outside. `.git` may be read; it is
        `replace` that refuses it.
        """
        ...

    def resolve(self, path: str) -> str:
        """The workspace path behind the symlinks of a path's parents and itself.

        What does not exist yet stays as it is written. InvalidPath when a link leads outside
        or round in a circle.
        """
        ...

    def is_writable(self, path: str) -> bool:
        """Whether `replace` may write here: not the root, `.git`, the store, or a temporary."""
        ...

    def stamp(self, path: str) -> Stamp | None:
        """lstat of the path, None when absent or when a folder on the way is a symlink."""
        ...

    def stamps(self, paths: Sequence[str]) -> Sequence[Stamp | None]:
        """The stamp of each path, quicker where paths in one folder follow each other."""
        ...

    def is_deleted(self) -> bool:
        """Whether the directory itself was deleted, not moved or unmounted: then it is empty.

        Every method that writes raises NoWorkspace until it is made again.
        """
        ...

    def make_again(self) -> None:
        """Make the directory anew where it was deleted; nothing happens where it is there."""
        ...

    def is_mounted(self, folder: str) -> bool:
        """Whether a folder is, or lies in, what is mounted inside, where `walk` does not go."""
        ...

    def mtime(self, path: str) -> datetime:
        """When a content was last modified; symlinks inside are followed. FileNotFound."""
        ...

    def open(self, path: str) -> BinaryIO:
        """The content of a regular file, symlinks inside followed.

        FileNotFound, PermissionDenied; InvalidPath for what is not a regular file.
        """
        ...

    def read(self, path: str, limit: int | None = None) -> bytes:
        """At most `limit` bytes of a regular file, all of them by default. Errors as of `open`."""
        ...

    def identity(self, path: str) -> str:
        """The identity of the file at a path, of a symlink itself, which a rename keeps.

        No file that is made later is given it. It holds within one boot and one mount; "" when
        the path is absent, or where this system cannot tell.
        """
        ...

    def changed_at(self, path: str) -> int | None:
        """When what is at a path was last changed in any way (ctime), in ns since 1970.

        A folder changes also when a name in it comes or goes. None when nothing is at the path.
        """
        ...

    def born(self, path: str) -> int | None:
        """When what is at the path was made, in ns since 1970, whatever its names were since.

        None when it is absent, has other names, or this system cannot tell.
        """
        ...

    def read_and_stamp(self, path: str, size: int) -> tuple[bytes, Stamp, Attributes]:
        """At most `size` first bytes of a file, its stamp and attributes after they were read.

        When the file has grown, the stamp differs from an earlier one.
        """
        ...

    def links(self, path: str) -> int:
        """The number of names of the file at a path, of a symlink itself; 0 when absent."""
        ...

    def attributes(self, path: str) -> Attributes:
        """The attributes of a file or folder; a symlink is not followed. FileNotFound."""
        ...

    def attributes_of_new(self, path: str, mode: int) -> Attributes:
        """The attributes that a new file of this mode gets from the folders above its path."""
        ...

    def read_link(self, path: str) -> bytes:
        """The target of a symlink, as bytes. InvalidPath when something else is there."""
        ...

    def list(self, path: str = "") -> Sequence[tuple[str, Stamp]]:
        """The names in a directory with their stamps, sorted by name. NotADirectory."""
        ...

    def walk(
        self, scope: Scope, known: Container[str], path: str = "", *, opaque: bool = False
    ) -> Iterator[tuple[str, Stamp | str]]:
        """Every path in scope below `path`, parents before children.

        With `opaque` also those of the entries that are not entered, as `differences` has them.
        A str instead of a stamp is the reason why the path (and all below it) cannot be
        recorded: `unreadable`, `not a file: fifo`, `mount`, `store`.

        A file that is in `known` is in scope without asking.
        """
        ...

    def watch(self) -> Watch:
        """A watch of this workspace, with which nothing was looked at yet."""
        ...

    def differences(
        self,
        scope: Scope,
        known: Stamps,
        left_out: LeftOutFiles | None = None,
        watch: Watch | None = None,
    ) -> Iterator[tuple[str, Stamp | str | None]]:
        """The paths of `walk` whose stamp is not the known one, and the opaque entries.

        Opaque entries are the folders that are out of scope in a folder that is not, and `.git`
        whatever it is, but not our temporaries; their stamp is an `opaque_stamp`. None for a known
        path that was not found, also when a folder above it cannot be read. `left_out` is given how
        many files are left out and their bytes; it is complete once the iteration has ended.
        """
        ...

    def reserve(self, steps: Sequence[Replacement], moves: Sequence[Move] = ()) -> Reservation:
        """Make the temporaries for these steps, before they are announced; never fails.

        One that cannot be made now is made, or fails, when the change is carried out. `moves` are
        those of folders that are renamed as a whole.
        """
        ...

    def close_opened(self, opened: OpenedFolder, mode: int) -> bool:
        """Give a folder that a crash left open this mode; False where it is not there so.

        The folder is the one that was opened, still has the mode that opening gave it, and is of
        this account.
        """
        ...

    def replace(
        self,
        change: FileChange,
        content: BinaryIO | None,
        reserved: Reservation | None = None,
        link: str | None = None,
    ) -> Displaced:
        """Put `change.after` at the path, durably and atomically, and hand back what was there.

        A file is written beside it, fsynced, exchanged, and the directory fsynced. Where
        `before` and `after` are of one content and the file has it, or both are directories,
        only the mode is changed, in place. Otherwise `change.before` is not looked at: the
        caller compares it with `Displaced.state`. A file gets the attributes of the one it
        replaces, its access control list where `after` has one; zeros are written as holes. With
        `link` it becomes another name of the file at that path, if that has the content (Conflict).
        Nothing on the path may be a symlink: see `resolve`. InvalidPath for `.git` and what is in
        it, our temporaries, the store; Corrupt when the hash of the content is not that of `after`.
        For an absent `after` the path is moved away; a directory is removed only when empty
        (Conflict when it is not).
        """
        ...

    def replace_all(
        self,
        steps: Sequence[Replacement],
        done: dict[int, Displaced] | None = None,
        reserved: Reservation | None = None,
        progress: OnProgress | None = None,
    ) -> Sequence[Displaced]:
        """Carry out many steps in two phases: all temporaries, one sync, all exchanges, one sync.

        Order: deletions of files, directories deepest first, then directories made outermost
        first, then files, then links. What is displaced is handed back in the order of `steps`.
        When a step fails, those already exchanged stay, and the error's details name it as `path`,
        and how many were done as `done`; the dict `done` then holds what each of them
        displaced, by the step's number. `progress` is told of each phase now and then.
        """
        ...

    def rename(self, source: str, target: str, identity: str) -> None:
        """Rename a folder, or `.git`, of this identity to an absent name, durably.

        Conflict, with nothing changed, when another one is there, or something at the target.
        """
        ...

    def renames_folders(self) -> bool:
        """Whether `rename` can be done on this system."""
        ...

    def leftovers(self) -> Sequence[str]:
        """The temporary files of ours that a crash left behind, as workspace paths, sorted."""
        ...

    def remove_leftover(self, path: str, identity: str) -> None:
        """Delete a leftover while it is the one of this identity; a folder only when empty.

        InvalidPath for what is not named like a temporary, Conflict for another file.
        """
        ...

    def folds_case(self) -> bool:
        """Whether two names that differ only in case are one file here."""
        ...


class IndexEntry(NamedTuple):
    """The stamp that was last seen at a path, the blob recorded for it, and its identity."""

    stamp: Stamp
    blob: BlobId | None
    identity: str = ""


class ChangeIndex(Protocol):
    """A cache beside the workspace: what a path looked like when its content was last recorded.

    Losing it costs one full hash and nothing else. `head` is the seq up to which the index knows;
    it advances only after the commit that recorded the content. Racy stamps are stored like others:
    they differ from every later one (see Stamp). `update` with nothing new writes nothing.
    """

    def load(self) -> dict[str, IndexEntry]:
        """All entries; the caller may keep and mutate the dict."""
        ...

    def get(self, path: str) -> IndexEntry | None:
        """The entry of one path; None when there is none."""
        ...

    def update(self, entries: Mapping[str, IndexEntry | None], *, head: int) -> None:
        """Set entries (None deletes) and the head, as one transaction; not durable."""
        ...

    def head(self) -> int:
        """The seq of the last event that the index has followed; 0 for an empty index."""
        ...

    def clear(self) -> None:
        """Forget every entry and the head."""
        ...

    def displace(self) -> None:
        """Clear an index that is ahead of the log; how far it had followed stays known."""
        ...

    def most_seen(self) -> int:
        """The largest head that the index has, or had when it was displaced."""
        ...


class Looks(Protocol):
    """Notes that one process keeps for the next: what was seen when a call began that another one
    may end, when that was, what git's files looked like, what a call left running.

    A cache on the machine that has the workspace: losing it lowers the coverage of calls.
    """

    def keep(self, name: str, seen: Any) -> None:
        """Keep JSON under a name, in the place of what was there. Not durable."""
        ...

    def get(self, name: str) -> Any:
        """The JSON that is kept under the name; None when there is none that can be read."""
        ...

    def discard(self, name: str) -> None:
        """Forget what is kept under the name; nothing happens when nothing is."""
        ...
