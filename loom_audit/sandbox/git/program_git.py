"""Asks git for the state of a repository that an agent may have written, as on hostile ground.

git is told its folders and discovers nothing. It is given no settings of the user's. What a
repository's own configuration could let it run or read is set otherwise. Only commands are used
that read refs, the index and commits: none of them converts, compares or checks out a file.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256

from msgspec.structs import replace

from loom_audit.errors import ExecutionFailed
from loom_audit.model.git import HEAD_COMMIT, INDEX_MTIME, OF_WORKTREE, SHARED_REFS
from loom_audit.model.text.display import count_text
from loom_audit.ports import GitAnswer, GitFile, GitSeen, GitStamps, Moved
from loom_audit.sandbox.git.files import (
    FOLDER,
    KnownFolders,
    check_links,
    contents_since,
    open_below,
    shared_stamps_of,
    stamp,
    stamps_of,
    state_files,
)
from loom_audit.sandbox.git.loose import loose_object
from loom_audit.sandbox.git.place import GitPlace, IdentityOf, opened_place, path_below
from loom_audit.sandbox.git.program import ask_git, check_answer, find_git
from loom_audit.sandbox.git.told_refs import TakenStamps, ToldRefs

SECONDS = 5.0
MAX_DISTANCES = 20

_REFS = ("for-each-ref", "--format=%(HEAD)%(objectname) %(refname) %(symref)")
_HEAD = ("symbolic-ref", "-q", "HEAD")
_DETACHED = ("rev-parse", "-q", "--verify", "HEAD")
_ENTRIES = ("ls-files", "-s", "-v", "-z", "--debug")
_STASHES = (
    "log",
    "-g",
    "-z",
    "--no-decorate",
    "--no-notes",
    "--no-patch",
    "--date=unix",
    "--encoding=UTF-8",
    "--format=%H%x09%gd%x09%gs",
    "refs/stash",
    "--",
)
_LOGS = (
    *("log", "-g", "--all", "-z", "--no-decorate", "--no-notes", "--no-patch"),
    *("--date=raw", "--encoding=UTF-8", "--format=%H%x09%gD%x09%gn <%ge>%x09%gs", "--"),
)
_WORKTREES = ("worktree", "list", "--porcelain", "-z")
_BROKEN = re.compile(
    r"^warning: ignoring (?:broken ref|ref with broken name|dangling symref) (.+)$"
)
_LISTED = re.compile(
    rb"(?P<entry>[^\0]*)\0  ctime: \d+:\d+\n  mtime: \d+:\d+\n  dev: \d+\tino: \d+\n"
    rb"  uid: \d+\tgid: \d+\n  size: \d+\tflags: (?P<flags>[0-9a-f]+)\n"
)
_INTENT_TO_ADD = 1 << 29


class ProgramGit:
    """A `ports.Git` that asks the program `git`."""

    def __init__(self, root: str, identity_of: IdentityOf, folder: str = "") -> None:
        self._root = root
        self._identity_of = identity_of
        self._below = folder
        top = os.path.join(root, folder) if folder else root
        self._folders = _folders(top, os.path.join(top, ".git"), os.path.join(top, ".git"))
        self._known: tuple[KnownFolders, KnownFolders] = ({}, {})
        self._stamped = TakenStamps()
        self._told = ToldRefs()

    def nested(self, folder: str) -> "ProgramGit":
        """The repository in another folder of the same workspace."""
        return ProgramGit(self._root, self._identity_of, folder)

    # --- stamps ---------------------------------------------------------------------------

    def stamps(self, since: int) -> GitStamps:
        """The stamps now, "" where no `.git` is there; of one that is not read through its own."""
        self._stamped, began = TakenStamps(), time.time_ns()
        try:
            with opened_place(self._root, self._below) as place:
                if place is None:
                    return GitStamps()
                found = [*stamps_of(place.git, self._known[0])]
                contents = [contents_since(place.git, found, since)]
                if not place.is_linked:
                    self._stamped = TakenStamps(dict(found), began)
                if place.own is not None:
                    found.append((".git", place.own))
                    contents.append(None if place.own[3] >= since else "")
                if place.is_linked:
                    refs = place.is_shared_inside
                    shared = [*shared_stamps_of(place.common, self._known[1], refs=refs)]
                    contents.append(contents_since(place.common, shared, since))
                    found += ((f"common/{name}", one) for name, one in shared)
        except ExecutionFailed as error:
            own = None
            with suppress(OSError):
                above = open_below(self._root, self._below)
                try:
                    own = stamp(os.stat(".git", dir_fd=above, follow_symlinks=False))
                finally:
                    os.close(above)
            return GitStamps(f"{own} {error.message}", own[3] if own else 0)
        newest = max((one[3] for _, one in found), default=0)
        young = None if None in contents else repr(contents)
        return GitStamps(repr(found), newest, young)

    # --- state ----------------------------------------------------------------------------

    def seen(self, *, anyway: bool = False) -> GitSeen:
        """The state now; none where it is no repository. ExecutionFailed with the reason why git
        cannot tell it.
        """
        stamped, self._stamped = self._stamped, TakenStamps()  # those of a later state are others
        with opened_place(self._root, self._below) as place:
            if place is None:
                raise ExecutionFailed("the git folder is gone")
            identity = place.identity(self._identity_of)
            found = self._seen(place, TakenStamps() if anyway else stamped)
            holds_objects = path_below(self._root, place.common_path)
        with opened_place(self._root, self._below) as again:
            if again is None or again.identity(self._identity_of) != identity:
                raise ExecutionFailed("the git folder was replaced while it was looked at")
        return replace(found, identity=identity, holds_objects=holds_objects)

    def _seen(self, place: GitPlace, stamped: TakenStamps) -> GitSeen:
        inside, common = os.listdir(place.git), os.listdir(place.common)
        # without one of these git takes a folder for no repository
        if "HEAD" not in inside or not {"objects", "refs"}.issubset(common):
            return GitSeen()
        names: dict[str, str] = {}
        unseen: list[str] = []
        files = dict(state_files(place.git, unseen))
        if place.is_shared_inside:
            check_links(place.common)
        elif place.is_linked:
            files.update(state_files(place.common, unseen, shared=True))
        with suppress(FileNotFoundError):
            index = os.stat("index", dir_fd=place.git, follow_symlinks=False)
            names[INDEX_MTIME] = str(index.st_mtime_ns)
        self._folders = _folders(place.top, place.path, place.common_path)
        linked = "worktrees" in common and not place.is_linked
        in_tables = "reftable" in common
        folders = None if in_tables else self._told.folders_to_ask(stamped, place.git)
        asked = [
            (*_REFS, *(folders or ())),
            _ENTRIES,
            *([_WORKTREES] * linked),
            *([_LOGS] * in_tables),
        ]
        refs, listed, *told = self._ask(*asked)
        for done in (refs, listed):
            check_answer(done)
        self._told = self._told.with_answer(_refs(refs), folders, stamped)
        names.update(self._told.refs)
        names["HEAD"] = _branch(refs) or _head(*self._ask(_HEAD, _DETACHED))
        if place.is_linked:
            names = _of_linked(names, place)
        untold: list[str] = []
        if in_tables:
            logs = told.pop()
            files.update(_logs(logs.output, place))
            untold += _untold(logs, names)
            unseen += [f"git does not tell .git/{one}" for one in untold]
        for done in told:
            if done.code:
                unseen.append("git cannot list the linked worktrees")
            names.update(_worktrees(done.output))
        entries = _entries(listed.output)
        names["index"] = sha256(entries).hexdigest()
        if "refs/stash" in names:
            [stashes] = self._ask(_STASHES)
            check_answer(stashes)
            if lines := [*_stashes(stashes.output)]:  # the ref stays when its log was expired
                names["stashes"] = "\n".join(lines)
        return GitSeen(names, files, entries, tuple(unseen), untold=tuple(untold))

    def distances(self, moved: Sequence[Moved]) -> Sequence[str]:
        """How far names moved, in words; "" where git cannot tell."""
        found = [""] * len(moved)
        some = {n: one for n, one in enumerate(moved[:MAX_DISTANCES]) if one[0] is not None}
        try:
            steps = self._steps([*some.values()])
            for n, words in zip([*some], steps, strict=True):
                if words:
                    found[n] = words
                    del some[n]
            commands = [_distance(old, new) for old, new in some.values()]
            asked = self._ask(*commands) if commands else ()
        except ExecutionFailed:
            return found
        for (n, (_, new)), done in zip(some.items(), asked, strict=True):
            found[n] = _in_words(done, new)
        return found

    def _steps(self, moved: Sequence[Moved]) -> Sequence[str]:
        """How far names moved that went one commit on or back, as commits say that are read here;
        "" where git has to tell it.
        """
        with opened_place(self._root, self._below) as place:
            if place is None or os.path.lexists(os.path.join(place.common_path, "shallow")):
                return [""] * len(moved)
            with suppress(OSError):
                objects = os.open("objects", FOLDER, dir_fd=place.common)
                try:
                    return [_step(objects, *one) for one in moved]
                finally:
                    os.close(objects)
        return [""] * len(moved)

    # --- the program ----------------------------------------------------------------------

    def _ask(self, *commands: Sequence[str]) -> Sequence[GitAnswer]:
        """Run commands beside each other. ExecutionFailed where one does not end in time."""
        program = find_git(self._root)
        at = self._folders["GIT_WORK_TREE"]
        return ask_git(program, at, self._folders, *commands, seconds=SECONDS)


# --- what git says ------------------------------------------------------------------------


def _folders(top: str, git: str, common: str) -> Mapping[str, str]:
    """The variables that tell git its folders, so that it looks for none."""
    return {"GIT_DIR": git, "GIT_COMMON_DIR": common, "GIT_WORK_TREE": top}


def _head(symbolic: GitAnswer, detached: GitAnswer) -> str:
    if symbolic.code == 0:
        return f"ref: {_text(symbolic.output).strip()}"
    return _text(detached.output).strip() if detached.code == 0 else "broken"


def _branch(done: GitAnswer) -> str:
    """What HEAD names, which is marked among the refs; "" where it is none of them."""
    lines = _text(done.output).split("\n")
    return next((f"ref: {line.split(' ')[1]}" for line in lines if line.startswith("*")), "")


def _of_linked(names: Mapping[str, str], place: GitPlace) -> dict[str, str]:
    """The names of a linked worktree: of shared refs only those that are told nowhere else."""
    found = {SHARED_REFS: place.shared_with}
    for name, value in names.items():
        if name[:5] != "refs/" or not place.is_shared_inside or name.startswith(OF_WORKTREE):
            found[name] = value
    branch = names["HEAD"].removeprefix("ref: ")
    if place.is_shared_inside and branch in names:
        found[HEAD_COMMIT] = names[branch]
    return found


def _refs(done: GitAnswer) -> Mapping[str, str]:
    broken = filter(None, map(_BROKEN.fullmatch, done.errors.splitlines()))
    names = {one[1]: "broken" for one in broken}
    for line in filter(None, _text(done.output).split("\n")):
        found, name, target = line[1:].split(" ", 2)
        names[name] = f"ref: {target} {found}" if target else found
    return names


def _worktrees(output: bytes) -> Iterator[tuple[str, str]]:
    """The linked worktrees by their folders: what HEAD is there; the first is the repository's."""
    for record in _text(output).split("\0\0")[1:]:
        said = dict(line.partition(" ")[::2] for line in record.split("\0"))
        if path := said.get("worktree"):
            head = f"ref: {said['branch']} {said['HEAD']}" if "branch" in said else said.get("HEAD")
            yield f"worktree {path}", f"{head or 'broken'}{' locked' if 'locked' in said else ''}"


