"""What changed of a git repository, in git's words."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote

from msgspec.structs import replace

from loom_audit.model.files import FileChange
from loom_audit.model.git.record import (
    ALTERNATES,
    HEAD_COMMIT,
    INDEX_ENTRIES,
    INDEX_MTIME,
    OBJECT_ID,
    OF_REMOTE,
    PUSHED,
    REMOTE_REFS,
    SHARED_REFS,
    GitChanged,
    GitName,
    branch_of,
    is_of_module,
    is_setting,
    path_elsewhere,
)
from loom_audit.model.text.display import visible

RUNS_CODE = "it can run code as you"
"""What is said of a changed hook or setting of a repository."""

LONGEST_PATH = 60
"""The number of characters of a path that stand before what is said of it: lists would cut off the
latter after a longer one."""

_PLAIN_REMOTE = re.compile(r"(\w[\w.-]*)/.+", re.ASCII | re.DOTALL)
_TOLD_REMOTE = re.compile(rf"(?:{PUSHED} )?{OF_REMOTE} (\w[\w./-]*)", re.ASCII)
"""Of which remote a branch is: by the first word of its name, or as it is said of it."""

_LONGEST_COMMAND = 260
"""Characters of a command that is shown, so that no list cuts it."""

_SHORT = 7
"""How many digits of an object id are shown."""

_WORKTREE, _LOCKED = "worktree ", " locked"
"""How the name of what HEAD is in a linked worktree begins, and how its value ends."""

_IN_PROGRESS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}

_SPACES = {
    "refs/heads/": "branch ",
    "refs/tags/": "tag ",
    "refs/remotes/": "remote branch ",
}

_TOLD_OTHERWISE = frozenset(
    {"HEAD", HEAD_COMMIT, SHARED_REFS, "stashes", "index", INDEX_MTIME, "refs/stash"}
)


def words_of(facts: Iterable[GitChanged]) -> list[str]:
    """What several events say that changed, in git's words, each line once."""
    return list(dict.fromkeys(text for fact in facts for text in git_words(fact)))


def git_words(fact: GitChanged) -> Iterator[str]:
    """What changed, a line each, in git's words, after the folder where it is not the top."""
    where = f"{_short_folder(fact.folder)}: " if fact.folder else ""
    for one in fact.led_to:
        yield f"{_short_path(one)} changed, and settings of git lead to it: {RUNS_CODE}"
    yield from (where + text for text in _words(fact))


def _words(fact: GitChanged) -> Iterator[str]:
    names = {one.name: one for one in fact.names}
    if fact.is_first or fact.is_gone:
        yield _whole(fact, names)
        return
    # lists show the first lines: what runs code and what is lost stands before the rest
    yield from (f"{_short_path(one)} changed: {RUNS_CODE}" for one in _settings_in(fact))
    yield from (f"{_short_path(one)}: no setting leads to it now" for one in fact.not_led_to)
    if head := names.get("HEAD"):
        yield f"HEAD {shown_value(head.before)} → {shown_value(head.after)}{_about(head)}"
    elif head := names.get(HEAD_COMMIT):
        branch = _short_name(branch_of(fact).removeprefix("refs/heads/"))
        yield f"HEAD {branch} {shown_value(head.before)} → {shown_value(head.after)}{_about(head)}"
    stashes = names.get("stashes")
    before = _lines(stashes.before) if stashes else []
    after = _lines(stashes.after) if stashes else []
    yield from _stash_words("dropped", (one for one in before if one not in after))
    of_modules, others = _of_modules(fact.names)
    yield from of_modules
    for one in sorted(others, key=lambda one: one.after is not None):
        if one.name not in _TOLD_OTHERWISE or (one.name == "refs/stash" and not stashes):
            yield _moved(one, is_head=fact.head == f"ref: {one.name}")
    yield from _reflogs(fact, names)
    yield from _stash_words("made", (one for one in after if one not in before))
    if stashes and sorted(before) == sorted(after):
        yield "stashes in another order"
    if index := names.get("index"):
        yield f"index changed{_about(index)}"
    elif any(one.path == "index" for one in fact.changes):
        yield "index written anew, with the same entries"
    yield from in_progress(fact.changes)
    elsewhere = [one for one in fact.changes if path_elsewhere(one.path)]
    if rest := _rest(one for one in fact.changes if not path_elsewhere(one.path)):
        yield f"changed in .git: {', '.join(rest)}"
    yield from _worktrees_elsewhere(elsewhere)


