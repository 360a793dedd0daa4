"""Random operations on a folder, of every kind by which files change, from a seed.

Nothing of it follows a symlink: a target is a name in the same folder, and names are made anew.
"""

import mmap
import os
import random
import shutil
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

NAMES = ("a", "b", "c", "d", "e.py", "f.py", "A", "node_modules", "x ä", "\udcff")
MOST = 60
"""How many paths there are before more is deleted than made."""


class Upheaval:
    """Operations below `root`; `outside` is a folder of the same filesystem, not watched.

    No file is written by a name outside, nor by one that is `left_out`, while it has another: of
    that the kernel does not tell. `by_name` are the files with several names that were written, and
    by which name, until `unseen` was asked.
    """

    def __init__(
        self,
        root: Path,
        outside: Path,
        chosen: random.Random,
        left_out: tuple[bytes, ...] = (b"node_modules",),
        *,
        alone: bool = True,
    ) -> None:
        self.alone = alone
        self.left_out = left_out
        self.root = os.fsencode(root)
        self.outside = os.fsencode(outside)
        self.chosen = chosen
        self.count = 0
        self.by_name: list[tuple[bytes, int]] = []

    def act(self) -> str:
        """One operation; its name, "" of one that is not possible where it was to be."""
        way = self.chosen.choice(self.ways())
        try:
            way()
        except OSError:
            return ""
        return way.__name__

    def ways(self) -> Sequence[Callable[[], None]]:
        more = (self.create, self.create, self.make_folders, self.fill, self.bring_in)
        fewer = (self.unlink, self.delete_tree, self.take_out)
        return (
            *((fewer if len(self.paths()) > MOST else more) * 2),
            *(*more, *fewer, self.overwrite, self.append, self.truncate, self.chmod),
            *(self.chmod_folder, self.rename, self.rename, self.replace, self.move_tree),
            *(self.link, self.symlink, self.fifo, self.times, self.exchange),
            # one that another process empties meanwhile would end this one by SIGBUS
            *((self.memory,) if self.alone else ()),
            *(self.link_elsewhere, self.delete_and_recreate, self.round_trip),
        )

    # --- what is there ----------------------------------------------------------------------

    def paths(self) -> list[bytes]:
        return [
            os.path.join(folder, name)
            for folder, folders, files in os.walk(self.root)
            for name in (*folders, *files)
        ]

    def folders(self) -> list[bytes]:
        return [folder for folder, _, _ in os.walk(self.root)]

    def files(self) -> list[bytes]:
        """The files that are written: not by a name that is left out and not the only one."""
        found = []
        for folder, _, names in os.walk(self.root):
            for path in (os.path.join(folder, name) for name in names):
                left_out = not {*self.left_out}.isdisjoint(path.split(b"/"))
                seen = os.lstat(path)
                if stat.S_ISREG(seen.st_mode) and not (left_out and seen.st_nlink > 1):
                    found.append(path)
        return found

    def one(self, paths: list[bytes]) -> bytes:
        if not paths:
            raise FileNotFoundError
        return self.chosen.choice(sorted(paths))

    def name(self) -> bytes:
        return os.fsencode(self.chosen.choice(NAMES))

    def place(self) -> bytes:
        return os.path.join(self.one(self.folders()), self.name())

    def content(self) -> bytes:
        self.count += 1
        return b"%d %d\n" % (self.count, self.chosen.randrange(10)) * self.chosen.choice((1, 1, 50))

    def written(self) -> bytes:
        """A file that is to be written."""
        path = self.one(self.files())
        seen = os.lstat(path)
        if seen.st_nlink > 1:
            self.by_name.append((path, seen.st_ino))
        return path

    def unseen(self) -> set[int]:
        """The inodes of files that had several names, and were written by one that is gone.

        It may have been new since the last look, so that the kernel tells of that name only.
        """
        found = set()
        for path, inode in self.by_name:
            try:
                left_out = not {*self.left_out}.isdisjoint(path.split(b"/"))
                there = not left_out and os.lstat(path).st_ino == inode
            except OSError:
                there = False
            if not there:
                found.add(inode)
        self.by_name.clear()
        return found

    def write(self, path: bytes, flags: int, content: bytes | None = None) -> None:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        try:
            os.write(descriptor, self.content() if content is None else content)
        finally:
            os.close(descriptor)

    # --- operations -------------------------------------------------------------------------

    def create(self) -> None:
        self.write(self.place(), os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def make_folders(self) -> None:
        place = self.place()
        for _ in range(self.chosen.randrange(3)):
            place = os.path.join(place, self.name())
        os.makedirs(place)

    def fill(self) -> None:
        """A folder that is filled as soon as it is made."""
        place = self.place()
        os.makedirs(place)
        for name in (b"one", b"two"):
            os.makedirs(os.path.join(place, name))
            self.write(os.path.join(place, name, b"f"), os.O_WRONLY | os.O_CREAT)

    def overwrite(self) -> None:
        self.write(self.written(), os.O_WRONLY | os.O_TRUNC)

    def append(self) -> None:
        self.write(self.written(), os.O_WRONLY | os.O_APPEND)

    def truncate(self) -> None:
        os.truncate(self.written(), self.chosen.randrange(5))

    def memory(self) -> None:
        """A file written as memory, and let go of."""
        with open(self.written(), "r+b") as file:
            if os.fstat(file.fileno()).st_size:
                with mmap.mmap(file.fileno(), 0) as mapped:
                    mapped[0:1] = bytes([self.chosen.randrange(65, 91)])

    def chmod(self) -> None:
        Path(os.fsdecode(self.written())).chmod(self.chosen.choice((0o644, 0o600, 0o755)))

    def chmod_folder(self) -> None:
        folder = os.fsdecode(self.one(self.folders()[1:]))
        Path(folder).chmod(self.chosen.choice((0o755, 0o700, 0o711)))

    def times(self) -> None:
        os.utime(self.written(), ns=(1, self.chosen.randrange(3)))

    def rename(self) -> None:
        os.rename(self.one(self.paths()), self.place())

    def replace(self) -> None:
        """As an editor saves: a new file over the old one."""
        path = self.one(self.files())
        self.write(path + b"~", os.O_WRONLY | os.O_CREAT)
        os.rename(path + b"~", path)

    def move_tree(self) -> None:
        os.rename(self.one(self.folders()[1:]), self.place())

    def exchange(self) -> None:
        """Two paths trade places."""
        one, other = self.one(self.paths()), self.one(self.paths())
        with suppress(OSError):  # one in the other
            os.rename(one, one + b"~")
            os.rename(other, one)
        with suppress(OSError):
            os.rename(one + b"~", other)

    def round_trip(self) -> None:
        """Away and back, with a change in between."""
        path = self.one(self.folders()[1:])
        os.rename(path, path + b"~")
        self.write(os.path.join(path + b"~", b"inside"), os.O_WRONLY | os.O_CREAT)
        os.rename(path + b"~", path)

    def delete_and_recreate(self) -> None:
        path = self.one(self.folders()[1:])
        shutil.rmtree(path)
        os.makedirs(path)
        self.write(os.path.join(path, self.name()), os.O_WRONLY | os.O_CREAT)

    def link(self) -> None:
        os.link(self.one(self.files()), self.place())

    def link_elsewhere(self) -> None:
        """Another name that comes by way of outside, and the old one goes."""
        path, there = self.one(self.files()), os.path.join(self.outside, b"%d" % self.count)
        self.count += 1
        os.link(path, there)
        os.rename(there, self.place())

    def symlink(self) -> None:
        os.symlink(self.name(), self.place())

    def fifo(self) -> None:
        if self.chosen.random() < 0.3:
            os.mkfifo(self.place())

    def unlink(self) -> None:
        os.unlink(self.one([path for path in self.paths() if not _is_folder(path)]))

    def delete_tree(self) -> None:
        shutil.rmtree(self.one(self.folders()[1:]))

    def take_out(self) -> None:
        self.count += 1
        os.rename(self.one(self.paths()), os.path.join(self.outside, b"out%d" % self.count))

    def bring_in(self) -> None:
        there = sorted(n for n in os.listdir(self.outside) if n.startswith(b"out"))
        if there:
            os.rename(os.path.join(self.outside, self.chosen.choice(there)), self.place())


def _is_folder(path: bytes) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def made_folders(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir()


def act_alone(root: Path, outside: Path, seed: int) -> list[tuple[bytes, int]]:
    """A hundred operations of a process of its own; the `by_name` of it."""
    upheaval = Upheaval(root, outside, random.Random(seed), alone=False)
    for _ in range(100):
        upheaval.act()
    return upheaval.by_name
