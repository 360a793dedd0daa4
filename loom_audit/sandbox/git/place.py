"""Where a repository of a workspace is: its folder, its git folder and its common folder, opened.

git is told all three, and discovers nothing. A `.git` that is a file leads to another folder only
where that is a submodule's in this workspace, or a linked worktree's entry that itself names this
`.git`: whoever writes such a file could have git read a victim's repository else.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256

from msgspec import Struct

from loom_audit.errors import ExecutionFailed
from loom_audit.model.files import EPOCH_DIGITS
from loom_audit.sandbox.git.files import FOLDER, Numbers, open_below, read_text, stamp

IdentityOf = Callable[[int, bytes], str]
"""The identity of what has a name in an open folder, or of the folder itself without one."""

_MORE_DIGITS = 20


class GitPlace(Struct, frozen=True):
    """A repository's three folders: their paths, and descriptors of them.

    `common` is the git folder itself but in a linked worktree. `own` is the stamp of a `.git` that
    is a file. `shared_with` is whose refs a linked worktree has: the common folder's path, relative
    to the workspace where it lies in the `.git` of a folder there.
    """

    top: str
    path: str
    common_path: str
    folder: int
    git: int
    common: int
    own: Numbers | None = None
    shared_with: str = ""

    @property
    def is_linked(self) -> bool:
        """Whether it is a linked worktree."""
        return bool(self.shared_with)

    @property
    def is_shared_inside(self) -> bool:
        """Whether its refs are those of another repository of the workspace."""
        return self.is_linked and not os.path.isabs(self.shared_with)

    def identity(self, identity_of: IdentityOf) -> str:
        """The identity of a folder `.git`, else one made of those of all three folders.

        "" where one of them is not known.
        """
        if self.own is None:
            return identity_of(self.folder, b".git")
        found = [identity_of(one, b"") for one in (self.folder, self.git, self.common)]
        files = "".join(one[EPOCH_DIGITS:] for one in found)
        made = found[0][:EPOCH_DIGITS] + sha256(files.encode()).hexdigest()[:_MORE_DIGITS]
        return made if all(found) else ""


@contextmanager
def opened_place(root: str, below: str) -> Iterator[GitPlace | None]:
    """The repository in a folder of a workspace; None where nothing is there.

    ExecutionFailed with the reason where there is a `.git` that is not read through; its detail
    `gone` says that it surely leads to no repository.
    """
    with ExitStack() as opened:

        def keep(descriptor: int) -> int:
            opened.callback(os.close, descriptor)
            return descriptor

        top = os.path.join(root, below) if below else root
        try:
            folder = keep(open_below(root, below))
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        except OSError as error:
            raise ExecutionFailed(f"the folder cannot be read: {error.strerror}") from error
        path = os.path.join(top, ".git")
        try:
            git = keep(os.open(".git", FOLDER, dir_fd=folder))
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            own = _stamp_of_file(folder, error)
        else:
            yield GitPlace(top, path, path, folder, git, git)
            return
        path, common_path = _named_folders(root, top, folder)
        try:
            git = keep(_open(root, path))
            common = git if common_path == path else keep(_open(root, common_path))
        except OSError as error:
            why = f".git is a file that names a folder which cannot be read: {error.strerror}"
            # where all of the repository that holds it was moved, it may come back with that
            above, _, inside = path.rpartition("/.git/")
            held = path_below(root, path) and inside and os.path.isdir(f"{above}/.git")
            is_gone = isinstance(error, FileNotFoundError) and bool(held)
            raise ExecutionFailed(why, details={"gone": is_gone}) from error
        shared = ""
        if common_path != path:
            _check_names_back(git, path, top)
            inside = path_below(root, common_path)
            shared = inside if inside and ".git" in inside.split("/") else common_path
        yield GitPlace(top, path, common_path, folder, git, common, own, shared)


def _stamp_of_file(folder: int, error: OSError) -> Numbers:
    """The stamp of a `.git` that is a file; ExecutionFailed for what is neither that nor a folder
    that can be read.
    """
    with suppress(OSError):
        found = os.stat(".git", dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise ExecutionFailed(".git is a symbolic link, which is not read through")
        if stat.S_ISREG(found.st_mode):
            return stamp(found)
    raise ExecutionFailed(f"the git folder cannot be read: {error.strerror}") from error


def _named_folders(root: str, top: str, folder: int) -> tuple[str, str]:
    """The paths of the git folder that a `.git` names and of its common folder; the same twice for
    a submodule's. ExecutionFailed for any other.
    """
    said = read_text(folder, ".git") or ""
    if not said.startswith("gitdir: "):
        raise ExecutionFailed(".git is a file that names no git folder", details={"gone": True})
    path = os.path.normpath(os.path.join(top, said.removeprefix("gitdir: ")))
    if not (inside := path_below(root, path)):
        path = os.path.realpath(path)
        inside = path_below(root, path)
    above = os.path.dirname(path)
    if os.path.basename(above) == "worktrees":
        return path, os.path.dirname(above)
    names = inside.split("/")
    if ".git" in names and names[names.index(".git") + 1 :][:1] == ["modules"]:
        return path, path
    raise ExecutionFailed(".git is a file that names a folder elsewhere, which is not looked at")


def _check_names_back(opened: int, path: str, top: str) -> None:
    """ExecutionFailed unless the entry of a linked worktree itself names its `.git` file, and the
    folder that holds all entries as the common one.
    """
    named, common = read_text(opened, "gitdir"), read_text(opened, "commondir")
    file = os.path.join(path, named or "")
    above = os.path.realpath(os.path.dirname(file))
    is_this = os.path.basename(file) == ".git" and above == os.path.realpath(top)
    if named is None or not is_this:
        raise ExecutionFailed(
            ".git is a file that names the entry of another worktree, which is not looked at"
        )
    shared = os.path.dirname(os.path.dirname(path))
    if common is None or os.path.normpath(os.path.join(path, common)) != shared:
        raise ExecutionFailed("the entry of this worktree names another common folder")


def worktree_folders(git: int, path: str) -> Iterator[tuple[str, str]]:
    """The entries of linked worktrees in an open git folder, which lies at `path`, each with the
    folder of which it is; none that cannot be read.
    """
    for name in worktree_names(git):
        with suppress(OSError):
            entry = f"worktrees/{name}"
            file = os.path.join(path, entry, read_text(git, f"{entry}/gitdir") or "")
            yield name, os.path.dirname(os.path.normpath(file))


def worktree_names(git: int) -> list[str]:
    """The names of the entries of linked worktrees in an open git folder; none where they cannot be
    read.
    """
    with suppress(OSError):
        entries = os.open("worktrees", FOLDER, dir_fd=git)
        try:
            return sorted(os.listdir(entries))
        finally:
            os.close(entries)
    return []


def path_below(root: str, path: str) -> str:
    """A path relative to the workspace; "" where it is not in it."""
    start = root.rstrip("/") + "/"
    return path.removeprefix(start) if path.startswith(start) else ""


def _open(root: str, path: str) -> int:
    """A folder, opened without following a link in the workspace. OSError."""
    inside = path_below(root, path)
    return open_below(root, inside) if inside else os.open(path, FOLDER)
