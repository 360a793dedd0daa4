"""Files to which settings and hooks of a repository lead: hooks, settings to include, programs."""

import os
import re
import stat
from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from loom_audit.model.git.record import STATE_FILES
from loom_audit.sandbox.git.files import MAX_FILE, Numbers, open_below, read_file, stamp
from loom_audit.sandbox.git.place import worktree_folders, worktree_names

MOST_LED = 32
"""The number of paths in a git folder that are followed: settings of people name one or none."""

MOST_LED_OUTSIDE = 200
"""The number of paths in the workspace that settings lead to: they are only compared."""

_KEY = re.compile(rb"([a-z][-a-z0-9]*)[ \t]*=", re.IGNORECASE)
_SECTION = re.compile(rb"\s*\[\s*([-a-z0-9]+)", re.IGNORECASE)
_ESCAPED = re.compile(rb'\\(.)|"')
_WORDS = re.compile(rb"[\s\"'`|&;()<>=!$\\]+")
_PROGRAM = re.compile(
    rb"(?:.*command|.*cmd|.*editor|.*pager|.*program|askpass|browser|clean|difffilter|driver"
    rb"|external|fsmonitor|gitproxy|helper|httpd|packobjectshook|process|receivepack|smtpserver"
    rb"|smudge|textconv|tunnel|update|uploadpack)"
)
"""The last words of settings that name programs (git-config(1)); a shell runs some of them."""

_HOOKS = (
    *("applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout"),
    *("post-commit", "post-index-change", "post-merge", "post-receive", "post-rewrite"),
    *("post-update", "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit"),
    *("pre-push", "pre-rebase", "pre-receive", "prepare-commit-msg", "proc-receive"),
    *("push-to-checkout", "reference-transaction", "sendemail-validate", "update"),
)
"""The names of hooks (githooks(5)), for a folder in which much else lies."""

_NOT_RUN = re.compile(r"COMMIT_EDITMSG|description|FETCH_HEAD|gc\.(?:log|pid)|.*\.lock|.*~")

_What = Literal["settings", "hooks", "file", "excludes", "program", "word"]
_PATHS: Mapping[bytes, _What] = {
    b"attributesfile": "file",
    b"excludesfile": "excludes",
    b"hookspath": "hooks",
}
"""The settings whose value is a path from the top on, and what it is."""


class Led(Struct, frozen=True):
    """Paths to which settings and hooks lead; nothing need be there.

    `inside` are in the git folder, "" is the folder itself. `outside` are in the workspace, where
    one that ends in a slash stands for all below it. `unseen` are in the `.git` of another
    repository of the workspace, where nothing is looked at for this one.
    """

    inside: Sequence[str] = ()
    outside: Sequence[str] = ()
    unseen: Sequence[str] = ()