def _logs(output: bytes, place: GitPlace) -> Iterator[tuple[str, GitFile]]:
    """The reflogs that are in tables, as files: their entries as git tells them, the oldest first.

    git does not tell what a name was before an entry.
    """
    lines: dict[str, list[str]] = {}
    for record in _text(output).split("\0"):
        found, _, rest = record.strip("\n").partition("\t")
        at, _, rest = rest.partition("\t")
        who, _, message = rest.partition("\t")
        name, _, moment = at.rpartition("@{")
        own = name == "HEAD" or name.startswith(OF_WORKTREE)
        # those of other worktrees are told there
        if own or (name.startswith("refs/") and not place.is_shared_inside):
            said = f"{found} {who} {moment.rstrip('}')}\t{message}\n"
            lines.setdefault(f"logs/{name}", []).append(said)
    for path, told in lines.items():
        content = "".join(reversed(told)).encode("utf-8", "surrogateescape")
        yield path, GitFile("file", 0o644, content)


def _untold(logs: GitAnswer, names: Mapping[str, str]) -> Iterator[str]:
    """The reflogs in tables that git does not tell now, though they may be there."""
    if logs.code:
        yield "logs"
    for name, value in names.items():
        target = value.removeprefix("ref: ").partition(" ")[0]
        if value == "broken" or (target != value and target not in names):
            yield f"logs/{name}"


