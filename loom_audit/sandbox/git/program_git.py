"""Asks git for the state of a repository that an agent may have written, as on hostile ground.

git is told its folders and discovers nothing. It is given no settings of the user's. What a
repository's own configuration could let it run or read is set otherwise. Only commands are used
that read refs, the index and commits: none of them converts, compares or checks out a file.
"""

import os
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import product

from msgspec.structs import replace

from loom_audit.errors import ExecutionFailed
from loom_audit.model.git.record import (
    BROKEN,
)
from loom_audit.model.text.display import count_text, first_few, visible
from loom_audit.ports import GitAnswer, GitSeen, GitStamps, Moved
from loom_audit.sandbox.git.answers import (
    LED_TO_BY_HEAD,
    NAMED_BY_HEAD,
    UNKNOWN_OPTION,
    index_entries,
    linked_worktrees,
    marked_branch,
    text_of,
    told_refs,
)
from loom_audit.sandbox.git.elsewhere import ask_of_index, read_elsewhere, take_elsewhere
from loom_audit.sandbox.git.files import (
    FOLDER,
    KnownFolders,
    contents_since,
    open_below,
    shared_stamps_of,
    stamp,
    stamps_of,
)
from loom_audit.sandbox.git.gathered import GatheredGit, names_of_linked, read_files, take_logs
from loom_audit.sandbox.git.led_to import Led, LedTo, files_led_to, settings_of_worktrees
from loom_audit.sandbox.git.links import ASKED, NOT_FOLLOWED, behind_links
from loom_audit.sandbox.git.loose import loose_object
from loom_audit.sandbox.git.modules import Modules
from loom_audit.sandbox.git.place import (
    GitPlace,
    IdentityOf,
    opened_place,
    path_below,
    worktree_folders,
)
from loom_audit.sandbox.git.program import ask_git, find_git, why_failed
from loom_audit.sandbox.git.told_refs import TakenStamps, ToldRefs

SECONDS = 5.0
MAX_DISTANCES = 20
MOST_LEADING = 200
"""The number of refs that lead to others together of which git is asked what each itself names."""
_NAMED = 3
_BESIDE = 20
"""The number of commands that run beside each other."""
_TOO_MANY = "more refs lead to the same ones than are asked for"

