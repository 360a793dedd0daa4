"""Makes the entry of a linked worktree anew, and the `.git` file that names it, last.

The entry is built in the worktree under a temporary name and comes to its place by one rename; from
the file on git knows it. An entry that is still there and names this very `.git` is left as it is,
and only named again. Nothing of an agent's says where it leads: `gitdir` and `commondir` are ours.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from types import TracebackType

from msgspec import Struct

from loom_audit.errors import Conflict, ExecutionFailed
from loom_audit.model.files import is_same_identity
from loom_audit.model.git.index import without_caches
from loom_audit.model.git.record import OBJECT_ID, OF_WORKTREE
from loom_audit.ports import GitFile, GitWhole
from loom_audit.sandbox.git.files import (
    FOLDER,
    MAX_FILE,
    check_links,
    open_below,
    read_file,
    read_text,
)
from loom_audit.sandbox.git.place import GitPlace, IdentityOf
from loom_audit.sandbox.git.program import MAX_OUTPUT, write_whole
from loom_audit.sandbox.git.writing import (
    GIT,
    RenameToAbsent,
    is_there,
    made_folder,
    put_file,
    put_index,
    remove_folder,
    sync,
    taken,
    unwritable,
)

WORKTREES = "worktrees"
MOST_TRIED = 100
"""The number of names of entries that are tried: as git does, with a number behind."""


class _Folders(Struct, frozen=True):
    """The open folders of a linked worktree: its own, the common one, and that of all entries; the
    paths of the first and the last.
    """

    top: str
    entries_path: str
    above: int
    common: int
    entries: int


def begin_linked(
    root: str,
    folder: str,
    common: str,
    identity: str,
    identity_of: IdentityOf,
    rename: RenameToAbsent,
) -> "ProgramLinkedBuilding":
    """Begin to make the entry of the linked worktree in a folder, in the common folder at a path,
    which must be of that identity. Conflict where a `.git` is there, ExecutionFailed.
    """
    with ExitStack() as opened:
        try:
            folders = _opened(opened, root, folder, common)
            if is_there(folders.above, GIT):
                raise taken()
            held, _, name = common.rpartition("/")
            above = open_below(root, held)
            opened.callback(os.close, above)
            if not is_same_identity(identity_of(above, os.fsencode(name)), identity):
                raise ExecutionFailed("the git folder is another one than is on record")
            check_links(folders.common)
            entry = next(_entries_of(folders), None)
        except OSError as error:
            raise unwritable("no entry of a worktree can be made", error) from error
        if entry is None:
            name, git = opened.enter_context(made_folder(folders.above))
        else:
            name, git = f"{WORKTREES}/{entry[0]}", entry[1]
            opened.callback(os.close, git)
        building = ProgramLinkedBuilding(folders, name, git, entry is None, identity_of, rename)
        opened.callback(building.give_up)
        building.closing = opened.pop_all()
    return building


def remove_unnamed(
    root: str, above: int, common: str, identity: str, identity_of: IdentityOf
) -> bool:
    """Remove the entry of an identity, which who was killed made, while no `.git` is in the open
    folder of the worktree; whether it was there. OSError.
    """
    if is_there(above, GIT):
        return False
    with ExitStack() as opened:
        entries = open_below(root, f"{common}/{WORKTREES}")
        opened.callback(os.close, entries)
        for name in os.listdir(entries):
            if is_same_identity(identity_of(entries, os.fsencode(name)), identity):
                git = os.open(name, FOLDER, dir_fd=entries)
                opened.callback(os.close, git)
                remove_folder(entries, name, git)
                return True
    return False


class ProgramLinkedBuilding:
    """A `ports.GitBuilding` of the entry of a linked worktree, and its `.git` file."""

    def __init__(
        self,
        folders: _Folders,
        name: str,
        git: int,
        is_new: bool,
        identity_of: IdentityOf,
        rename: RenameToAbsent,
    ) -> None:
        self.name = name
        self.identity = identity_of(git, b"")
        self.closing = ExitStack()
        self._folders = folders
        self._git = git
        self._is_new = is_new
        self._identity_of = identity_of
        self._rename = rename
        self._made = (folders.above, name) if is_new else None
        place = GitPlace(
            top=folders.top,
            path=name,
            common_path=folders.entries_path,
            folder=folders.above,
            git=git,
            common=folders.common,
            own=(),
            shared_with=name,
        )
        self.becomes = place.identity(identity_of)

    def __enter__(self) -> "ProgramLinkedBuilding":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.closing.close()

    def give_up(self) -> None:
        """Remove what was made, unless a `.git` names it; what cannot be removed stays."""
        if self._made is not None:
            with suppress(OSError):  # recovery tries once more
                folder, name = self._made
                if self._identity_of(folder, os.fsencode(name)) == self.identity:
                    remove_folder(folder, name, self._git)

    def fill(self, whole: GitWhole, pack: bytes) -> None:
        """Write all of it, durably, or see that an entry which is there is so; ExecutionFailed,
        Conflict. Its objects are those of the repository.
        """
        if not self.becomes:
            raise ExecutionFailed("the filesystem does not tell which folder is which")
        try:
            if not self._is_new:
                self._compare(whole)
                return
            for path, file in self._files(whole):
                put_file(self._git, path, file)
            put_index(self._git, whole.index)
            sync(self._git)
        except OSError as error:
            raise unwritable("the entry of a worktree cannot be written", error) from error

    def _files(self, whole: GitWhole) -> Iterator[tuple[str, GitFile]]:
        """The files of the entry but its index."""

        def text(content: str) -> GitFile:
            return GitFile("file", 0o644, f"{content}\n".encode("utf-8", "surrogateescape"))

        head = whole.names["HEAD"]
        if not (OBJECT_ID.fullmatch(head) or head.startswith("ref: ")):
            raise ExecutionFailed("HEAD of the worktree was broken")
        yield "HEAD", text(head)
        yield "commondir", text("../..")
        yield "gitdir", text(os.path.join(self._folders.top, GIT))
        for name, value in whole.names.items():
            if name.startswith(OF_WORKTREE) and OBJECT_ID.fullmatch(value):
                yield name, text(value)
        yield from whole.files.items()

    def _compare(self, whole: GitWhole) -> None:
        """Conflict where the entry that is there has another state. OSError."""
        wanted = {path: file.content for path, file in self._files(whole) if path[:5] != "logs/"}
        found = {path: read_file(self._git, path, MAX_FILE) for path in wanted if path != "gitdir"}
        differing = [
            path for path, one in found.items() if one is None or one.content != wanted[path]
        ]
        index = read_file(self._git, "index", MAX_OUTPUT) if is_there(self._git, "index") else None
        content = whole.index.content if whole.index else None
        try:
            known = index and without_caches(index.content, long_ids=whole.long_ids, apart=True)
        except (ValueError, IndexError):
            known = b""
        if differing or known != content:
            raise Conflict(
                "git: the entry of this worktree is not as it was: "
                f"{differing[0] if differing else 'index'}",
                hint="`git worktree repair` names it again; --no-git brings the files alone.",
            )

    def finish(self) -> None:
        """Let the entry come to its place, and name it in `.git`; Conflict where that is there by
        now. ExecutionFailed.
        """
        above = self._folders.above
        try:
            entry = self._placed() if self._is_new else self.name.rpartition("/")[2]
            named = os.path.join(self._folders.entries_path, entry)
            file = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644, dir_fd=above)
            try:
                write_whole(file, f"gitdir: {named}\n".encode("utf-8", "surrogateescape"))
                os.fsync(file)
                os.link(f"/proc/self/fd/{file}", GIT, dst_dir_fd=above)
            finally:
                os.close(file)
            self._made = None
            os.fsync(above)
        except FileExistsError as error:
            raise taken() from error
        except OSError as error:
            raise unwritable("the worktree cannot be named again", error) from error

    def _placed(self) -> str:
        """Rename the entry to a name that nothing has, and give that; as git does it. OSError."""
        entries, name = self._folders.entries, os.fsencode(self.name)
        if self._identity_of(self._folders.above, name) != self.identity:
            raise Conflict("git: somebody else wrote where the worktree's entry was built just now")
        plain = os.path.basename(self._folders.top)
        for number in count():
            entry = f"{plain}{number or ''}"
            try:
                self._rename(self._folders.above, name, entries, os.fsencode(entry))
            except FileExistsError:
                if number == MOST_TRIED:
                    raise
                continue
            break
        self._made = (entries, entry)
        os.fsync(entries)
        return entry


def _opened(opened: ExitStack, root: str, folder: str, common: str) -> _Folders:
    """The folders, opened without following a link below the root. OSError."""

    def keep(descriptor: int) -> int:
        opened.callback(os.close, descriptor)
        return descriptor

    above, shared = keep(open_below(root, folder)), keep(open_below(root, common))
    with suppress(FileExistsError):
        os.mkdir(WORKTREES, dir_fd=shared)
    entries = keep(os.open(WORKTREES, FOLDER, dir_fd=shared))
    path = os.path.join(root, common, WORKTREES)
    return _Folders(os.path.join(root, folder), path, above, shared, entries)


def _entries_of(folders: _Folders) -> Iterator[tuple[str, int]]:
    """The entries, opened, that name the `.git` of this very worktree. OSError."""
    top = os.path.realpath(folders.top)
    for name in sorted(os.listdir(folders.entries)):
        try:
            git = os.open(name, FOLDER, dir_fd=folders.entries)
        except NotADirectoryError:
            continue
        named = read_text(git, "gitdir") or ""
        above, _, file = named.rpartition("/")
        if file == GIT and os.path.realpath(above or "/") == top:
            yield name, git
            return
        os.close(git)
