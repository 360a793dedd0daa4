"""An independent look at a directory: nothing of ours, only `os`."""

import os
import stat
from pathlib import Path

Entry = tuple[str, int, bytes]
"""Kind, permission bits, content (a symlink's target); mode 0 for symlinks."""


def tree_of(root: str | Path, *, skip: tuple[str, ...] = (".git",)) -> dict[bytes, Entry]:
    """Every path below the root as bytes, with what is there."""
    top = os.fsencode(root)
    found: dict[bytes, Entry] = {}

    def look(folder: bytes, prefix: bytes) -> None:
        for entry in os.scandir(folder):
            if os.fsdecode(entry.name) in skip:
                continue
            path = prefix + entry.name
            info = entry.stat(follow_symlinks=False)
            mode = stat.S_IMODE(info.st_mode)
            if stat.S_ISLNK(info.st_mode):
                found[path] = ("symlink", 0, os.readlink(entry.path))
            elif stat.S_ISDIR(info.st_mode):
                found[path] = ("directory", mode, b"")
                look(entry.path, path + b"/")
            elif stat.S_ISREG(info.st_mode):
                found[path] = ("file", mode, Path(os.fsdecode(entry.path)).read_bytes())
            else:
                found[path] = ("other", mode, b"")

    look(top, b"")
    return found


def differences(one: dict[bytes, Entry], other: dict[bytes, Entry]) -> dict[bytes, object]:
    """Paths that differ, with both sides, for messages."""
    return {
        path: (one.get(path), other.get(path))
        for path in one.keys() | other.keys()
        if one.get(path) != other.get(path)
    }


def everything(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every path below the root with its mode and content."""
    found = {}
    for folder, folders, files in os.walk(root):
        for path in (Path(folder, name) for name in folders + files):
            seen = path.lstat()
            content = b""
            if stat.S_ISREG(seen.st_mode):
                content = path.read_bytes()
            elif stat.S_ISLNK(seen.st_mode):
                content = os.fsencode(path.readlink())
            found[str(path.relative_to(root))] = (seen.st_mode, content)
    return found


def names_together(root: Path) -> set[frozenset[str]]:
    """The names that are one file, as the system has them."""
    names: dict[int, set[str]] = {}
    for folder, _, files in os.walk(root):
        for name in files:
            path = Path(folder, name)
            names.setdefault(path.stat().st_ino, set()).add(str(path.relative_to(root)))
    return {frozenset(paths) for paths in names.values() if len(paths) > 1}
