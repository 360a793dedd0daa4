"""What of a git repository is taken back together, and what keeps it from being so.

HEAD, the branches that it names, the index and what is in progress are one thing for each worktree;
the list of stashes is one; any other ref is one by itself. A thing goes back whole or not at all:
an index that came back beside a commit that stays would let the next commit revert that, silently.
Nothing of git is merged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.model.files import FileChange, FileState
from loom_audit.model.git.record import (
    ALTERNATES,
    OBJECT_ID,
    GitChanged,
    GitName,
    GitState,
    changed_files,
    changed_names,
    common_of,
    intended_change,
    is_beside,
    is_led_to,
    is_of_module,
    is_run_by_git,
)
from loom_audit.model.git.ways import (
    SETTINGS,
    WORKTREE,
    GitStep,
    Key,
    Kind,
    Value,
    Way,
    branches_of,
    is_derived,
    is_of_index,
    thing_of,
    ways_of,
)
from loom_audit.model.git.words import pushed_back, shown_name
from loom_audit.model.plans.verdicts import Note
from loom_audit.model.text.display import first_few, visible

REPOSITORY = ".git"
"""The name of the thing that is a whole repository, which is gone."""

LEAVE = "--no-git leaves git as it is"
MOVED_SINCE = f"was changed since; {LEAVE}"
DOUBTFUL = f"was changed, and nobody saw by whom; {LEAVE}"
NOT_WRITTEN = (
    "hooks and settings can run code as you, so that they stay as they are without --git-config"
)
REMOTE = "a remote is never touched"
_LONGEST_NOTE = 290
NOT_PLAIN = f"names another ref, or is broken, which is not taken back; {LEAVE}"
REPLACED = "the repository itself came or went"
BROUGHT_BACK = "the repository that an undo brought back is not removed again"
NO_WORKTREE = "a linked worktree does not come back, `git worktree add` makes it anew"
OTHER_THERE = f"another repository is there now, and stays; {LEAVE}"
SOMETHING_THERE = f"something else is at its place now, and stays; {LEAVE}"


class GitThing(Struct, frozen=True):
    """Something of a repository that goes back whole, from what is on record now to what was.

    `name` is `HEAD`, `stashes`, a ref, or `.git` for a repository that is gone. `names` and `files`
    are as of `git.changed`; of a log of a branch only that of one that comes back.
    """

    folder: str
    identity: str
    name: str
    names: tuple[GitName, ...] = ()
    files: tuple[FileChange, ...] = ()
    head: str = ""
    """What HEAD is now, in a worktree."""
    over: str = ""
    """The identity of the empty folder in whose place a repository comes that is gone."""

    @property
    def is_whole(self) -> bool:
        """Whether it is a repository that is gone."""
        return self.name == REPOSITORY

    @property
    def common(self) -> str:
        """The common folder of a linked worktree that is gone; "" of any other repository."""
        return common_of(self.names)

    @property
    def as_change(self) -> GitChanged:
        """It as the change that it will be."""
        return intended_change(self.folder, self.identity, self.names, self.files, self.head)


class GitVerdicts(Struct, frozen=True):
    """What is taken back of git, and notes on what is not.

    `there` are the folders of repositories that were gone and that an undo has brought back, and
    `settings` the hooks and settings that would come back where that is asked for.
    """

    things: tuple[GitThing, ...] = ()
    blocked: tuple[Note, ...] = ()
    stays: tuple[Note, ...] = ()
    there: tuple[str, ...] = ()
    settings: tuple[GitThing, ...] = ()


def git_verdicts(
    steps: Sequence[GitStep],
    before: Mapping[str, GitState] | None = None,
    place_of: Callable[[str], str | None] = lambda _: "",
    *,
    with_settings: bool = False,
) -> GitVerdicts:
    """What taking back the taken steps does to repositories; the steps are in the log's order.

    They are all changes of git from the first taken one on. `before` are the states by folder
    before them. `place_of` tells of a folder what is at its `.git`: "" for nothing, the identity of
    an empty folder in whose place one may come back, None for what stays. Hooks and settings are
    only taken back `with_settings`.
    """
    things: list[GitThing] = []
    settings: list[GitThing] = []
    blocked: list[Note] = []
    staying: list[Note] = []
    there: list[str] = []
    for folder in dict.fromkeys(one.fact.folder for one in steps if one.taken or one.doubtful):
        own = [one for one in steps if one.fact.folder == folder]
        whole = [one for one in own if one.fact.is_first or one.fact.is_gone]
        identities = {one.fact.identity for one in own}
        was = (before or {}).get(folder, GitState())
        if (whole or len(identities) > 1) and not _is_brought_back(own, was):
            found = _of_repository(folder, own, whole, was, place_of)
        else:
            found = _verdicts(folder, own, with_settings=with_settings)
            there += [folder] if whole else []
        for one in found:
            if isinstance(one, GitThing) and one.name == SETTINGS and not with_settings:
                settings.append(one)
                staying.append(_settings_note(one, own))
            elif isinstance(one, GitThing):
                things.append(one)
            else:
                stays, note = one
                (staying if stays else blocked).append(note)
    return GitVerdicts(tuple(things), tuple(blocked), tuple(staying), tuple(there), tuple(settings))


def _settings_note(thing: GitThing, steps: Sequence[GitStep]) -> Note:
    paths = [file.path for file in thing.files]
    changed = {one.path for one in thing.files}
    by = sorted(
        {
            step.number
            for step in steps
            if step.taken and any(one.path in changed for one in step.fact.changes)
        }
    )
    said = f"git{where_of(thing.folder)}: {NOT_WRITTEN}: {first_few(paths, 5, visible)}"
    return Note("", said, tuple(by))


def _after(state: GitState, steps: Iterable[GitStep]) -> GitState:
    for step in steps:
        state = state.after(step.fact)
    return state


def _is_brought_back(steps: Iterable[GitStep], state: GitState) -> bool:
    """Whether a repository is there that was there before, and all that came in its place was what
    an undo brought back.
    """
    had = bool(state.names)
    for step in steps:
        if step.fact.is_first and (state.names or step.fact.origin != "undo"):
            return False
        state = state.after(step.fact)
    return had and bool(state.names)


def _of_repository(
    folder: str,
    steps: Sequence[GitStep],
    whole: Sequence[GitStep],
    was: GitState,
    place_of: Callable[[str], str | None],
) -> Iterator[GitThing | tuple[bool, Note]]:
    """What becomes of a repository that came, went or was replaced, and notes as `_verdicts` has.

    One that is gone comes back as it was just before, but for what is taken back of that. Nothing
    that came is removed, and nothing is put in its place.
    """
    where = f"git{where_of(folder)}"
    first = whole[0] if whole else steps[0]
    earlier = [step for step in steps if step.seq < first.seq]
    state = _after(was, earlier)
    if not (state.names and first.taken):
        by = tuple(one.number for one in whole[:1])
        said = BROUGHT_BACK if first.taken and first.fact.origin == "undo" else REPLACED
        yield True, Note("", f"{where}: {said}", by)
        return
    is_other, over = bool(_after(was, steps).names), place_of(folder)
    if is_other or over is None:
        there = OTHER_THERE if is_other else SOMETHING_THERE
        said = f"{where}: {there}; {beside_words(folder, first.seq - 1)}"
        yield False, Note("", said, (first.number,))
        return
    for one in _verdicts(folder, earlier) if earlier else ():
        if isinstance(one, GitThing) and one.name == SETTINGS:
            continue  # with which ones it comes back is told by its first look
        if isinstance(one, GitThing):
            state = state.after(one.as_change)
        elif not one[0]:
            yield one
            return
    yield whole_thing(folder, state, over)


def whole_thing(folder: str, state: GitState, over: str = "") -> GitThing:
    """All of a repository, from nothing, or from an empty folder, to a state."""
    files = {
        path: file
        for path, file in state.files.items()
        if not (path in _NOT_BUILT or is_beside(path))
    }
    return GitThing(
        folder,
        state.identity,
        REPOSITORY,
        changed_names({}, {k: v for k, v in state.names.items() if not is_of_module(k)}),
        changed_files({}, files),
        state.names.get("HEAD", ""),
        over,
    )


def is_led_out(file: FileChange) -> bool:
    """Whether it is a symbolic link, through which git would write, or delete, somewhere else."""
    is_run = is_run_by_git(file.path) or is_led_to(file.path)
    return file.after is not None and file.after.kind == "symlink" and not is_run


_NOT_BUILT = frozenset({"commondir", "gitdir", ALTERNATES})
"""Files that send git to another folder."""


def beside_words(folder: str, point: int) -> str:
    """The command that has the repository of a point beside what is there now."""
    asked = f"loom-audit git --at {point} --to DIR {quote(folder or '.')}"
    return f"`{visible(asked)}` has the old one beside it"


def _verdicts(
    folder: str, steps: Sequence[GitStep], *, with_settings: bool = False
) -> Iterator[GitThing | tuple[bool, Note]]:
    """What goes back, and notes, each with whether it is on what stays; the others block."""
    ways = ways_of(steps)
    branches = branches_of(step.fact for step in steps)
    identity = steps[-1].fact.identity
    where = where_of(folder)
    grouped: dict[tuple[Kind, str], dict[Key, Way]] = {}
    for key, way in ways.items():
        kind, name = thing_of(key, branches)
        grouped.setdefault((kind, name), {})[key] = way
    for (kind, name), own in grouped.items():
        compared = {key: way for key, way in own.items() if not is_derived(key)}
        if not any(way.is_wanted and way.first != way.now for way in compared.values()):
            continue
        if not kind and _is_gone_worktree(name, compared):
            yield True, Note("", worktree_words(folder, name), _numbers(own.values()))
        elif kind == "remote":
            yield (
                True,
                Note("", f"git{where}: {_of_remote(name, own, steps)}", _numbers(own.values())),
            )
        elif kind and (note := _why_blocked(folder, name, compared)):
            stays = kind == "settings" and not with_settings
            yield stays, replace(note, reason=f"git{where}: {NOT_WRITTEN}") if stays else note
        elif kind:
            head = steps[-1].fact.head if name == WORKTREE else ""
            yield GitThing(folder, identity, name, *_changes(own, ways), head)


def _of_remote(name: str, own: Mapping[Key, Way], steps: Sequence[GitStep]) -> str:
    """That a branch of a remote stays, and the command by which a person puts it back."""
    way = own["name", name]
    last = [one for step in steps for one in step.fact.names if one.name == name][-1]
    moved = replace(last, before=_text(way.first), after=_text(way.now))
    if command := pushed_back(moved):
        where = where_of(steps[-1].fact.folder)
        said = (
            f"{REMOTE}; `{command}` puts it back{'' if moved.after else ', if a push deleted it'}"
        )
        if len(where) + len(said) < _LONGEST_NOTE:  # one that is cut would show another command
            return said
    return f"{REMOTE}: {shown_name(name)}"


def _is_gone_worktree(name: str, ways: Mapping[Key, Way]) -> bool:
    return name.startswith("worktree ") and all(way.now is None for way in ways.values())


def worktree_words(folder: str, name: str) -> str:
    """That a linked worktree of a repository does not come back, by its name there."""
    return f"git{where_of(folder)}: {visible(name)}: {NO_WORKTREE}"


def where_of(folder: str) -> str:
    """In words which repository is meant; "" for that of the workspace."""
    return f" of {visible(folder)}" if folder else ""


def _why_blocked(folder: str, name: str, ways: dict[Key, Way]) -> Note | None:
    """Why a thing cannot go back as a whole; None where it can."""
    where = where_of(folder)
    for (what, one), way in sorted(ways.items()):
        along = f", which goes with {name}," if one != name else ""
        said = f"git{where}: {visible(one)}{along}"
        # a file that is as it was already: an undo that brought no link, or no program, left it so
        if way.is_moved and not (what == "file" and way.now == way.first):
            reason = DOUBTFUL if way.doubtful else MOVED_SINCE
            return Note("", f"{said} {reason}", (way.doubtful or way.moved_by,))
        plain = way.first, way.now
        if what == "name" and one.startswith("refs/") and not all(map(_is_id, plain)):
            return Note("", f"{said} {NOT_PLAIN}", (way.taken,))
    return None


def _is_id(value: Value) -> bool:
    return value is None or (isinstance(value, str) and OBJECT_ID.fullmatch(value) is not None)


def _numbers(ways: Iterable[Way]) -> tuple[int, ...]:
    return tuple(sorted({way.taken for way in ways}))


def _changes(
    own: dict[Key, Way], ways: dict[Key, Way]
) -> tuple[tuple[GitName, ...], tuple[FileChange, ...]]:
    """The names and files of a thing that differ, each from what is to what was."""
    differ = {key: way for key, way in own.items() if way.first != way.now}
    if ("name", "index") not in differ:
        differ = {key: way for key, way in differ.items() if not is_of_index(key)}
    for what, name in [*differ]:
        log: Key = ("file", f"logs/{name}")
        way = differ[what, name]
        if what == "name" and way.now is None and log in ways:
            differ[log] = ways[log]
    names = [
        GitName(name, _text(way.now), _text(way.first))
        for (what, name), way in sorted(differ.items())
        if what == "name"
    ]
    files = [
        FileChange(path, _state(way.now), _state(way.first))
        for (what, path), way in sorted(differ.items())
        if what == "file"
    ]
    return tuple(names), tuple(files)


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _state(value: Value) -> FileState | None:
    return value if isinstance(value, FileState) else None
