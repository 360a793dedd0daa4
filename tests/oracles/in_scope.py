"""An independent walk through what of a folder is in scope: nothing of ours but the rules."""

import os
import stat
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from loom_audit.model.scope import Scope


@dataclass(frozen=True, slots=True)
class Fact:
    """What is at a path; `names` is how many its file has, `changed` its time of change."""

    mode: int
    inode: int
    content: bytes = b""
    names: int = field(default=1, compare=False)
    changed: int = field(default=0, compare=False)


def fact_of(path: Path, *, opaque: bool = False) -> Fact:
    seen = path.lstat()
    if opaque:
        return Fact(0, seen.st_ino)
    content = b""
    if stat.S_ISREG(seen.st_mode):
        content = path.read_bytes()
    elif stat.S_ISLNK(seen.st_mode):
        content = os.fsencode(path.readlink())
    return Fact(seen.st_mode, seen.st_ino, content, changed=seen.st_ctime_ns)


def everything_in_scope(root: Path, scope: Scope) -> dict[str, Fact]:
    found = {}
    for folder, folders, files in os.walk(root):
        above = Path(folder).relative_to(root)
        for name in [*folders]:
            path = str(above / name)
            included = scope.includes(path, directory=True)
            if (root / path).is_symlink():
                files.append(name)
            elif included or scope.is_opaque(path):
                found[path] = fact_of(root / path, opaque=not included)
            if not included:
                folders.remove(name)
        for name in files:
            path = str(above / name)
            kind = stat.S_IFMT((root / path).lstat().st_mode)
            if scope.includes(path) and kind in (stat.S_IFREG, stat.S_IFLNK):
                found[path] = fact_of(root / path)
    names = Counter(one.inode for one in found.values())
    return {path: replace(one, names=names[one.inode]) for path, one in found.items()}