_REFS = ("for-each-ref", "--format=%(HEAD)%(objectname) %(refname) %(symref)")
_DETACHED = ("rev-parse", "-q", "--verify", "HEAD")
_ENTRIES = ("ls-files", "-s", "-v", "-z", "--debug")
_LOGS = (
    *("log", "-g", "--all", "-z", "--no-decorate", "--no-notes", "--no-patch"),
    *("--date=raw", "--encoding=UTF-8", "--format=%H%x09%gD%x09%gn <%ge>%x09%gs", "--"),
)
_WORKTREES = ("worktree", "list", "--porcelain", "-z")


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
        self._led_to = LedTo(root)
        self._modules = Modules(root)
        self._behind: Mapping[str, str] = {}

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
                more = self._more(place)
                found = [*stamps_of(place.git, self._known[0], () if place.is_linked else more)]
                contents = [contents_since(place.git, found, since)]
                if not place.is_linked:
                    self._stamped = TakenStamps(dict(found), began)
                    more_found, more_contents = self._modules.stamps(place, since)
                    found += more_found
                    contents += more_contents
                if place.own is not None:
                    found.append((".git", place.own))
                    contents.append(None if place.own[3] >= since else "")
                if place.is_linked:
                    refs = place.is_shared_inside
                    shared = [*shared_stamps_of(place.common, self._known[1], more, refs=refs)]
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

    def _more(self, place: GitPlace) -> Sequence[str]:
        """The paths in the common folder to which settings lead, where these are told with it."""
        if place.is_shared_inside:
            return ()
        return [*files_led_to(place.common, self._led(place).inside)]

    def _led(self, place: GitPlace) -> Led:
        """Where settings and hooks lead, of a linked worktree those that hold there."""
        sources = ["config", "config.worktree", *settings_of_worktrees(place.common)]
        if place.is_linked:
            sources = ["config", f"worktrees/{os.path.basename(place.path)}/config.worktree"]
        return self._led_to.paths(place.common, place.common_path, place.top, sources)

    def led_to(self) -> Sequence[str]:
        """The paths in the workspace to which settings and hooks lead."""
        with suppress(ExecutionFailed), opened_place(self._root, self._below) as place:
            return self._led(place).outside if place else ()
        return ()

    # --- state ----------------------------------------------------------------------------

    def seen(self, *, anyway: bool = False) -> GitSeen:
        """The state now; none where it is no repository. What git cannot tell of it is named, and
        ExecutionFailed says why it is not looked at at all.
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
        found, (behind, there) = GatheredGit(), behind_links(place)
        read_files(place, found, self._more(place))
        led = first_few(self._led(place).unseen, _NAMED, visible)
        found.unseen += [f"git: settings lead to {led}, which is not looked at"] if led else []
        self._behind = behind
        self._folders = {
            **_folders(place.top, place.path, place.common_path),
            **{name: value for what, (name, value) in NOT_FOLLOWED.items() if what in behind},
        }
        in_tables = "reftable" in common
        there = frozenset() if in_tables else there
        folders = None if in_tables else self._told.folders_to_ask(stamped, there)
        asked: dict[str, Sequence[str]] = {"refs": (*_REFS, *(folders or ())), "index": _ENTRIES}
        elsewhere: Sequence[str] = ()
        if "worktrees" in common and not place.is_linked:
            asked["worktree"] = _WORKTREES
            if "worktree" in behind:
                found.untold["worktrees"] = ""
            else:
                elsewhere = read_elsewhere(self._root, place, found)
            asked |= {one: ask_of_index(place, one, _ENTRIES) for one in elsewhere}
        if in_tables:
            asked["logs"] = _LOGS
        done, why = self._answers({k: one for k, one in asked.items() if k not in behind})
        why |= behind
        found.untold.update((k, one) for k, one in behind.items() if k not in ASKED)
        if "refs" in done:
            refs, beyond = self._with_next(told_refs(done["refs"]))
            refs = _with_silent(refs, there, folders, place)
            self._told = self._told.with_answer(refs, folders, stamped)
            found.names.update(self._told.refs)
            for name in beyond:
                found.untold[name] = _TOO_MANY
                del found.names[name]
        try:
            if "HEAD" not in behind:
                found.names["HEAD"] = self._head(done.get("refs"), why.get("refs", ""))
        except ExecutionFailed as error:
            why["HEAD"] = error.message
        if place.is_linked:
            found.names = names_of_linked(found.names, place)
        if in_tables:
            take_logs(done, why, place, found)
        take_elsewhere(elsewhere, done, why, found)
        self._modules.read(place, find_git(self._root), found, SECONDS)
        if "worktree" in done:
            found.names.update(self._worktrees(done["worktree"], place))
        if "index" in done:
            try:
                found.entries = index_entries(done["index"].output)
                found.names["index"] = sha256(found.entries).hexdigest()
            except ExecutionFailed as error:
                why["index"] = error.message
        found.leave_untold(why)
        return found.as_seen()

    def _answers(
        self, asked: Mapping[str, Sequence[str]]
    ) -> tuple[Mapping[str, GitAnswer], dict[str, str]]:
        """What git answers, by what it is asked for, and why it has no answer for others."""
        try:
            done = dict(zip(asked, self._ask(*asked.values()), strict=True))
        except ExecutionFailed as error:
            return {}, dict.fromkeys(asked, error.message)
        why = {name: said for name, one in done.items() if (said := why_failed(one))}
        return {name: one for name, one in done.items() if name not in why}, why

    def _with_next(self, refs: Mapping[str, str]) -> tuple[Mapping[str, str], Collection[str]]:
        """The refs, each that leads to another with the one that it itself names: git tells of all
        the last one, which differs only where several lead to the same. Also those of which it
        would have to be asked that, and is not.
        """
        led = {name: one for name, one in refs.items() if one.startswith("ref: ")}
        lasts = Counter(one.split(" ")[1] for one in led.values())
        through = [name for name, one in led.items() if lasts[one.split(" ")[1]] > 1]
        named = self._named_by(through[:MOST_LEADING])
        found = {name: f"ref: {to} {refs[name].split(' ')[2]}" for name, to in named.items()}
        return {**refs, **found}, through[MOST_LEADING:]

    def _named_by(self, names: Sequence[str]) -> Mapping[str, str]:
        """What each of some symbolic refs itself names, where git tells it."""
        found: dict[str, str] = {}
        for some in (names[n : n + _BESIDE] for n in range(0, len(names), _BESIDE)):
            done = self._ask(*((*NAMED_BY_HEAD[:-1], name) for name in some))
            named = zip(some, done, strict=True)
            found |= {name: text_of(one.output).rstrip() for name, one in named if one.code == 0}
        return found

    def _worktrees(self, done: GitAnswer, place: GitPlace) -> Mapping[str, str]:
        """What HEAD is in linked worktrees; one that leads through others as what it itself names,
        of which git tells the last one.
        """
        told = dict(linked_worktrees(done.output))
        lasts = {one.split(" ")[1] for one in self._told.refs.values() if one.startswith("ref: ")}
        through = [
            name
            for name, one in told.items()
            if one.startswith("ref: ") and one.split(" ")[1] in lasts
        ]
        if not through:
            return told
        heads = {
            f"worktree {folder}": f"worktrees/{entry}/HEAD"
            for entry, folder in worktree_folders(place.common, place.common_path)
        }
        named = self._named_by([heads[name] for name in through if name in heads])
        for name in through:
            if to := named.get(heads.get(name, "")):
                told[name] = f"ref: {to} {told[name].split(' ', 2)[2]}"
        return told

    def _head(self, refs: GitAnswer | None, why: str) -> str:
        """What HEAD names itself, which can be one that leads to the branch that git marks.

        `why` there is no answer about refs. ExecutionFailed where it cannot be told.
        """
        led_to = marked_branch(refs) if refs else ""
        leading = [one for one in self._told.refs.values() if one[:5] == "ref: " or one == BROKEN]
        if led_to and not any(one.startswith(f"ref: {led_to} ") for one in leading):
            return f"ref: {led_to}"
        # what HEAD names is only followed where refs are told
        named, *more = self._ask(NAMED_BY_HEAD, *([_DETACHED] if refs else []))
        if named.code == UNKNOWN_OPTION:
            if leading:
                raise ExecutionFailed("git is too old to tell which ref HEAD itself names")
            [named] = self._ask(LED_TO_BY_HEAD)
        if named.code == 0:
            return f"ref: {text_of(named.output).rstrip()}"
        [detached] = more or self._ask(_DETACHED)
        if detached.code == 0:
            return text_of(detached.output).rstrip()
        if refs is None:
            raise ExecutionFailed(why)
        return BROKEN

    def changed_at(self, paths: Sequence[str]) -> Mapping[str, int]:
        """When files of the git folder, or of the common one, were changed last."""
        changed: dict[str, int] = {}
        with suppress(ExecutionFailed), opened_place(self._root, self._below) as place:
            folders = (place.common, place.git) if place else ()
            for path, folder in product(paths, folders):
                with suppress(OSError):
                    status = os.stat(path, dir_fd=folder, follow_symlinks=False)
                    changed[path] = status.st_ctime_ns
        return changed

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
            if "worktree" in self._behind:  # which git asks for what all refs hold
                some = {n: one for n, one in some.items() if all(one)}
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


def _with_silent(
    refs: Mapping[str, str], there: Collection[str], folders: Sequence[str] | None, place: GitPlace
) -> Mapping[str, str]:
    """The refs with those that git tells nothing of, as they lead to none or in a circle: they were
    `there` before it was asked, and are still.
    """
    asked = ("",) if folders is None else tuple(f"{one}/" for one in folders)
    silent = {
        name: BROKEN
        for name in there
        if name.startswith(asked) and name not in refs
        if not (name.endswith(".lock") or "/." in name) and _is_there(place.git, name)
    }
    return {**refs, **silent} if silent else refs


def _is_there(git: int, path: str) -> bool:
    with suppress(OSError):
        os.stat(path, dir_fd=git, follow_symlinks=False)
        return True
    return False


def _folders(top: str, git: str, common: str) -> Mapping[str, str]:
    """The variables that tell git its folders, so that it looks for none."""
    return {"GIT_DIR": git, "GIT_COMMON_DIR": common, "GIT_WORK_TREE": top}


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
    counts = text_of(done.output).split()
    if done.code != 0 or not all(one.isdecimal() for one in counts):
        return ""
    if len(counts) == 2:
        back, on = map(int, counts)
        said = [f"{count_text(back, 'commit')} back"] if back else []
        return ", ".join([*said, *([f"{count_text(on, 'commit')} on"] if on else [])])
    if new is not None or counts in ([], ["0"]):
        return ""
    return f"{count_text(int(counts[0]), 'commit')} on no other ref"
