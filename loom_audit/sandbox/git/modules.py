"""Submodules' git folders in `.git/modules` of which no checkout in the workspace is: what HEAD and
refs are there. Of others their own look tells.
"""

import os
import re
import stat
import time
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress

from loom_audit.errors import ExecutionFailed
from loom_audit.model.git.record import BROKEN, MODULES
from loom_audit.ports import SETTLED, GitAnswer
from loom_audit.sandbox.git.answers import LED_TO_BY_HEAD, text_of, told_refs
from loom_audit.sandbox.git.files import (
    MAX_FILE,
    KnownFolders,
    Numbers,
    Stamped,
    check_links,
    contents_since,
    opened_below,
    read_file,
    shared_stamps_of,
    stamp,
)
from loom_audit.sandbox.git.gathered import GatheredGit
from loom_audit.sandbox.git.place import GitPlace, opened_place, path_below
from loom_audit.sandbox.git.program import ask_git, check_answer

MOST_MODULES = 20
"""The number of submodules without a checkout that are looked at."""

_MOST_FOLDERS = 500
_TOO_MANY = "more submodules, or folders of them, than are looked at"
_TOP = re.compile(rb"^[ \t]*worktree[ \t]*=[ \t]*\"?([^\"\n]*?)\"?[ \t\r]*$", re.MULTILINE)
_COMMANDS = (
    ("for-each-ref", "--format=%(HEAD)%(objectname) %(refname) %(symref)"),
    LED_TO_BY_HEAD,
    ("rev-parse", "-q", "--verify", "HEAD"),
)


class Modules:
    """The submodules of a repository that are not checked out, found anew at each look."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: MutableMapping[str, KnownFolders] = {}
        self._told: MutableMapping[str, tuple[str, Sequence[Numbers | None]]] = {}

    def stamps(self, place: GitPlace, since: int) -> tuple[Sequence[Stamped], Sequence[str | None]]:
        """The stamps of what their refs are kept in, and the contents of what changed since."""
        stamped: list[Stamped] = []
        contents: list[str | None] = []
        for path in self._looked_for(place)[0]:
            with suppress(OSError), opened_below(place.git, path) as opened:
                known = self._known.setdefault(path, {})
                found = [*shared_stamps_of(opened, known, refs=True)]
                found.append(("HEAD", stamp(os.stat("HEAD", dir_fd=opened, follow_symlinks=False))))
                stamped += ((f"{path}/{name}", one) for name, one in found)
                contents.append(contents_since(opened, found, since))
        return stamped, contents

    def read(self, place: GitPlace, program: str, gathered: GatheredGit, seconds: float) -> None:
        """Gather what HEAD and each ref of theirs is, and where their objects are."""
        found, is_all = self._looked_for(place)
        if not is_all:
            gathered.untold[MODULES] = _TOO_MANY
        for path in found:
            try:
                with opened_below(place.git, path) as opened:
                    check_links(opened)
                folder = f"{place.path}/{path}"
                named = ("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE")
                folders = dict.fromkeys(named, folder)
                done = ask_git(program, folder, folders, *_COMMANDS, seconds=seconds)
                gathered.names |= {f"{path} {name}": one for name, one in _names(*done).items()}
            except ExecutionFailed as error:
                gathered.untold[path] = f"{path}: {error.message}"
            except OSError as error:
                gathered.untold[path] = f".git/{path} cannot be read: {error.strerror}"
            else:
                gathered.modules.append(path_below(self._root, folder))

    def _looked_for(self, place: GitPlace) -> tuple[Sequence[str], bool]:
        """Their paths in the git folder, sorted, and whether these are all."""
        if place.is_linked:
            return (), True
        found: list[str] = []
        waiting, count = [MODULES], 0
        while waiting:
            above = waiting.pop()
            for name in _folders_in(place.git, above):
                path = f"{above}/{name}"
                count += 1
                if count > _MOST_FOLDERS or len(found) == MOST_MODULES:
                    return found, False
                if self._is_checked_out(place, path):
                    continue
                if _is_git_folder(place.git, path):
                    found.append(path)
                    waiting.append(f"{path}/{MODULES}")
                else:
                    waiting.append(path)  # names of submodules have slashes
        return sorted(found), True

    def _is_checked_out(self, place: GitPlace, path: str) -> bool:
        """Whether the `.git` of the folder that its settings name leads there; looked at anew where
        what tells that has other stamps.
        """
        folder = f"{place.path}/{path}"
        if path in self._told:
            top, stamped = self._told[path]
            if stamped == _stamps(folder, top):
                return True
            del self._told[path]
        began = time.time_ns()
        with suppress(OSError, ExecutionFailed):
            config = read_file(place.git, f"{path}/config", MAX_FILE)
            said = _TOP.findall(config.content) if config else []
            top = os.path.normpath(os.path.join(folder, os.fsdecode(said[-1]))) if said else ""
            stamped = _stamps(folder, top)
            if below := path_below(self._root, top):
                with opened_place(self._root, below) as own:
                    is_there = own is not None and own.path == folder
                if is_there and all(one and one[3] + SETTLED < began for one in stamped):
                    self._told[path] = top, stamped
                return is_there
        return False


def _stamps(folder: str, top: str) -> Sequence[Numbers | None]:
    """The stamps of the settings in a git folder, and of the `.git` in the folder of its files."""
    found: list[Numbers | None] = []
    for path in (f"{folder}/config", f"{top}/.git"):
        try:
            found.append(stamp(os.lstat(path)))
        except OSError:
            found.append(None)
    return found


def _names(refs: GitAnswer, symbolic: GitAnswer, detached: GitAnswer) -> Mapping[str, str]:
    """What HEAD and each ref is. ExecutionFailed where git does not tell the refs."""
    check_answer(refs)
    line = text_of((symbolic if symbolic.code == 0 else detached).output).rstrip()
    head = f"ref: {line}" if symbolic.code == 0 else line
    return {"HEAD": head or BROKEN, **told_refs(refs)}


def _is_git_folder(git: int, path: str) -> bool:
    with suppress(OSError), opened_below(git, path) as opened:
        return {"HEAD", "objects", "refs"}.issubset(os.listdir(opened))
    return False


def _folders_in(git: int, path: str) -> Sequence[str]:
    """The names of the folders in one; none where it cannot be read, or is a link."""
    with suppress(OSError), opened_below(git, path) as opened:
        names = sorted(os.listdir(opened))
        status = {one: os.stat(one, dir_fd=opened, follow_symlinks=False) for one in names}
        return [one for one, found in status.items() if stat.S_ISDIR(found.st_mode)]
    return ()
