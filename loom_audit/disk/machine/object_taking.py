"""Copies the new objects of a repository into a mirror, each checked by its name.

A loose object is named by the hash of its content, which is computed as it is copied. A pack ends
in a hash of itself, by which it is named in the mirror, so that another pack of the same name does
not keep one out; its index is made anew, since the repository's could name one object as another.
Whatever a repository holds is read through descriptors, without following a link.
"""

import errno
import fcntl
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from shutil import rmtree
from typing import BinaryIO

from msgspec import Struct, field

from loom_audit.disk.access import system
from loom_audit.disk.access.system import closing_fd, put_file, write_all
from loom_audit.disk.machine.own_packs import KINDS, OWN, PackWriter, ids_in, new_hash
from loom_audit.disk.machine.redundant_packs import remove_redundant
from loom_audit.errors import ExecutionFailed
from loom_audit.model.text.display import count_text, size_text, visible
from loom_audit.ports import MirroredGit
from loom_audit.ports.git_objects import LONG_ID, SHORT_ID, bare_settings

_LOOSE = re.compile(r"[0-9a-f]{2}")
_REST = re.compile(rf"[0-9a-f]{{{SHORT_ID - 2}}}|[0-9a-f]{{{LONG_ID - 2}}}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PIECE = 1 << 20
_FICLONE = 0x40049409
"""ioctl_ficlone(2): the file's content is shared until one of both is written."""

_SETTLED = 40_000_000
"""Nanoseconds after a change of a folder, after which a later one surely has another stamp."""

_FEW = 64
"""Up to so many new loose objects are copied as they are, each made durable by itself."""

_SMALL = 1 << 20
_MOST_INFLATED = 16 << 20
_MOST_PACKED = 1 << 30
"""Bytes of a loose object that is put into a pack, of its content, and of a pack."""

Stamp = tuple[int, ...]
_Copy = Callable[[int, str, Path], None]


FOLDERS = ("sha1", "sha256")
"""The mirror's git folders, for ids of each length."""


class MirrorLimits(Struct, frozen=True):
    """What a mirror may cost: bytes of its copies, bytes that stay free, seconds of a take."""

    copied: int = 2 << 30
    free: int = 1 << 30
    seconds: float = 60.0


class Taken(Struct):
    """What is known of the last take: the stamps of the folders of which all was copied."""

    stamps: dict[str, Stamp] = field(default_factory=dict)
    copied: int = 0
    left_out: dict[str, tuple[str, ...]] = field(default_factory=dict)


def made_folder(mirror: Path, *, long_ids: bool) -> Path:
    """The mirror's git folder for ids of this length, made where it is not there. OSError."""
    made = mirror / FOLDERS[long_ids]
    if not (made / "HEAD").exists():
        mirror.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("", "refs", "objects", "objects/pack"):
            (made / name).mkdir(mode=0o700, exist_ok=True)
        config = bare_settings(long_ids=long_ids)
        put_file(made / "config", config.encode(), durable=True)
        put_file(made / "HEAD", b"ref: refs/heads/none\n", durable=True)
    return made


class _NotAnObject(Exception):
    """What has the name of an object or a pack is something else."""


class _OverLimit(Exception):
    """A limit does not let something of this many bytes be copied."""

    def __init__(self, why: str, size: int) -> None:
        super().__init__(why)
        self.size = size


class Take:
    """One take: copies are made in a folder of their own and are renamed once they are durable."""

    def __init__(self, mirror: Path, known: Taken, limits: MirrorLimits, git: MirroredGit) -> None:
        self._mirror = mirror
        self._git = git
        self._known = known
        self._limits = limits
        self._began = time.time_ns()
        self._until = time.monotonic() + limits.seconds
        self._incoming = mirror / "incoming"
        self._waiting: list[tuple[Path, Path]] = []
        self._new_names: dict[str, list[str]] = {}
        self._packing: dict[bool, tuple[PackWriter, BinaryIO]] = {}
        self._files = ExitStack()
        self._present: set[str] | None = None
        self._damaged: list[str] = []
        self._unread: list[str] = []
        self._over: dict[str, list[int]] = {}
        self._elsewhere = False
        with suppress(FileNotFoundError):
            rmtree(self._incoming)  # what a crash left
        mirror.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._incoming.mkdir(mode=0o700)
        seen = os.statvfs(mirror)
        self._free = seen.f_bavail * seen.f_frsize - limits.free

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def reasons(self, folder: str) -> Iterator[str]:
        """What was not copied, in words."""
        for named, what in (
            (self._unread, "cannot be read"),
            (self._damaged, "not what they are named"),
        ):
            if named:
                first = min(named)
                count = count_text(len(named), "file")
                yield f"git: {count} in {folder}/objects {what}, first {first}"
        for why, sizes in self._over.items():
            yield f"git: objects of {size_text(sum(sizes))} are not kept: {why}"
        if self._elsewhere:
            yield f"git: objects that {folder}/objects/info/alternates names are not kept"

    def all_of(self, folder: str, objects: int) -> None:
        """Copy what is new in an open folder of objects; OSError of the mirror."""
        for name in sorted(os.listdir(objects)):
            if _LOOSE.fullmatch(name):
                self._folder_of(f"{folder}/{name}", objects, name)
            elif name == "pack":
                self._folder_of(f"{folder}/pack", objects, name)
        self._flush()
        self._loose(folder, objects)
        self._flush()
        self._prune()
        with suppress(OSError):
            info = os.stat("info/alternates", dir_fd=objects, follow_symlinks=False)
            self._elsewhere = info.st_size > 0
        self._incoming.rmdir()

    def _folder_of(self, path: str, objects: int, name: str) -> None:
        """Look into a folder of objects, unless it has the stamp of last time."""
        missed = self._missed()
        try:
            if self._known.stamps.get(path) == _stamp(
                os.stat(name, dir_fd=objects, follow_symlinks=False)
            ):
                return
            opened = os.open(name, _FOLDER, dir_fd=objects)
        except OSError:
            self._unread.append(name)
            return
        with closing_fd(opened):
            seen = os.fstat(opened)
            self._known.stamps.pop(path, None)
            if name == "pack":
                self._packs(opened)
            else:
                if names := self._new_in(opened, name):
                    self._new_names[name] = names
        settled = max(seen.st_mtime_ns, seen.st_ctime_ns) + _SETTLED < self._began
        if settled and self._missed() == missed:
            # written when the copies have their names, unless one of these is missed
            self._known.stamps[path] = _stamp(seen)

    def _prune(self) -> None:
        """Remove packs that a repack made needless, where the packs were looked at."""
        for long_ids, name in enumerate(FOLDERS):
            packs = self._mirror / name / "objects" / "pack"
            if self._present is not None and packs.exists():
                freed = remove_redundant(packs, self._present, long_ids=bool(long_ids))
                self._known.copied = max(0, self._known.copied - freed)

    def _missed(self) -> int:
        return len(self._damaged) + len(self._unread) + sum(map(len, self._over.values()))

    # --- loose objects --------------------------------------------------------------------

    def _new_in(self, folder: int, prefix: str) -> list[str]:
        """The names in a folder of loose objects that are not in the mirror."""
        named = [name for name in os.listdir(folder) if _REST.fullmatch(name)]
        new: list[str] = []
        for length in {*map(len, named)}:
            made = made_folder(self._mirror, long_ids=length == LONG_ID - 2) / "objects"
            (made / prefix).mkdir(mode=0o700, exist_ok=True)
            there = {*os.listdir(made / prefix)}
            there |= {id[2:] for id in ids_in(made / "pack", prefix, length + 2)}
            new += (name for name in named if len(name) == length and name not in there)
        return new

    def _loose(self, folder: str, objects: int) -> None:
        """Copy the loose objects that are new: a few as they are, many in packs."""
        many = sum(map(len, self._new_names.values())) > _FEW
        copy = self._pack_loose if many else self._copy_loose
        for prefix, names in self._new_names.items():
            missed = self._missed()
            try:
                opened = os.open(prefix, _FOLDER, dir_fd=objects)
            except OSError:
                self._unread.append(prefix)
            else:
                made = [self._mirror / one / "objects" / prefix for one in FOLDERS]
                with closing_fd(opened):
                    for name in names:
                        place = made[len(name) == LONG_ID - 2]
                        self._tried(prefix + name, copy, opened, name, place)
            if self._missed() != missed:
                self._known.stamps.pop(f"{folder}/{prefix}", None)
        for long_ids in [*self._packing]:
            self._end_pack(long_ids)

    def _pack_loose(self, folder: int, name: str, made: Path) -> None:
        """Put a loose object into a pack of ours; a large one is copied as it is."""
        source = os.open(name, _FILE, dir_fd=folder)
        try:
            size = _regular(source).st_size
            self._allow(size)
            content = os.read(source, size + 1) if size <= _SMALL else b""
        finally:
            os.close(source)
        inflating = zlib.decompressobj()
        try:
            whole = inflating.decompress(content, _MOST_INFLATED)
        except zlib.error as error:
            raise _NotAnObject from error
        if not inflating.eof:
            self._copy_loose(folder, name, made)
            return
        id, long_ids = made.name + name, len(name) == LONG_ID - 2
        hashed = new_hash(long_ids=long_ids)
        hashed.update(whole)
        head, _, body = whole.partition(b"\0")
        kind, _, length = head.partition(b" ")
        right = hashed.hexdigest() == id and kind in KINDS and length == b"%d" % len(body)
        if inflating.unused_data or not right:
            raise _NotAnObject
        self._pack(id, KINDS[kind], body, long_ids=long_ids)

    def _pack(self, id: str, kind: int, body: bytes, *, long_ids: bool) -> None:
        if long_ids not in self._packing:
            path = self._incoming / f"{OWN}{long_ids}"
            opened = os.fdopen(os.open(path, _NEW, 0o400), "w+b")
            file = self._files.enter_context(opened)
            self._packing[long_ids] = PackWriter(file, long_ids=long_ids), file
        writer, _ = self._packing[long_ids]
        size = writer.size if writer.count else -new_hash(long_ids=long_ids).digest_size
        writer.add(id, kind, body)
        self._known.copied += writer.size - size
        self._free -= writer.size - size
        if writer.size > _MOST_PACKED:
            self._end_pack(long_ids)

    def _end_pack(self, long_ids: bool) -> None:
        """End a pack, and give it its name."""
        writer, file = self._packing.pop(long_ids)
        index = writer.finish()
        size = new_hash(long_ids=long_ids).digest_size
        place = made_folder(self._mirror, long_ids=long_ids) / "objects" / "pack"
        place /= f"{OWN}{index[-size:].hex()}.idx"
        with self._new() as (copy, path):
            write_all(copy, index)
            self._waiting.append((self._incoming / f"{OWN}{long_ids}", place.with_suffix(".pack")))
            self._keep(copy, path, place)
        file.close()
        self._flush()

    def _tried(self, shown: str, copy: "_Copy", folder: int, name: str, place: Path) -> None:
        """Copy something; count it where the repository or a limit does not let it be copied."""
        first = len(self._waiting)
        try:
            copy(folder, name, place)
            return
        except FileNotFoundError as error:
            if error.filename != name:  # of the repository: it has just gone
                raise
        except _NotAnObject:
            self._damaged.append(shown)
        except PermissionError as error:
            if error.filename != name:
                raise
            self._unread.append(shown)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO) or error.filename != name:
                raise
            self._damaged.append(shown)
        except _OverLimit as limit:
            self._over.setdefault(str(limit), []).append(limit.size)
        self._drop(first)

    def _copy_loose(self, folder: int, name: str, made: Path) -> None:
        with closing_fd(os.open(name, _FILE, dir_fd=folder)) as source:
            self._allow(_regular(source).st_size)
            with self._new() as (copy, path):
                self._check_loose(source, copy, made.name + name)
                self._keep(copy, path, made / name)

    def _check_loose(self, source: int, copy: int, id: str) -> None:
        """Copy a loose object; `_NotAnObject` where its content has another hash."""
        found, inflating = new_hash(long_ids=len(id) == LONG_ID), zlib.decompressobj()
        try:
            while piece := os.read(source, _PIECE):
                if inflating.eof:
                    raise _NotAnObject
                write_all(copy, piece)
                while piece:
                    found.update(inflating.decompress(piece, _PIECE))
                    piece = inflating.unconsumed_tail
                    self._allow(0)
            found.update(inflating.flush())
        except zlib.error as error:
            raise _NotAnObject from error
        if not inflating.eof or inflating.unused_data or found.hexdigest() != id:
            raise _NotAnObject

    # --- packs ----------------------------------------------------------------------------

    def _packs(self, folder: int) -> None:
        self._present = set()
        for name in sorted(os.listdir(folder)):
            if name.endswith(".idx"):  # git reads a pack of any name
                shown = visible(name.removesuffix(".idx") + ".pack")
                self._tried(shown, self._copy_pack, folder, name, self._mirror)

    def _copy_pack(self, folder: int, name: str, mirror: Path) -> None:
        """Copy a pack, which is named by the hash that it ends in, and make its index anew."""
        pack = f"{name.removesuffix('.idx')}.pack"
        try:
            opened = os.open(pack, _FILE, dir_fd=folder)
        except FileNotFoundError:
            return  # git deletes the index last
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return  # so that none is there
            error.filename = name
            raise
        with closing_fd(opened) as packed:
            with closing_fd(os.open(name, _FILE, dir_fd=folder)) as index_of_it:
                long_ids = _has_long_ids(index_of_it, packed)
            ended = _tail(packed, new_hash(long_ids=long_ids).digest_size)
            made = made_folder(mirror, long_ids=long_ids)
            place = made / "objects" / "pack" / f"pack-{ended.hex()}.pack"
            if self._present is not None:
                self._present.add(place.stem)
            if place.with_suffix(".idx").exists():
                return
            size = _regular(packed).st_size
            self._allow(size)
            path = self._copy_checked(packed, place, ended, long_ids=long_ids)
        index = path.with_suffix(".idx")
        try:
            seconds = self._until - time.monotonic()
            if not self._git.index(str(made), str(path), str(index), seconds):
                raise _NotAnObject
        except ExecutionFailed as error:
            raise _OverLimit(error.message, size) from error
        with closing_fd(os.open(index, os.O_RDONLY | os.O_CLOEXEC)) as copy:
            self._keep(copy, index, place.with_suffix(".idx"))

    def _copy_checked(self, source: int, place: Path, ended: bytes, *, long_ids: bool) -> Path:
        """Copy a file that ends in the hash of what is before; `_NotAnObject` where it does not."""
        found, end = new_hash(long_ids=long_ids), b""
        os.lseek(source, 0, os.SEEK_SET)
        with self._new(".pack") as (copy, path):
            shared = _cloned(source, copy)
            source = copy if shared else source
            while piece := os.read(source, _PIECE):
                if not shared:
                    write_all(copy, piece)
                end += piece
                found.update(end[: -found.digest_size])
                end = end[-found.digest_size :]
                self._allow(0)
            if not found.digest() == end == ended:
                raise _NotAnObject
            self._keep(copy, path, place)
        return path

    # --- copies ---------------------------------------------------------------------------

    def _allow(self, size: int) -> None:
        """Go on with a copy of this size; `_OverLimit` says why not, and of how many bytes."""
        limits = self._limits
        if time.monotonic() > self._until:
            raise _OverLimit(f"the copying took {limits.seconds:g} seconds", size)
        if self._known.copied + size > limits.copied:
            raise _OverLimit(f"the limit is {size_text(limits.copied)}", size)
        if size > self._free:
            raise _OverLimit(f"{size_text(limits.free)} of the disk must stay free", size)

    def _new(self, ends: str = "") -> "_NewFile":
        return _NewFile(self._incoming / f"{time.monotonic_ns()}{ends}")

    def _keep(self, copy: int, path: Path, place: Path) -> None:
        size = os.fstat(copy).st_size
        self._known.copied += size
        self._free -= size
        self._waiting.append((path, place))

    def _drop(self, first: int) -> None:
        """Give up what waits for its name, from the first of a pack whose second file failed."""
        for path, _ in self._waiting[first:]:
            self._known.copied -= os.lstat(path).st_size
            os.unlink(path)
        del self._waiting[first:]

    def _flush(self) -> None:
        """Make the copies durable, then give them their names, in their order."""
        for path, _ in self._waiting:
            with closing_fd(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as file:
                system.fsync(file)
        for path, place in self._waiting:
            os.replace(path, place)
        folders = {place.parent for _, place in self._waiting}
        for folder in folders | {one.parent for one in folders}:
            system.sync_folder(folder)
        self._waiting.clear()


class _NewFile:
    """A block that writes a new file, which is deleted where the block fails."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> tuple[int, Path]:
        self._descriptor = os.open(self._path, _NEW, 0o400)
        return self._descriptor, self._path

    def __exit__(self, kind: object, *_: object) -> None:
        os.close(self._descriptor)
        if kind is not None:
            os.unlink(self._path)


def _stamp(seen: os.stat_result) -> Stamp:
    return (seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino, seen.st_dev)


def _regular(descriptor: int) -> os.stat_result:
    seen = os.fstat(descriptor)
    if not stat.S_ISREG(seen.st_mode):
        raise _NotAnObject
    return seen


def _tail(descriptor: int, size: int) -> bytes:
    """The last bytes of a file."""
    whole = _regular(descriptor).st_size
    if whole < size:
        raise _NotAnObject
    return os.pread(descriptor, size, whole - size)


def _has_long_ids(index: int, pack: int) -> bool:
    """Whether an index has the long hash in which a pack ends; it has that before its own."""
    size, whole = new_hash(long_ids=True).digest_size, _regular(index).st_size
    there = whole >= 2 * size and os.pread(index, size, whole - 2 * size)
    return there == _tail(pack, size)


def _cloned(source: int, copy: int) -> bool:
    """Whether the filesystem could let both share the content."""
    try:
        fcntl.ioctl(copy, _FICLONE, source)
    except OSError:
        return False
    return True
