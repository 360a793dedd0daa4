"""What a plan says of git: in words what goes back, with the commits that this brings back or takes
back, and the commits that no ref would hold any more.

Subjects, authors and names are as an agent wrote them: each is cut, shown without what a terminal
would obey, and quoted so that it cannot end before it does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.record.git.whole import content_kept
from loom_audit.model.files import FileState
from loom_audit.model.git.record import OBJECT_ID, SHARED_REFS, GitName, GitState
from loom_audit.model.git.ways import SETTINGS
from loom_audit.model.git.words import RUNS_CODE, git_words, shown_name, shown_value, stash_message
from loom_audit.model.git_points import GitPoints, git_folder, git_path
from loom_audit.model.plans.git_things import GitThing, where_of
from loom_audit.model.text.display import one_line, visible
from loom_audit.model.text.textdiff import diff_lines, hunks_text
from loom_audit.ports import GitPoint, MirroredGit
from loom_audit.ports.git_objects import LONG_ID, SHORT_ID

MOST_LISTED = 100
"""The most commits that a plan lists."""

MOST_COUNTED = 1_000
"""The most commits of one move that are counted."""

MOST_MOVES = 20
"""The most moves whose commits are counted."""

LARGEST_SHOWN = 256 << 10
"""Bytes of a setting that is shown."""

MOST_LINES = 200
"""Lines of a difference of one that are shown."""

KEPT = "stays beside the store"

_FIELDS = "--format=%m%h%x00%an%x00%s"


class _Commit(Struct, frozen=True):
    """A commit as a plan names it; `side` is `>` on the way to what comes back, else `<`."""

    side: str
    id: str
    author: str
    subject: str


class _Asked(Struct, frozen=True):
    """The mirror of a repository's objects, and what its refs are."""

    git: MirroredGit
    place: str
    point: GitPoint

    def commits(self, words: Sequence[str], most: int) -> tuple[Sequence[_Commit], str]:
        """So many commits that `git log` tells, the newest first, and why it tells none."""
        asked = ("log", "-z", "--left-right", _FIELDS, f"-n{most}", *words, "--")
        try:
            done = self.git.ask(self.place, self.point, asked)
        except AuditError as error:
            return (), error.message
        if done.code:
            return (), one_line(done.errors, 200)
        fields = iter(done.output.decode("utf-8", "replace").split("\0"))
        told = zip(fields, fields, fields, strict=False)
        return [_Commit(first[:1], first[1:], who, what) for first, who, what in told], ""


