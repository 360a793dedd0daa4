"""Brings a repository back under git's own lock: refs by transactions, the index by one rename.

git is asked as on hostile ground. Files in the git folder are written below open folders, and no
link is followed.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType

from loom_audit.errors import AuditError, Conflict, ExecutionFailed, PermissionDenied
from loom_audit.model.files import is_same_identity, parents
from loom_audit.model.git.record import OBJECT_ID, STASH_LOG, GitName
from loom_audit.model.text.display import duration_text, visible
from loom_audit.ports import BranchUse, GitAnswer, GitFile, GitSteps, IndexBytes
from loom_audit.ports.git_restorer import Settings
from loom_audit.sandbox.git.answers import LED_TO_BY_HEAD, NAMED_BY_HEAD, UNKNOWN_OPTION
from loom_audit.sandbox.git.files import check_links
from loom_audit.sandbox.git.mirrored import SECONDS
from loom_audit.sandbox.git.place import GitPlace, IdentityOf, opened_place
from loom_audit.sandbox.git.program import ask_git, check_answer, find_git, write_whole
from loom_audit.sandbox.git.settings import Exchange, check_setting, put_setting
from loom_audit.sandbox.git.used import used_branches
from loom_audit.sandbox.git.writing import (
    REFUSED,
    UNFINISHED,
    Ask,
    add_pack,
    missing_objects,
    path_of,
    put_file,
    remove_logs,
    unwritable,
)

WAIT = 1.0
"""Seconds for which another git is waited for that holds the lock."""

LOCK, INDEX = "index.lock", "index"
_OWN_NAME = {"GIT_COMMITTER_NAME": "loom-audit", "GIT_COMMITTER_EMAIL": "loom-audit"}
"""Who moved a ref, as its log says it."""

_LOG_LINE = re.compile(
    r"[0-9a-f]+ (?P<id>[0-9a-f]+) (?P<name>[^<]*?) <(?P<mail>[^>]*)> (?P<at>\d+ [-+]\d{4})"
    r"(?:\t(?P<said>.*))?"
)
"""A line of a ref's log (gitformat-reflog in git-reflog(1))."""


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
                return [*used_branches(place, self._asking(place))]
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

    def add_objects(self, pack: bytes) -> None:
        """Add the objects of a pack, each hashed anew; ExecutionFailed where git does not."""
        add_pack(self._ask_one, pack)

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
        self._put_settings(steps.settings)  # else HEAD would move without the index
        refs = [one for one in steps.names if one.name[:5] == "refs/" and one.name != _STASH]
        going = [one for one in refs if one.after is None]
        coming = [one for one in refs if one.after is not None]
        in_the_way = [one for one in going if _is_in_the_way(one.name, coming)]
        self._move_refs(in_the_way, steps.note)
        for path, file in steps.files.items():
            if path.startswith("logs/") and path != STASH_LOG:
                self._put(path, file)
        self._move_refs(coming, steps.note)
        if any(one.name in ("stashes", _STASH) for one in steps.names):
            self._put_stashes(steps)
        for path, file in steps.files.items():
            if not path.startswith("logs/"):
                self._put(path, file)
        for one in steps.names:
            if one.name == "HEAD":
                self._move_head(one, steps.note)
        self._move_refs([one for one in going if one not in in_the_way], steps.note)

    def _put_settings(self, settings: Settings) -> None:
        """Exchange hooks and settings: all, or none where one was changed just now."""
        _check_settings(self._place, settings)
        done: list[tuple[str, GitFile | None, GitFile | None]] = []
        try:
            for path, (before, after) in settings.items():
                self._check_there()
                put_setting(self._place.git, path, before, after, self._exchange)
                done.append((path, after, before))
        except AuditError:
            for path, put, was in reversed(done):
                with suppress(AuditError):  # it was changed since, and is on record as it is
                    put_setting(self._place.git, path, put, was, self._exchange)
            raise

    def _move_refs(self, refs: Sequence[GitName], note: str) -> None:
        """Move refs in one transaction, each from what it is (git-update-ref(1))."""
        if not refs:
            return
        self._check_there()
        said = "".join(f"{_transaction_line(one)}\n" for one in refs)
        given = said.encode("utf-8", "surrogateescape")
        self._told(("update-ref", "--no-deref", "-m", note, "--stdin"), given, what=refs[0].name)

    def _move_head(self, one: GitName, note: str) -> None:
        """Let HEAD name what it is to name, if it names what it did; it is read back."""
        before, after = one.before or "", one.after or ""
        self._check_there()
        if OBJECT_ID.fullmatch(after):
            old = (before,) if OBJECT_ID.fullmatch(before) else ()
            if not old:
                self._check_head(before)
            self._told(("update-ref", "--no-deref", "-m", note, "HEAD", after, *old), what="HEAD")
            return
        self._check_head(before)
        self._told(("symbolic-ref", "-m", note, "HEAD", after.removeprefix("ref: ")), what="HEAD")
        self._check_head(after)

    def _check_head(self, value: str) -> None:
        """Conflict where HEAD is not so; between this and a step after it others could move it."""
        symbolic, detached = self._ask(NAMED_BY_HEAD, b"", ("rev-parse", "HEAD"))
        if symbolic.code == UNKNOWN_OPTION:
            [symbolic] = self._ask(LED_TO_BY_HEAD, b"")
        now = f"ref: {_line(symbolic)}" if symbolic.code == 0 else _line(detached)
        if now != value:
            raise _moved("HEAD")

    def _put_stashes(self, steps: GitSteps) -> None:
        """Make the list of stashes anew, the oldest first, each with its message and date."""
        self._check_there()
        refs = {one.name: one for one in steps.names}
        [asked] = self._ask(("rev-parse", "-q", "--verify", _STASH), b"")
        now = _line(asked) if asked.code == 0 else None
        moved = refs.get(_STASH, GitName(_STASH, now, now))
        if now != moved.before:
            raise _moved(_STASH)
        if now is not None:
            self._told(("update-ref", "-d", "--no-deref", _STASH, now), what=_STASH)
        else:
            self._put(STASH_LOG, None)
        log = steps.files.get(STASH_LOG)
        lines = log.content.decode("utf-8", "surrogateescape").split("\n") if log else []
        old = ""
        for line in filter(None, lines):
            read = _LOG_LINE.fullmatch(line)
            if read is None:
                raise ExecutionFailed("a line of the log of stashes cannot be read")
            words = ("update-ref", "--create-reflog", "-m", read["said"] or "", _STASH)
            who = {
                "GIT_COMMITTER_NAME": read["name"],
                "GIT_COMMITTER_EMAIL": read["mail"],
                "GIT_COMMITTER_DATE": f"@{read['at']}",
            }
            self._told((*words, read["id"], *filter(None, [old])), who=who, what=_STASH)
            old = read["id"]
        if not old and moved.after is not None:  # its log was expired
            self._told(("update-ref", _STASH, moved.after), what=_STASH)

    def _told(
        self,
        words: Sequence[str],
        given: bytes = b"",
        *,
        what: str,
        who: Mapping[str, str] | None = None,
    ) -> None:
        [done] = self._ask(words, given, who=who)
        if done.code < 0:
            check_answer(done)
        said = done.errors.strip() if done.code else ""
        if os.strerror(errno.EACCES) in said or os.strerror(errno.EROFS) in said:
            raise PermissionDenied(f"git: {what} cannot be written: {said:.200}", hint=REFUSED)
        if done.code:
            raise _moved(what, said)

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

    def _put(self, path: str, file: GitFile | None) -> None:
        """Let a file in the git folder be so, or in the common one what is shared."""
        shared = self._place.is_linked and path.startswith("logs/refs/")
        base = self._place.common if shared else self._place.git
        try:
            try:
                put_file(base, path, file)
            except (IsADirectoryError, NotADirectoryError):
                if file is None or not path.startswith("logs/refs/"):
                    raise
                self._clear_logs(base, path)
                put_file(base, path, file)
        except OSError as error:
            raise unwritable(f"git: {visible(path)}", error) from error

    def _clear_logs(self, base: int, path: str) -> None:
        """Remove the logs of refs that are not there, and cannot be once the one of this log is."""
        ref = path.removeprefix("logs/")
        above = [one for one in parents(ref) if one.count("/") > 1]
        [asked] = self._ask(("for-each-ref", "--format=%(refname)", ref, *above), b"")
        check_answer(asked)
        if asked.output:
            raise _moved(ref)
        remove_logs(base, path)


_STASH = "refs/stash"


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


def _is_in_the_way(name: str, coming: Iterable[GitName]) -> bool:
    """Whether a ref must go before another can come: one is a folder of the other."""
    return any(one.name.startswith(f"{name}/") or name.startswith(f"{one.name}/") for one in coming)


def _transaction_line(one: GitName) -> str:
    if one.after is None:
        return f"delete {one.name} {one.before}"
    if one.before is None:
        return f"create {one.name} {one.after}"
    return f"update {one.name} {one.after} {one.before}"


def _line(done: GitAnswer) -> str:
    return done.output.decode("utf-8", "surrogateescape").rstrip("\n")


def _moved(what: str, said: str = "") -> Conflict:
    return Conflict(
        f"git: {what} was moved by somebody else just now{f': {said:.200}' if said else ''}",
        hint="Look at the new plan and decide again.",
        details={"name": what},
    )