class LedTo:
    """Where settings and hooks of a repository in a workspace lead, read anew where these have
    other stamps.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._read_at: MutableMapping[str, Numbers | None] = {}
        self._sources: Sequence[str] = ()
        self._led = Led()

    def paths(self, git: int, path: str, top: str, sources: Sequence[str]) -> Led:
        """Where they lead. A setting that may mean a path is taken for one.

        `git` is the open folder, `path` where it lies, `top` the folder of the repository's files,
        and `sources` are the settings in the git folder that are read.
        """
        read = self._read_at
        if sources != self._sources or any(_at(one) != at for one, at in read.items()) or not read:
            reading = _Reading(self._root, git, path)
            reading.follow(sources, top)
            self._sources, self._read_at = sources, reading.read_at
            self._led = reading.led
        return self._led


class _Reading:
    """One reading of all settings of a git folder, and of what they include."""

    def __init__(self, root: str, git: int, path: str) -> None:
        self._root, self._git, self._path = root, git, path
        self._inside: dict[str, None] = {}
        self._outside: dict[str, None] = {}
        self._words: dict[str, None] = {}
        self._unseen: dict[str, None] = {}
        self._waiting = deque[tuple[str, str]]()
        self.read_at: dict[str, Numbers | None] = {}

    @property
    def led(self) -> Led:
        """What was found: of what lies outside first hooks and settings, of which there are few."""
        outside = [*dict.fromkeys((*self._outside, *self._words))]
        unseen = sorted(self._unseen)[:MOST_LED]
        return Led(sorted(self._inside)[:MOST_LED], outside[:MOST_LED_OUTSIDE], unseen)

    def follow(self, sources: Sequence[str], top: str) -> None:
        """Read these settings in the git folder, and those that they lead to."""
        self._add_hooks(os.path.join(self._path, "hooks"))
        self._waiting += (
            (os.path.join(self._path, one), self._top_of(one, top)) for one in sources
        )
        while self._waiting and len(self._inside) < MOST_LED:
            file, own_top = self._waiting.popleft()
            if file in self.read_at:
                continue
            self.read_at[file] = _at(file)
            for what, path in _led(self._content(file), file, own_top):
                self._add(what, path, own_top)

    def _add(self, what: _What, path: str, top: str) -> None:
        for one in dict.fromkeys((path, os.path.realpath(path))):
            if (inner := _within(one, self._path)) is not None:
                self._inside.setdefault(inner)
            elif (inner := _within(one, self._root)) is None:
                continue
            elif ".git" in inner.split("/"):
                if what not in ("word", "excludes"):
                    self._unseen.setdefault(inner)
                continue
            elif what in ("program", "word"):
                if what == "program" and inner:
                    self._words.setdefault(inner)
                continue
            elif what == "hooks":
                self._outside.update(dict.fromkeys([f"{inner}/"] if inner else _HOOKS))
            elif inner and what != "excludes":  # which runs nothing
                self._outside.setdefault(inner)
            if what == "settings":
                self._waiting.append((one, top))
            elif what == "hooks":
                self._add_hooks(one)

    def _add_hooks(self, folder: str) -> None:
        """Add where a folder of hooks leads that is a link, or links in it."""
        if folder in self.read_at:
            return
        self.read_at[folder] = _at(folder)
        if os.path.islink(folder):
            self._add("hooks", os.path.realpath(folder), "")
            return
        with suppress(OSError), os.scandir(folder) as entries:
            links = sorted(one.name for one in entries if one.is_symlink())
            for name in links[:MOST_LED]:
                self._add("file", os.path.realpath(os.path.join(folder, name)), "")

    def _top_of(self, source: str, top: str) -> str:
        """The folder of files for which settings hold, which in an entry of a linked worktree is
        that of the `.git` which this names.
        """
        entry = os.path.join(self._path, os.path.dirname(source))
        if not (os.path.dirname(source) and _at(os.path.join(self._path, source))):
            return top
        named = os.path.join(entry, "gitdir")
        self.read_at[named] = _at(named)
        return dict(worktree_folders(self._git, self._path)).get(os.path.basename(entry), top)

    def _content(self, path: str) -> bytes:
        """What stands in a file of the git folder or of the workspace, read through no link."""
        with suppress(OSError):
            if (inner := _within(path, self._path)) is not None:
                return _text(self._git, inner)
            if inner := _within(path, self._root):
                folder, _, name = inner.rpartition("/")
                opened = open_below(self._root, folder)
                try:
                    return _text(opened, name)
                finally:
                    os.close(opened)
        return b""


def files_led_to(git: int, paths: Sequence[str]) -> Iterator[str]:
    """The paths to look at: in place of the folder itself, what lies in it and git did not make;
    none behind a link.
    """
    for path in paths:
        if path:
            above = path.split("/")[:-1]
            if all(_is_folder(git, "/".join(above[: n + 1])) for n in range(len(above))):
                yield path
            continue
        for name in sorted(os.listdir(git)):
            if not (STATE_FILES.fullmatch(name) or _NOT_RUN.fullmatch(name)):
                with suppress(OSError):
                    at = os.stat(name, dir_fd=git, follow_symlinks=False)
                    if not stat.S_ISDIR(at.st_mode):
                        yield name


def settings_of_worktrees(git: int) -> Sequence[str]:
    """The paths of the settings that linked worktrees have for themselves."""
    return [f"worktrees/{one}/config.worktree" for one in worktree_names(git)]


def _at(path: str) -> Numbers | None:
    with suppress(OSError):
        return stamp(os.lstat(path))
    return None


def _is_folder(git: int, path: str) -> bool:
    """Whether there is a folder, or nothing."""
    with suppress(OSError):
        return stat.S_ISDIR(os.stat(path, dir_fd=git, follow_symlinks=False).st_mode)
    return True


def _text(folder: int, path: str) -> bytes:
    file = read_file(folder, path, MAX_FILE)
    return file.content if file is not None and file.kind == "file" else b""


def _within(path: str, folder: str) -> str | None:
    """A path relative to a folder, "" for that itself; None where it is not in it."""
    if path == folder:
        return ""
    start = folder.rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else None


def _led(content: bytes, source: str, top: str) -> Iterator[tuple[_What, str]]:
    """The paths that the settings in a file may name, and what each may be."""
    whole = content.replace(b"\\\r\n", b"").replace(b"\\\n", b"")
    above, section = os.path.dirname(source), b""
    for line in whole.split(b"\n"):
        if header := _SECTION.match(line):
            section = header[1].lower()
        for key in _KEY.finditer(line):
            name, value = key[1].lower(), line[key.end() :].strip()
            for said in {value, re.split(rb"[#;]", value)[0].strip()}:
                plain = _ESCAPED.sub(lambda one: one[1] or b"", said).removeprefix(b":(optional)")
                is_run = _is_run(section, name, plain)
                if name in _PATHS:
                    yield from ((_PATHS[name], one) for one in _path(plain, top))
                elif name == b"path" and not is_run:
                    yield from (("settings", one) for one in _path(plain, above))
                else:
                    for word in _WORDS.split(plain):
                        if is_run or b".git" in word:
                            what: _What = "program" if is_run else "word"
                            yield from ((what, one) for one in _path(word, top))


def _is_run(section: bytes, name: bytes, value: bytes) -> bool:
    """Whether a setting names a program, which a shell may run with words behind it."""
    if section == b"alias":
        return value.startswith(b"!")
    if name == b"path":
        return section.endswith(b"tool") or section in (b"browser", b"man")
    return section == b"pager" or _PROGRAM.fullmatch(name) is not None


def _path(said: bytes, above: str) -> Iterator[str]:
    """The path that is said."""
    if said and b"\0" not in said:
        name = os.fsdecode(said)
        if name.startswith("~/"):
            name = os.environ.get("HOME", "") + name[1:]
        yield os.path.normpath(os.path.join(above, name))
