"""What git prints for programs, as plain values: git-status(1), git-diff(1), git-log(1)."""

import os
from collections.abc import Iterator
from typing import Any

KINDS = {
    "M": "modified",
    "T": "type changed",
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "U": "unmerged",
    ".": "",
    "?": "untracked",
}
_LOG_FIELDS = ("%H", "%P", "%an", "%ae", "%aI", "%cn", "%cI", "%D", "%s", "%b")
LOG = (
    "log",
    "-z",
    f"--format=tformat:{'%x00'.join(_LOG_FIELDS)}",
    "--no-show-signature",
    "--no-mailmap",
    "--no-notes",
    "--no-color",
    "--encoding=UTF-8",
    "--decorate=short",
    "--no-patch",
)
"""The words of a command whose output `commits_of` reads."""

_COMPARED = ("--find-renames", "--ignore-submodules=dirty")
STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", *_COMPARED)
"""The words of the command whose output `status_of` reads."""

DIFF = (
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--submodule=short",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    *_COMPARED,
)
"""What every comparison is told; with `COUNTED` before it `changes_of` reads the output."""

COUNTED = ("--raw", "--numstat", "-z")


def status_of(raw: bytes) -> dict[str, Any]:
    """Return what git printed for `STATUS`; bytes of paths that are not UTF-8 are surrogates."""
    found: dict[str, Any] = dict.fromkeys(("branch", "commit", "upstream", "ahead", "behind"))
    entries: list[dict[str, Any]] = []
    records = iter(raw.split(b"\0"))
    for record in records:
        mark, _, rest = record.partition(b" ")
        if mark == b"#":
            _header(found, rest.decode("utf-8", "surrogateescape"))
        elif mark == b"?":
            entries.append(_entry("?", "?", rest))
        elif mark in (b"1", b"2", b"u"):
            states, *_ = rest.split(b" ", 1)
            index, worktree = states[:1].decode(), states[1:].decode()
            path = rest.split(b" ", {b"1": 7, b"2": 8, b"u": 9}[mark])[-1]
            entry = _entry(index, worktree, path, unmerged=mark == b"u")
            if mark == b"2":
                entry["from"] = os.fsdecode(next(records))
            entries.append(entry)
    return {**found, "entries": entries, "clean": not entries}


def _header(status: dict[str, Any], line: str) -> None:
    name, _, value = line.partition(" ")
    if name == "branch.oid":
        status["commit"] = None if value == "(initial)" else value
    elif name == "branch.head":
        status["branch"] = None if value == "(detached)" else value
    elif name == "branch.upstream":
        status["upstream"] = value
    elif name == "branch.ab":
        ahead, behind = value.split(" ")
        status["ahead"], status["behind"] = int(ahead), -int(behind)


def _entry(index: str, worktree: str, path: bytes, *, unmerged: bool = False) -> dict[str, Any]:
    if unmerged:
        kinds = ("unmerged", "unmerged")
    else:
        kinds = ("" if index == "?" else KINDS.get(index, index), KINDS.get(worktree, worktree))
    return {"path": os.fsdecode(path), "from": None, "staged": kinds[0], "unstaged": kinds[1]}


def changes_of(raw: bytes) -> list[dict[str, Any]]:
    """Return each file in what git printed for `COUNTED`; the counts of a binary file are None."""
    files: dict[str, dict[str, Any]] = {}
    parts = iter(raw.split(b"\0"))
    for part in parts:
        if part.startswith(b":"):
            letter = part.split(b" ")[-1][:1].decode()
            name = os.fsdecode(next(parts))
            old = None
            if letter in "RC":
                old, name = name, os.fsdecode(next(parts))
            kind = KINDS.get(letter, letter)
            files[name] = {"path": name, "from": old, "kind": kind, "added": 0, "removed": 0}
        elif part.count(b"\t") >= 2:
            added, removed, path = part.split(b"\t", 2)
            if not path:
                next(parts)
                path = next(parts)
            file = files.get(os.fsdecode(path))
            if file is not None:
                file["added"] = None if added == b"-" else int(added)
                file["removed"] = None if removed == b"-" else int(removed)
    return list(files.values())


def commits_of(raw: bytes) -> Iterator[dict[str, Any]]:
    """Yield each commit in what git printed for `LOG`."""
    fields = [part.decode("utf-8", "replace") for part in raw.split(b"\0")]
    count = len(_LOG_FIELDS)
    for n in range(0, len(fields) - count + 1, count):
        commit, parents, name, mail, made, by, at, names, subject, body = fields[n : n + count]
        yield {
            "commit": commit,
            "parents": parents.split(),
            "author": f"{name} <{mail}>",
            "authored": made,
            "committer": by,
            "committed": at,
            "names": [part for part in names.split(", ") if part],
            "subject": subject,
            "body": body.rstrip("\n"),
        }
