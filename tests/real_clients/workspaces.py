"""The git repository that the clients work in, and what is in a tree, by hand."""

import os
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILES = 300
FORMATTER = """#!/bin/sh
# takes semicolons off the ends of the lines of Python files
for file in "$@"; do
  case "$file" in
    *.py) grep -q ';$' "$file" && sed -i 's/;$//' "$file" ;;
  esac
done
exit 0
"""
HOOKED = """#!/bin/sh
# the person's own hook after an edit: formats the file that was edited, or patched
given=$(cat)
for word in '"file_path":"' 'Update File: '; do
  file=$(printf '%s' "$given" | sed -n "s/.*$word\\([^\\"\\\\]*\\).*/\\1/p" | head -n 1)
  test -n "$file" && test -f "$file" && sh tools/format.sh "$file" >/dev/null 2>&1
done
exit 0
"""


def make(folder: Path) -> None:
    """A committed repository of 300 files, beside some that git ignores or does not keep."""
    folder.mkdir(parents=True)
    for n in range(FILES):
        file = folder / f"src/part{n % 30:02}/file{n:03}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# file {n}\n\n\ndef value() -> int:\n    return {n}\n")
    tools = folder / "tools"
    tools.mkdir()
    (tools / "format.sh").write_text(FORMATTER)
    (tools / "format.sh").chmod(0o755)
    (tools / "after_edit.sh").write_text(HOOKED)
    (folder / "notes.txt").write_text("one\ntwo\nthree\n")
    (folder / "link.txt").symlink_to("notes.txt")
    (folder / ".gitignore").write_text("*.env\n*.log\nbuild/\n")
    (folder / "secret.env").write_text("TOKEN=unique and nowhere else\n")
    (folder / "secret.env").chmod(0o600)
    (folder / "build").mkdir()
    (folder / "build" / "made.bin").write_bytes(bytes(range(256)) * 16)
    (folder / "empty").mkdir()
    (folder / "old").mkdir()
    for n in range(12):
        (folder / "old" / f"page{n}.txt").write_text(f"page {n}\n" * 20)
    (folder / "old" / "to.notes").symlink_to("../notes.txt")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "as it was")


def git(folder: Path, *arguments: str) -> None:
    own = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "gc.auto=0")
    subprocess.run(("git", *own, *arguments), cwd=folder, check=True, capture_output=True)


@dataclass(frozen=True)
class Entry:
    kind: str
    mode: int
    content: bytes


Manifest = Mapping[str, Entry]


def manifest(folder: Path) -> Manifest:
    """Every file, link and folder but git's, as it is on disk now."""
    found: dict[str, Entry] = {}
    pending = [folder]
    while pending:
        for entry in os.scandir(pending.pop()):
            path = os.path.relpath(entry.path, folder)
            if path == ".git":
                continue
            try:
                look = entry.stat(follow_symlinks=False)
                if entry.is_symlink():
                    found[path] = Entry("link", 0, os.readlink(entry.path).encode())
                elif entry.is_dir():
                    found[path] = Entry("folder", stat.S_IMODE(look.st_mode), b"")
                    pending.append(Path(entry.path))
                else:
                    mode = stat.S_IMODE(look.st_mode)
                    found[path] = Entry("file", mode, Path(entry.path).read_bytes())
            except FileNotFoundError:
                continue
    return found


def difference(before: Manifest, after: Manifest) -> dict[str, str]:
    """Each path that is not the same, with what happened to it."""
    found = dict.fromkeys(before.keys() - after.keys(), "gone")
    found |= dict.fromkeys(after.keys() - before.keys(), "new")
    found |= {path: "other" for path in before.keys() & after.keys() if before[path] != after[path]}
    return dict(sorted(found.items()))


def copy(source: Path, target: Path) -> None:
    """A copy of a workspace in which something can be tried."""
    shutil.copytree(source, target, symlinks=True)
