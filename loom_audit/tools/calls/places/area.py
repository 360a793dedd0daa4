"""The areas an agent may write: the workspace, and the session's scratch directory.

Paths of a call lead into one of them (`scratch://…` into the second); programs of ours are
looked for outside both.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from posixpath import normpath
from typing import BinaryIO, Literal

from msgspec import Struct

from loom_audit.errors import (
    AuditError,
    FileNotFound,
    InvalidPath,
    NotADirectory,
    NoWorkspace,
    PermissionDenied,
)
from loom_audit.model.scope import HEAVY
from loom_audit.model.text.display import first_few, moment, visible
from loom_audit.ports import Stamp, Workspace

EntryType = Literal["file", "directory", "symlink", "other"]

SCRATCH = "scratch://"
"""How a path in the scratch directory begins."""
_COMPARED = 2_000
_NAMED = 2
"""Paths that are named where one is not there."""


class Entry(Struct, frozen=True):
    """A file, directory or link as listings show it:

    `modified` in UTC, `size` in bytes (0 for directories).
    """

    path: str
    type: EntryType
    size: int
    modified: datetime

    @property
    def name(self) -> str:
        """The last name of the path."""
        return self.path.rsplit("/", 1)[-1]

    def to_dict(self, name: str | None = None) -> dict[str, str | int]:
        """Return the entry as JSON, under its own name or the one given."""
        return {
            "name": self.name if name is None else name,
            "type": self.type,
            "size": self.size,
            "modified": self.modified.isoformat(),
        }


def type_of(mode: int) -> EntryType:
    """Return the type by `st_mode`; FIFOs, sockets and devices are `other`."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def scratch_relative(disk: Workspace, text: str) -> str:
    """Return the path behind `scratch://`, relative to the scratch directory.

    InvalidPath outside of it.
    """
    if normpath(text).split("/")[0] == "..":
        written = f"{SCRATCH}{text}".encode("utf-8", "backslashreplace").decode()
        raise InvalidPath(
            f"the path leaves the scratch directory: {written[:200]}", hint="Name a path in it."
        )
    return disk.relative(text)