def _stashes(output: bytes) -> Iterator[str]:
    for record in _text(output).split("\0"):
        found, _, rest = record.strip("\n").partition("\t")
        at, _, message = rest.partition("\t")
        if found:
            yield f"{found} {at.rpartition('{')[2].rstrip('}')} {message}"


def _entries(output: bytes) -> bytes:
    """The entries of the index, each ended by NUL, without their stamps."""
    lines, end = [], 0
    for found in _LISTED.finditer(output):
        if found.start() != end:
            break
        end = found.end()
        intended = int(found["flags"], 16) & _INTENT_TO_ADD
        lines.append((b"intended " if intended else b"") + found["entry"] + b"\0")
    if end != len(output):
        raise ExecutionFailed("git lists the index in a form that is not known here")
    return b"".join(lines)


def _step(objects: int, old: str | None, new: str | None) -> str:
    for behind, ahead, words in ((old, new, "1 commit on"), (new, old, "1 commit back")):
        commit = loose_object(objects, ahead) if behind and ahead else None
        if commit and commit.parents == [behind]:
            return words
    return ""


def _distance(old: str | None, new: str | None) -> Sequence[str]:
    if old and new:
        return ("rev-list", "--count", "--left-right", f"{old}...{new}", "--")
    return ("rev-list", "--count", old or new or "HEAD", "--not", "--all", "--")


def _in_words(done: GitAnswer, new: str | None) -> str:
    counts = _text(done.output).split()
    if done.code != 0 or not all(one.isdecimal() for one in counts):
        return ""
    if len(counts) == 2:
        back, on = map(int, counts)
        said = [f"{count_text(back, 'commit')} back"] if back else []
        return ", ".join([*said, *([f"{count_text(on, 'commit')} on"] if on else [])])
    if new is not None or counts in ([], ["0"]):
        return ""
    return f"{count_text(int(counts[0]), 'commit')} on no other ref"


def _text(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape")
