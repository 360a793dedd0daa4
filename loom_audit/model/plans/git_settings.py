"""What files of a repository say, read without git: where it is, its ids, and what it would run."""

import re
from collections.abc import Iterator

_HEADER = re.compile(rb"\s*\[([^\]\"]*)(\"(?:[^\"\\]|\\.)*\")?\s*\]")
_KEY = re.compile(rb"\s*([a-z][-a-z0-9]*)\s*(?:=\s*(.*))?", re.IGNORECASE)
_STEPS = frozenset({"rebase-merge/git-rebase-todo", "sequencer/todo"})
_RUNS = re.compile(rb"^\s*(?:exec|x(?=[\s\0]|\Z)).*", re.MULTILINE)
"""A line of what a rebase is still to do that runs a program (git-rebase(1)). What follows `exec`
need not be apart: git 2.39 takes `execfoo`, too.
"""

_SECTION = re.compile(rb"^[ \t]*\[\s*([-.a-z]+)(?:\s*\"([^\"]*)\")?", re.IGNORECASE | re.MULTILINE)
_BESIDE = {
    b"annex": "contents of git annex",
    b"lfs": "contents of git lfs",
    b"rerere": "recorded resolutions (rr-cache)",
    b"submodule": "repositories of submodules",
}
"""What others keep in the git folder of who has such a section in the settings."""

_ANYWHERE = re.compile(rb"(?:worktree|refstorage)\s*=", re.IGNORECASE)


def is_elsewhere(config: bytes) -> bool:
    """Whether the work tree is said to lie elsewhere, or refs are not files.

    True also where it could be so: a value that goes on in the next line is not read.
    """
    if b"\\\n" in config or b"\\\r\n" in config:
        return bool(_ANYWHERE.search(config))
    found = {key for key, _ in _settings(config)}
    return not found.isdisjoint({b"core.worktree", b"extensions.refstorage"})


def is_of_long_ids(config: bytes) -> bool:
    """Whether its ids are said to be by SHA-256."""
    return (b"extensions.objectformat", b"sha256") in _settings(config)


def may_run(path: str) -> bool:
    """Whether a file of the git folder may hold lines that run programs when a rebase goes on."""
    return path in _STEPS


def run_lines(path: str, content: bytes) -> list[bytes]:
    """The lines of a file of the git folder that run programs when a rebase goes on."""
    return [one.strip() for one in _RUNS.findall(content)] if may_run(path) else []


def remotes_of(config: bytes) -> list[str]:
    """The names of the remotes that a `config` knows, sorted."""
    found = {name for section, name in _SECTION.findall(config) if section.lower() == b"remote"}
    return sorted(name.decode("utf-8", "surrogateescape") for name in found if name)


def beside_state(config: bytes) -> list[str]:
    """What a `config` says that lies in the git folder besides git's own state, in words."""
    headers = {(section.lower(), name) for section, name in _SECTION.findall(config)}
    found = {name if section == b"filter" else section for section, name in headers}
    return [words for section, words in _BESIDE.items() if section in found]


def _settings(config: bytes) -> Iterator[tuple[bytes, bytes]]:
    section = b""
    for line in config.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        rest = line
        while header := _HEADER.match(rest):  # a key can stand behind it, and another header
            section = b"" if header[2] else header[1].strip().lower()
            rest = rest[header.end() :]
        if key := _KEY.match(rest):
            value = (key[2] or b"").strip().strip(b'"').lower()
            yield b"%s.%s" % (section, key[1].lower()), value
