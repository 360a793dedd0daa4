"""Builds a git folder anew, under a temporary name, and lets it become `.git` by one rename.

Nothing of an agent's is read meanwhile: until its own settings are written, last of all, the folder
has those of a bare repository. git is given the open folder, so that one that was put in its place
has nothing written into it.
"""

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType

from loom_audit.errors import Conflict, ExecutionFailed
from loom_audit.model.files import is_same_identity
from loom_audit.model.git.record import BROKEN, OBJECT_ID
from loom_audit.model.scope import TEMPORARY
from loom_audit.ports import GitAnswer, GitFile, GitWhole
from loom_audit.ports.git_objects import bare_settings
from loom_audit.sandbox.git.files import FOLDER, open_below
from loom_audit.sandbox.git.linked_builder import (
    ProgramLinkedBuilding,
    begin_linked,
    remove_unnamed,
)
from loom_audit.sandbox.git.place import IdentityOf
from loom_audit.sandbox.git.program import ask_git, find_git
from loom_audit.sandbox.git.writing import (
    GIT,
    PUT_SECONDS,
    RenameToAbsent,
    add_pack,
    is_there,
    made_folder,
    path_of,
    put_file,
    put_index,
    remove_folder,
    sync,
    taken,
    unwritable,
)

CHECK_SECONDS = 600.0
_FOLDERS = ("objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags", "hooks")
_UNNAMED = b"Unnamed repository; edit this file 'description' to name the repository.\n"
_CHECK = ("fsck", "--connectivity-only", "--no-dangling", "--no-reflogs", "--no-progress")
_LISTED = ("for-each-ref", "--format=%(objectname) %(refname)")
_WRITTEN_APART = frozenset({"HEAD", "packed-refs", "config", "description"})


class ProgramGitBuilder:
    """A `ports.GitBuilder` that asks the program `git`, which is not taken from `safe_from`."""

    def __init__(
        self, root: str, identity_of: IdentityOf, rename: RenameToAbsent, safe_from: str = ""
    ) -> None:
        self._root = root
        self._identity_of = identity_of
        self._rename = rename
        self._safe_from = safe_from or root

    def begin(self, folder: str, over: str = "") -> "ProgramGitBuilding":
        """Make an empty folder under a temporary name beside a `.git` that is not there, or is an
        empty folder of the identity `over`; Conflict where something is there, ExecutionFailed.
        """
        with ExitStack() as opened:
            program = find_git(self._safe_from)
            try:
                above = open_below(self._root, folder)
                opened.callback(os.close, above)
                if is_there(above, GIT) and not self._is_empty(above, over):
                    raise taken()
            except OSError as error:
                raise unwritable("no git folder can be made", error) from error
            name, git = opened.enter_context(made_folder(above))
            if not (identity := self._identity_of(git, b"")):
                os.rmdir(name, dir_fd=above)
                raise ExecutionFailed("the filesystem does not tell which folder is which")
            top = os.path.join(self._root, folder) if folder else self._root
            rename = self._rename_over if over else self._rename
            building = ProgramGitBuilding(
                top, above, git, name, identity, self._identity_of, rename, program
            )
            opened.callback(building.give_up)
            building.closing = opened.pop_all()
        return building

    def _is_empty(self, above: int, over: str) -> bool:
        """Whether the `.git` in an open folder is the empty folder of an identity. OSError."""
        if not over or not is_same_identity(self._identity_of(above, GIT.encode()), over):
            return False
        with suppress(NotADirectoryError):
            git = os.open(GIT, FOLDER, dir_fd=above)
            try:
                return not os.listdir(git)
            finally:
                os.close(git)
        return False

    def _rename_over(self, source_in: int, source: bytes, target_in: int, target: bytes) -> None:
        """Rename onto a name that nothing has, or a folder in which nothing is: FileExistsError for
        any other. OSError.
        """
        try:
            os.rename(source, target, src_dir_fd=source_in, dst_dir_fd=target_in)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(error.errno, os.strerror(error.errno)) from error
            raise

    def begin_linked(self, folder: str, common: str, identity: str) -> ProgramLinkedBuilding:
        """Begin to make the entry of the linked worktree in a folder, whose `.git` is not there, in
        the common folder at a path in the workspace, which must be of that identity. Conflict,
        ExecutionFailed.
        """
        return begin_linked(self._root, folder, common, identity, self._identity_of, self._rename)

    def release(self, folder: str, name: str, identity: str, common: str = "") -> bool:
        """Remove what was built under a temporary name by who was killed; whether it was there.

        Of a linked worktree, whose `common` folder that is, also an entry that no `.git` names yet.
        """
        if not name.startswith(TEMPORARY) or "/" in name or not identity:
            return False
        with ExitStack() as opened, suppress(OSError):
            above = open_below(self._root, folder)
            opened.callback(os.close, above)
            if common and remove_unnamed(self._root, above, common, identity, self._identity_of):
                return True
            git = os.open(name, FOLDER, dir_fd=above)
            opened.callback(os.close, git)
            if is_same_identity(self._identity_of(git, b""), identity):
                remove_folder(above, name, git)
                return True
        return False