class Area(Struct, frozen=True):
    """A directory whose paths a call may name; `prefix` stands before those handed back.

    Methods take and give paths as `path` makes them.
    """

    disk: Workspace
    prefix: str = ""

    def path(self, text: str) -> str:
        """Return a path that a caller wrote, relative to the area. InvalidPath outside of it."""
        return scratch_relative(self.disk, text) if self.prefix else self.disk.relative(text)

    def directory(self, text: str) -> str:
        """Return the directory behind a path, symlinks followed.

        FileNotFound, InvalidPath, NotADirectory.
        """
        target = self.disk.resolve(self.path(text))
        if target:
            stamp = self.disk.stamp(target)
            if stamp is None:
                raise self.missing(text)
            if not stat.S_ISDIR(stamp.mode):
                raise NotADirectory(
                    f"{self.prefix}{text} is not a directory",
                    hint="Name the directory that holds it.",
                )
        return target

    def stat(self, text: str) -> Entry:
        """Return what is behind a path, symlinks followed. FileNotFound, InvalidPath."""
        target = self.disk.resolve(self.path(text))
        stamp = self.disk.stamp(target)
        if stamp is None:
            raise self.missing(text)
        return self._entry(target, stamp)

    @contextmanager
    def open(self, text: str) -> Iterator[BinaryIO]:
        """Open the content of a regular file for reading. FileNotFound, InvalidPath."""
        try:
            with self.disk.open(self.path(text)) as stream:
                yield stream
        except FileNotFound:
            raise self.missing(text) from None

    def missing(self, text: str) -> FileNotFound:
        """Return that nothing is at a path, with what may be meant, else with what is beside it."""
        path = self.path(text)
        found = dict.fromkeys((*self._elsewhere(path), *self._alike(path)))
        if meant := [*islice(found, _NAMED)]:
            shown = (visible(f"{self.prefix}{one}") for one in meant)
            return FileNotFound(
                f"File not found: {self.prefix}{text}", hint=f"Did you mean {' or '.join(shown)}?"
            )
        return FileNotFound(f"File not found: {self.prefix}{text}", hint=self._beside(path))

    @contextmanager
    def naming(self, text: str) -> Iterator[None]:
        """Say in a FileNotFound what may be meant by the path, beside what it says already."""
        try:
            yield
        except FileNotFound as error:
            if not error.message.startswith("File not found: "):
                raise
            found = self.missing(text)
            own = "" if error.hint == FileNotFound.usual_hint else f" {error.hint}"
            raise FileNotFound(error.message, hint=f"{found.hint}{own}") from None

    def _elsewhere(self, path: str) -> Iterator[str]:
        """The same path one folder deeper, such as in `src`, or without its first folder."""
        below = path.partition("/")[2]
        folders = [name for name, stamp in self._names("") if stat.S_ISDIR(stamp.mode)]
        plain = [name for name in folders if name[0] != "." and name not in HEAVY]
        for rest in (path, below):
            for folder in ("", *plain[:_COMPARED]):
                there = f"{folder}/{rest}" if folder else rest
                if rest and self._is_there(there):
                    yield there

    def _alike(self, path: str) -> Iterator[str]:
        """What has a name like the first one that is not there, and the rest of the path in it."""
        above = path.rpartition("/")[0]
        while above and not self._is_there(above):
            above = above.rpartition("/")[0]
        name, _, rest = path.removeprefix(f"{above}/" if above else "").partition("/")
        beside = [found for found, _ in self._names(above)]
        for near in get_close_matches(name, beside[:_COMPARED], n=2):
            found = f"{above}/{near}" if above else near
            whole = f"{found}/{rest}" if rest else found
            yield whole if self._is_there(whole) else found

    def _beside(self, path: str) -> str:
        """What is in the nearest folder above that is there."""
        while path:
            path = path.rpartition("/")[0]
            if beside := [visible(name) for name, _ in self._names(path)]:
                shown = visible(f"{self.prefix}{path}/" if path else self.prefix)
                return f"In {shown or 'the workspace'} are: {first_few(beside, 20)}."
        return ""

    def _names(self, directory: str) -> Sequence[tuple[str, Stamp]]:
        try:
            return [*self.disk.list(directory)]
        except AuditError:
            return []

    def _is_there(self, path: str) -> bool:
        try:
            return self.disk.stamp(path) is not None
        except AuditError:
            return False

    def list(self, directory: str) -> Iterator[Entry]:
        """Yield the entries of a directory, sorted by name, symlinks not followed."""
        for name, stamp in self.disk.list(directory):
            try:
                yield self._entry(f"{directory}/{name}" if directory else name, stamp)
            except FileNotFound:
                continue  # gone since it was listed

    def walk(
        self, directory: str, enter: Callable[[Entry, int], bool], depth: int = 1
    ) -> Iterator[Entry]:
        """Yield the entries below a directory, parents before what is in them.

        `enter` says whether the walk goes into a directory, which it is given with its depth from
        1.
        """
        for entry in self.list(directory):
            yield entry
            if entry.type == "directory" and enter(entry, depth):
                try:
                    yield from self.walk(entry.path.removeprefix(self.prefix), enter, depth + 1)
                except (FileNotFound, PermissionDenied):
                    continue  # it is listed; what it holds is not there for us

    def _entry(self, path: str, stamp: Stamp) -> Entry:
        kind = type_of(stamp.mode)
        shown = self.prefix + path
        if kind == "directory":  # a directory's stamp holds no times
            return Entry(shown, kind, 0, self.disk.mtime(path))
        return Entry(shown, kind, stamp.size, moment(stamp.mtime_ns))


def search_path(*areas: str | Path | None) -> dict[str, str]:
    """The variable PATH for programs of ours, without folders where an agent could put its own.

    The system's folders when none is left.
    """
    return {"PATH": os.pathsep.join(safe_folders(*areas)) or os.defpath}


def safe_folders(*areas: str | Path | None, holding: str = "") -> Iterator[str]:
    """Yield the folders of PATH where no agent could put a program, in their order.

    Left out are relative folders, those in the areas, and those reached through one: a
    project's own environment is often first on PATH. With `holding` only those that hold a file of
    that name.
    """
    roots = [os.path.realpath(root) for root in areas if root]
    inside: dict[str, bool] = {os.sep: os.sep in roots}

    def leads_through(folder: str) -> bool:
        """Whether a folder, or one that it is in, is in an area; each is looked at once."""
        if folder not in inside:
            real = os.path.realpath(folder)
            within = any(real == root or real.startswith(root + os.sep) for root in roots)
            above = os.path.dirname(folder)
            inside[folder] = within or (above != folder and leads_through(above))
        return inside[folder]

    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        # to see where a folder leads takes longer than to see what it holds
        is_wanted = not holding or os.path.isfile(f"{folder}/{holding}")
        if is_wanted and os.path.isabs(folder) and not leads_through(folder):
            yield folder


def no_workspace_error() -> AuditError:
    """The error for a tool that needs a workspace in a call that names none."""
    return NoWorkspace(
        "This call names no workspace", hint="Pass workspace=PATH, an attached directory."
    )
