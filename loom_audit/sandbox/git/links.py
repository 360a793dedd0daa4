"""What of a repository is not told since a symbolic link leads to it, and why."""

import os
from collections.abc import Iterator, Mapping

from loom_audit.errors import ExecutionFailed
from loom_audit.sandbox.git.files import is_link, links_in, paths_of_refs
from loom_audit.sandbox.git.place import GitPlace

ASKED = frozenset({"refs", "HEAD", "index", "worktree", "logs"})
"""What git is asked for."""

_NO_OBJECTS = "/dev"
"""A folder without objects in which no ordinary user makes any."""

NOT_FOLLOWED: Mapping[str, tuple[str, str]] = {
    "objects": ("GIT_OBJECT_DIRECTORY", _NO_OBJECTS),
    "shallow": ("GIT_SHALLOW_FILE", os.devnull),
}
"""The variable that keeps git from following a link there, with its value."""

_OF_REFS = ("refs", "worktree")
_OF_EACH = ("refs", "HEAD", "index", "worktree", "logs")
_BEHIND: Mapping[str, tuple[str, ...]] = {
    "HEAD": _OF_EACH,
    "config": _OF_EACH,
    "config.worktree": _OF_EACH,
    "index": ("index",),
    "logs": (),
    "objects": ("objects",),
    "packed-refs": _OF_REFS,
    "refs": _OF_REFS,
    "reftable": (*_OF_REFS, "logs"),
    "shallow": ("shallow",),
    "worktrees": ("worktree",),
}
"""What git reads through a link: each of its commands, or those by which it is asked for this."""

_OF_MAIN = ("HEAD", "config.worktree", "index", "worktrees")
"""What of a common folder git does not read for a linked worktree."""


def behind_links(place: GitPlace) -> tuple[dict[str, str], frozenset[str]]:
    """What is not told, as git would follow a link to it, with the reason; and the refs that are
    files in the git folder, where they can be told.

    Of `hooks` and `info`, which are told as links, the names are ones that nothing has.
    ExecutionFailed for a folder that cannot be read.
    """
    behind: dict[str, str] = {}
    for path in _links_of(place):
        first = path.partition("/")[0]
        what = "index" if first.startswith("sharedindex.") else first
        for name in _BEHIND.get(what, (f"behind {path}",)):
            behind.setdefault(name, is_link(path).message)
    there: frozenset[str] = frozenset()
    try:
        there = frozenset(paths_of_refs(place.git))
        if place.is_linked:
            paths_of_refs(place.common)
    except ExecutionFailed as error:
        behind |= {name: behind.get(name, error.message) for name in _OF_REFS}
    return behind, there


def _links_of(place: GitPlace) -> Iterator[str]:
    try:
        yield from links_in(place.git)
        if place.is_linked:
            yield from (one for one in links_in(place.common) if not _is_of_main(one))
    except OSError as error:
        raise ExecutionFailed(f"a folder in .git cannot be read: {error.strerror}") from error


def _is_of_main(path: str) -> bool:
    return path.startswith(("sharedindex.", *(f"{one}/" for one in _OF_MAIN))) or path in _OF_MAIN
