"""Moves what a repository names: refs, the list of stashes, and HEAD with its refs, each from what
it is. Where somebody moved one just now, those before it are moved back.
"""

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Protocol

from loom_audit.errors import AuditError, Conflict, ExecutionFailed, PermissionDenied
from loom_audit.model.files import parents
from loom_audit.model.git.record import OBJECT_ID, STASH_LOG, GitName
from loom_audit.model.text.display import visible
from loom_audit.ports import GitAnswer, GitFile, GitSteps
from loom_audit.sandbox.git.answers import LED_TO_BY_HEAD, NAMED_BY_HEAD, UNKNOWN_OPTION
from loom_audit.sandbox.git.files import MAX_FILE, read_file
from loom_audit.sandbox.git.place import GitPlace
from loom_audit.sandbox.git.program import check_answer
from loom_audit.sandbox.git.writing import REFUSED, put_file, remove_logs, unwritable

_STASH = "refs/stash"

_LOG_LINE = re.compile(
    r"[0-9a-f]+ (?P<id>[0-9a-f]+) (?P<name>[^<]*?) <(?P<mail>[^>]*)> (?P<at>\d+ [-+]\d{4})"
    r"(?:\t(?P<said>.*))?"
)
"""A line of a ref's log (gitformat-reflog in git-reflog(1))."""


class Ask(Protocol):
    """Runs git commands in a repository; each reads what is given, as who is said."""

    def __call__(
        self,
        words: Sequence[str],
        given: bytes,
        *more: Sequence[str],
        who: Mapping[str, str] | None = None,
    ) -> Sequence[GitAnswer]: ...


