"""Files in a git folder to which its settings lead: hooks, settings to include, programs."""

import os
import re
import stat
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import suppress

from loom_audit.model.git.record import STATE_FILES
from loom_audit.sandbox.git.files import FOLDER, MAX_FILE, Numbers, read_file, stamp

MOST_LED = 32
"""The number of paths that are followed: settings of people name one or none."""

_KEY = re.compile(rb"([a-z][-a-z0-9]*)[ \t]*=", re.IGNORECASE)
_ESCAPED = re.compile(rb'\\(.)|"')
_WORDS = re.compile(rb"[\s\"'`|&;()<>=$\\]+")
_OF_TOP = frozenset({b"hookspath", b"attributesfile", b"excludesfile"})
_NOT_RUN = re.compile(r"COMMIT_EDITMSG|description|FETCH_HEAD|gc\.(?:log|pid)|.*\.lock|.*~")


class LedTo:
    """The paths in a git folder that its settings name, read anew where these have other stamps."""

    def __init__(self) -> None:
        self._read_at: MutableMapping[str, Numbers | None] = {}
        self._paths: Sequence[str] = ()

    def paths(self, git: int, path: str, top: str) -> Sequence[str]:
        """The paths, sorted; "" is the folder itself. They need not be there.

        `git` is the open folder, `path` where it lies, and `top` that of the repository's files. A
        setting that may mean such a path is taken for one.
        """
        if not self._read_at or any(_at(git, one) != at for one, at in self._read_at.items()):
            self._read_at, found = {}, set[str]()
            waiting = ["config", "config.worktree"]
            while waiting and len(found) < MOST_LED:
                source = waiting.pop(0)
                if source in self._read_at:
                    continue
                self._read_at[source] = _at(git, source)
                for inner, is_included in _led(_content(git, source), source, path, top):
                    found.add(inner)
                    if is_included:
                        waiting.append(inner)
            self._paths = sorted(found)[:MOST_LED]
        return self._paths


def files_led_to(git: int, paths: Sequence[str]) -> Iterator[str]:
    """The paths to look at: in place of the folder itself, what lies in it and git did not make."""
    for path in paths:
        if path:
            yield path
            continue
        for name in sorted(os.listdir(git)):
            if not (STATE_FILES.fullmatch(name) or _NOT_RUN.fullmatch(name)):
                at = _at(git, name)
                if at and not stat.S_ISDIR(at[0]):
                    yield name


def settings_of_worktrees(git: int) -> Iterator[str]:
    """The paths of the settings that linked worktrees have for themselves."""
    with suppress(OSError):
        entries = os.open("worktrees", FOLDER, dir_fd=git)
        try:
            names = sorted(os.listdir(entries))
        finally:
            os.close(entries)
        yield from (f"worktrees/{name}/config.worktree" for name in names)


def _at(git: int, path: str) -> Numbers | None:
    with suppress(OSError):
        return stamp(os.stat(path, dir_fd=git, follow_symlinks=False))
    return None


def _content(git: int, path: str) -> bytes:
    with suppress(OSError):
        file = read_file(git, path, MAX_FILE)
        if file is not None and file.kind == "file":
            return file.content
    return b""


def _led(content: bytes, source: str, git: str, top: str) -> Iterator[tuple[str, bool]]:
    """The paths below a git folder that settings name, and whether as settings to include."""
    whole = content.replace(b"\\\r\n", b"").replace(b"\\\n", b"")
    above = os.path.dirname(os.path.join(git, source))
    for line in whole.split(b"\n"):
        for key in _KEY.finditer(line):
            name, value = key[1].lower(), line[key.end() :].strip()
            for said in {value, re.split(rb"[#;]", value)[0].strip()}:
                plain = _ESCAPED.sub(lambda one: one[1] or b"", said).removeprefix(b":(optional)")
                if name == b"path":
                    yield from ((one, True) for one in _below(plain, above, git))
                elif name in _OF_TOP:
                    yield from ((one, False) for one in _below(plain, top, git))
                else:
                    words = (one for one in _WORDS.split(plain) if b".git" in one)
                    yield from ((one, False) for word in words for one in _below(word, top, git))


def _below(said: bytes, above: str, git: str) -> Iterator[str]:
    """The path that is said, relative to the git folder, where it is below that."""
    if not said or b"\0" in said:
        return
    name = os.fsdecode(said)
    if name.startswith("~/"):
        name = os.environ.get("HOME", "") + name[1:]
    path = os.path.normpath(os.path.join(above, name))
    for one in {path, os.path.realpath(path)}:
        if one == git:
            yield ""
        elif one.startswith(f"{git}/"):
            yield one[len(git) + 1 :]
