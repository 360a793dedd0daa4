"""What a look at a repository found, which of it was missed before, and whose it is on record."""

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.history.ground.process_state import LastRepository
from loom_audit.history.look.attribution import lowered_draft
from loom_audit.history.look.doers import UNKNOWN, Candidate
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import Draft
from loom_audit.model.files import parents
from loom_audit.model.git.record import BROKEN, STASH_LOG, GitChanged, GitName, is_untold
from loom_audit.model.git.words import git_words
from loom_audit.model.git_points import git_path
from loom_audit.model.text.display import first_few
from loom_audit.ports import Git

_NAMED = 3
_WRITTEN_IN_PLACE = ("refs/", "logs/")
"""The folders of which not each file is stamped."""


class GitLook(Struct, frozen=True):
    """What a look found: a change, which is of nobody yet, or why git could not tell the state."""

    change: GitChanged | None = None
    why_unseen: tuple[str, ...] = ()
    is_new: bool = False
    """Whether nothing of any repository was on record."""
    is_shared: bool = False
    """Whether others change refs of it outside of the workspace."""
    unasked: bool = False
    """Whether git was not asked, since its stamps were the same, or did not tell all."""
    is_overdue: bool = False
    """Whether looks before could not read it, so that the change may be of any call since."""
    is_missed_before: bool = False
    """Whether looks before read it, and their stamps did not tell of it."""
    folder: str = ""
    missed: tuple[Candidate, ...] = ()
    """The ended calls after which git was not asked, or did not tell all."""

    def as_missed(self) -> "GitLook":
        """It as one that looks before missed, where there were such."""
        return replace(self, is_missed_before=bool(self.missed), is_overdue=False)


def by_time(look: GitLook, before: LastRepository, git: Git | None) -> Iterator[GitLook]:
    """What a look found, that which was missed before apart: what git did not tell at the look
    before, as this was then, and what was made before that and no stamp told of.
    """
    change = look.change
    if change is None or git is None or change.is_first or change.is_gone:
        yield look
        return
    overdue: set[str] = set()
    if look.is_overdue:
        names = {*(one.name for one in change.names), *(one.path for one in change.changes)}
        overdue = {one for one in names if not before.untold or is_untold(one, before.untold)}
    made = git.changed_at([*_paths(change)])
    late = {path for path, at in made.items() if at <= before.looked}
    missed = {name for name, path in _made_by(change) if path in late} - overdue
    now = overdue | missed
    for is_overdue, wanted in ((True, overdue), (False, missed)):
        if some := _narrowed(change, wanted.__contains__):
            one = GitLook(some, folder=look.folder, missed=look.missed, is_shared=look.is_shared)
            yield replace(one, is_overdue=is_overdue, is_missed_before=not is_overdue)
    rest = _narrowed(change, lambda name: name not in now)
    yield replace(look, change=rest, is_overdue=False)


def _narrowed(change: GitChanged, is_wanted: Callable[[str], bool]) -> GitChanged | None:
    names = tuple(one for one in change.names if is_wanted(one.name))
    files = tuple(one for one in change.changes if is_wanted(one.path))
    left = tuple(one for one in change.not_led_to if is_wanted(one))
    return replace(change, names=names, changes=files, not_led_to=left) if names or files else None


def _made_by(change: GitChanged) -> Iterator[tuple[str, str]]:
    """The refs and reflogs that were there and are, each with the file that was written for it.

    Of all else a stamp tells, also of what comes or goes, by its folder: it may be moved, or a
    setting may lead to it, with the times of when it was written.
    """
    moved = {one.name: one for one in change.names}
    # what leads to none becomes so, and again whole, by the one that it leads to
    other = {None, BROKEN}
    stay = {one.name for one in change.names if other.isdisjoint((one.before, one.after))}
    stay |= {one.path for one in change.changes if None not in (one.before, one.after)}
    for name in moved:
        path, led = name, _led_to(moved[name])
        for _ in range(len(moved)):
            if led not in moved:
                break
            path, led = led, _led_to(moved[led])
        if {name, path} <= stay:
            yield name, STASH_LOG if name == "stashes" else path
    yield from ((one.path, one.path) for one in change.changes if one.path in stay)


def _led_to(one: GitName) -> str:
    """The ref that a name leads to, before and after; "" where it does to none, or to others."""
    led = [(value or "").split(" ")[:2] for value in (one.before, one.after)]
    return led[0][1] if led[0] == led[1] and led[0][0] == "ref:" else ""


def _paths(change: GitChanged) -> Collection[str]:
    return {path for _, path in _made_by(change) if path.startswith(_WRITTEN_IN_PLACE)}


def git_drafts(
    look: GitLook, among: Sequence[Candidate], *, late: bool = False, between: bool = False
) -> Sequence[Draft]:
    """The change that a look found as a draft: of the calls that may have made it, or from outside.

    Calls that say their paths did not make it. No path tells whose it is, so that what a `late` or
    overdue one found is never one call's alone, nor is what worktrees outside share. What it found
    `between` calls is from outside, with the candidates as causes; the first state of all that is
    found so is the baseline. What was found later is from outside, with all calls since it can have
    been made as causes. A second draft lowers the coverage of those that were missed.
    """
    change = look.change
    if change is None:
        return ()
    if between and look.is_new:
        return [Draft(replace(change, origin="baseline"), "", OUTSIDE)]
    path = git_path(change.folder)
    doers = [one for one in among if one.paths is None and _can_write(one, path)]
    is_missed = look.is_overdue or look.is_missed_before
    missed = look.missed if is_missed else ()
    lowered = [lowered_draft(missed, later_reason(change))] if missed else []
    causes = tuple(sorted({one.requested for one in (*doers, *missed)}))
    acting = [one for one in doers if not (one.ended or one.is_survivor)]
    if look.is_missed_before or not acting:
        causes = causes if missed or not is_missed else (UNKNOWN, *causes)
        return [Draft(replace(change, causes=causes), "", OUTSIDE), *lowered]
    by_others = look.is_shared and not (change.is_first or change.is_of_one_worktree)
    if between or late or look.is_overdue or by_others or not acting[0].seen:
        causes = (UNKNOWN, *causes)
    elif len(causes) == 1:
        causes = ()
    first = acting[0]
    fact = replace(change, origin="command", call_id=first.call_id, causes=causes)
    return [Draft(fact, first.session, first.actor), *lowered]


def later_reason(change: GitChanged) -> str:
    """Why the coverage of calls is partial of which a change of git may be that was found later."""
    return f"found later: {first_few([*git_words(change)], _NAMED, str)}"


def _can_write(one: Candidate, path: str) -> bool:
    return one.writes is None or not {path, *parents(path)}.isdisjoint(one.writes)