class NameMoves:
    """The names that are to move in an open repository, whose lock is held.

    `check_there` raises Conflict where another repository is at its path by now. What `back` is
    given moves back what was moved.
    """

    def __init__(
        self,
        place: GitPlace,
        ask: Ask,
        check_there: Callable[[], None],
        steps: GitSteps,
        back: ExitStack,
    ) -> None:
        self._place = place
        self._ask = ask
        self._check_there = check_there
        self._steps = steps
        self._back = back

    def carry_out(self) -> None:
        """Move all of them, in an order in which each can be moved. Conflict, ExecutionFailed."""
        names = self._steps.names
        if any(one.name in ("stashes", _STASH) for one in names):
            self._put_stashes()
        refs = [one for one in names if one.name[:5] == "refs/" and one.name != _STASH]
        coming = [one for one in refs if one.after is not None]
        first = [one for one in refs if one.after is None and _is_in_the_way(one.name, coming)]
        own = [one for one in refs if one.name in self._steps.with_head and one not in first]
        self._move_refs(first)
        for path, file in self._steps.files.items():
            if path.startswith("logs/") and path != STASH_LOG:
                self._put(path, file)
        self._move_refs([one for one in refs if one not in (*first, *own)])
        self._move_head(own)  # last of all: the index comes back with it

    def _move_refs(self, refs: Sequence[GitName], unmoved: Sequence[GitName] = ()) -> None:
        """Move refs in one transaction, each from what it is, if others are where they are to be
        moved from (git-update-ref(1)).
        """
        if refs:
            self._move(refs, unmoved)
            self._then_back(lambda: self._move([*map(_turned, refs)]))

    def _move(self, refs: Sequence[GitName], unmoved: Sequence[GitName] = ()) -> None:
        self._check_there()
        lines = [*map(_transaction_line, refs), *(f"verify {o.name} {o.before}" for o in unmoved)]
        given = "".join(f"{one}\n" for one in lines).encode("utf-8", "surrogateescape")
        words = ("update-ref", "--no-deref", "-m", self._steps.note, "--stdin")
        self._told(words, given, what=refs[0].name)

    def _then_back(self, move: Callable[[], None]) -> None:
        """Let a move back be made where one after it cannot be."""

        def try_to() -> None:
            with suppress(AuditError):  # what somebody moved since stays, and is on record so
                move()

        self._back.callback(try_to)

    def _move_head(self, refs: Sequence[GitName]) -> None:
        """Move HEAD and the refs that go with it."""
        head = self._steps.head
        moved = next((one for one in self._steps.names if one.name == "HEAD"), None)
        coming = [one for one in refs if one.after is not None]
        going = [one for one in refs if one.after is None]
        if head:
            self._check_head(head)
        self._move_refs(coming, going)
        led_to = {f"ref: {one.name}": one.after for one in coming}.get(head)
        if moved is not None:
            self._name_by_head(moved)
            self._then_back(lambda: self._name_by_head(_turned(moved)))
        elif led_to is not None and led_to != self._commit_of("HEAD"):
            raise _moved("HEAD")  # to another branch, before its own was moved
        self._move_refs(going)

    def _commit_of(self, name: str) -> str | None:
        """The id that a name leads to; None where it is not there."""
        [asked] = self._ask(("rev-parse", "-q", "--verify", name), b"")
        return _line(asked) if asked.code == 0 else None

    def _name_by_head(self, one: GitName) -> None:
        """Let HEAD name what it is to name, if it names what it did; it is read back."""
        before, after = one.before or "", one.after or ""
        self._check_there()
        if OBJECT_ID.fullmatch(after):
            old = (before,) if OBJECT_ID.fullmatch(before) else ()
            if not old:
                self._check_head(before)
            self._told(
                ("update-ref", "--no-deref", "-m", self._steps.note, "HEAD", after, *old),
                what="HEAD",
            )
            return
        self._check_head(before)
        branch = after.removeprefix("ref: ")
        self._told(("symbolic-ref", "-m", self._steps.note, "HEAD", branch), what="HEAD")
        self._check_head(after)

    def _check_head(self, value: str) -> None:
        """Conflict where HEAD is not so; between this and a step after it others could move it."""
        symbolic, detached = self._ask(NAMED_BY_HEAD, b"", ("rev-parse", "HEAD"))
        if symbolic.code == UNKNOWN_OPTION:
            [symbolic] = self._ask(LED_TO_BY_HEAD, b"")
        now = f"ref: {_line(symbolic)}" if symbolic.code == 0 else _line(detached)
        if now != value:
            raise _moved("HEAD")

    def _put_stashes(self) -> None:
        """Make the list of stashes anew, the oldest first, each with its message and date."""
        self._check_there()
        now = self._commit_of(_STASH)
        refs = {one.name: one for one in self._steps.names}
        moved = refs.get(_STASH, GitName(_STASH, now, now))
        if now != moved.before:
            raise _moved(_STASH)
        was, log = self._stash_lines(), self._steps.files.get(STASH_LOG)
        lines = _lines(log)
        self._then_back(lambda: self._make_stashes_again(was, lines))
        self._make_stashes(now, lines)
        if not lines and moved.after is not None:  # its log was expired
            self._told(("update-ref", _STASH, moved.after, _none(moved.after)), what=_STASH)

    def _make_stashes_again(self, was: Sequence[str], lines: Sequence[str]) -> None:
        """Let the list be as it was, with what somebody added to it just now."""
        known = {_logged(one) for one in (*was, *lines)}
        added = [one for one in self._stash_lines() if _logged(one) not in known]
        self._make_stashes(self._commit_of(_STASH), [*was, *added])

    def _stash_lines(self) -> Sequence[str]:
        """The lines of the log of stashes, the oldest first."""
        with suppress(FileNotFoundError):
            return _lines(read_file(self._place.common, STASH_LOG, MAX_FILE))
        return ()

    def _make_stashes(self, now: str | None, lines: Iterable[str]) -> None:
        """Let the list of stashes be one of these lines of its log, the oldest first, where the
        newest is `now` still, None for none.
        """
        if now is not None:
            self._told(("update-ref", "-d", "--no-deref", _STASH, now), what=_STASH)
        else:
            self._put(STASH_LOG, None)
        old = ""
        for line in lines:
            read = _LOG_LINE.fullmatch(line)
            if read is None:
                raise ExecutionFailed("a line of the log of stashes cannot be read")
            words = ("update-ref", "--create-reflog", "-m", read["said"] or "", _STASH)
            who = {
                "GIT_COMMITTER_NAME": read["name"],
                "GIT_COMMITTER_EMAIL": read["mail"],
                "GIT_COMMITTER_DATE": f"@{read['at']}",
            }
            self._told((*words, read["id"], old or _none(read["id"])), who=who, what=_STASH)
            old = read["id"]

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


def _is_in_the_way(name: str, coming: Iterable[GitName]) -> bool:
    """Whether a ref must go before another can come: one is a folder of the other."""
    return any(one.name.startswith(f"{name}/") or name.startswith(f"{one.name}/") for one in coming)


def _lines(log: GitFile | None) -> Sequence[str]:
    text = log.content.decode("utf-8", "surrogateescape") if log else ""
    return [line for line in text.split("\n") if line]


def _logged(line: str) -> str:
    """A line of a log without what the ref was before, which git writes anew."""
    return line.partition(" ")[2]


def _turned(one: GitName) -> GitName:
    return GitName(one.name, one.after, one.before)


def _none(id: str) -> str:
    """The id that says of a ref that it is not there, as long as another one."""
    return "0" * len(id)


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