def _of_modules(names: Iterable[GitName]) -> tuple[list[str], list[GitName]]:
    """Which submodules came or went that are not checked out, in words, and all other names."""
    said: dict[str, str] = {}
    for one in names:
        where, _, name = one.name.rpartition(" ")
        if is_of_module(one.name) and name == "HEAD":
            if one.before is None:
                said[where] = f"{visible(where)} is not checked out: HEAD {shown_value(one.after)}"
            elif one.after is None:
                was = shown_value(one.before)
                said[where] = f"{visible(where)} is checked out, or gone (HEAD was {was})"
    rest = [one for one in names if one.name.rpartition(" ")[0] not in said]
    return [*said.values()], rest


def _rest(changes: Iterable[FileChange]) -> list[str]:
    """What no other words say that it changed."""
    known = {"index", INDEX_ENTRIES, "logs", *_IN_PROGRESS}
    paths = {_short_state(one.path) for one in changes if not is_setting(one.path)}
    return sorted(paths - known)


def _worktrees_elsewhere(changes: Iterable[FileChange]) -> Iterator[str]:
    """What changed of linked worktrees outside of the workspace, but for HEAD; of one that is gone
    nothing, which HEAD says.
    """
    found: dict[str, list[FileChange]] = {}
    for change in changes:
        name, path = path_elsewhere(change.path) or ("", "")
        found.setdefault(name, []).append(replace(change, path=path))
    for name, own in found.items():
        paths = {one.path: one for one in own}
        listed, said = paths.get(INDEX_ENTRIES), [*in_progress(own)]
        if listed and listed.after is None:
            continue
        if listed and listed.before is None:
            said.insert(0, "recorded")
        else:
            if listed:
                said.insert(0, "index changed")
            elif "index" in paths:
                said.insert(0, "index written anew, with the same entries")
            if rest := _rest(own):
                said.append(f"changed there: {', '.join(rest)}")
        yield f"worktree {_short_name(name)}: {', '.join(said) or 'its reflog'}"


def pushed_back(one: GitName) -> str:
    """The command by which a person may put a branch of a remote back from where a push moved it;
    "" where no push is known to have done that, or it cannot be typed as it is shown.

    It does nothing where the remote's branch was moved since. Of a branch that is gone no log is
    left: a push may have deleted it, or a fetch found that somebody had.
    """
    said = one.about.split("; ")[-1]
    path = one.name.removeprefix(REMOTE_REFS)
    told = _TOLD_REMOTE.fullmatch(said)
    if told is None and OF_REMOTE not in said:
        told = _PLAIN_REMOTE.fullmatch(path)
    values = [value for value in (one.before, one.after) if value is not None]
    by_push = one.after is None or said.startswith(PUSHED)
    if not (told and by_push and path != one.name and all(map(OBJECT_ID.fullmatch, values))):
        return ""
    remote = told[1]
    branch = path.removeprefix(f"{remote}/")
    lease = f"--force-with-lease={branch}:{one.after or ''}"
    words = ("git", "push", lease, remote, f"{one.before or ''}:refs/heads/{branch}")
    command = " ".join(map(quote, words))
    return command if command == visible(command) and len(command) <= _LONGEST_COMMAND else ""


def push_words(fact: GitChanged) -> Iterator[str]:
    """Which commands put branches of remotes back to where pushes moved them from, a line each."""
    where = f"in {_short_folder(fact.folder)} " if fact.folder else ""
    for one in fact.names if not (fact.is_first or fact.is_gone) else ():
        if command := pushed_back(one):
            what = "if a push deleted" if one.after is None else "the push of"
            yield f"{what} {shown_name(one.name)}: {where}`{command}` takes that back there"


def _stash_words(verb: str, stashes: Iterable[str]) -> Iterator[str]:
    """What became of stashes: those of one message are counted, which is mostly git's own."""
    for message, count in Counter(map(stash_message, stashes)).items():
        what = "stash" if count == 1 else f"{count} stashes"
        yield f'{what} {verb}: "{message}"'


def _reflogs(fact: GitChanged, names: Mapping[str, GitName]) -> Iterator[str]:
    """What only reflogs tell: a name that came back to where it was, and entries that went."""
    for change in fact.changes:
        name = change.path.removeprefix("logs/")
        moved = names.get(name)
        if name == change.path or (moved and moved.after is None):
            continue
        before, after = change.before, change.after
        if before and (after is None or after.size < before.size):
            yield f"reflog of {shown_name(name)} {'cut short' if after else 'deleted'}"
        elif (
            before
            and not moved
            and not (name == "HEAD" and {branch_of(fact), HEAD_COMMIT} & names.keys())
        ):
            yield f"{shown_name(name)} moved and came back, as its reflog tells"


def in_progress(changes: Iterable[FileChange]) -> Iterator[str]:
    """What was begun, goes on or has ended: `rebase in progress`."""
    found: dict[str, list[FileChange]] = {}
    for change in changes:
        if what := _IN_PROGRESS.get(change.path.partition("/")[0]):
            found.setdefault(what, []).append(change)
    for what, of_it in found.items():
        if all(change.before is None for change in of_it):
            yield f"{what} in progress"
        else:
            yield f"{what} {'goes on' if any(change.after for change in of_it) else 'ended'}"


