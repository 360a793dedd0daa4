"""Branches that another worktree has checked out, rebases or bisects: its HEAD and index would be
left behind by one that is moved, and its next commit would revert what lies between.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from loom_audit.history.ground.attachment import Attachment
from loom_audit.model.git.record import HEAD_COMMIT, GitName, GitState
from loom_audit.model.git.ways import WORKTREE
from loom_audit.model.plans.git_things import GitThing
from loom_audit.model.text.display import visible
from loom_audit.ports import BranchUse

_BRANCHES = "refs/heads/"
_DOING = {"HEAD": "checked out", "BISECT_START": "being bisected"}


class UsedBranch(Struct, frozen=True):
    """A branch that a thing would move, or have HEAD name, and by what it is used."""

    thing: GitThing
    branch: str
    use: BranchUse

    @property
    def words(self) -> str:
        """It in words."""
        doing = _DOING.get(self.use.by, "being rebased")
        where = visible(self.use.worktree)
        return f"{visible(self.branch)} is {doing} in the worktree {where}, which stays as it is"


class GoingBack(Struct, frozen=True):
    """The things that go back, and the repositories on record, by folder, as they are `now`.

    `was_so` tells of a worktree's folder and of a file in its git folder, which says that something
    is in progress, whether that was so before all that is taken back.
    """

    things: Sequence[GitThing]
    now: Mapping[str, GitState]
    was_so: Callable[[str, str], bool] = lambda _folder, _path: False

    def branches_in_use(self, attachment: Attachment) -> Iterator[UsedBranch]:
        """The branches that things would move under a worktree which does not go back to where they
        do, or that HEAD would come to name beside one. ExecutionFailed.
        """
        restorer = attachment.on_disk.git_restorer
        moving = [one for one in self.things if _moves_branches(one)]
        moving.sort(key=lambda one: one.folder)
        if restorer is None:
            return
        for folder, own in groupby(moving, lambda one: one.folder):
            first, *others = own
            for use in restorer.used_branches(folder, first.identity):
                there = _below(attachment.on_disk.workspace.root, use.worktree)
                if there is not None and not self.now.get(there, GitState()).names:
                    there = None
                for thing in (first, *others):
                    for name in thing.names:
                        is_meant = use.branch in (name.name, _named_anew(name))
                        if is_meant and not self._goes_along(thing, name, use, there):
                            yield UsedBranch(thing, use.branch, use)

    def _goes_along(
        self, thing: GitThing, name: GitName, use: BranchUse, there: str | None
    ) -> bool:
        """Whether the worktree goes back with its branch, or from one that HEAD comes to name."""
        if there is None:
            return False
        of_it = [one for one in self.things if one.folder == there and not one.is_whole]
        if use.by != "HEAD":
            files = {file.path for one in of_it for file in one.files}
            return use.by in files or self.was_so(there, use.by)
        if there == thing.folder and thing.name == WORKTREE:
            return True
        heads = [n.after for one in of_it for n in one.names if n.name == "HEAD"]
        if heads:
            return heads != [f"ref: {use.branch}"]
        state = self.now[there]
        for one in of_it:
            state = state.after(one.as_change)
        return name.name != "HEAD" and state.names.get(HEAD_COMMIT) == name.after


def _moves_branches(thing: GitThing) -> bool:
    names = (one.name.startswith(_BRANCHES) or bool(_named_anew(one)) for one in thing.names)
    return not thing.is_whole and any(names)


def _named_anew(name: GitName) -> str:
    """The branch that HEAD comes to name; "" for none."""
    is_named = name.name == "HEAD" and (name.after or "").startswith("ref: ")
    return (name.after or "").removeprefix("ref: ") if is_named else ""


def _below(root: str, path: str) -> str | None:
    """A path relative to the workspace; None for one outside."""
    top = f"{root.rstrip('/')}/"
    return f"{path}/".removeprefix(top).rstrip("/") if f"{path}/".startswith(top) else None
