"""Brings a repository back under git's own lock: refs by transactions, the index by one rename.

git is asked as on hostile ground. Files in the git folder are written below open folders, and no
link is followed.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType

from loom_audit.errors import AuditError, Conflict, ExecutionFailed
from loom_audit.model.files import is_same_identity
from loom_audit.model.git.record import OBJECT_ID
from loom_audit.model.text.display import duration_text
from loom_audit.ports import BranchUse, GitAnswer, GitFile, GitSteps, IndexBytes
from loom_audit.ports.git_restorer import Settings
from loom_audit.sandbox.git.answers import text_of
from loom_audit.sandbox.git.files import check_links, read_text
from loom_audit.sandbox.git.mirrored import SECONDS
from loom_audit.sandbox.git.names import NameMoves
from loom_audit.sandbox.git.place import GitPlace, IdentityOf, opened_place, worktree_folders
from loom_audit.sandbox.git.program import ask_git, check_answer, find_git, write_whole
from loom_audit.sandbox.git.settings import Exchange, check_setting, put_setting
from loom_audit.sandbox.git.writing import (
    MOST_OBJECTS,
    PACKS,
    PUT_SECONDS,
    UNFINISHED,
    Ask,
    add_pack,
    folders_above,
    missing_objects,
    path_of,
    put_file,
    unpinned_objects,
    unwritable,
)

WAIT = 1.0
"""Seconds for which another git is waited for that holds the lock."""

MOST_PINNED = 100_000
"""Objects that are put into a pack so that they stay while refs move."""

PACKED = ("pack-objects", "--stdout", "-q")
LOCK, INDEX = "index.lock", "index"
_OWN_NAME = {"GIT_COMMITTER_NAME": "loom-audit", "GIT_COMMITTER_EMAIL": "loom-audit"}
"""Who moved a ref, as its log says it."""

_LISTED = ("worktree", "list", "--porcelain", "-z")
_HEADS = "refs/heads/"
_NAMES = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")
_STACKED = "rebase-merge/update-refs"


class ProgramGitRestorer:
    """A `ports.GitRestorer` that asks the program `git`."""

    def __init__(self, root: str, identity_of: IdentityOf, exchange: Exchange) -> None:
        self._root = root
        self._identity_of = identity_of
        self._exchange = exchange

    def begin(self, folder: str, identity: str, index: IndexBytes | None) -> "ProgramGitRestore":
        """Open the repository in a folder of the workspace; ExecutionFailed with the reason."""
        with ExitStack() as opened:
            place = opened.enter_context(self._opened(folder, identity))
            lock = _unnamed_file(place.git, index)
            opened.callback(os.close, lock)
            restore = ProgramGitRestore(
                place,
                lock,
                self._identity_of(lock, b""),
                index,
                find_git(self._root),
                lambda: self.is_there(folder, identity),
                self._exchange,
            )
            opened.callback(restore.give_up)
            restore.closing = opened.pop_all()
        return restore

    @contextmanager
    def _opened(self, folder: str, identity: str) -> Iterator[GitPlace]:
        """The repository of that identity in a folder. ExecutionFailed."""
        with opened_place(self._root, folder) as place:
            if place is None or not is_same_identity(place.identity(self._identity_of), identity):
                raise ExecutionFailed("the git folder is another one than is on record")
            check_links(place.git)
            check_links(place.common)
            yield place

    def missing(self, folder: str, identity: str, wanted: Sequence[str]) -> Sequence[str]:
        """The wanted ids that are not in the repository in a folder, or do not lead to all they
        need there. ExecutionFailed.
        """
        with self._opened(folder, identity) as place:
            return missing_objects(self._asking(place), wanted)

    def used_branches(self, folder: str, identity: str) -> Sequence[BranchUse]:
        """The branches that worktrees of the repository in a folder use. ExecutionFailed."""
        with self._opened(folder, identity) as place:
            try:
                return [*_used(place, self._asking(place))]
            except OSError as error:
                raise unwritable("which branches are in use cannot be told", error) from error

    def _asking(self, place: GitPlace) -> Ask:
        program = find_git(self._root)

        def ask(words: Sequence[str], given: bytes, seconds: float, limit: int) -> GitAnswer:
            [done] = _ask_at(place, program, {}, (words,), given, seconds=seconds, limit=limit)
            return done

        return ask

    def check_settings(self, folder: str, identity: str, settings: Settings) -> None:
        """Conflict where a hook or setting is not what its step begins with, or cannot be put back.

        ExecutionFailed.
        """
        with self._opened(folder, identity) as place:
            _check_settings(place, settings)

    def is_there(self, folder: str, identity: str) -> bool:
        """Whether the repository of that identity is in a folder now."""
        with suppress(ExecutionFailed), opened_place(self._root, folder) as place:
            now = place.identity(self._identity_of) if place else ""
            return is_same_identity(now, identity)
        return False

    def release(self, folder: str, identity: str, lock: str) -> bool:
        """Remove the `index.lock` of a restore that was killed; whether that was there."""
        with suppress(ExecutionFailed), opened_place(self._root, folder) as place:
            if place is None or not is_same_identity(place.identity(self._identity_of), identity):
                return False
            for path in _pinned(place.common, lock):
                _let_go(place.common, path)
            if is_same_identity(self._identity_of(place.git, LOCK.encode()), lock):
                for one in {place.git, place.common}:
                    with suppress(FileNotFoundError):
                        os.unlink(UNFINISHED, dir_fd=one)
                os.unlink(LOCK, dir_fd=place.git)
                return True
        return False


class ProgramGitRestore:
    """A `ports.GitRestore`: its lock is a file without a name until `take_lock` gives it one."""

    def __init__(
        self,
        place: GitPlace,
        file: int,
        lock: str,
        index: IndexBytes | None,
        program: str,
        is_there: Callable[[], bool],
        exchange: Exchange,
    ) -> None:
        self.lock = lock
        self.closing = ExitStack()
        self._place = place
        self._file = file
        self._index = index
        self._program = program
        self._is_there = is_there
        self._exchange = exchange
        self._is_taken = False

    def __enter__(self) -> "ProgramGitRestore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.closing.close()

    def give_up(self) -> None:
        """Remove the lock where it is still there."""
        if self._is_taken:
            self._is_taken = False
            os.unlink(LOCK, dir_fd=self._place.git)

    # --- objects --------------------------------------------------------------------------

    def missing(self, wanted: Sequence[str]) -> Sequence[str]:
        """The wanted ids that are not in the repository, or do not lead to all they need there."""
        return missing_objects(self._ask_one, wanted)

    def add_objects(self, pack: bytes, *, pinned: bool = False) -> None:
        """Add the objects of a pack, each hashed anew; ExecutionFailed where git does not."""
        by = _pinned_by(self.lock) if pinned else ""
        if path := add_pack(self._ask_one, pack, by):
            self.closing.callback(_let_go, self._place.common, path)

    def pin(self, wanted: Sequence[str], *, stashes: bool) -> bool:
        """Let no object that the wanted ids need be thrown away until this is closed, but of a very
        long history; whether all of them are there still.
        """
        try:
            ids = unpinned_objects(self._ask_one, wanted, stashes=stashes)
        except ExecutionFailed:  # so many that git does not list them in time: they are not held
            return not self.missing(wanted)
        if not ids or len(ids) > MOST_PINNED:
            return True
        given = "".join(f"{one}\n" for one in ids).encode()
        [done] = self._ask(PACKED, given, seconds=PUT_SECONDS, limit=MOST_OBJECTS)
        if done.code:
            return False
        self.add_objects(done.output, pinned=True)
        return True

    # --- the lock and the index -----------------------------------------------------------

    def take_lock(self) -> None:
        """Make `index.lock`; one that is there is waited for a second, then Conflict."""
        end = time.monotonic() + WAIT
        while True:
            try:
                os.link(f"/proc/self/fd/{self._file}", LOCK, dst_dir_fd=self._place.git)
            except FileExistsError:
                if time.monotonic() > end:
                    raise self._locked() from None
                time.sleep(0.02)
            else:
                self._is_taken = True
                return

    def _locked(self) -> Conflict:
        age = ""
        with suppress(OSError):
            made = os.stat(LOCK, dir_fd=self._place.git, follow_symlinks=False).st_mtime
            age = f", for {duration_text(max(0, round((time.time() - made) * 1e6)))}"
        return Conflict(
            f"another git works in {self._place.top}: its index.lock is there{age}",
            hint="Wait for it to end. Where none runs, remove .git/index.lock, and try again.",
        )

    def finish(self) -> None:
        """Let the index be what it is to become, in one rename, and give the lock up."""
        git = self._place.git
        self._check_there()
        if self._index is not None and self._index.content is not None:
            os.rename(LOCK, INDEX, src_dir_fd=git, dst_dir_fd=git)
            self._is_taken = False
        elif self._index is not None:
            with suppress(FileNotFoundError):
                os.unlink(INDEX, dir_fd=git)
        self.give_up()
        os.fsync(git)

    def _check_there(self) -> None:
        """Conflict where another repository is at the path by now: this one is left as it is."""
        if not self._is_there():
            raise Conflict(
                "git: the repository was moved away or replaced just now",
                hint="Look at the new plan and decide again.",
            )

    # --- the steps ------------------------------------------------------------------------

    def carry_out(self, steps: GitSteps) -> None:
        """Make the steps, in an order in which each can be made and none is made twice."""
        with ExitStack() as back:
            self._put_settings(steps.settings, back)
            NameMoves(self._place, self._ask, self._check_there, steps, back).carry_out()
            back.pop_all()
        for path, file in steps.files.items():
            if not path.startswith("logs/"):
                put_file(self._place.git, path, file)

    def _put_settings(self, settings: Settings, back: ExitStack) -> None:
        """Exchange hooks and settings; `back` exchanges them once more."""
        _check_settings(self._place, settings)
        for path, (before, after) in settings.items():
            self._check_there()
            put_setting(self._place.git, path, before, after, self._exchange)
            back.callback(self._put_setting_back, path, after, before)

    def _put_setting_back(self, path: str, put: GitFile | None, was: GitFile | None) -> None:
        with suppress(AuditError):  # what somebody changed since stays, and is on record so
            put_setting(self._place.git, path, put, was, self._exchange)

    def _ask(
        self,
        words: Sequence[str],
        given: bytes,
        *more: Sequence[str],
        who: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
        limit: int = 64 << 20,
    ) -> Sequence[GitAnswer]:
        commands = (words, *more)
        return _ask_at(
            self._place, self._program, who or {}, commands, given, seconds=seconds, limit=limit
        )

    def _ask_one(self, words: Sequence[str], given: bytes, seconds: float, limit: int) -> GitAnswer:
        [done] = self._ask(words, given, seconds=seconds, limit=limit)
        return done


def _check_settings(place: GitPlace, settings: Settings) -> None:
    going = {path for path, (_, after) in settings.items() if after is None}
    for path, (before, after) in settings.items():
        check_setting(place.git, path, before, after, going)


def _ask_at(
    place: GitPlace,
    program: str,
    who: Mapping[str, str],
    commands: Sequence[Sequence[str]],
    given: bytes,
    *,
    seconds: float,
    limit: int,
) -> Sequence[GitAnswer]:
    """Run git commands in a repository, whose folders they are given open."""
    folders = {
        "GIT_DIR": path_of(place.git),
        "GIT_COMMON_DIR": path_of(place.common),
        "GIT_WORK_TREE": place.top,
        **_OWN_NAME,
        **who,
    }
    return ask_git(
        program,
        place.top,
        folders,
        *commands,
        seconds=seconds,
        limit=limit,
        given=given,
        opened=(place.git, place.common),
    )


def _pinned_by(lock: str) -> str:
    """What stands in the file that keeps a pack, as long as the restore with that lock runs."""
    return f"loom-audit {lock}"


def _pinned(common: int, lock: str) -> Iterator[str]:
    """The paths of the files that keep packs for a restore. OSError."""
    with folders_above(common, f"{PACKS}/any") as (folders, _):
        names = [one for one in os.listdir(folders[-1]) if one.endswith(".keep")]
        for one in names:
            if read_text(folders[-1], one) == _pinned_by(lock):
                yield f"{PACKS}/{one}"


def _let_go(common: int, path: str) -> None:
    """Let git throw away a pack again where nothing else needs it."""
    with suppress(FileNotFoundError), folders_above(common, path) as (folders, name):
        os.unlink(name, dir_fd=folders[-1])


def _unnamed_file(git: int, index: IndexBytes | None) -> int:
    """A file in the git folder that has no name yet, with the index's content and time."""
    try:
        file = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666, dir_fd=git)
    except OSError as error:
        raise unwritable("git's lock cannot be made", error) from error
    try:
        with suppress(FileNotFoundError):
            before = os.stat(INDEX, dir_fd=git, follow_symlinks=False)
            os.fchmod(file, stat.S_IMODE(before.st_mode))
        if index is not None and index.content is not None:
            write_whole(file, index.content)
            os.utime(file, ns=(index.mtime, index.mtime))
        os.fsync(file)
    except OSError as error:
        os.close(file)
        raise unwritable("git's lock cannot be written", error) from error
    return file