def runs_code(text: str) -> bool:
    """Whether what `git_words` says is of a hook or a setting, which can run code as the person."""
    return text.endswith(RUNS_CODE)


def running_code(fact: GitChanged) -> tuple[str, ...]:
    """The changed hooks and settings of the repository, and files of the workspace to which these
    lead, which can run code as the person.
    """
    if fact.is_first and fact.origin == "baseline":
        return ()
    return (*_settings_in(fact), *fact.led_to)


def _settings_in(fact: GitChanged) -> Sequence[str]:
    paths = (one.path for one in fact.changes if one.path not in fact.not_led_to)
    return [one for one in paths if is_setting(one)]


def _short_path(path: str) -> str:
    return path if len(path) <= LONGEST_PATH else f"{path[:LONGEST_PATH]}…"


def _short_folder(folder: str) -> str:
    shown = visible(folder)
    return shown if len(shown) <= LONGEST_PATH else f"…{shown[-LONGEST_PATH:]}"


def _short_state(path: str) -> str:
    return path if path == ALTERNATES else path.partition("/")[0]


def _whole(fact: GitChanged, names: Mapping[str, GitName]) -> str:
    refs = sum(name.startswith("refs/") and name not in _TOLD_OTHERWISE for name in names)
    listed = names.get("stashes", GitName("stashes", None, None))
    stashes = len(_lines(listed.before if fact.is_gone else listed.after))
    counted = [
        f"HEAD {shown_value(names['HEAD'].before if fact.is_gone else fact.head)}",
        f"{refs} ref{'' if refs == 1 else 's'}",
    ]
    if stashes:
        counted.append(f"{stashes} stash{'' if stashes == 1 else 'es'}")
    first = {"baseline": "recorded", "undo": "comes back"}.get(fact.origin, "new or replaced")
    what = "git repository"
    if one := names.get(SHARED_REFS):
        what, common = "linked worktree", visible(one.after or one.before or "")
        told_here = counted[1:] if common.startswith("/") else []
        counted = [counted[0], *told_here, f"refs shared with {common}"]
    moved = f"{names['HEAD'].about}, " if names["HEAD"].about else ""
    return f"{what} {'gone' if fact.is_gone else first}: {moved}{', '.join(counted)}"


def _moved(one: GitName, *, is_head: bool) -> str:
    if one.name.startswith(_WORKTREE):
        before, after = _shown_worktree(one.before), _shown_worktree(one.after)
        if one.after is None:
            return f"{one.name} deleted (was {before})"
        return f"{one.name} created at {after}" if not before else f"{one.name} {before} → {after}"
    what = shown_name(one.name)
    if one.after is None:
        about = f"; {one.about}" if one.about else ""
        return f"{what} deleted (was {shown_value(one.before)}{about})"
    if one.before is None:
        return f"{what} created at {shown_value(one.after)}"
    if is_head:
        what = f"HEAD {_short_name(one.name.removeprefix('refs/heads/'))}"
    return f"{what} {shown_value(one.before)} → {shown_value(one.after)}{_about(one)}"


def _shown_worktree(value: str | None) -> str:
    """What HEAD is in a linked worktree, and the commit; "" where there is none."""
    plain = (value or "").removesuffix(_LOCKED)
    commit = f" {plain.split(' ')[-1][:_SHORT]}" if plain.startswith("ref: ") else ""
    shown = f"{shown_value(plain)}{commit}" if plain else ""
    return f"{shown}, locked" if plain != (value or "") else shown


def shown_name(name: str) -> str:
    """A ref in words, `branch feat`, without its middle where it is long."""
    for space, what in _SPACES.items():
        if name.startswith(space):
            return what + _short_name(name.removeprefix(space))
    return _short_name(name)


def _short_name(name: str) -> str:
    """A name without its middle where it is long: what became of it stands behind."""
    half = LONGEST_PATH // 2
    return name if len(name) <= LONGEST_PATH else f"{name[:half]}…{name[-half:]}"


def shown_value(value: str | None) -> str:
    """An object id, shortened, or what a symbolic ref names."""
    if value is None:
        return "nothing"
    if value.startswith("ref: "):
        return _short_name(value.split(" ")[1].removeprefix("refs/heads/"))
    return value[:_SHORT]


def _about(one: GitName) -> str:
    return f" ({one.about})" if one.about else ""


def _lines(text: str | None) -> list[str]:
    return text.split("\n") if text else []


def stash_message(stash: str) -> str:
    """The message in the line of a stash."""
    return stash.split(" ", 2)[-1]