class ProgramGitBuilding:
    """A `ports.GitBuilding`, below a folder that is open."""

    def __init__(
        self,
        top: str,
        above: int,
        git: int,
        name: str,
        identity: str,
        identity_of: IdentityOf,
        rename: RenameToAbsent,
        program: str,
    ) -> None:
        self.name = name
        self.identity = identity
        self.becomes = identity
        self.closing = ExitStack()
        self._top = top
        self._above = above
        self._git = git
        self._identity_of = identity_of
        self._rename = rename
        self._program = program
        self._is_in_place = False

    def __enter__(self) -> "ProgramGitBuilding":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.closing.close()

    def give_up(self) -> None:
        """Remove what was built, unless it came to its place; what cannot be removed stays."""
        if not self._is_in_place:
            with suppress(OSError):  # recovery tries once more
                if self._identity_of(self._above, os.fsencode(self.name)) == self.identity:
                    remove_folder(self._above, self.name, self._git)

    def fill(self, whole: GitWhole, pack: bytes) -> None:
        """Write all of it, durably, and have git check it; ExecutionFailed where git finds it is
        not whole.
        """
        try:
            self._fill(whole, pack)
            sync(self._git)
        except OSError as error:
            raise unwritable("a git folder cannot be written", error) from error

    def _fill(self, whole: GitWhole, pack: bytes) -> None:
        for one in _FOLDERS:
            os.mkdir(one, 0o777, dir_fd=self._git)
        plain = bare_settings(long_ids=whole.long_ids).encode()
        self._put("HEAD", b"ref: refs/heads/none\n")
        self._put("config", plain)
        self._put("description", _UNNAMED)
        if "shallow" in whole.files:
            put_file(self._git, "shallow", whole.files["shallow"])
        if pack:
            add_pack(self._ask, pack)
        self._name(whole.names)
        logs = {path: file for path, file in whole.files.items() if path.startswith("logs/")}
        for path, file in whole.files.items():
            if path not in _WRITTEN_APART and path not in logs:
                put_file(self._git, path, file)
        put_index(self._git, whole.index)
        self._check(whole.names)
        # after that: a log may name what git threw away long ago
        for path, file in logs.items():
            put_file(self._git, path, file)
        # last: until now nothing of the settings was read
        put_file(self._git, "config", whole.files["config"])
        self._check_names(whole.names)

    def _name(self, names: Mapping[str, str]) -> None:
        refs = {one: value for one, value in names.items() if one.startswith("refs/")}
        plain = {one: value for one, value in refs.items() if OBJECT_ID.fullmatch(value)}
        said = "".join(f"create {one} {value}\n" for one, value in plain.items())
        if plain:
            self._told(("update-ref", "--stdin"), said.encode("utf-8", "surrogateescape"))
        for one, value in refs.items():
            if value.startswith("ref: "):
                self._told(("symbolic-ref", one, value.split(" ")[1]))
        if plain:
            self._told(("pack-refs", "--all"))
        head = names["HEAD"]
        if OBJECT_ID.fullmatch(head):
            self._told(("update-ref", "--no-deref", "HEAD", head))
        else:
            self._told(("symbolic-ref", "HEAD", head.removeprefix("ref: ")))

    def _check(self, names: Mapping[str, str]) -> None:
        """ExecutionFailed unless all that is named is there, with what it leads to."""
        done = self._ask(_CHECK, b"", CHECK_SECONDS, 64 << 20)
        if done.code:
            said = " ".join((done.output.decode("utf-8", "replace") + done.errors).split())
            raise ExecutionFailed(f"the repository that would come back is not whole: {said:.200}")
        self._check_names(names)

    def _check_names(self, names: Mapping[str, str]) -> None:
        """ExecutionFailed unless git tells just these refs."""
        done = self._told(_LISTED)
        found = {
            line for line in done.output.decode("utf-8", "surrogateescape").split("\n") if line
        }
        if found != {*_lines(names)}:
            raise ExecutionFailed("the repository that would come back has other refs than it had")

    def _told(self, words: Sequence[str], given: bytes = b"") -> GitAnswer:
        done = self._ask(words, given, PUT_SECONDS, 64 << 20)
        if done.code:
            said = done.errors.strip()
            raise ExecutionFailed(f"git cannot make the repository anew: {said:.200}")
        return done

    def _ask(self, words: Sequence[str], given: bytes, seconds: float, limit: int) -> GitAnswer:
        path = path_of(self._git)
        folders = {"GIT_DIR": path, "GIT_COMMON_DIR": path, "GIT_WORK_TREE": self._top}
        [done] = ask_git(
            self._program,
            self._top,
            folders,
            words,
            seconds=seconds,
            limit=limit,
            given=given,
            opened=(self._git,),
        )
        return done

    def _put(self, path: str, content: bytes) -> None:
        put_file(self._git, path, GitFile("file", 0o644, content))

    def finish(self) -> None:
        """Rename it to `.git`; Conflict where something is there by now, or it was replaced.

        ExecutionFailed.
        """
        name = os.fsencode(self.name)
        if self._identity_of(self._above, name) != self.identity:
            raise Conflict("git: somebody else wrote where the repository was built just now")
        try:
            self._rename(self._above, name, self._above, GIT.encode())
        except FileExistsError as error:
            raise taken() from error
        except OSError as error:
            raise unwritable("the git folder cannot be renamed", error) from error
        self._is_in_place = True
        os.fsync(self._above)


def _lines(names: Mapping[str, str]) -> Iterator[str]:
    for one, value in names.items():
        if one.startswith("refs/") and value != BROKEN:
            yield f"{value.rpartition(' ')[2]} {one}"