def said_of_git(
    attachment: Attachment, things: Sequence[GitThing], points: GitPoints
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What goes back of git in words, a line each, and the commits that no ref would hold then."""
    words: list[str] = []
    lost: list[str] = []
    for folder in dict.fromkeys(one.folder for one in things):
        own = [one for one in things if one.folder == folder]
        asked = _asked(attachment, points, own)
        for one in own:
            words += _words(one, asked)
        if asked is not None and not any(one.is_whole for one in own):
            lost += _lost_commits(asked, own, points, things)
    return tuple(words), tuple(lost)


# --- what goes back -----------------------------------------------------------------------


def _words(thing: GitThing, asked: _Asked | None) -> Iterator[str]:
    """What goes back of a thing; that of a nested repository after its folder."""
    if thing.is_whole:
        yield from git_words(thing.as_change)
        return
    where = f"{one_line(thing.folder, 60)}: " if thing.folder else ""
    if thing.name == SETTINGS:
        for file in thing.files:
            what = "comes back as it was" if file.after else "goes"
            yield f"{where}{one_line(file.path, 60)} {what}: {RUNS_CODE}"
        return
    names = {one.name: one for one in thing.names}
    refs = [one for one in thing.names if _is_ref(one.name)]
    for n, one in enumerate(refs):
        said = _move(one, is_head=thing.head == f"ref: {one.name}")
        commits = _moved_commits(one, asked) if asked and n < MOST_MOVES else ""
        yield f"{where}{said}{commits}"
    if "stashes" in names:
        yield from (where + text for text in _stashes(names["stashes"]))
    if "index" in names:
        yield f"{where}index comes back as it was"
    begun = tuple(one for one in thing.files if not one.path.startswith("logs/"))
    yield from git_words(replace(thing.as_change, names=(), changes=begun))


def _move(one: GitName, *, is_head: bool) -> str:
    what = shown_name(one.name)
    if is_head:
        what = f"HEAD {what.removeprefix('branch ')}"
    if one.after is None:
        return f"{what} deleted (was {shown_value(one.before)})"
    if one.before is None:
        return f"{what} comes back at {shown_value(one.after)}"
    return f"{what} {shown_value(one.before)} → {shown_value(one.after)}"


def _moved_commits(one: GitName, asked: _Asked) -> str:
    """In words which commits a move brings back and which it takes back; "" for none."""
    before, after = one.before or "", one.after or ""
    if not OBJECT_ID.fullmatch(after) or (before and not OBJECT_ID.fullmatch(before)):
        return ""
    words = (f"{before}...{after}",) if before else (after, "--not", "--all")
    found, _ = asked.commits(words, MOST_COUNTED)
    sides = {
        "brings back": [each for each in found if each.side == ">" or not before],
        "takes back": [each for each in found if each.side == "<" and before],
    }
    said = [f"{verb} {_counted(each, len(found))}" for verb, each in sides.items() if each]
    return f": {', '.join(said)}" if said else ""


def _counted(commits: Sequence[_Commit], asked: int) -> str:
    newest = f"{quoted(commits[0].subject)} by {one_line(commits[0].author, 40)}"
    if len(commits) == 1:
        return f"1 commit {newest}"
    more = " or more" if asked >= MOST_COUNTED else ""
    return f"{len(commits):,}{more} commits, the newest {newest}"


def _stashes(moved: GitName) -> Iterator[str]:
    before, after = (
        (text or "").split("\n") if text else [] for text in (moved.before, moved.after)
    )
    for n, one in enumerate(after):
        if one not in before:
            yield f"stash {quoted(stash_message(one))} comes back as stash@{{{n}}}"
    for n, one in enumerate(before):
        if one not in after:
            yield f"stash {quoted(stash_message(one))} (stash@{{{n}}}) goes, and {KEPT}"
    if sorted(before) == sorted(after):
        yield "stashes come back in their order"


def settings_shown(
    attachment: Attachment, things: Iterable[GitThing]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each file of hooks and settings, with the lines of what differs: from what is there to what
    was.
    """
    files = [(thing, file) for thing in things for file in thing.files]
    for n, (thing, file) in enumerate(files):
        if n == MOST_LISTED:
            yield f"and {len(files) - n} more", ()
            return
        path = f"{git_path(thing.folder)}/{file.path}"
        old, new = (_shown_of(attachment, one) for one in (file.before, file.after))
        if old is None or new is None:
            lines = ["cannot be shown: too large, or erased"]
        else:
            told = hunks_text(diff_lines(old, new)).decode("utf-8", "surrogateescape")
            lines = told.split("\n")[:-1]  # other characters may end a line for Python
        forms = [_form(one) for one in (file.before, file.after) if one]
        if len(forms) == 1 or forms[0] != forms[1]:
            lines.insert(0, " → ".join(forms))
        more = [f"and {len(lines) - MOST_LINES} more lines"] if lines[MOST_LINES:] else []
        yield path, tuple(visible(one.expandtabs(4)) for one in (*lines[:MOST_LINES], *more))


def _form(state: FileState) -> str:
    return "a symbolic link" if state.kind == "symlink" else f"mode {state.mode or 0:o}"


def _shown_of(attachment: Attachment, state: FileState | None) -> bytes | None:
    """A content as it is shown, also where it would pass for no text: a shell reads over a NUL.

    None where it is too large or was erased.
    """
    if state is None:
        return b""
    content = content_kept(attachment.stored, state) if state.size <= LARGEST_SHOWN else None
    return None if content is None else content.replace(b"\0", rb"\x00")


def quoted(text: str) -> str:
    """A text of others within quotes that it cannot end."""
    return '"' + one_line(text, 60).replace('"', "'") + '"'


# --- what no ref holds then ---------------------------------------------------------------


def _lost_commits(
    asked: _Asked, own: Sequence[GitThing], points: GitPoints, things: Sequence[GitThing]
) -> Iterator[str]:
    """The commits that no ref of a repository would hold any more, the newest first."""
    moved = [name for one in own for name in one.names]
    before = [one.before for one in moved if one.before and _is_ref(one.name)]
    leaving = [one for one in before if OBJECT_ID.fullmatch(one)]
    if not leaving:
        return
    names = _names_after(points, own[0].folder, things)
    then = replace(asked, point=replace(asked.point, names=names))
    others = _other_names(names, things, long_ids=asked.point.long_ids)
    # of what else is named some may not be kept, which holds nothing
    words = (*leaving, "--ignore-missing", "--not", "--all", *others)
    found, why = then.commits(words, MOST_LISTED + 1)
    where = where_of(own[0].folder)
    if why:
        yield f"which commits{where} no ref would hold cannot be told: {why}"
    for one in found[:MOST_LISTED]:
        yield f"{one.id} {one_line(one.author, 40)}: {one_line(one.subject, 120)}"
    if len(found) > MOST_LISTED:
        yield f"and more{where} than these {MOST_LISTED}"


def _names_after(points: GitPoints, folder: str, things: Iterable[GitThing]) -> Mapping[str, str]:
    """What a repository names once a plan is carried out, with the refs that it shares."""
    things = [*things]

    def after(at: str) -> dict[str, str]:
        state = points.states.get(at, GitState())
        for one in things:
            if one.folder == at:
                state = state.after(one.as_change)
        return state.names

    own = after(folder)
    common = git_folder(own.get(SHARED_REFS, ""))
    shared = after(common) if common is not None and common in points.states else {}
    return {**shared, **own}


def _other_names(
    names: Mapping[str, str], things: Sequence[GitThing], *, long_ids: bool
) -> Iterator[str]:
    """The ids that are named beside refs: older stashes, and what HEAD is in linked worktrees."""
    moving = tuple(f"/{one.folder}" for one in things if one.folder)
    texts = names.get("stashes", "").split("\n")
    texts += (
        value
        for name, value in names.items()
        if name.startswith("worktree ") and not name.endswith(moving)
    )
    texts += (
        name.after for one in things for name in one.names if name.name == "HEAD" and name.after
    )
    words = (word for text in texts for word in text.split(" ")[:3])
    size = LONG_ID if long_ids else SHORT_ID
    ids = {one for one in words if OBJECT_ID.fullmatch(one) and len(one) == size}
    yield from islice(sorted(one for one in ids if one.strip("0")), MOST_COUNTED)


def _is_ref(name: str) -> bool:
    """Whether it names a commit or tag; an index has a hash that reads like an id."""
    return name == "HEAD" or (name.startswith("refs/") and name != "refs/stash")


def _asked(attachment: Attachment, points: GitPoints, things: Sequence[GitThing]) -> _Asked | None:
    mirror, git = attachment.on_disk.mirror, attachment.on_disk.mirrored_git
    refs = [name for one in things for name in one.names if _is_ref(name.name)]
    values = [value for name in refs for value in (name.before, name.after) if value]
    ids = [value for value in values if OBJECT_ID.fullmatch(value)]
    if mirror is None or git is None or not ids:
        return None
    names = _names_after(points, things[0].folder, ())
    long_ids = LONG_ID in {len(one) for one in ids}
    point = GitPoint(names, long_ids=long_ids)
    return _Asked(git, mirror.folder(long_ids=long_ids), point)