def _used(place: GitPlace, ask: Ask) -> Iterator[BranchUse]:
    """What each worktree uses, the repository's own too; not one whose folder is gone, and whose
    entry git would prune: has checked out, rebases or bisects, as git says
    (prepare_checked_out_branches of git's branch.c). ExecutionFailed, OSError.
    """
    listed = ask(_LISTED, b"", SECONDS, 64 << 20)
    check_answer(listed)
    own = place.top
    if place.is_linked:
        above, name = os.path.split(place.common_path)
        own = above if name == ".git" else place.common_path
    for n, record in enumerate(text_of(listed.output).split("\0\0")):
        said = dict(line.partition(" ")[::2] for line in record.split("\0"))
        if "branch" in said and not {"bare", "prunable"} & said.keys():
            yield BranchUse(said["worktree"] if n else own, said["branch"], "HEAD")
    entries = worktree_folders(place.common, place.common_path)
    for folder, inside in (
        (own, ""),
        *((one, f"worktrees/{name}/") for name, one in entries if os.path.lexists(one)),
    ):
        for path in _NAMES:
            if said_there := _text(place.common, f"{inside}{path}"):
                is_name = not said_there.startswith("refs/")
                if is_name and (path != _NAMES[-1] or OBJECT_ID.fullmatch(said_there)):
                    continue
                yield BranchUse(folder, f"{_HEADS if is_name else ''}{said_there}", path)
        for line in _text(place.common, f"{inside}{_STACKED}").split("\n"):
            if line.startswith(_HEADS):
                yield BranchUse(folder, line, _STACKED)


def _text(common: int, path: str) -> str:
    try:
        return read_text(common, path) or ""
    except NotADirectoryError:
        return ""  # so nothing of that is in progress
