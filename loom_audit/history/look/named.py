"""Which paths of a workspace a call's command names as those that it writes, deletes or moves."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loom_audit.errors import InvalidPath, NoWorkspace
from loom_audit.history.ground.attachment import Attachment
from loom_audit.model.files import parents
from loom_audit.model.shell.named import Named, most, named_by, named_in

BELOW = "/"
"""A name ends so that stands also for all below its path."""

MOST = 1_000
"""Most paths that are taken from one command."""

_TEXTS = ("command", "cmd", "script")
"""The arguments in which tools of clients have a command."""

_FOLDERS = ("cwd", "workdir", "directory", "dir_path")
"""The arguments in which they have the directory that it runs in."""


def named_paths(attachment: Attachment, arguments: Any, cwd: str) -> tuple[str, ...] | None:
    """The workspace paths that the command in a call's arguments names; None without a command.

    `cwd` is the directory that the call ran in, "" for the workspace's own. Paths outside the
    workspace are left out. Corrupt.
    """
    if not isinstance(arguments, Mapping):
        return None
    command = next((arguments[name] for name in _TEXTS if arguments.get(name)), None)
    folder = next((arguments[name] for name in _FOLDERS if arguments.get(name)), "")
    place = posixpath.join(cwd or ".", folder if isinstance(folder, str) else "")
    if isinstance(command, str):
        found = most(named_in(command, place), MOST)
    elif isinstance(command, list) and all(isinstance(word, str) for word in command):
        found = most(named_by(command, place), MOST)
    else:
        return None
    return tuple(dict.fromkeys(path for one in found for path in _inside(attachment, one)))


def _inside(attachment: Attachment, one: Named) -> Iterator[str]:
    """The workspace paths that one name of a command stands for; none for a path outside."""
    try:
        path = attachment.on_disk.workspace.relative(one.path)
    except (InvalidPath, NoWorkspace):  # where the folder is gone, its call says so on record
        return
    if one.into:
        there = attachment.stored.reading.state(path) if path else None
        if not path or (there is not None and there.kind == "directory"):
            for name in one.into:
                yield posixpath.join(path, name) + (BELOW if one.below else "")
            return
    if path:
        yield path + (BELOW if one.below else "")


def names(listed: Sequence[str], path: str) -> bool:
    """Whether the paths that a command names, as `named_paths` gives them, include this path."""
    known = frozenset(listed)
    return path in known or any(above + BELOW in known for above in (path, *parents(path)))
