"""A person who edits a workspace by hand, at random, without telling anybody."""

import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from loom_audit.model.scope import TEMPORARY

CACHE = "__pycache__"
LEFT_OUT = (".git", "node_modules", "venv", CACHE)
"""Names of folders that are not recorded, by default; of the cache not even that it is there."""

NAMES = ("note", "with space", "ümlaut", os.fsdecode(b"byte-\xff"), "-dash", "new\nline", "'quote'")
FILE_MODES = (0o600, 0o640, 0o644, 0o755)
FOLDER_MODES = (0o700, 0o755)


class Person:
    """Edits below `root`, drawn from `chosen`; all that is written has a mark of its own."""

    def __init__(self, root: Path, chosen: random.Random, name: str = "person") -> None:
        self.root = root
        self.chosen = chosen
        self.name = name
        self.count = 0

    def edit(self) -> str:
        """One edit; what was done."""
        while True:
            way = self.chosen.choice(WAYS)
            if where := way(self):
                return f"{way.__name__} {where}"

    def mark(self) -> bytes:
        """A line that nobody wrote before."""
        self.count += 1
        return b"<%s %d>\n" % (self.name.encode(), self.count)

    # --- what is there ------------------------------------------------------------------------

    def paths(self, wanted: Callable[[int], bool]) -> list[Path]:
        """The paths whose mode is as wanted, without what is left out."""
        found = []
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
            names = (name for name in [*folders, *files] if not name.startswith(TEMPORARY))
            paths = (Path(folder, name) for name in sorted(names))
            found += [path for path in paths if wanted(path.lstat().st_mode)]
        return found

    def file(self) -> Path | None:
        """A file that is there, None where there is none."""
        return self._one(self.paths(stat.S_ISREG))

    def folder(self) -> Path:
        """A folder that is there, perhaps the root."""
        return self.chosen.choice([self.root, *self.paths(stat.S_ISDIR)])

    def fresh(self) -> Path:
        """A path that is not there, in a folder that is."""
        while True:
            path = self.folder() / f"{self.chosen.choice(NAMES)}-{self.chosen.randrange(10**6)}"
            if not os.path.lexists(path):
                return path

    def _one(self, paths: list[Path]) -> Path | None:
        return self.chosen.choice(paths) if paths else None


# --- the edits: each gives the path, or None where it cannot be done ----------------------------


def append(person: Person) -> Path | None:
    if path := person.file():
        with path.open("ab") as file:
            file.write(person.mark())
    return path


def insert(person: Person) -> Path | None:
    """A line in the middle, written in place."""
    if path := person.file():
        lines = path.read_bytes().splitlines(keepends=True)
        lines.insert(person.chosen.randint(0, len(lines)), person.mark())
        path.write_bytes(b"".join(lines))
    return path


def replace(person: Person) -> Path | None:
    """As editors save: a new file takes the place of the old one."""
    if path := person.file():
        new = person.root.parent / "saving"
        new.write_bytes(person.mark() * person.chosen.randint(1, 20))
        new.chmod(stat.S_IMODE(path.stat().st_mode))
        new.replace(path)
    return path


def truncate(person: Person) -> Path | None:
    if path := person.file():
        os.truncate(path, person.chosen.randint(0, path.stat().st_size))
    return path


def delete(person: Person) -> Path | None:
    if path := person.file():
        path.unlink()
    return path


def create(person: Person) -> Path | None:
    path = person.fresh()
    path.write_bytes(person.mark())
    return path


def rename(person: Person) -> Path | None:
    if path := person.file():
        path.rename(person.fresh())
    return path


def change_mode(person: Person) -> Path | None:
    if path := person._one(person.paths(lambda mode: not stat.S_ISLNK(mode))):
        modes = FOLDER_MODES if path.is_dir() else FILE_MODES
        path.chmod(person.chosen.choice(modes))
    return path


def link(person: Person) -> Path | None:
    path = person.fresh()
    targets = ["nowhere", ".", *(one.name for one in person.paths(stat.S_ISREG))]
    path.symlink_to(person.chosen.choice(targets))
    return path


def link_hard(person: Person) -> Path | None:
    if path := person.file():
        person.fresh().hardlink_to(path)
    return path


def make_folder(person: Person) -> Path | None:
    path = person.fresh()
    path.mkdir()
    if person.chosen.random() < 0.5:
        (path / "inside").write_bytes(person.mark())
    return path


def move_folder(person: Person) -> Path | None:
    path, target = person.folder(), person.fresh()
    if path == person.root or target.is_relative_to(path):
        return None
    path.rename(target)
    return path


def delete_folder(person: Person) -> Path | None:
    path = person._one([p for p in person.paths(stat.S_ISDIR) if len([*p.rglob("*")]) < 4])
    if path:
        shutil.rmtree(path)
    return path


def make_left_out(person: Person) -> Path | None:
    path = person.folder() / person.chosen.choice(LEFT_OUT)
    if os.path.lexists(path):
        return None
    path.mkdir()
    (path / "made").write_bytes(person.mark())
    return path


def remove_left_out(person: Person) -> Path | None:
    folders = [person.root, *person.paths(stat.S_ISDIR)]
    path = person._one([f / n for f in folders for n in LEFT_OUT if (f / n).is_dir()])
    if path:
        shutil.rmtree(path)
    return path


def move_left_out(person: Person) -> Path | None:
    """Also into the scope, under another name."""
    folders = [person.root, *person.paths(stat.S_ISDIR)]
    path = person._one([f / n for f in folders for n in LEFT_OUT if (f / n).is_dir()])
    target = person.folder() / person.chosen.choice((*LEFT_OUT, "in-scope"))
    if path is None or os.path.lexists(target):
        return None
    path.rename(target)
    return path


WAYS: tuple[Callable[[Person], Path | None], ...] = (
    append,
    append,
    insert,
    insert,
    replace,
    truncate,
    delete,
    create,
    create,
    rename,
    change_mode,
    link,
    link_hard,
    make_folder,
    move_folder,
    delete_folder,
    make_left_out,
    make_left_out,
    remove_left_out,
    move_left_out,
)
